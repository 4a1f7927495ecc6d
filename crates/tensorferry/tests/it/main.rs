//! One binary for all integration tests, one module per ground or path.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod activations;
mod checkpoint;
mod codec;
mod data;
mod device;
mod engine;
mod fuzz;
mod io;
mod metrics;
mod optimizer;
mod recipe;
mod shadow;
mod source;
mod tree;
mod victim;
