//! What tensorferry's planners are held against: made-up cases, judges, models, replays.
//!
//! The core plans and runs. Whether its plans are good is another question, and what answers it is here: no training
//! needs it. The command `tensorferry simulate` and `tensorferry plan` show it to users; tests of the planners stand
//! beside the judge that they need.
//!
//! ```text
//!   made-up cases  ┐                                      ┌► every plan of a small case: is there a better one?
//!   modelled ones  ├─► a planner of the core ──► Plan ────┼► the simulator's rules again, second by second
//!   users' files   ┘                                      └► its rivals over many cases: by how much?
//! ```
//!
//! | path | cases | judges | replays and comparisons |
//! |---|---|---|---|
//! | [`checkpoint`] | made-up traces, in its tests | what to expect of each tool, known beforehand | all ways to choose, over a recorded trace |
//! | [`data`] | | [`exhaustive`](data::threads::exhaustive) splits of threads | the caches of a cluster ([`eviction`](data::eviction)), a loader as arithmetic ([`pipeline`](data::threads::pipeline)) |
//! | [`activations`] | [`cases`](activations::cases) | [`exhaustive`](activations::exhaustive), [`stepped`](activations::stepped) | [`comparison`](activations::comparison) |
//! | [`parameters`] | [`cases`](parameters::cases), [`modelled`](parameters::modelled) | [`exhaustive`](parameters::exhaustive), [`stepped`](parameters::stepped) | [`comparison`](parameters::comparison) |
//!
//! *Why a crate of its own.* Nothing here is measured, so it is not one with the benchmarks: like the planners it does
//! no I/O and reads no clock, and the same seed gives the same answer. A judge sees of a planner what any user sees, its
//! public functions, and shares none of its shortcuts. What a planner itself decides by, its simulator, is in the core.

pub mod activations;
pub mod checkpoint;
mod combinations;
pub mod data;
pub mod parameters;
mod quantiles;
