//! Files to memory and back: the engine every path shares.
//!
//! ```text
//!   read(file, offset, Block, Priority) ─┐
//!   write(file, offset, Block, Priority) ├─► driver ─► ring     io_uring, O_DIRECT
//!   sync(file, Priority) ────────────────┘   (one      threads  pread, pwrite
//!        │                                   thread)   memory   for tests
//!        └──► Pending: look, wait, or drop             faulty   around any of them
//! ```
//!
//! [`Engine`] is the seam that paths see; a backend is the seam that kernels see. Between them the
//! driver does once, for all backends, what is easy to get wrong: it cuts an operation of any size
//! into pieces, finds a way for unaligned edges, bounds what is in flight, shares the disk by
//! [`Priority`], continues short transfers, retries what passes, and keeps every buffer alive until
//! the kernel is done with it. Few bytes that a caller waits for are moved on its own thread
//! ([`Engine::read_inline`]), also to memory that it keeps ([`Engine::move_inline`]): with the same retries, faults
//! and counters.
//!
//! Why not an asynchronous runtime? A path here has a handful of large operations under way and a
//! thread that plans them; a handle that can be polled or waited for is all it needs, and no
//! runtime decides for the user how the process looks.

mod backend;
mod borrowed;
mod config;
mod demand;
mod driver;
mod faulty;
mod file;
mod flight;
mod gate;
#[cfg(test)]
#[cfg(loom)]
pub(crate) mod immediate;
mod inbox;
mod inline;
mod memory;
mod meter;
mod operation;
mod pace;
mod pending;
mod piece;
mod priority;
mod ring;
mod schedule;
mod shared;
mod threads;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

pub use borrowed::Borrowed;
pub use config::{Choice, Config};
pub use faulty::{Effect, Fault, Faults, On};
pub use file::{File, Mode, Open};
pub(crate) use pending::promise;
pub use pending::{Failed, Pending};
pub use priority::Priority;
pub use shared::Shared;

use crate::error::Result;
use crate::memory::Block;

/// Moves bytes between files and memory.
///
/// Operations run side by side and in no order: who needs one waits for the first before starting
/// the second. Each owns its block until it is done. A file is used with the engine that opened
/// it.
pub trait Engine: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> Result<File>;

    /// Fills `into` with the bytes at `offset`. A file that ends too early is
    /// [`Kind::Truncated`](crate::Kind::Truncated).
    fn read(&self, file: &File, offset: u64, into: Block, priority: Priority) -> Pending<Block>;

    /// Writes all of `from` at `offset`.
    fn write(&self, file: &File, offset: u64, from: Block, priority: Priority) -> Pending<Block>;

    /// Reads as [`read`](Self::read) does, on the calling thread, which waits anyway: for few bytes, handing
    /// them to another thread and back takes longer than the disk.
    fn read_inline(&self, file: &File, offset: u64, into: Block) -> Result<Block, Failed> {
        self.read(file, offset, into, Priority::Waiting).wait()
    }

    /// Writes as [`write`](Self::write) does, on the calling thread, likewise.
    fn write_inline(&self, file: &File, offset: u64, from: Block) -> Result<Block, Failed> {
        self.write(file, offset, from, Priority::Waiting).wait()
    }

    /// Moves bytes between a file and memory that the caller keeps, on the calling thread and through the page
    /// cache, and says how many: fewer than are wanted only where the file ends. So a small file is
    /// read by one call of the kernel's, and a large one straight to where it belongs. An engine that stops
    /// does not wait for it: the kernel has nothing of it but while the caller is here.
    fn move_inline(
        &self,
        file: &File,
        offset: u64,
        memory: Borrowed<'_, '_>,
        priority: Priority,
    ) -> Result<usize>;

    /// Makes every write to the file that was done before survive a power cut. Once it has failed,
    /// the file takes no more writes.
    fn sync(&self, file: &File, priority: Priority) -> Pending<()>;

    /// Accepts nothing more, and returns when all that was accepted is done. Dropping the last
    /// handle does the same.
    fn stop(&self);

    /// What this engine is.
    fn facts(&self) -> &Facts;
}

/// What an engine is, as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// `ring`, `threads` or `memory`.
    pub backend: &'static str,
    /// Why this backend and not a better one.
    pub why: String,
    /// Transfers that can be under way at once.
    pub depth: usize,
    /// Bytes that can be under way at once.
    pub in_flight_bytes: u64,
    /// Bytes of memory that the kernel keeps pinned.
    pub registered_bytes: u64,
}

/// Opens the engine that `config` asks for; by default the fastest that this kernel allows.
pub fn open(config: &Config) -> Result<Arc<dyn Engine>> {
    config.check()?;
    match config.choice {
        Choice::Ring => driver::ring(config, "asked for"),
        Choice::Threads => driver::threads(config, "asked for".into()),
        Choice::Memory => driver::memory(config),
        Choice::Auto => driver::ring(config, "the fastest here")
            .or_else(|error| driver::threads(config, error.to_string())),
    }
}
