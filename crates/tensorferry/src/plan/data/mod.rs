//! Samples: in which order, from where, and by how many threads.
//!
//! ```text
//!   seed, epoch ──► order ──► which sample comes when, on every node
//!                     │ next uses
//!                     ▼
//!                  eviction ──► which samples a node keeps
//!   measured ───►  threads ───► how many threads load for whom, and how many prepare
//! ```
//!
//! | planner | decides |
//! |---|---|
//! | [`order`] | which sample comes when, as torch does |
//! | [`eviction`] | which samples are kept |
//! | [`threads`] | how many threads load, for whom, and how many prepare |

pub mod eviction;
pub mod order;
pub mod threads;
