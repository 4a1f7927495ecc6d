//! What the planners of [`tensorferry::plan::data`] are held against.

pub mod eviction;
pub mod threads;
