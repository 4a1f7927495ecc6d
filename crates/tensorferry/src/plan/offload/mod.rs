//! Which activations leave memory between forward and backward.
//!
//! Forward saves tensors for backward. Where they do not all fit, some go to disk while forward computes
//! and come back while backward does. A plan says which; the budget is what may be in memory at once.
//!
//! | what | file |
//! |---|---|
//! | what was measured of a step | `profile.rs` |
//! | what is to be done, and what it should come to | `plan.rs` |

mod budget;
mod plan;
mod profile;

pub use budget::minimum_budget;
pub use plan::{Choice, Place, Plan, Planner, Prediction};
pub use profile::{Codec, Disk, Profile, TENSORS_MAX, Tensor, USES_MAX, Use, VERSION};
