//! Parameters, gradients and optimizer state out of device memory (MemFerry).
//!
//! ```text
//!   host parameters ─► device, or in place ─► gradients ─► optimizer ─► host parameters
//!                                                          └ moments, masters: memory or SSD
//! ```
//!
//! So far there is the end of the way: the [`optimizer`].

pub mod optimizer;
