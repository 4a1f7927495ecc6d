//! The published way from measurements to a split: step 1, algorithm 1, step 2.
//!
//! Kept as it is, so that ours can be compared with it; where it is better, ours takes it.

use super::forecast::{Forecast, Stages};
use super::load;
use super::prepare;
use super::split::Split;

/// Differences below this share of a consumer's training are not worth a search: the paper's tau.
pub const TOLERANCE: f64 = 0.01;

/// As many prepare as reach the peak; they give way to loading while that holds a consumer up.
///
/// There must be more threads than consumers with work.
pub fn split(forecast: &Forecast) -> Split {
    let busy = forecast.busy().count();
    let peak =
        prepare::peak(forecast.prepare_max(busy), |threads| forecast.prepare_seconds(threads));
    let prepare = prepare::give_way(peak, |threads| worst(forecast, &loaded(forecast, threads)));
    loaded(forecast, prepare)
}

/// So many prepare, the others load as algorithm 1 says, bounded by what there is.
fn loaded(forecast: &Forecast, prepare: usize) -> Split {
    let threads = forecast.machine().threads - prepare;
    let difference =
        |consumer, count| forecast.stages(consumer, count, threads, prepare).difference();
    let train = forecast.busy().map(|consumer| forecast.stages(consumer, 1, 1, 1).train);
    let tolerance = TOLERANCE * train.fold(f64::INFINITY, f64::min);
    let wanted = load::wanted(threads, forecast.queues(), tolerance, difference);
    let load = load::share(threads, &wanted, |consumer, count| -difference(consumer, count));
    Split { prepare, load }
}

/// Of the consumer that is furthest behind.
fn worst(forecast: &Forecast, split: &Split) -> Stages {
    let all = split.load.iter().sum();
    let of = |consumer| forecast.stages(consumer, split.load[consumer], all, split.prepare);
    let behind = |a: &Stages, b: &Stages| a.difference().total_cmp(&b.difference());
    let none = Stages { train: 0.0, load: 0.0, prepare: 0.0 };
    forecast.busy().map(of).min_by(behind).unwrap_or(none)
}
