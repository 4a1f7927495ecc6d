//! Where samples lie.
//!
//! A source is a list of samples, made once when it is opened and fixed from then on; fetching one
//! gives its stored bytes. It is called by many threads at once and waits for storage in the thread
//! that calls.

use super::sample::Raw;
use crate::error::Result;

/// A list of stored samples.
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a sample lies, for people: a path, or a shard and what is in it.
    fn name(&self, index: usize) -> String;

    /// The stored bytes of a sample, as they were when the list was made.
    fn bytes(&self, index: usize) -> u64;

    /// What the fields of every sample are: the endings of their names, `jpg` or `npy`, in lower
    /// case. A source of files whose endings differ says the empty string.
    fn fields(&self) -> &[String];

    /// What the sample is labelled with.
    fn label(&self, index: usize) -> Label;

    /// The stored bytes of a sample. Errors name it.
    fn fetch(&self, index: usize) -> Result<Raw>;
}

/// What a source knows about a sample beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Label {
    /// Nothing.
    None,
    /// A class, or any whole number.
    Int(i64),
    /// A number.
    Float(f64),
}
