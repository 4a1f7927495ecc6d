//! Decisions, as pure functions of what was measured.
//!
//! A planner takes numbers (a *profile*: seconds by size, tool, thread count) and what is known of
//! the future, and gives data (a *plan*). It does no I/O, reads no clock and starts no thread, so
//! that it can be tested exhaustively, replayed over recorded runs, and compared with its rivals and
//! with the best that hindsight could have done.
//!
//! | planner | decides |
//! |---|---|
//! | [`tools`] | which way an object takes to and from a file |
//! | [`order`] | which sample comes when, as torch does |
//! | [`eviction`] | which samples stay near |
//! | [`offload`] | which activations leave memory between forward and backward |
//! | [`modes`] | which layers are copied to the device, and which are used in host memory |
//! | [`gradients`] | which gradients stay on the device until they are copied out |
//! | [`threads`] | how many threads load, for whom, and how many prepare |
//! | [`simulate`] | what that amounts to in a cluster, or in a training step |

pub mod eviction;
pub mod gradients;
pub mod modes;
pub mod offload;
pub mod order;
pub mod simulate;
pub mod threads;
pub mod tools;
