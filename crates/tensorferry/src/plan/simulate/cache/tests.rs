//! Known answers.

use super::{Setup, Sizes, Speeds, compare};
use crate::plan::eviction::Policy;

pub(crate) fn setup(nodes: u32, cached: f64) -> Setup {
    let samples = 20_000;
    Setup {
        samples,
        sizes: Sizes::Same(1000),
        nodes,
        gpus: 1,
        batch: 10,
        cache: (cached * samples as f64) as u64 * 1000,
        epochs: 15,
        foresight: 99,
        peers: false,
        seed: 5,
        speeds: Speeds::default(),
    }
}

#[test]
fn explore() {
    for nodes in [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 99] {
        let mut x = setup(8, 0.3);
        x.foresight = nodes;
        x.epochs = 15;
        let c = compare(&x, &Policy::ALL[..], |_, _| {}).unwrap();
        std::process::Command::new("true");
        let mut s = c.to_string();
        for o in &c.policies {
            let all: u64 = o.epochs.iter().map(|e| e.local_hits).sum();
            let uses: u64 = o.epochs.iter().map(|e| e.uses).sum();
            s += &format!("\n{} {:.4}", o.policy, all as f64 / uses as f64);
        }
        std::eprintln!("{s}\n");
    }
}
