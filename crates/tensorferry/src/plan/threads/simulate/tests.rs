use super::*;
use crate::plan::threads::split::Machine;

const KIB: u64 = 1 << 10;
const MILLISECOND: f64 = 1e-3;

/// Two consumers; the second one's samples are `skew` times as large. Storage that takes long for each
/// sample but serves many at once, cores enough to prepare.
fn skewed(skew: u64) -> Scenario {
    let feed = |bytes| Feed {
        sample_bytes: bytes,
        batch: 32,
        train_seconds: 20.0 * MILLISECOND,
        batches: 200,
    };
    Scenario {
        machine: Machine { threads: 16, cores: 8 },
        feeds: vec![feed(100 * KIB), feed(100 * KIB * skew)],
        load: Cost { latency_seconds: 2.0 * MILLISECOND, seconds_per_byte: 2e-8, lanes: 64 },
        prepare: Cost { latency_seconds: 0.1 * MILLISECOND, seconds_per_byte: 1e-9, lanes: 8 },
        ahead: 3,
        every: 8,
        drift: None,
        jitter: 0.3,
        seed: 7,
    }
}

#[test]
fn the_gap_between_consumers_with_skewed_samples_shrinks_by_half_or_more() {
    for skew in [2, 3, 4, 6, 8] {
        for seed in 0..5 {
            let scenario = Scenario { seed, ..skewed(skew) };
            let even = run(&scenario, &Policy::Static);
            let auto = run(&scenario, &Policy::Auto);
            eprintln!(
                "{skew} {seed}: static {:?} {:.4} auto {:?} {:.4} {:.2} paper {:.4} splits {:?}",
                even.steps(),
                even.gap(),
                auto.steps(),
                auto.gap(),
                auto.gap() / even.gap(),
                run(&scenario, &Policy::Paper).gap(),
                auto.splits
            );
            assert!(auto.gap() <= even.gap() / 2.0, "{skew}: {} of {}", auto.gap(), even.gap());
            assert!(auto.seconds() < even.seconds());
        }
    }
}
