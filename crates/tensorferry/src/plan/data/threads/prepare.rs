//! How many threads prepare: the paper's two steps.

use super::forecast::Stages;

/// More threads are worth it only for more than this share of the throughput: what they add beyond is
/// mostly traffic on the memory bus, which the other stages need.
pub const PEAK_TOLERANCE: f64 = 0.02;

/// Step 1: the fewest threads, of at most `limit`, that reach the peak throughput. `seconds` is the time
/// that so many threads together take for the same work.
pub fn peak(limit: usize, seconds: impl Fn(usize) -> f64) -> usize {
    let best = (1..=limit).map(&seconds).fold(f64::INFINITY, f64::min);
    let enough = |threads: &usize| seconds(*threads) <= best * (1.0 + PEAK_TOLERANCE);
    (1..=limit).find(enough).unwrap_or(1)
}

/// Step 2: while loading and preparing take longer than training, and preparing is not the bottleneck, one
/// thread goes from preparing to loading. `worst` gives the stages of the consumer that is furthest behind
/// when so many threads prepare and the others load.
pub fn give_way(prepare: usize, worst: impl Fn(usize) -> Stages) -> usize {
    let gives = |threads: usize| {
        let stages = worst(threads);
        stages.difference() < 0.0 && stages.prepare < stages.load
    };
    let mut threads = prepare;
    while threads > 1 && gives(threads) {
        threads -= 1;
    }
    threads
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_reached_with_as_few_threads_as_will_do() {
        // The throughput of the paper's figure 6: it grows up to six threads, then falls a little.
        let rates = [1.0, 2.0, 3.0, 3.9, 4.7, 5.4, 5.4, 5.3, 5.2, 5.1];
        assert_eq!(peak(10, |threads| 1.0 / rates[threads - 1]), 6);
        assert_eq!(peak(4, |threads| 1.0 / rates[threads - 1]), 4);
        assert_eq!(peak(10, |_| 1.0), 1);
    }

    #[test]
    fn a_gain_below_the_tolerance_is_not_worth_a_thread() {
        let seconds = |threads: usize| if threads == 1 { 1.0 + PEAK_TOLERANCE / 2.0 } else { 1.0 };
        assert_eq!(peak(8, seconds), 1);
    }

    fn stages(train: f64) -> impl Fn(usize) -> Stages {
        move |prepare| Stages {
            train,
            load: 24.0 / (12 - prepare) as f64,
            prepare: 8.0 / prepare as f64,
        }
    }

    #[test]
    fn threads_go_to_loading_until_preparing_would_be_the_bottleneck() {
        assert_eq!(give_way(8, stages(0.0)), 3, "2.7 seconds each");
    }

    #[test]
    fn no_more_threads_go_than_training_asks_for() {
        assert_eq!(give_way(8, stages(10.0)), 8);
        assert_eq!(give_way(8, stages(5.4)), 6, "24 / 5 + 8 / 7 is more, 24 / 6 + 8 / 6 is not");
    }

    #[test]
    fn the_last_thread_stays() {
        let starved = |_| Stages { train: 0.0, load: 9.0, prepare: 1.0 };
        assert_eq!(give_way(5, starved), 1);
    }
}
