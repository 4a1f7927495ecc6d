//! Checkpoints: tensors to a file and back.
//!
//! A checkpoint is a valid safetensors file, so that every tool of the ecosystem reads it:
//!
//! ```text
//!   0          8                              a multiple of 4096
//!   | N: u64   | N bytes of JSON, then spaces | tensor | tensor | ... | end of the file
//! ```
//!
//! The header is padded with spaces so that the data starts on a block, for direct I/O. Tensors of
//! whole blocks come first, then the others in descending order of their elements' size, so that each
//! is aligned for its elements, without a gap, as the format demands. The metadata keeps the
//! checksums and, if there is one, the structure of the object that the tensors belong to.
//!
//! | room | what it knows |
//! |---|---|
//! | `recognise` | what a file is, by its first bytes |
//! | `header`, `dtype` | what is in a file, and where; judges anybody's |
//! | `structure` | the nested object; judges anybody's |
//! | `index` | which files make up a checkpoint; judges anybody's |
//! | `checksums` | CRC-32C of every tensor and of the header itself |
//! | `window`, `extent` | what is written, and read, at once (pure) |
//! | `whole` | small files, of which that is all |
//! | `feed` | tensors into staged windows |
//! | `save`, `behind` | a save that is waited for, and one that goes on behind its caller |
//! | `draft`, `turn` | a file beside its name, put in its place whole, in order |
//! | `load` | a file open for loading |
//! | `loading` | tensors on their way from it to memory |
//! | `tool` | direct, buffered, mapped: the ways between a file and memory |
//!
//! [`save()`] and [`save_behind`] write, [`Checkpoint`] reads.
//!
//! ```
//! use tensorferry::checkpoint::{Checkpoint, Dtype, Header, Options, Tensor, Wanted, save, staging};
//! use tensorferry::io::{Config, open};
//! use tensorferry::memory::Buffer;
//!
//! # fn main() -> tensorferry::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = &directory.path().join("model.ferry");
//! let engine = open(&Config::default())?;
//! let tensors = [("weight".to_owned(), Dtype::F32, vec![2, 2])];
//! let header = Header::lay_out(tensors, Default::default())?;
//! let mut source = |_: &Tensor| Ok(Buffer::copy_of(&[7; 16])?.into());
//! save(&engine, path, header, &mut source, &Options::new(staging(64 << 20)?))?;
//!
//! let checkpoint = Checkpoint::open(&engine, path, None, true)?;
//! let blocks = checkpoint.load(vec![Wanted { tensor: 0, into: None }])?;
//! assert_eq!(*blocks[0], [7; 16]);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/checkpoint.rs` shows more.

mod behind;
mod checksums;
mod draft;
mod extent;
mod feed;
mod header;
mod index;
mod json;
mod load;
mod loading;
mod probe;
mod recognise;
mod save;
mod structure;
#[cfg(test)]
mod tests;
mod tool;
mod turn;
mod whole;
mod window;

pub use crate::dtype::Dtype;
pub use behind::{Saving, save_behind};
pub use checksums::CHECKSUMS;
pub use draft::Draft;
pub use feed::Source;
pub use header::{DATA_ALIGNMENT, HEADER_BYTES_MAX, Header, METADATA, Tensor};
pub use index::{INDEX_BYTES_MAX, INDEX_VERSION, Index, Kept, Ranks};
pub use load::{Checkpoint, Wanted};
pub use probe::{Probe, Stamp};
pub use recognise::{Format, recognise};
pub use save::{Options, Report, STAGING_BYTES, WINDOWS_MAX, save, staging};
pub use structure::{
    Entries, Leaf, NESTING_MAX, Node, STRUCTURE, STRUCTURE_VERSION, Structure, Tree, View,
};
pub use tool::{Buffered, Direct, Mapped, Reader, Tool, tool};
