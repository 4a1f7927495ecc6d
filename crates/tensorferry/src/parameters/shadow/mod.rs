//! A model whose parameters are in host memory, run on a device that has no room for them.
//!
//! ```text
//!   HostMemory ──copies in pieces──► Buffer (GFGB, DFGB) ──► kernel: the calling thread, entered
//!     │                                                         │ gradient
//!     └──────────── in place over the link (DHA, DFGB) ─────────┤
//!                                                               ▼
//!   update ◄── HostMemory of gradients ◄── copies ◄── Buffer, or written in place
//! ```
//!
//! | what | file |
//! |---|---|
//! | device, budget, and what is installed there | `runtime.rs` |
//! | host memory | `host_memory.rs` |
//! | device memory of a layer, and its pieces | `buffer.rs` |
//! | layers and plan, installed | `installation.rs` |
//! | what is known, under one lock | `state.rs` |
//! | what the computation calls | `iteration.rs` |
//! | a thread for each direction of the link | `lane.rs`; pieces and speed `link.rs` |
//! | a thread for updates | `updates.rs` |
//! | what an iteration came to | `report.rs` |
//!
//! The rules of an iteration are those that a plan is simulated by
//! ([`plan::parameters::simulate`](crate::plan::parameters::simulate)), so that what was predicted is
//! what happens. Copies go in small pieces, two of them in line, so that a kernel that reads in place waits for one
//! at most. Gradients go out in the order of backward, copied or written.
//!
//! **States.** A layer's copy is *absent*, *under way* or *ready*, in each iteration anew. A kernel is *entered* and
//! *left*; meanwhile nothing may change its parameters. A gradient is *made*, *leaving*, *arrived*.
//! A failure ends the installation: every call from then on says what failed, until a plan is installed again. Parameters
//! are only read on the way, so that those are unharmed which no update has reached.
//!
//! **Who touches host memory when.** Copies and kernels read parameters within an iteration, from [`Shadow::begin`] to
//! [`Shadow::end`], and there every use is borrowed from the device's mapping. Others, who have the address, write to
//! parameters between iterations, or in an update, which starts when no kernel and no copy reads them; they read a
//! gradient when it has arrived, and never write to it before.
//!
//! **Ownership.** An installation owns its buffers and its threads; they go with it, also in the middle of an
//! iteration. Host memory lives as long as anybody who has it, and a copy has it.
//!
//! **Bounds.** Buffers are counted before they are allocated and never above the budget. Two pieces are in line in each
//! direction. Every wait ends with an error when nothing has moved for [`PATIENCE`].

mod buffer;
mod host_memory;
mod installation;
mod iteration;
mod lane;
mod link;
mod report;
mod runtime;
mod state;
mod updates;

use std::time::Duration;

pub use buffer::room;
pub use host_memory::{Home, HostMemory, Slice};
pub use installation::{Layer, Pause};
pub use report::{Report, Spans};
pub use runtime::Shadow;
pub use state::Work;

/// How long nothing may move before a wait is an error.
pub const PATIENCE: Duration = Duration::from_mins(1);
