//! Codecs: what happens to bytes between a tensor and the storage under it.
//!
//! - [`adam`] is no codec, but arithmetic on the way: an optimizer's step over bytes that lie in
//!   memory or are just passing through it. It is here because its kernels are of the same kind.
//! - [`bitmap`] stores only the nonzero elements of a tensor, and one bit for each element. It is
//!   lossless to the last bit: signed zeros and NaN payloads come back as they were.
//! - [`half`] narrows `f32` to `f16` or `bf16` and widens it back. Narrowing rounds; everything
//!   that a half can hold comes back as it was.
//! - [`checksum`] is CRC-32C, in one piece or in pieces that are computed apart and combined.
//! - `jpeg` decodes the part of a picture that is asked for (with the feature `images`).
//!
//! # Which version runs
//!
//! [`adam`], [`bitmap`] and [`half`] have a portable version in plain Rust and faster ones for
//! [`Level::Avx2`] and [`Level::Avx512`]; the kernels of the checksum are a library's, which chooses
//! among them itself. The plain functions (`encode_into`, `narrow`, ...) take the best level that
//! the processor offers, found once at run time, so that one build serves every machine. The
//! functions that end in `_at` take a level by name, for tests and benchmarks; a level that this
//! processor lacks is an error, never an illegal instruction. All levels give the same bytes: the
//! portable version says what is right, and property tests hold the others to it.
//!
//! Slices are plain bytes of any alignment, in little-endian order as on disk.
//!
//! # Where the unsafe code is
//!
//! In the kernels (`*/avx2.rs`, `*/avx512.rs`), in the one line that calls each of them, and where
//! `jpeg` calls its library. A kernel takes arrays of fixed size, so that its bounds can be read off
//! its types.

pub mod adam;
pub mod bitmap;
pub mod checksum;
pub mod half;
#[cfg(feature = "images")]
pub mod jpeg;
mod level;

pub use level::Level;
