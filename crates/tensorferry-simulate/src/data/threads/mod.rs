//! Splits of threads, beside every split there is, and in a loader that exists only as arithmetic.

pub mod exhaustive;
pub mod pipeline;
#[cfg(test)]
mod tests;
