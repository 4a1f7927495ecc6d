//! Checkpoints: tensors to a file and back.
//!
//! A checkpoint is a valid safetensors file, so that every tool of the ecosystem reads it:
//!
//! ```text
//!   0          8                              a multiple of 4096
//!   | N: u64   | N bytes of JSON, then spaces | tensor | tensor | ... | end of the file
//! ```
//!
//! The header is padded with spaces so that the data starts on a block, for direct I/O. Tensors
//! stand in descending order of their elements' size, so that each is aligned for its elements,
//! without a gap, as the format demands.
//!
//! How tensors and plain values make up a nested object is told by a text in the header's metadata,
//! which [`Structure::parse`] reads and judges.
//!
//! So far this path knows the header: [`Header::encode`] writes it, [`Header::decode`] reads and
//! judges anybody's. Saving and loading come on top of it.

mod dtype;
mod header;
mod structure;
#[cfg(test)]
mod tests;

pub use dtype::Dtype;
pub use header::{DATA_ALIGNMENT, HEADER_BYTES_MAX, Header, METADATA, Tensor};
pub use structure::{
    Entries, Leaf, NESTING_MAX, Node, STRUCTURE, STRUCTURE_VERSION, Structure, Tree, View,
};
