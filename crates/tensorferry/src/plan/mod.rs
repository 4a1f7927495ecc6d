//! Decisions, as pure functions of what was measured.
//!
//! A planner takes numbers (a *profile*: seconds by size, tool, thread count) and what is known of
//! the future, and gives data (a *plan*). It does no I/O, reads no clock and starts no thread, so
//! that it can be tested exhaustively, replayed over recorded runs, and compared with its rivals and
//! with the best that hindsight could have done.
//!
//! So far: [`tools`], which way an object takes to and from a file; [`order`], which sample comes when;
//! [`eviction`], which samples stay near; [`simulate`], what all of that amounts to in a cluster.

pub mod eviction;
pub mod order;
pub mod simulate;
pub mod tools;
