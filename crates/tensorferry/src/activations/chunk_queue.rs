//! The chunks that workers will take: reads and writes, in line.
//!
//! Both lines hold chunks of admitted tensors only, so that the budget bounds them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::Permit;
use crate::memory::Part;

/// A chunk to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkWrite {
    /// Of the record.
    pub key: u64,
    /// Which attempt to offload the record it belongs to.
    pub attempt: u32,
    pub chunk: usize,
}

/// A chunk to read, and where to.
pub(super) struct ChunkRead {
    /// Of the record.
    pub key: u64,
    pub chunk: usize,
    pub part: Part,
    /// Who reads has a share in it: if all others are gone, the memory goes with the last read.
    pub permit: Arc<Permit>,
}

/// Chunks in line, and how many of them workers have.
#[derive(Default)]
pub(super) struct ChunkQueue {
    writes: VecDeque<ChunkWrite>,
    reads: VecDeque<ChunkRead>,
    /// Chunks in the hands of workers.
    in_hand: usize,
    /// The record that backward stands still for.
    awaited: Option<u64>,
}

impl ChunkQueue {
    /// Whether any chunk is in line or under way.
    pub fn is_moving(&self) -> bool {
        !self.writes.is_empty() || !self.reads.is_empty() || self.in_hand > 0
    }

    /// A worker has taken a chunk.
    pub fn begin(&mut self) {
        self.in_hand += 1;
    }

    /// A worker is done with a chunk.
    pub fn end(&mut self) {
        self.in_hand -= 1;
    }

    pub fn push_writes(&mut self, writes: impl IntoIterator<Item = ChunkWrite>) {
        self.writes.extend(writes);
    }

    pub fn first_write(&self) -> Option<&ChunkWrite> {
        self.writes.front()
    }

    pub fn pop_write(&mut self) -> Option<ChunkWrite> {
        self.writes.pop_front()
    }

    /// Takes the writes of a record out of the line.
    pub fn cancel_writes(&mut self, key: u64) {
        self.writes.retain(|write| write.key != key);
    }

    pub fn push_reads(&mut self, reads: impl IntoIterator<Item = ChunkRead>) {
        self.reads.extend(reads);
    }

    pub fn pop_read(&mut self) -> Option<ChunkRead> {
        self.reads.pop_front()
    }

    /// Takes the reads of a record out of the line. Their memory is for the caller to drop.
    pub fn cancel_reads(&mut self, key: u64) -> Vec<ChunkRead> {
        let (cancelled, rest): (Vec<_>, Vec<_>) =
            self.reads.drain(..).partition(|read| read.key == key);
        self.reads = rest.into();
        cancelled
    }

    /// Backward stands still for this record: its reads go before all others.
    pub fn hurry(&mut self, key: u64) {
        self.awaited = Some(key);
        let is_first = self.reads.front().is_none_or(|read| read.key == key);
        if !is_first {
            let first = self.cancel_reads(key);
            for read in first.into_iter().rev() {
                self.reads.push_front(read);
            }
        }
    }

    /// Whether it was this record that backward stood still for last.
    pub fn is_awaited(&self, key: u64) -> bool {
        self.awaited == Some(key)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn write(key: u64, chunk: usize) -> ChunkWrite {
        ChunkWrite { key, attempt: 1, chunk }
    }

    #[test]
    fn cancelled_writes_leave_the_line_and_the_others_keep_their_order() {
        let mut queue = ChunkQueue::default();
        queue.push_writes([write(1, 0), write(2, 0), write(1, 1), write(3, 0)]);
        queue.cancel_writes(1);
        assert_eq!(queue.first_write(), Some(&write(2, 0)));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop_write()).collect();
        assert_eq!(rest, [write(2, 0), write(3, 0)]);
    }

    #[test]
    fn a_queue_moves_while_a_chunk_is_in_line_or_in_hand() {
        let mut queue = ChunkQueue::default();
        assert!(!queue.is_moving());
        queue.push_writes([write(1, 0)]);
        assert!(queue.is_moving());
        queue.pop_write();
        queue.begin();
        assert!(queue.is_moving());
        queue.end();
        assert!(!queue.is_moving());
    }
}
