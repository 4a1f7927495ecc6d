//! The structure of a saved object: how tensors and plain values make up what was saved.
//!
//! A text of JSON under [`STRUCTURE`] in the header's metadata; docs/formats.md says what it
//! consists of. It is outside bytes, and Python builds objects from it, so it is judged here first:
//!
//! ```text
//!   text ──► json (a tree in the order of the text) ──► judge ──► Node, Leaf ──► tree (for people)
//! ```
//!
//! What comes out is consistent: every tag is known, containers are at most [`NESTING_MAX`] deep,
//! no key stands twice, every name is a tensor of the header, every view lies inside the bytes that
//! are stored for it, and leaves that share memory have countable places in it. Anything else is an error that says at which place of the object. Memory
//! is proportional to the text.

mod judge;
mod leaf;
mod node;
mod notation;
#[cfg(test)]
mod tests;
mod tree;

pub use leaf::{Leaf, View};
pub use node::{Entries, Node};
pub use tree::Tree;

use super::header::Header;
use super::json;
use crate::error::Result;

/// The name of the text in the header's metadata.
pub const STRUCTURE: &str = "tensorferry";

/// The newest version that is read; what needs no newer one is written in an older.
pub const STRUCTURE_VERSION: u64 = 2;

/// Containers inside one another. JSON readers stop at 128 levels, and one of ours takes up to 3.
pub const NESTING_MAX: usize = 40;

/// What was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// Of the text's format.
    pub version: u64,
    /// Whether the file has checksums.
    pub checksum: bool,
    /// What wrote the file.
    pub tool: String,
    /// The object.
    pub object: Node,
}

impl Structure {
    /// Reads a text and judges it against the header that it stands in.
    pub fn parse(text: &str, header: &Header) -> Result<Self> {
        judge::structure(&json::read(text, "the structure of the object")?, header)
    }

    /// The object as an indented tree for people, in at most `lines_max` lines.
    pub fn tree(&self, lines_max: usize) -> Tree<'_> {
        Tree::new(&self.object, lines_max)
    }
}
