//! The seam at which other nodes' caches join.

use crate::data::sample::Raw;

/// Samples that somebody else keeps, and lets us read.
///
/// There is no directory of who has what: a tier is asked. One on another host will answer
/// [`has`](Self::has) by arithmetic, because every node can run every other's plan.
pub trait Tier: Send + Sync {
    /// Whether it has the sample now.
    fn has(&self, id: u32) -> bool;

    /// The sample, if it has it.
    fn get(&self, id: u32) -> Option<Raw>;
}
