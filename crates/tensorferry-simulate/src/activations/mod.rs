//! What the planners of [`tensorferry::plan::activations`] are held against.
//!
//! | what | file |
//! |---|---|
//! | made-up steps | `cases.rs` |
//! | every plan of a small step | `exhaustive.rs` |
//! | the simulator's rules again, second by second | `stepped.rs` |
//! | both planners over many steps | `comparison.rs` |

pub mod cases;
pub mod comparison;
pub mod exhaustive;
pub mod stepped;
#[cfg(test)]
mod tests;
