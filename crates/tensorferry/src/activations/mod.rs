//! Saved activations to SSD and back, while a model trains (FlashNeuron).
//!
//! ```text
//!  forward   admit ─► save ─► Resident ─────────────────────────────────► take ─► backward
//!            room?            │ offloaded            used before it left ▲
//!                             ▼                                          │
//!                          Offloading ─► chunks: encode, checksum, write ┤
//!                             │          workers                         │
//!                             ▼ the last write is done: memory is free   │
//!                          Offloaded ─► Fetching: read, check, decode ─► Fetched
//!                                       in the order of use, as far as there is room
//! ```
//!
//! | what | file |
//! |---|---|
//! | the interface: forward passes, admission, saving; a saved tensor's handle | `store.rs`, `saved.rs` |
//! | who waits for room; how much there is; for how long nothing may move | `admission.rs`, `room.rs`, `patience.rs` |
//! | which tensors leave for others | `eviction.rs` |
//! | a tensor's states; all tensors | `record.rs`, `records.rs` |
//! | the way out, the way back, and the chunks in line | `offload.rs`, `fetch.rs`, `chunk_queue.rs` |
//! | a chunk's way through a worker; how it is coded; where it lies | `worker.rs`, `encoding.rs`, `scratch.rs` |
//! | all of this under one lock; what is beside the lock | `state.rs`, `shared.rs` |
//! | steps; one step; its clocks, operations, order of use, traffic, fault | `steps.rs`, `step.rs`; `clock.rs`, `operation.rs`, `use_order.rs`, `traffic.rs`, `fault.rs` |
//! | the plan in force, and what was learned from steps | `following.rs`, `plans.rs`, `measured.rs` |
//! | how a budget is divided; memory that counts; numbers | `sizes.rs`, `memory.rs`, `report.rs` |
//!
//! **Who owns what.** A tensor's memory is a block that its record has until the last chunk is on disk. What
//! is read back lies in a block of the [`SpareBlocks`], is shared by all who take it, and returns when the last of
//! them lets go. A record lives as long as its [`Saved`]: a graph that is dropped takes its records, queued
//! writes and ranges on disk with it.
//!
//! **Bounds.** The budget is a promise about the bytes of activations in memory: tensors that wait
//! for their write or were kept, those that were read back, and the workers' staging buffers. What
//! would go beyond it first takes the place of restored tensors that nobody uses, and of those that
//! were prefetched too early; then it waits for what is leaving, or is still to be freed by its
//! owner; then tensors that were kept leave for it. What one operation saves is used at once: if that
//! alone is more than the budget, the end of forward is an error, which states the least that would do.
//! Otherwise room comes: what waits is not passed by what is fetched ahead, so that each tensor that is
//! let go of brings it nearer, until only callers have memory. If they give none back for a while, that is
//! an error too. Beside the budget, freed blocks of up to half of it
//! (and of one tensor, the largest, at least) are kept as spare blocks for the next tensors.
//!
//! **Profile, plan, run.** In the first step what fits stays, and leaves when there is no room for more,
//! what was saved first before the rest. It is measured. From then on a [plan](crate::plan::activations) says
//! what is kept. A step that does not match it (another number of tensors, other sizes, another order of
//! use) follows the plan of those that it is like, or goes on as a first one does, and is measured.
//!
//! **Drives.** A chunk goes to the drive that would be done with it first. One that is full leaves it to
//! the others.
//!
//! **Faults.** A write or read that fails, and a checksum that does not match, fail the step: every
//! later call for it raises the same error, with the tensor's name, and its memory is given back. Nothing
//! is handed out that was not checked. The next step begins without it, and saves anew what it has in common
//! with one that failed.
//!
//! **Locks.** There is one, around all that is known. Nothing that frees memory is
//! dropped under it, because what keeps a caller's memory alive may come back to this lock. Nothing
//! that takes long is done under it: coding, transfers, planning, the growth of a file.
//!
//! [`SpareBlocks`]: crate::memory::SpareBlocks

mod admission;
mod chunk_queue;
mod clock;
mod encoding;
mod eviction;
mod fault;
mod fetch;
mod following;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod measured;
mod memory;
mod offload;
mod operation;
mod patience;
mod plans;
mod record;
mod records;
mod report;
mod room;
mod saved;
mod scratch;
mod shared;
mod sizes;
mod state;
mod step;
mod steps;
mod store;
mod traffic;
mod use_order;
mod worker;

pub use encoding::{Compress, Element};
pub use memory::{Held, Memory, TensorMemory};
pub use operation::Operation;
pub use report::{Mode, Report, StepReport};
pub use saved::Saved;
pub use store::{Admission, Config, Store, Tensor};
