//! A loader that exists only as arithmetic: threads, queues and consumers, event by event.
//!
//! It compares ways to split threads where the costs are known, and shows what the forecast leaves out:
//! ramps, bounded queues, consumers that do not step together, drift, jitter. The same scenario and
//! policy always give the same outcome.
//!
//! ```text
//!   order ─► loading, split.load[j] at once ─► loaded, in line ─► preparing, split.prepare at once
//!     ▲         at most `ahead` batches of a consumer from here on                   │
//!     └───────────────────────────── training, one batch at a time ◄── ready batches ┘
//! ```

mod outcome;
mod run;
mod scenario;
#[cfg(test)]
mod tests;

pub use outcome::Outcome;
pub use scenario::{Cost, Drift, Feed, Scenario};

use tensorferry::plan::data::threads::Split;
use tensorferry::plan::data::threads::forecast::Forecast;

use super::exhaustive;

/// How the threads are split while a scenario runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// Even shares, never changed.
    Static,
    /// By what is measured, looked at every so many batches.
    Auto,
    /// The paper's, looked at as often, without hysteresis.
    Paper,
    /// This one, never changed.
    Held(Split),
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario, policy: &Policy) -> Outcome {
    run::Pipeline::new(scenario, policy).run()
}

/// The best of all splits by the true costs, `drifted` or as they are at first; nothing where there are
/// too few threads for a role each. For small machines: it tries them all.
pub fn oracle(scenario: &Scenario, drifted: bool) -> Option<Split> {
    let (prepare, load) = scenario.profile(drifted);
    let consumers: Vec<_> =
        scenario.feeds.iter().map(|feed| feed.consumer(feed.samples(), 0)).collect();
    let forecast = Forecast::new(scenario.machine, &prepare, &load, &consumers)?;
    exhaustive::best(&forecast)
}
