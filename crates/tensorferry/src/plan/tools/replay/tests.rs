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
            let mut sum = vec![0.0; 8];
            let mut least = [9.0f64; 2];
            for seed in 0..5 {
                let c = compare(&record(&recipe, seed), goal, PAPER_UPDATE_EVERY).unwrap();
                for (k, p) in c.policies[..3].iter().enumerate() {
                    sum[2 * k] += p.overall.informed / 5.0;
                    sum[2 * k + 1] += p.mean_over_sizes.informed / 5.0;
                }
                let b = &c.policies[0];
                least[0] = least[0].min(b.overall.informed);
                least[1] = least[1].min(b.mean_over_sizes.informed);
                let (size, w) =
                    b.sizes.iter().min_by(|a, b| a.1.informed.total_cmp(&b.1.informed)).unwrap();
                if w.informed < 0.9 {
                    eprintln!("   {name} {goal} {seed} {size}: {:.3}", w.informed);
                }
            }
            eprintln!(
                "{name:20} {goal:4} | {:.4} {:.4} least {:.3} {:.3} | {:.3} {:.3} | {:.3} {:.3} worst",
                sum[0], sum[1], least[0], least[1], sum[2], sum[3], sum[4], sum[5]
            );
        }
    }
}
#[test]
fn debug() {
    let rs = recipes();
    let get = |n: &str| std::env::var(n).unwrap();
    let (_, recipe) = rs.iter().find(|(n, _)| *n == get("NAME")).unwrap();
    let goal: Goal = get("GOAL").parse().unwrap();
    let want: u64 = get("SIZE").parse().unwrap();
    let trace = record(recipe, get("SEED").parse().unwrap());
    let mut d = Dictionary::aware(Explore::Bandit, goal);
    for (n, step) in trace.steps.iter().enumerate() {
        let (size, (writing, reading)) = (step.size, step.situation);
        let eligible = step.tools();
        let writer = d.choose_write(&Save { size, writing, reading, eligible }).unwrap();
        observe(&mut d, writing.into(), writer, size, &step.write).unwrap();
        let mut reader = writer;
        if goal.reads() {
            reader =
                d.choose_read(&Load { size, reading, written_with: writer, eligible }).unwrap();
            observe(&mut d, reading.into(), reader, size, &step.read).unwrap();
        }
        if size == want {
            eprintln!(
                "{n} {} w {writer} {:.4} r {reader} {:.4} :: {}",
                step.phase,
                step.write[&writer],
                step.read[&reader],
                d.debug(size, if goal.reads() { reading.into() } else { writing.into() })
            );
        }
    }
}
