//! How a budget is divided: staging buffers of the workers, and room for tensors.
//!
//! Pure. Beside the budget, blocks that come free are kept for the next tensors, within [`spare`].

use super::encoding::{Compress, room_beside};
use super::worker::THREADS;
use crate::memory::ALIGNMENT;

/// The largest chunk: enough for the disk to be at its best.
const CHUNK_BYTES_MAX: u64 = 4 << 20;

/// The smallest chunk: below, a small budget is not worth the transfers.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// The share of the budget that staging buffers may take, as a divisor.
const STAGING_SHARE: u64 = 16;

/// What is kept of blocks that come free, as a divisor of the budget and within bounds: what a layer
/// takes and gives back while it computes. It is at least what the largest tensor takes, within them.
const SPARE_SHARE: u64 = 2;
const SPARE_BYTES_MIN: u64 = 32 << 20;
pub(super) const SPARE_BYTES_MAX: u64 = 1 << 30;

/// The least budgets that errors state are multiples of this.
const MINIMUM_UNIT: u64 = 1 << 20;

/// The bytes of a chunk within a budget, and of all that is staged.
pub(super) fn staging(budget: u64, compress: Compress) -> (usize, u64) {
    let share = budget / STAGING_SHARE / THREADS as u64;
    let chunk = share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) as usize / ALIGNMENT * ALIGNMENT;
    (chunk, (THREADS * (chunk + room_beside(chunk, compress))) as u64)
}

/// The least budget that has room for so many bytes of tensors.
pub(super) fn budget_for(bytes: u64, compress: Compress) -> u64 {
    let mut budget = bytes.next_multiple_of(MINIMUM_UNIT);
    while budget - staging(budget, compress).1 < bytes {
        budget += MINIMUM_UNIT;
    }
    budget
}

/// Bytes of freed blocks that are kept beside a budget.
pub(super) fn spare(budget: u64) -> usize {
    (budget / SPARE_SHARE).clamp(SPARE_BYTES_MIN, SPARE_BYTES_MAX) as usize
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_stated_has_room_for_what_it_is_stated_for() {
        for compress in [Compress::None, Compress::Lossless, Compress::Half] {
            for bytes in [1, 1 << 20, (7 << 20) + 1, 1 << 30, 50 << 30] {
                let budget = budget_for(bytes, compress);
                let room = |budget| budget - staging(budget, compress).1;
                assert!(room(budget) >= bytes, "{bytes}");
                let less = budget - MINIMUM_UNIT;
                assert!(less < bytes || room(less) < bytes, "{bytes}: none that is less");
            }
        }
    }

    #[test]
    fn staging_takes_a_small_share_of_a_large_budget_and_chunks_are_whole_blocks() {
        for budget in [16 << 20, 1 << 30, 100 << 30] {
            let (chunk, staged) = staging(budget, Compress::None);
            assert!(chunk.is_multiple_of(ALIGNMENT) && chunk as u64 <= CHUNK_BYTES_MAX);
            assert!(staged <= budget / STAGING_SHARE, "{budget}");
        }
    }

    #[test]
    fn what_is_kept_for_the_next_tensors_is_half_of_the_budget_within_bounds() {
        assert_eq!(spare(0) as u64, SPARE_BYTES_MIN);
        assert_eq!(spare(1 << 30), 512 << 20);
        assert_eq!(spare(1 << 40) as u64, SPARE_BYTES_MAX);
    }
}
