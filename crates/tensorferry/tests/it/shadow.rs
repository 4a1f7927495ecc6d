//! Layers computed on a device that has no room for them: real bytes over an emulated link.

mod bench;
mod faults;
mod link;
mod updates;

use std::time::Duration;

use bench::{Bench, FAST, never};
use proptest::prelude::*;
use tensorferry::parameters::shadow::{Layer, Shadow, room};
use tensorferry::plan::parameters::{Gradient, Mode, Planner, Profile};
use tensorferry::{Kind, Size};

use Gradient::{Device, Host, None as Frozen};
use Mode::{Dfgb, Dha, Gfgb};

#[test]
fn every_mix_of_modes_computes_on_the_bytes_of_this_iteration_and_brings_its_gradients_home() {
    let bench = Bench::new(FAST, &[&[300, 64], &[64, 64, 1000], &[7]]);
    let places = [[Device; 3], [Host; 3], [Device, Host, Device], [Host, Device, Frozen]];
    for mix in 0..27 {
        let modes = [mix % 3, mix / 3 % 3, mix / 9].map(|mode| Mode::ALL[mode]);
        for places in places {
            bench.install(&modes, &places).unwrap();
            for iteration in 0..2 {
                bench.fill(iteration);
                bench.iterate(iteration);
            }
        }
    }
}

#[test]
fn layers_are_where_the_plan_says() {
    let bench = Bench::new(FAST, &[&[100], &[200], &[300]]);
    bench.install(&[Gfgb, Dha, Dfgb], &[Device, Host, Device]).unwrap();
    let shadow = &bench.shadow;
    assert!(shadow.sight(0, 0).unwrap().is_some_and(|sight| sight.address() % 64 == 0));
    assert!(shadow.sight(1, 0).unwrap().is_none());
    shadow.begin(never()).unwrap();
    let forward = [0, 1, 2].map(|layer| bench.visit(layer, false));
    let backward = [2, 1, 0].map(|layer| bench.visit(layer, true));
    assert_eq!((forward, backward), ([true, false, false], [true, false, true]));
    assert!(bench.visit(2, false), "backward computes it again, and its copy is there");
    shadow.end(never()).unwrap();
    assert!(!bench.visit(0, true), "a second backward finds the parameters at home");
    let report = shadow.last().unwrap();
    let copied: Vec<_> = report.layers.iter().map(|spans| spans.copied_bytes).collect();
    let direct: Vec<_> = report.layers.iter().map(|spans| spans.direct_bytes).collect();
    assert_eq!((copied, direct), (vec![100, 0, 300], vec![0, 400, 300]));
    assert_eq!((report.iteration, report.total.direct_bytes), (1, 700));
    assert!(report.seconds > 0.0 && report.link_in_seconds > 0.0);
}

#[test]
fn an_iteration_without_backward_gives_up_what_only_backward_needs() {
    let bench = Bench::new("capacity=64MiB,bandwidth=50MB/s", &[&[64], &[4 << 20]]);
    bench.install(&[Gfgb, Dfgb], &[Device; 2]).unwrap();
    for iteration in 0..2 {
        bench.fill(iteration);
        bench.shadow.begin(never()).unwrap();
        assert_eq!([bench.visit(0, false), bench.visit(1, false)], [true, false]);
        bench.shadow.end(never()).unwrap();
    }
    assert!(bench.shadow.last().unwrap().total.copied_bytes < 4 << 20);
    bench.fill(2);
    bench.iterate(2);
}

#[test]
fn a_layer_that_is_entered_again_is_left_as_often() {
    let bench = Bench::new(FAST, &[&[64]]);
    bench.install(&[Dha], &[Host]).unwrap();
    let shadow = &bench.shadow;
    shadow.begin(never()).unwrap();
    shadow.begin(never()).unwrap();
    for _ in 0..2 {
        assert!(!shadow.enter(0, false, 64, never()).unwrap().0);
    }
    shadow.leave(0, false, never()).unwrap();
    assert!(bench.parameters.write(0..1).is_err(), "still in use");
    shadow.leave(0, false, never()).unwrap();
    assert!(bench.parameters.write(0..1).is_ok());
    let error = shadow.leave(0, false, never()).unwrap_err();
    assert_eq!(error.to_string(), "layer 0 (l0) is left without having been entered");
    assert_eq!(shadow.last().unwrap().iteration, 0, "none has ended");
    shadow.end(never()).unwrap();
    assert_eq!(shadow.last().unwrap().iteration, 1);
}

#[test]
fn the_end_of_an_iteration_ends_kernels_that_were_not_left() {
    let bench = Bench::new(FAST, &[&[64], &[64]]);
    bench.install(&[Gfgb, Dha], &[Device, Host]).unwrap();
    bench.shadow.begin(never()).unwrap();
    bench.shadow.enter(0, false, 0, never()).unwrap();
    bench.shadow.enter(1, true, 64, never()).unwrap();
    bench.shadow.end(never()).unwrap();
    bench.fill(1);
    bench.iterate(1);
}

#[test]
fn a_plan_within_the_least_budget_installs_and_one_above_the_budget_does_not() {
    let sizes: [&[usize]; 3] = [&[1000, 3], &[77], &[5000]];
    for planner in Planner::ALL {
        let bench = Bench::new(FAST, &sizes);
        let profile = Profile { work_bytes: 1001, ..bench.profile(&[Device; 3]) };
        let least = |budget| {
            let shadow = Shadow::new(bench.device.clone(), Some(budget)).unwrap();
            (shadow.plan(&profile, 2000, planner), shadow)
        };
        let said = least(256).0.unwrap_err().to_string();
        let bytes = said.split_once(" bytes)").unwrap().0.rsplit('(').next().unwrap();
        let (plan, shadow) = least(bytes.parse().unwrap());
        let plan = plan.unwrap();
        shadow.install(bench.layers(&plan), &plan, &profile).unwrap();
        let report = shadow.last().unwrap();
        assert!(report.peak_bytes <= report.budget && report.peak_bytes >= 1024);
        assert_eq!(bench.device_bytes(), report.peak_bytes);
    }
    let bench = Bench::new(FAST, &sizes);
    let (plan, profile) = bench.plan(&[Gfgb; 3], &[Device; 3]);
    let tight = Shadow::new(bench.device.clone(), Some(4096)).unwrap();
    let error = tight.install(bench.layers(&plan), &plan, &profile).unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfMemory);
    let said = error.to_string();
    assert!(said.starts_with("the plan needs 13 KiB on the device, above the budget;"), "{said}");
    assert!(said.contains("(budget: 4 KiB)"), "{said}");
    assert_eq!(bench.device_bytes(), 0);
}

#[test]
fn a_new_course_frees_the_last_one_first() {
    let bench = Bench::new("capacity=8KiB,bandwidth=1GB/s", &[&[4096], &[4096]]);
    for _ in 0..3 {
        for modes in [[Gfgb, Dha], [Dha, Gfgb]] {
            bench.install(&modes, &[Host; 2]).unwrap();
            bench.fill(1);
            bench.iterate(1);
        }
    }
    assert_eq!(bench.device_bytes(), 4096);
    bench.shadow.close();
    assert_eq!(bench.device_bytes(), 0);
    let error = bench.shadow.begin(never()).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (Kind::Closed, "no plan is installed; install one first",)
    );
}

#[test]
fn what_can_be_wrong_is_an_error_that_says_so() {
    let said = Shadow::open("emulated:capacity=1MiB,bandwidth=1GB/s", Some(2 << 20)).unwrap_err();
    let expected = "a budget of 2 MiB on a device with 1 MiB; give at most what the device has";
    assert_eq!(said.to_string(), expected);
    let bench = Bench::new(FAST, &[&[100], &[200]]);
    let (plan, profile) = bench.plan(&[Gfgb, Dha], &[Device, Host]);
    let layers = bench.layers(&plan);
    let refused =
        |layers: Vec<Layer>| bench.shadow.install(layers, &plan, &profile).unwrap_err().to_string();
    assert_eq!(refused(layers[..1].to_vec()), "1 layers for a plan of 2");
    let changed = |change: fn(&mut Layer)| {
        let mut layers = layers.clone();
        change(&mut layers[1]);
        layers
    };
    let said = refused(changed(|layer| layer.gradients.clear()));
    assert!(said.starts_with("0 gradients for 1 parameters; give one without bytes"), "{said}");
    let said = refused(changed(|layer| layer.parameters[0].offset = usize::MAX));
    assert!(said.contains("are not inside a home of") && said.contains("layer: 1"), "{said}");
    let said = refused(changed(|layer| layer.gradients[0].len = 0));
    assert!(said.contains("plan again with the layers as they are"), "{said}");
    bench.install(&[Gfgb, Dha], &[Device, Host]).unwrap();
    let said = bench.shadow.enter(2, false, 0, never()).unwrap_err().to_string();
    assert_eq!(said, "there is no layer 2: the course has 2");
    let said = bench.shadow.sight(0, 1).unwrap_err().to_string();
    assert_eq!(said, "layer 0 (l0) has no parameter 1");
    let said = bench.shadow.gradient(1, 0, &[0; 199]).unwrap_err().to_string();
    assert!(
        said.starts_with("layer 1 (l1) has no gradient of 199 bytes for parameter 0"),
        "{said}"
    );
}

#[test]
fn who_waits_is_asked_now_and_then_and_can_end_the_wait() {
    let bench = Bench::new("capacity=4MiB,bandwidth=1MB/s", &[&[1 << 20]]);
    bench.install(&[Gfgb], &[Device]).unwrap();
    bench.shadow.begin(never()).unwrap();
    let mut asked = 0;
    let mut impatient = || {
        asked += 1;
        if asked < 2 { Ok(()) } else { Err(tensorferry::Error::new(Kind::Closed, "enough")) }
    };
    let error = bench.shadow.enter(0, false, 0, &mut impatient).unwrap_err();
    assert_eq!(error.to_string(), "enough");
    let error = bench.shadow.leave(0, false, never()).unwrap_err();
    assert!(error.to_string().contains("without having been entered"), "{error}");
    bench.shadow.end(never()).unwrap();
}

#[test]
fn a_direct_kernel_takes_the_longer_of_compute_and_link() {
    let bench = Bench::new("capacity=1MiB,bandwidth=1GB/s,latency=0us", &[&[64]]);
    let direct = |bytes, compute| {
        let way = tensorferry::device::Direction::In;
        bench.shadow.direct_time(way, bytes, compute).unwrap()
    };
    let milli = Duration::from_millis(1);
    assert_eq!((direct(1_000_000, Duration::ZERO), direct(1000, 5 * milli)), (milli, 5 * milli));
}

#[test]
fn the_host_is_a_device_too() {
    let bench = Bench::on_host(&[&[100, 200], &[300]]);
    for modes in [[Gfgb, Dha], [Dfgb, Gfgb]] {
        bench.install(&modes, &[Device, Host]).unwrap();
        bench.fill(5);
        bench.iterate(5);
    }
    assert_eq!(
        bench.shadow.measure_link(1 << 20).unwrap().direct_slowdown.to_bits(),
        1.0f64.to_bits()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_layers_in_any_modes_stay_within_the_budget_and_bring_the_right_bytes(
        sizes in prop::collection::vec(prop::collection::vec(0usize..3000, 0..4), 1..6),
        choices in prop::collection::vec((0usize..3, any::<bool>()), 6),
    ) {
        let sizes: Vec<_> = sizes.iter().map(Vec::as_slice).collect();
        let bench = Bench::new(FAST, &sizes);
        let modes: Vec<_> = choices[..sizes.len()].iter().map(|(mode, _)| Mode::ALL[*mode]).collect();
        let places: Vec<_> = choices[..sizes.len()]
            .iter()
            .map(|(_, kept)| if *kept { Device } else { Host })
            .collect();
        bench.install(&modes, &places).unwrap();
        let rooms: u64 = bench.rooms(&modes, &places);
        prop_assert_eq!(bench.device_bytes(), rooms);
        for iteration in 0..2 {
            bench.fill(iteration);
            bench.iterate(iteration);
        }
        prop_assert_eq!(bench.shadow.last().unwrap().peak_bytes, rooms);
        prop_assert_eq!(bench.device_bytes(), rooms);
    }
}

#[test]
fn room_is_what_a_layer_takes() {
    assert_eq!(room([100, 200]), 512);
    assert_eq!(Size(room([1 << 20]) as u64).to_string(), "1 MiB");
}
