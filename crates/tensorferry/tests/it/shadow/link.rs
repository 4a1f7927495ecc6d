//! What the link carries, and when: the model's own times.

use std::time::Instant;

use tensorferry::device::Direction;
use tensorferry::device::emulated::LinkUse;
use tensorferry::plan::parameters::{Gradient, Mode};

use super::bench::{Bench, never};

const KIB: usize = 1 << 10;

/// Pieces are of 256 KiB here, the least there is.
const SLOW: &str = "capacity=64MiB,bandwidth=100MB/s,latency=10us";

fn uses(bench: &Bench, direction: Direction) -> Vec<LinkUse> {
    let log = bench.emulated().link_log().into_iter();
    log.filter(|entry| entry.direction == direction).collect()
}

fn kib(uses: &[LinkUse]) -> Vec<(u64, bool)> {
    uses.iter().map(|entry| (entry.bytes >> 10, entry.is_copy)).collect()
}

#[test]
fn copies_go_in_even_pieces_in_the_order_of_need() {
    let sizes: [&[usize]; 4] = [&[600 * KIB], &[64 * KIB, 64 * KIB], &[32 * KIB], &[300 * KIB]];
    let bench = Bench::new(SLOW, &sizes);
    let modes = [Mode::Dfgb, Mode::Gfgb, Mode::Dfgb, Mode::Gfgb];
    bench.install(&modes, &[Gradient::Device; 4]).unwrap();
    bench.shadow.begin(never()).unwrap();
    for layer in [1, 3] {
        bench.visit(layer, false);
    }
    for layer in [3, 2, 1, 0] {
        bench.visit(layer, true);
    }
    bench.shadow.end(never()).unwrap();
    let expected = [128, 150, 150, 32, 200, 200, 200].map(|kib| (kib, true));
    assert_eq!(kib(&uses(&bench, Direction::In)), expected);
    assert!(uses(&bench, Direction::Out).is_empty());
    let busy: f64 =
        uses(&bench, Direction::In).iter().map(|entry| entry.slot.time().as_secs_f64()).sum();
    let report = bench.shadow.last().unwrap();
    assert!((report.link_in_seconds - busy).abs() < 1e-9);
}

#[test]
fn a_kernel_in_place_waits_for_one_piece_at_most_and_copies_wait_for_it() {
    let before = Instant::now();
    let bench =
        Bench::new("capacity=64MiB,bandwidth=2MB/s,latency=0us", &[&[4 * KIB], &[1024 * KIB]]);
    bench.install(&[Mode::Dha, Mode::Gfgb], &[Gradient::Host; 2]).unwrap();
    bench.shadow.begin(never()).unwrap();
    while uses(&bench, Direction::In).is_empty() {
        std::thread::yield_now();
    }
    bench.shadow.enter(0, false, 4 * KIB as u64, never()).unwrap();
    let entered_at = before.elapsed();
    bench.shadow.leave(0, false, never()).unwrap();
    bench.shadow.end(never()).unwrap();
    let uses = uses(&bench, Direction::In);
    let direct = uses.iter().find(|entry| !entry.is_copy).unwrap();
    let piece = uses[0].slot.time();
    assert!(direct.slot.start <= entered_at + piece, "{uses:?}");
    assert_eq!(uses[0].bytes >> 10, 256);
}

#[test]
fn gradients_leave_layer_by_layer_in_the_order_of_backward_copied_or_written() {
    let sizes: [&[usize]; 3] = [&[64 * KIB, 64 * KIB], &[96 * KIB], &[300 * KIB, KIB]];
    let bench = Bench::new(SLOW, &sizes);
    let places = [Gradient::Device, Gradient::Host, Gradient::Device];
    bench.install(&[Mode::Dha; 3], &places).unwrap();
    bench.fill(0);
    bench.iterate(0);
    // Two parameters that lie side by side leave together; those of the last layer do too.
    let expected = [(150, true), (150, true), (96, false), (128, true)];
    let found = kib(&uses(&bench, Direction::Out));
    assert_eq!(found, expected);
}

#[test]
fn a_gradient_that_comes_late_leaves_by_itself() {
    let bench = Bench::new(SLOW, &[&[64 * KIB, 64 * KIB], &[64 * KIB, 64 * KIB]]);
    bench.install(&[Mode::Dha; 2], &[Gradient::Device, Gradient::Host]).unwrap();
    bench.fill(0);
    bench.shadow.begin(never()).unwrap();
    bench.shadow.enter(0, true, 0, never()).unwrap();
    bench.shadow.gradient(0, 1, &vec![1; 64 * KIB]).unwrap();
    bench.shadow.leave(0, true, never()).unwrap();
    bench.shadow.arrived(0, never()).unwrap();
    assert_eq!(kib(&uses(&bench, Direction::Out)), [(64, true)]);
    for layer in [0, 1] {
        bench.shadow.gradient(layer, 0, &vec![2; 64 * KIB]).unwrap();
    }
    bench.shadow.arrived(0, never()).unwrap();
    bench.shadow.end(never()).unwrap();
    assert_eq!(kib(&uses(&bench, Direction::Out)), [(64, true), (64, true), (64, false)]);
    let (late, early) = (bench.gradients.read(0..1).unwrap()[0], 64 * KIB);
    assert_eq!((late, bench.gradients.read(early..early + 1).unwrap()[0]), (2, 1));
}

#[test]
fn a_measured_link_is_never_faster_than_it_is() {
    let bench = Bench::new("capacity=4MiB,bandwidth=200MB/s,direct_slowdown=1.5", &[&[1]]);
    let link = bench.shadow.measure_link(2 << 20).unwrap();
    let speeds = bench.device.facts().link.unwrap();
    for (measured, real) in [(link.inwards, speeds.into), (link.outwards, speeds.out)] {
        assert!(measured.seconds(f64::from(2 << 20)) >= real.time(2 << 20).as_secs_f64() * 0.999);
    }
    assert!(link.direct_shares && (link.direct_slowdown - 1.5).abs() < 1e-12);
    assert_eq!(bench.device_bytes(), 0);
    let error = bench.shadow.measure_link(8 << 20).unwrap_err();
    let said =
        "8 MiB to measure the link with do not fit; measure with less (used: 0 B, budget: 4 MiB)";
    assert_eq!(error.to_string(), said);
    assert!(bench.shadow.measure_link(1).is_err());
}
