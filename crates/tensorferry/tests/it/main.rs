//! One binary for all integration tests, one module per ground or path.
#![allow(clippy::unwrap_used, reason = "clippy knows tests by their attribute, not their helpers")]

mod arena;
mod metrics;
