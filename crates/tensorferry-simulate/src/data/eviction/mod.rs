//! The caches of a cluster, over a run of some epochs.
//!
//! Every node has one [`Tier`](tensorferry::plan::data::eviction::Tier), the very one that the running loader has.
//! Orders are torch's, so what is counted here is what a run with that seed does.
//!
//! ```text
//!   Setup ──► Itinerary ──► replay, for each policy ──► Tally of each epoch ──► Comparison
//!             which node uses    tier, clock                                  beside the
//!             a sample in        of the nodes                                    lower bound
//!             which epoch
//! ```
//!
//! | what | file |
//! |---|---|
//! | cluster, dataset, speeds | `setup.rs` |
//! | who uses a sample when | `itinerary.rs` |
//! | one policy, use by use | `replay.rs` |
//! | bytes to seconds, by the paper's equations 1 to 3 | `clock.rs` |
//! | what no policy can beat | `bound.rs` |
//! | results, as data and as a table | `comparison.rs` |
//!
//! *Memory.* The itinerary takes a byte for each sample and epoch (two beyond 256 nodes), two orders take
//! eight bytes a sample, and a tier about 50 bytes for each sample that it keeps.
//!
//! *The lower bound.* Where nodes read from one another, an epoch reads at least what all caches together
//! can't hold. Where they don't, a node keeps a sample from one use to the next or reads it again; what
//! crosses the end of an epoch must fit in its cache; and keeping the nearest next uses is the best that
//! can be done under that condition, byte by byte, after any number of epochs.

mod bound;
mod clock;
mod comparison;
mod itinerary;
mod replay;
mod setup;
#[cfg(test)]
mod tests;

pub use clock::Speeds;
pub use comparison::{Comparison, Outcome};
pub use replay::Tally;
pub use setup::{Setup, Sizes};

use tensorferry::Result;
use tensorferry::plan::data::eviction::Policy;

/// Simulates the policies one after the other. `progress` is told which one is on its way and which part
/// of the whole is done.
pub fn compare(
    setup: &Setup,
    policies: &[Policy],
    mut progress: impl FnMut(&str, f64),
) -> Result<Comparison> {
    setup.check()?;
    // Making the itinerary takes about as long as a policy.
    let stages = policies.len() as f64 + 1.0;
    let itinerary =
        itinerary::Itinerary::new(setup, |done| progress("drawing orders", done / stages))?;
    let mut comparison = Comparison::new(setup, bound::bound(setup, &itinerary));
    for (stage, policy) in (1u32..).zip(policies) {
        let told = |done| progress(policy.name(), (f64::from(stage) + done) / stages);
        comparison.add(*policy, replay::replay(setup, *policy, &itinerary, told)?);
    }
    Ok(comparison)
}
