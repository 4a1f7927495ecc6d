//! One binary for all integration tests, one module per ground or path.

mod codec;
