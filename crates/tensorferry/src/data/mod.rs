//! From stored samples to batches in memory, in an order known from the seed.
//!
//! ```text
//!   order ─► Source::fetch ─► Raw ─► Recipe::prepare ─► slot of a batch ─► Batch ─► consumer
//!   plan     folder, tar,     bytes  decode, crop,      one buffer for     in order
//!            files, remote    │  ▲   resize, normalize  each column
//!                             ▼  │
//!                            cache: memory, SSD; plan::data::eviction decides
//! ```
//!
//! | room | what it knows |
//! |---|---|
//! | [`source`] | where samples lie, how their stored bytes are had |
//! | [`sample`] | a sample on its way: [`Raw`](sample::Raw) fields, the [`Layout`](sample::Layout) of a result, its [`Place`](sample::Place) |
//! | [`recipe`] | stored bytes to numbers: decoders and transforms |
//! | [`batch`] | samples side by side, while threads write them and when they are done |
//! | [`cache`] | samples kept near: memory, SSD |
//! | [`loader`] | threads, queues, order, bad samples |
//! | `stored` | local files that samples lie in, read by way of the [engine](crate::io) |
//! | `spent` | where the time of threads goes |
//! | [`chance`] | the randomness of a sample, from seed, epoch and index alone |

pub mod batch;
pub mod cache;
pub mod chance;
pub mod loader;
pub mod recipe;
pub mod sample;
pub mod source;
mod spent;
mod stored;

pub use stored::StoredFile;
