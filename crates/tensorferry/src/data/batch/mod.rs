//! Samples side by side.
//!
//! A batch is made of columns: one buffer for each array of its samples, in which sample after
//! sample lies where torch expects it. While it is in the [`Making`], many threads write to
//! it, each to a slot that is its own; once all are done, the columns are whole and nothing is copied
//! any more.

mod making;

pub use making::{Making, Slot};

use super::sample::Layout;
use super::source::Label;
use crate::memory::Block;

/// Samples, ready to be used.
#[derive(Debug)]
pub struct Batch {
    /// Which samples, in order.
    pub indices: Vec<u32>,
    /// What the source knows about each of them.
    pub labels: Vec<Label>,
    /// What they are made of.
    pub columns: Vec<Column>,
}

/// One array or one string of bytes of every sample in a batch.
#[derive(Debug)]
pub struct Column {
    /// The field it comes from.
    pub field: usize,
    /// Its name in the field; empty when the field has but one.
    pub member: String,
    /// The values, sample after sample.
    pub content: Content,
}

/// The values of a column.
#[derive(Debug)]
pub enum Content {
    /// Arrays of one layout, one behind the other.
    Arrays {
        /// What each looks like.
        layout: Layout,
        /// All of them.
        block: Block,
    },
    /// Bytes as they were stored.
    Blobs(Vec<Vec<u8>>),
}
