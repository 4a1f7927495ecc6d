//! The order in which backward will use the tensors of a step, and how far they have been fetched.
//!
//! With a plan it is the order of the profile that the plan was made from. Without one, it is the reverse
//! of forward: the last operation first, and what one operation saved in the order in which it saved it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::operation::Operation;
use super::plans::FollowedPlan;

/// Tensors of a step, by their index in it, in the order of use.
#[derive(Debug, Default)]
pub(super) struct UseOrder {
    /// Each tensor once, by its first use.
    order: Vec<usize>,
    /// How many of them need not be looked at again for the next fetch.
    cursor: usize,
    /// All uses that the plan foresees.
    foreseen: Vec<usize>,
}

impl UseOrder {
    /// The order that a plan foresees.
    pub fn planned(followed: &FollowedPlan) -> Self {
        let foreseen = followed.profile.uses.iter().map(|used| used.tensor).collect();
        Self { order: followed.order.clone(), cursor: 0, foreseen }
    }

    /// The order where nothing is known, of tensors that were saved by these operations; those that `is_left`.
    pub fn last_first(saved_by: &[Operation], is_left: impl Fn(usize) -> bool) -> Self {
        let mut first = BTreeMap::new();
        for (index, operation) in saved_by.iter().enumerate() {
            first.entry(operation).or_insert(index);
        }
        let mut order: Vec<usize> = (0..saved_by.len()).filter(|index| is_left(*index)).collect();
        order.sort_by_key(|index| (Reverse(first.get(&saved_by[*index])), *index));
        Self { order, cursor: 0, foreseen: Vec::new() }
    }

    /// Whether the plan foresees this tensor as use number `uses`, counted from zero.
    pub fn foresees(&self, uses: usize, index: usize) -> bool {
        self.foreseen.get(uses) == Some(&index)
    }

    /// The next tensor to look at for a fetch.
    pub fn next(&self) -> Option<usize> {
        self.order.get(self.cursor).copied()
    }

    /// The next tensor is not to be fetched.
    pub fn skip(&mut self) {
        self.cursor += 1;
    }

    /// Where a tensor stands.
    pub fn position(&self, index: usize) -> Option<usize> {
        self.order.iter().position(|other| *other == index)
    }

    /// A tensor is on its way: the next ones come after it. One that was not expected yet says where
    /// backward is.
    pub fn fetched(&mut self, index: usize) {
        if let Some(position) = self.position(index) {
            self.cursor = position + 1;
        }
    }

    /// A tensor is on disk only, now that backward has begun.
    pub fn fetch_again(&mut self, index: usize) {
        if let Some(position) = self.position(index) {
            self.cursor = self.cursor.min(position);
        }
    }

    /// What is still to be looked at.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub fn rest(&self) -> &[usize] {
        &self.order[self.cursor..]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn operations(numbers: &[u64]) -> Vec<Operation> {
        numbers.iter().map(|number| Operation { thread: 0, number: *number }).collect()
    }

    #[test]
    fn without_a_plan_the_last_operation_comes_first_and_its_tensors_as_they_were_saved() {
        let saved_by = operations(&[7, 7, 8, 9, 9]);
        assert_eq!(UseOrder::last_first(&saved_by, |_| true).rest(), [3, 4, 2, 0, 1]);
        assert_eq!(UseOrder::last_first(&saved_by, |index| index != 4).rest(), [3, 2, 0, 1]);
    }

    #[test]
    fn a_tensor_that_is_fetched_out_of_turn_says_where_backward_is() {
        let mut order = UseOrder::last_first(&operations(&[1, 2, 3, 4]), |_| true);
        assert_eq!(order.next(), Some(3));
        order.fetched(1);
        assert_eq!(order.rest(), [0]);
        order.skip();
        assert_eq!(order.next(), None);
    }

    #[test]
    fn a_tensor_that_lost_its_memory_is_fetched_again_and_those_after_it_are_looked_at_again() {
        let mut order = UseOrder::last_first(&operations(&[1, 2, 3, 4]), |_| true);
        order.fetched(1);
        order.fetch_again(2);
        assert_eq!(order.rest(), [2, 1, 0]);
        order.fetch_again(0);
        assert_eq!(order.rest(), [2, 1, 0], "it is to come anyway");
    }
}
