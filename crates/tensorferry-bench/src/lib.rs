//! bench

pub mod codec;
