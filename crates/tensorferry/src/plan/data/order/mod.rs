//! The order of samples, bit for bit as torch draws it.
//!
//! Whoever knows seed, epoch and world size knows every node's future: no message is needed to learn
//! what a peer will read or hold. That holds only as long as the order is exactly torch's, so the
//! generator and the shuffle are torch's too, held to sequences that torch itself produced
//! (`python/tests/test_orders.py` compares them again, and writes them).
//!
//! | what | file |
//! |---|---|
//! | torch's generator | `mt19937.rs` |
//! | `torch.randperm` | `permutation.rs` |
//! | `torch.utils.data.DistributedSampler` | `distributed.rs` |
//!
//! A sample is a `u32`: [`SAMPLES_MAX`] of them are enough for every dataset of files there is, and
//! half the memory of what torch spends.

mod distributed;
mod mt19937;
mod permutation;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use distributed::Distributed;
pub use mt19937::Mt19937;
pub use permutation::{SAMPLES_MAX, randperm};
