//! The optimizer works as gradients arrive, and never on what is still used.

use std::sync::{Arc, Mutex};

use tensorferry::parameters::shadow::Slice;
use tensorferry::plan::parameters::{Gradient, Mode};
use tensorferry::{Error, Kind};

use super::bench::{Bench, FAST, never};

#[test]
fn updates_see_gradients_that_have_arrived_and_are_done_in_the_order_of_calls() {
    let bench = Bench::new("capacity=64MiB,bandwidth=50MB/s", &[&[1 << 20], &[100], &[1 << 20]]);
    let places = [Gradient::Device, Gradient::Host, Gradient::Device];
    bench.install(&[Mode::Dfgb, Mode::Dha, Mode::Gfgb], &places).unwrap();
    let done = Arc::new(Mutex::new(Vec::new()));
    for iteration in 0..2 {
        bench.fill(iteration);
        bench.shadow.begin(never()).unwrap();
        (0..3).for_each(|layer| bench.compute(layer, false, iteration));
        for layer in [2, 1, 0] {
            bench.compute(layer, true, iteration);
            let (home, gradients) = (Arc::clone(&bench.parameters), Arc::clone(&bench.gradients));
            let (range, done) = (offset(layer)..offset(layer) + 100, Arc::clone(&done));
            let update = move || {
                // Both are errors while a kernel or a copy is against it.
                let gradient = gradients.read(range.clone())?[99];
                home.write(range)?.fill(gradient);
                done.lock().unwrap().push((layer, gradient));
                Ok(())
            };
            bench.shadow.update(layer, Box::new(update)).unwrap();
        }
        bench.shadow.end(never()).unwrap();
        bench.shadow.finish_updates(never()).unwrap();
        let done = std::mem::take(&mut *done.lock().unwrap());
        assert_eq!(done.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [2, 1, 0]);
        for (layer, gradient) in done {
            assert_eq!(bench.has_gradients(layer, iteration), Some(true));
            assert_eq!(
                bench.gradients.read(offset(layer)..offset(layer) + 1).unwrap()[0],
                gradient
            );
            assert_eq!(
                bench.parameters.read(offset(layer)..offset(layer) + 1).unwrap()[0],
                gradient
            );
        }
        assert!(bench.shadow.last().unwrap().layers.iter().all(|spans| spans.update > 0.0));
    }
}

fn offset(layer: usize) -> usize {
    [0, 1 << 20, (1 << 20) + 128][layer]
}

#[test]
fn a_parameter_of_two_layers_is_updated_when_neither_uses_it() {
    let bench = Bench::new("capacity=64MiB,bandwidth=50MB/s", &[&[1 << 20], &[1 << 20]]);
    let (plan, profile) = bench.plan(&[Mode::Dha, Mode::Dfgb], &[Gradient::Host; 2]);
    let tied = Slice { home: Arc::clone(&bench.parameters), offset: 0, len: 1 << 20 };
    let mut layers = bench.layers(&plan);
    for layer in &mut layers {
        layer.parameters[0] = tied.clone();
    }
    bench.shadow.install(layers, &plan, &profile).unwrap();
    bench.shadow.begin(never()).unwrap();
    bench.shadow.enter(0, true, 64, never()).unwrap();
    let home = Arc::clone(&bench.parameters);
    let update = move || home.write(0..1 << 20).map(|mut bytes| bytes.fill(9));
    bench.shadow.update(1, Box::new(update)).unwrap();
    bench.shadow.leave(0, true, never()).unwrap();
    bench.shadow.finish_updates(never()).unwrap();
    bench.shadow.end(never()).unwrap();
    assert_eq!(bench.parameters.read(0..1).unwrap()[0], 9);
}

#[test]
fn an_iteration_begins_when_the_updates_before_it_are_done() {
    let bench = Bench::new(FAST, &[&[100]]);
    bench.install(&[Mode::Gfgb], &[Gradient::Device]).unwrap();
    bench.fill(0);
    bench.iterate(0);
    let home = Arc::clone(&bench.parameters);
    let update = move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        home.write(0..100).map(|mut bytes| bytes.fill(77))
    };
    bench.shadow.update(0, Box::new(update)).unwrap();
    bench.shadow.begin(never()).unwrap();
    assert!(bench.shadow.enter(0, false, 0, never()).unwrap().0);
    let is_new = bench.shadow.look(0, false, |seen| seen[0].iter().all(|byte| *byte == 77));
    assert!(is_new.unwrap());
}

#[test]
fn a_plan_is_not_installed_over_updates_in_line() {
    let bench = Bench::new(FAST, &[&[100]]);
    bench.install(&[Mode::Dha], &[Gradient::Host]).unwrap();
    bench.shadow.begin(never()).unwrap();
    bench.shadow.enter(0, true, 0, never()).unwrap();
    bench.shadow.update(0, Box::new(|| Ok(()))).unwrap();
    let error = bench.install(&[Mode::Dha], &[Gradient::Host]).unwrap_err();
    assert!(error.to_string().starts_with("updates are in line; finish them"), "{error}");
    bench.shadow.leave(0, true, never()).unwrap();
    bench.shadow.finish_updates(never()).unwrap();
    bench.install(&[Mode::Dha], &[Gradient::Host]).unwrap();
}

#[test]
fn an_update_that_fails_or_panics_ends_the_course_and_drops_those_behind_it() {
    for panics in [false, true] {
        let bench = Bench::new(FAST, &[&[100], &[100]]);
        bench.install(&[Mode::Dha; 2], &[Gradient::Host; 2]).unwrap();
        let broken = move || {
            if panics {
                std::panic::panic_any("broken");
            }
            Err(Error::new(Kind::Corrupt, "broken"))
        };
        bench.shadow.update(1, Box::new(broken)).unwrap();
        let witness = Arc::new(());
        let behind = Arc::clone(&witness);
        let _ = bench.shadow.update(
            0,
            Box::new(move || {
                drop(behind);
                Ok(())
            }),
        );
        let error = bench.shadow.finish_updates(never()).unwrap_err();
        assert_eq!(error.kind(), if panics { Kind::Internal } else { Kind::Corrupt });
        let said = error.to_string();
        assert!(
            said.starts_with("layer 1 (l1) was not updated") && said.contains("broken"),
            "{said}"
        );
        drop(bench);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
