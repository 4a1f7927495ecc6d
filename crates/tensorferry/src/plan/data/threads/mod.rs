//! How many threads load, for whom, and how many prepare.
//!
//! A loader has one set of threads and two kinds of work: *loading* (storage to memory, a queue for
//! each consumer) and *preparing* (decode, crop, normalize; shared by all consumers). Which of the two
//! holds the consumers up depends on the machine, the samples and the hour, so both are measured while
//! training runs and the split follows.
//!
//! ```text
//!   samples done ──► Portfolio (prepare) ─┐
//!                ──► Portfolio (load) ────┼─► Forecast ─► split ─► Split ─► the loader's threads
//!   Consumer: queue, batch, train, ready ─┘                 ▲         │
//!                                                           └── last ─┘
//! ```
//!
//! | what | file |
//! |---|---|
//! | threads to seconds a sample, for one size | `model.rs` |
//! | one model for each class of sizes | `portfolio.rs` |
//! | seconds of each stage under a split, and its score | `forecast.rs` |
//! | how many prepare: the paper's two steps | `prepare.rs` |
//! | how many load for whom: the paper's algorithm 1, and the fairest share | `load.rs` |
//! | the paper's parts put together | `paper.rs` |
//! | what the loader calls: even shares, or what was measured | `split.rs` |
//!
//! *Where this differs from the paper.* It adds the seconds of loading and preparing and compares them
//! with training. In a pipeline the two overlap: a consumer waits for the slower of them, and the sum
//! only matters for the first batch. So the score of a split is the worst stall of a consumer in the
//! pipeline; then the gap between consumers; then the sum, as the paper has it. Where the consumers train
//! equally long, the sum is at most twice the least possible, or twice the training, within the tolerance
//! of the peak.
//!
//! *States.* None but the portfolios: a split is a function of them, of the consumers and of the last
//! split. Called again with nothing changed, it gives the same split.
//!
//! *Bounds.* A model has at most [`POINTS_MAX`](model::POINTS_MAX) points, a portfolio 64 models. A split
//! of `n` threads among `m` consumers takes on the order of `n² m` steps.

pub mod forecast;
pub mod load;
pub mod model;
pub mod paper;
pub mod portfolio;
pub mod prepare;
mod split;

pub use model::Model;
pub use portfolio::Portfolio;
pub use split::{COMFORT, Consumer, MARGIN, Machine, Split, fixed, split};
