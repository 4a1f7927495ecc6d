//! What the planners of [`tensorferry::plan::parameters`] are held against.
//!
//! | what | file |
//! |---|---|
//! | made-up iterations | `cases.rs` |
//! | profiles from published shapes and hardware figures | `modelled/` |
//! | every plan of a small iteration | `exhaustive.rs` |
//! | the simulator's rules again, second by second | `stepped.rs` |
//! | all planners over many iterations | `comparison.rs` |

pub mod cases;
pub mod comparison;
pub mod exhaustive;
pub mod modelled;
pub mod stepped;
#[cfg(test)]
mod tests;
