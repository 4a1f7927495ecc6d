//! tensorferry moves tensors between storage, host memory and accelerators while a model trains.

pub mod codec;
pub mod device;
pub mod error;
pub mod io;
pub mod memory;
pub mod metrics;
pub mod size;
mod sync;
pub mod trace;

pub use error::{Error, Kind, Result};
pub use size::Size;
