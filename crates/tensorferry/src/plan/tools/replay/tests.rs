//! How much of the oracles the policies reach on machines whose truth is known.

use super::synthetic::{Recipe, record, steady};
use super::*;

fn recipes() -> Vec<(&'static str, Recipe)> {
    let base = || Recipe {
        steps: 4000,
        noise: 0.1,
        outliers: 0.0,
        factor: steady,
        phase: |_| 0,
        phases: 1,
    };
    let turn = |part: f64| (part * 3.0) as usize;
    vec![
        ("steady", base()),
        ("noisy", Recipe { noise: 0.25, ..base() }),
        ("outliers", Recipe { outliers: 0.07, ..base() }),
        (
            "abrupt",
            Recipe {
                factor: |part, _, tool, _| match (turn3(part), tool) {
                    (1, Tool::Direct) => 3.0,
                    (2, Tool::Buffered) => 2.5,
                    _ => 1.0,
                },
                phase: turn,
                phases: 3,
                outliers: 0.03,
                ..base()
            },
        ),
        (
            "all slower",
            Recipe {
                factor: |part, _, _, _| if turn3(part) == 1 { 3.0 } else { 1.0 },
                phase: turn,
                phases: 3,
                outliers: 0.03,
                ..base()
            },
        ),
        (
            "another gets better",
            Recipe {
                factor: |part, _, tool, _| {
                    if turn3(part) > 0 && tool == Tool::Buffered { 0.4 } else { 1.0 }
                },
                phase: turn,
                phases: 3,
                ..base()
            },
        ),
        (
            "slow",
            Recipe {
                factor: |part, _, tool, _| if tool == Tool::Direct { 3f64.powf(part) } else { 1.0 },
                phase: |part| (part * 20.0) as usize,
                phases: 20,
                outliers: 0.03,
                ..base()
            },
        ),
    ]
}

fn turn3(part: f64) -> usize {
    (part * 3.0) as usize
}

#[test]
fn shares() {
    for (name, recipe) in recipes() {
        for goal in Goal::ALL {
            for seed in 0..3 {
                let c = compare(&record(&recipe, seed), goal, PAPER_UPDATE_EVERY).unwrap();
                let b = &c.policies[0];
                eprint!("{name:20} {goal:4} {seed}");
                for p in &c.policies[..3] {
                    eprint!(" | {:.4} {:.4}", p.overall.informed, p.mean_over_sizes.informed);
                }
                let worst =
                    b.sizes.iter().min_by(|a, b| a.1.informed.total_cmp(&b.1.informed)).unwrap();
                eprintln!(" worst {} {:.3}", worst.0, worst.1.informed);
            }
        }
    }
}
