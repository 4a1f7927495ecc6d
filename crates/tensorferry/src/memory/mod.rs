//! Memory that I/O can use: aligned, owned, bounded.
//!
//! ```text
//!   Ledger ── claims ──► who holds how much       Arena ── spans ──► where in a fixed range
//!
//!   Buffer  one allocation, freed on drop   ┐
//!   Lease   a slot of a Pool, returned      ├──► Block: what an operation owns while the kernel
//!   Foreign somebody else's memory, kept    ┘           or a device works on it
//!      ▲
//!   SpareBlocks   large blocks that are used again and again
//!   Loans   blocks of another allocator, freed when nobody here reads them any more
//!   Mapped  a file as memory, private; residency: how much of it the kernel has at hand
//!
//!   Region  a Block of which many borrow disjoint ranges: an allocation of a device
//!
//!   Headroom  how much memory this process can still take
//!   caretaker: gives back what is kept for the next user and not used
//! ```
//!
//! A block in flight in several pieces at once is cut into [`Parts`].
//!
//! Ownership is the whole safety argument of this module: a [`Block`] keeps its memory alive and
//! at the same address for as long as it exists, and an operation holds its block until the
//! hardware is done. Nobody can see or free bytes that are still in flight.
//!
//! All memory here is initialised from the start (zeroed by the kernel), so that a short read can
//! never expose bytes which Rust considers uninitialised.

pub mod arena;
pub mod ledger;

mod block;
mod buffer;
mod caretaker;
mod cgroup;
mod headroom;
mod loan;
mod local;
mod mapped;
mod mapping_cache;
mod part;
mod pool;
mod populate;
mod process;
mod region;
mod residency;
mod spare_blocks;
mod spin;

pub use arena::Arena;
pub use block::{Block, Foreign};
pub use buffer::{ALIGNMENT, Buffer};
pub(crate) use caretaker::is_short_of;
#[cfg(not(loom))]
pub(crate) use caretaker::{Keeper, soon};
pub use headroom::Headroom;
pub use ledger::{Claim, Ledger, Named, Priority};
pub use loan::{Loan, Loans, Watch};
pub(crate) use local::is_local;
pub use mapped::{Advice, Mapped};
pub use part::{Part, Parts};
pub use pool::{Lease, Pool};
pub(crate) use populate::complete;
pub(crate) use process::process_id;
pub(crate) use region::overlap;
pub use region::{Reading, Region, Writing};
pub use residency::residency;
pub use spare_blocks::{Share, SpareBlocks};
pub use spin::Spin;
