//! Decisions, as pure functions of what was measured.
//!
//! A planner takes numbers (a *profile*: seconds by size, tool, thread count) and what is known of
//! the future, and gives data (a *plan*). It does no I/O, reads no clock and starts no thread, so
//! that it can be tested exhaustively, replayed over recorded runs, and compared with its rivals and
//! with the best that hindsight could have done.
//!
//! | path | its planner decides |
//! |---|---|
//! | [`checkpoint`] | which tool takes an object to and from a file |
//! | [`data`] | which sample comes when, which samples are kept, how many threads load and prepare |
//! | [`activations`] | which activations leave memory between forward and backward |
//! | [`parameters`] | which layers are copied to the device, and which gradients stay there |
//!
//! # One layout
//!
//! A file that plays the same part has the same name in every path that has it:
//!
//! | file | part |
//! |---|---|
//! | `profile.rs` | what was measured |
//! | `plan.rs` | what is to be done, and what it should come to |
//! | `budget.rs` | the least memory that any plan needs |
//! | `paper.rs` | the published algorithm |
//! | `explain.rs`, `report.rs` | a plan, or what was done, as a table |
//! | `document.rs`, for all paths | profiles and plans as JSON, read and judged |
//! | `simulate/` | what a plan comes to, event by event |
//!
//! What plans are held against is in the crate `tensorferry-simulate`, in the same layout: made-up cases and models
//! of machines, every plan of a small case, the simulators' rules once more, planners over many cases. `simulate/` is
//! here because planners decide by it.

pub mod activations;
pub mod checkpoint;
pub mod data;
mod document;
pub mod parameters;
mod text;
