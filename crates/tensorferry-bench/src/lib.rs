//! tensorferry's workloads and their comparison with rivals.
//!
//! Every figure is a ratio taken in one run: ours and the rival's samples alternate, so that a
//! noisy machine disturbs both alike, and the medians are compared. Results are plain data with the
//! samples inside. `benches/README.md` says what of a run is committed.

pub mod checkpoint;
pub mod codec;
pub mod contests;
pub mod date;
pub mod io;
pub mod machine;
pub mod plot;
mod python;
pub mod sample;
