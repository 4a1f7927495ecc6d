//! What breaks is named, ends the course and harms nothing.

use tensorferry::Kind;
use tensorferry::device::Direction;
use tensorferry::plan::parameters::{Gradient, Mode};

use super::bench::{Bench, FAST, never};

fn bench() -> Bench {
    let bench = Bench::new(FAST, &[&[1000], &[2000, 50]]);
    bench.install(&[Mode::Gfgb; 2], &[Gradient::Device; 2]).unwrap();
    bench.fill(3);
    bench
}

#[test]
fn a_copy_that_fails_is_named_and_the_course_is_over_until_it_is_installed_again() {
    let bench = bench();
    bench.emulated().fail_next_copy(Direction::In);
    bench.shadow.begin(never()).unwrap();
    let error = bench.shadow.enter(0, false, 0, never()).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    let said = error.to_string();
    assert!(said.starts_with("the parameters of layer 0 (l0) did not cross the link"), "{said}");
    assert!(
        said.contains("what was not updated yet is unharmed, install the plan again to go on"),
        "{said}"
    );
    assert!(said.contains("the link failed on purpose"), "{said}");
    let shadow = &bench.shadow;
    let again = [
        shadow.begin(never()).unwrap_err(),
        shadow.leave(0, false, never()).unwrap_err(),
        shadow.gradient(0, 0, &[0; 1000]).unwrap_err(),
        shadow.arrived(0, never()).unwrap_err(),
        shadow.update(0, Box::new(|| Ok(()))).unwrap_err(),
        shadow.finish_updates(never()).unwrap_err(),
        shadow.end(never()).unwrap_err(),
        shadow.enter(1, true, 0, never()).unwrap_err(),
    ];
    assert!(again.iter().all(|error| error.to_string() == said));
    bench.install(&[Mode::Gfgb, Mode::Dha], &[Gradient::Device; 2]).unwrap();
    bench.iterate(3);
}

#[test]
fn a_gradient_that_does_not_arrive_is_named() {
    let bench = bench();
    bench.shadow.begin(never()).unwrap();
    bench.compute(1, false, 3);
    bench.emulated().fail_next_copy(Direction::Out);
    bench.shadow.enter(1, true, 0, never()).unwrap();
    bench.make_gradients(1, 3);
    let _ = bench.shadow.leave(1, true, never());
    let error = bench.shadow.end(never()).unwrap_err().to_string();
    assert!(error.starts_with("a gradient of layer 1 (l1) did not cross the link"), "{error}");
    bench.install(&[Mode::Dfgb; 2], &[Gradient::Host; 2]).unwrap();
    bench.fill(4);
    bench.iterate(4);
}

#[test]
fn a_kernel_is_left_even_if_the_course_is_over() {
    let bench = bench();
    bench.shadow.begin(never()).unwrap();
    bench.shadow.enter(0, false, 0, never()).unwrap();
    bench.shadow.update(1, Box::new(|| Err(tensorferry::Error::invalid("no step")))).unwrap();
    let error = bench.shadow.finish_updates(never()).unwrap_err().to_string();
    assert!(error.starts_with("layer 1 (l1) was not updated"), "{error}");
    assert_eq!(bench.shadow.leave(0, false, never()).unwrap_err().to_string(), error);
    bench.install(&[Mode::Gfgb; 2], &[Gradient::Device; 2]).unwrap();
    bench.iterate(3);
}

#[test]
fn a_shadow_model_that_goes_in_the_middle_of_an_iteration_frees_the_device() {
    for is_entered in [false, true] {
        let bench = Bench::new("capacity=64MiB,bandwidth=20MB/s", &[&[64], &[4 << 20]]);
        bench.install(&[Mode::Gfgb, Mode::Gfgb], &[Gradient::Device; 2]).unwrap();
        bench.shadow.begin(never()).unwrap();
        if is_entered {
            bench.shadow.enter(0, false, 0, never()).unwrap();
        }
        bench.shadow.update(1, Box::new(|| Ok(()))).unwrap();
        let Bench { device, shadow, parameters, .. } = bench;
        drop(shadow);
        assert_eq!(device.facts().used_bytes, 0);
        assert!(parameters.write(0..parameters.len()).is_ok());
    }
}
