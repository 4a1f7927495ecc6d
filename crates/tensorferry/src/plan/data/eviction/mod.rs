//! Which samples one node keeps near.
//!
//! A [`Tier`] is one bounded tier of one node: it knows which samples are there, how large they are and
//! which of them has to go first. It holds no bytes, so that the running loader and a simulator of a cluster
//! use the same one. A sample is in one of two states, *kept* or *not kept*:
//!
//! ```text
//!                 admit: there is room, or what is worth less goes
//!   not kept ─────────────────────────────────────────────────────► kept ─┐ touch: used again
//!            ◄───────────────────────────────────────────────────────  ◄──┘
//!                 evicted by another's admit, let go by touch, removed
//! ```
//!
//! # What a policy decides
//!
//! At each [`Use`] a policy gives the sample a *rank*, or nothing if it should not be kept at all. The
//! highest rank goes first, and only for one of a lower rank: among equals, what is there stays. So a
//! policy is one pure function, and all of them share the state, its bounds and its tests.
//!
//! | policy | rank | lets go of |
//! |---|---|---|
//! | `lru` | time since the last use | |
//! | `never-evict` | all equal | |
//! | `nopfs` | fewest uses on this node, over the whole run | |
//! | `lobster` | moment of the next use | what is used up, or not used in the next epoch |
//! | `belady` | epoch of the next use | |
//!
//! # Why Belady's choice looks at epochs only
//!
//! A node uses a sample at most once in an epoch, so whatever is kept for its next use is kept across
//! the end of an epoch, and what counts is what the tier holds there. Which of two samples of the same
//! epoch comes first does not change how many there are. On one node comparing epochs is exactly as good
//! as comparing moments. On several it depends on chance whether room gets free in time within an epoch: up to
//! two thousandths more are read with 40,000 samples, a ten-thousandth with two million (`tests.rs`). In
//! return nothing is replaced in vain, and hits are spread evenly over an epoch; by moments they all come
//! first, and the backend idles until it is overrun.
//!
//! With sizes, a kept byte saves a byte whoever's it is, so sizes play no role in the rank.
//!
//! # When nodes read from one another
//!
//! Then a node's only copy serves all, and is needed in the next epoch whichever node uses the sample
//! there. [`Copies`] says so. `belady` keeps an only copy before any second one, and whoever came first
//! answers for it as long as training lasts: the tiers together hold different samples, until
//! they hold all of them.
//!
//! | what | file |
//! |---|---|
//! | moments and uses | `moment.rs` |
//! | policies and ranks | `policy.rs` |
//! | the state machine | `tier.rs` |
//! | who goes first | `queue.rs` |
//! | next uses, from orders of coming epochs | `future.rs` |

mod future;
mod moment;
mod policy;
mod queue;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod tier;

pub use future::{EPOCHS_AHEAD_MAX, Future};
pub use moment::{Copies, Moment, Use};
pub use policy::Policy;
pub use tier::{SAMPLE_BYTES_MAX, Tier};
