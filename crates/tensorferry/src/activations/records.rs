//! The table of saved tensors, by key. A record lives as long as its [`Saved`](super::Saved).
//!
//! Keys are given in the order of admission, so that the table is in the order in which tensors were saved.

use std::collections::BTreeMap;

use super::record::Record;
use crate::error::{Error, Kind, Result};

/// All records.
#[derive(Default)]
pub(super) struct Records {
    records: BTreeMap<u64, Record>,
    last_key: u64,
}

impl Records {
    /// Adds a record. Returns its key.
    pub fn insert(&mut self, record: Record) -> u64 {
        self.last_key += 1;
        self.records.insert(self.last_key, record);
        self.last_key
    }

    pub fn get(&self, key: u64) -> Option<&Record> {
        self.records.get(&key)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut Record> {
        self.records.get_mut(&key)
    }

    pub fn remove(&mut self, key: u64) -> Option<Record> {
        self.records.remove(&key)
    }

    /// In the order in which they were saved.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.records.iter().map(|(key, record)| (*key, record))
    }

    /// What errors call a tensor.
    pub fn name_of(&self, key: u64) -> &str {
        self.get(key).map_or("?", |record| &record.name)
    }

    pub fn bytes_of(&self, key: u64) -> u64 {
        self.get(key).map_or(0, |record| record.bytes)
    }

    /// The step that saved a tensor; an error if the record is gone, which is a fault of ours: a handle
    /// keeps it.
    pub fn step_of(&self, key: u64) -> Result<u64> {
        let message = "an activation is asked for that was forgotten";
        let step = self.get(key).map(|record| record.step);
        step.ok_or_else(|| Error::new(Kind::Internal, message))
    }

    pub fn is_offloaded(&self, key: u64) -> bool {
        self.get(key).is_some_and(Record::is_offloaded)
    }

    /// The records of a step.
    pub fn of_step(&self, step: u64) -> Vec<u64> {
        let of_step = self.iter().filter(|(_, record)| record.step == step);
        of_step.map(|(key, _)| key).collect()
    }

    /// Bytes that are on their way out.
    pub fn offloading_bytes(&self) -> u64 {
        self.iter()
            .filter(|(_, record)| record.is_offloading())
            .map(|(_, record)| record.bytes)
            .sum()
    }

    /// Bytes of all tensors, wherever they are.
    pub fn saved_bytes(&self) -> u64 {
        self.iter().map(|(_, record)| record.bytes).sum()
    }

    /// Bytes that they have in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.iter().map(|(_, record)| record.bytes_in_memory()).sum()
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::step::fixtures::operation;
    use crate::activations::{Element, Tensor};

    fn record(step: u64, bytes: u64) -> Record {
        let element = Element::Other;
        Record::new(step, 0, &Tensor { name: "a", bytes, element, operation: operation(1) })
    }

    #[test]
    fn records_stand_in_the_order_in_which_they_were_saved_and_none_gets_the_key_of_another() {
        let mut records = Records::default();
        let first = records.insert(record(1, 10));
        records.remove(first);
        let keys: Vec<_> = (1..4).map(|step| records.insert(record(step % 2, 10))).collect();
        assert!(keys.iter().all(|key| *key > first) && keys.is_sorted());
        assert_eq!(records.of_step(1), [keys[0], keys[2]]);
    }

    #[test]
    fn an_admitted_tensor_has_no_memory_yet_and_a_forgotten_one_is_an_error() {
        let mut records = Records::default();
        let key = records.insert(record(7, 10));
        assert_eq!((records.saved_bytes(), records.bytes_in_memory()), (10, 0));
        assert_eq!(records.step_of(key).unwrap(), 7);
        records.remove(key);
        assert_eq!(records.step_of(key).unwrap_err().kind(), Kind::Internal);
        assert_eq!((records.name_of(key), records.bytes_of(key)), ("?", 0));
    }
}
