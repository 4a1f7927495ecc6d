//! What one operation of the caller saves, and will use at once.
//!
//! All tensors that one operation saves are in memory together when backward comes to it, so their sum is
//! the least room that a step needs. It is known before backward. A step that needs more than there is,
//! is refused.

use std::collections::BTreeMap;

/// An operation of the caller's: a number of its thread's, which differs from that of the operation before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// Which thread.
    pub thread: u64,
    /// Which of its operations.
    pub number: u64,
}

/// The tensors that one operation has saved.
#[derive(Debug, Clone, Default)]
pub(super) struct SavedTogether {
    pub bytes: u64,
    pub tensors: usize,
    /// The name of the largest of them.
    pub name: String,
    largest: u64,
}

/// The operations of a step.
#[derive(Debug, Default)]
pub(super) struct Operations(BTreeMap<Operation, SavedTogether>);

impl Operations {
    /// An operation has saved one more tensor. Returns the bytes of all that it has saved.
    pub fn add(&mut self, operation: Operation, name: &str, bytes: u64) -> u64 {
        let together = self.0.entry(operation).or_default();
        together.bytes += bytes;
        together.tensors += 1;
        if bytes >= together.largest {
            (together.largest, together.name) = (bytes, name.to_owned());
        }
        together.bytes
    }

    /// The operation that saved most.
    pub fn largest(&self) -> Option<&SavedTogether> {
        self.0.values().max_by_key(|together| together.bytes)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_one_operation_saves_comes_together() {
        let mut operations = Operations::default();
        let [one, other] = [1, 2].map(|number| Operation { thread: 0, number });
        assert_eq!(operations.add(one, "a", 3), 3);
        assert_eq!(operations.add(other, "b", 4), 4);
        assert_eq!(operations.add(one, "c", 2), 5);
        let most = operations.largest().unwrap();
        assert_eq!((most.bytes, most.tensors, &*most.name), (5, 2, "a"));
    }
}
