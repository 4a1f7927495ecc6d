//! Which tensors leave memory when there is no room for another one.
//!
//! Restored tensors that nobody holds go first: they are on disk already. Of these, those that were used go
//! before those that are still to come, and among the latter, those that are used last go first.
//!
//! If that is not enough, tensors that were kept are offloaded, those that were saved first before the rest:
//! backward uses them last.

use std::cmp::Reverse;

/// A restored tensor that nobody holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleTensor {
    pub key: u64,
    pub bytes: u64,
    /// Whether backward has used it.
    pub is_used: bool,
    /// Where it stands in the order of use, if it does.
    pub position: Option<usize>,
}

/// Which of these are let go of, in this order, so that at least so many bytes come free.
pub(super) fn idle_to_drop(mut idle: Vec<IdleTensor>, bytes: u64) -> Vec<u64> {
    idle.sort_unstable_by_key(|tensor| {
        let last_first = Reverse(tensor.position.unwrap_or(usize::MAX));
        (!tensor.is_used, last_first, tensor.bytes, tensor.key)
    });
    until_enough(idle.into_iter().map(|tensor| (tensor.key, tensor.bytes)), bytes)
}

/// Which of these kept tensors, given with their bytes in the order in which they were saved, are offloaded, so
/// that at least so many bytes come free.
pub(super) fn kept_to_offload(kept: impl Iterator<Item = (u64, u64)>, bytes: u64) -> Vec<u64> {
    until_enough(kept, bytes)
}

fn until_enough(tensors: impl Iterator<Item = (u64, u64)>, bytes: u64) -> Vec<u64> {
    let mut missing = bytes;
    let wanted = tensors.map_while(|(key, bytes)| {
        let is_wanted = missing > 0;
        missing = missing.saturating_sub(bytes);
        is_wanted.then_some(key)
    });
    wanted.collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn idle(key: u64, is_used: bool, position: Option<usize>) -> IdleTensor {
        IdleTensor { key, bytes: 10, is_used, position }
    }

    #[test]
    fn what_was_used_goes_first_and_then_what_is_used_last() {
        let all = vec![
            idle(1, false, Some(4)),
            idle(2, false, Some(9)),
            idle(3, true, Some(0)),
            idle(4, false, None),
            idle(5, true, Some(2)),
        ];
        assert_eq!(idle_to_drop(all, 50), [5, 3, 4, 2, 1]);
    }

    #[test]
    fn no_more_is_let_go_of_than_is_missing() {
        let all: Vec<_> = (0..5).map(|key| idle(key, true, None)).collect();
        assert_eq!(idle_to_drop(all.clone(), 0), [0; 0]);
        assert_eq!(idle_to_drop(all.clone(), 10), [0]);
        assert_eq!(idle_to_drop(all.clone(), 11), [0, 1]);
        assert_eq!(idle_to_drop(all, 1000).len(), 5, "all there is");
    }

    #[test]
    fn kept_tensors_leave_in_the_order_in_which_they_were_saved() {
        let kept = [(7, 30), (8, 30), (9, 30)];
        assert_eq!(kept_to_offload(kept.into_iter(), 31), [7, 8]);
        assert_eq!(kept_to_offload(kept.into_iter(), 0), [0; 0]);
    }
}
