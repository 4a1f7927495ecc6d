//! Every split of a small machine, so that others can be judged by the best of them.

use tensorferry::plan::data::threads::Split;
use tensorferry::plan::data::threads::forecast::Forecast;

/// The best of all splits in which nobody with work goes without a thread.
///
/// Takes on the order of `threads ^ consumers` steps: for tests and simulations.
pub fn best(forecast: &Forecast) -> Option<Split> {
    all(forecast).into_iter().reduce(|a, b| forecast.better(a, b))
}

/// All splits in which nobody with work goes without a thread, and nobody else has one.
pub fn all(forecast: &Forecast) -> Vec<Split> {
    let mut splits = Vec::new();
    for prepare in 1..=forecast.prepare_max(forecast.busy().count()) {
        let left = forecast.machine().threads - prepare;
        for load in loads(forecast.queues(), left) {
            splits.push(Split { prepare, load });
        }
    }
    splits
}

fn loads(queues: &[u64], left: usize) -> Vec<Vec<usize>> {
    let Some((queue, others)) = queues.split_last() else {
        return vec![Vec::new()];
    };
    let counts = if *queue > 0 { 1..=left } else { 0..=0 };
    let with = |count| {
        loads(others, left - count).into_iter().map(move |mut load: Vec<usize>| {
            load.push(count);
            load
        })
    };
    counts.flat_map(with).collect()
}
