//! tensorferry moves tensors between storage, host memory and accelerators while a model trains, so
//! that the accelerator never waits and memory is never the limit.
//!
//! This crate is the core. It knows neither Python nor torch; the package `tensorferry` for Python
//! and the command `tensorferry` are thin layers over it.
//!
//! # Profile, plan, run
//!
//! The future of a training run is known: the order of the samples follows from a seed, the order
//! of the layers from the model. So the system measures costs (*profile*), decides from costs and
//! future by pure functions (*plan*), and carries the plan out while compute runs (*run*), so that
//! what was predicted and what was measured stand side by side.
//!
//! # The ways data takes
//!
//! Five paths are planned on four grounds and what they decide by. The grounds are here; the paths come one by one:
//! [`checkpoint`], [`data`], [`activations`] and, of [`parameters`], the optimizer so far.
//!
//! ```text
//!   checkpoint    tensors ─► pieces ─► checksum ─► file ─► tensors
//!   data          source ─► cache ─► prepare ─► batch
//!   pool          the data path, served to other processes and hosts
//!   activations   saved tensor ─► encode ─► SSD ─► decode ─► backward
//!   parameters    host parameters ─► device, or in place ─► gradients ─► optimizer
//!  ───────────────────────────────────────────────────────────────────────────── no path above
//!   memory        Buffer, Pool, Block; Ledger (who holds how much)                 knows another
//!   io            Engine: read, write, sync at four priorities; ring, threads
//!   device        Device: memory, streams, events; host, emulated
//!   codec         bitmap (sparse), half (f16, bf16), checksum (CRC-32C); adam (a step's arithmetic)
//!   plan          checkpoint, data, activations, parameters: pure
//!  ─────────────────────────────────────────────────────────────────────────────
//!   error, size, dtype, metrics, trace: what everybody speaks
//! ```
//!
//! One read on its way through the grounds:
//!
//! ```text
//!   Pool ──Lease──► Block ──► Engine::read ──► driver ──► io_uring ──► Pending ──► Block
//!                             (Priority)       pieces, retries          wait        with bytes
//! ```
//!
//! # Example
//!
//! ```
//! use tensorferry::io::{self, Config, Mode, Open, Priority};
//! use tensorferry::memory::Buffer;
//!
//! # fn main() -> tensorferry::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory for the example");
//! # let path = directory.path().join("weights.bin");
//! let engine = io::open(&Config::default())?;
//! let file = engine.open(&path, Open::direct(Mode::New))?;
//!
//! let weights = Buffer::copy_of(&[7; 10_000])?;
//! let weights = engine.write(&file, 0, weights.into(), Priority::Offload).wait()?;
//! engine.sync(&file, Priority::Waiting).wait()?;
//!
//! let again = Buffer::zeroed(weights.len())?;
//! let again = engine.read(&file, 0, again.into(), Priority::Waiting).wait()?;
//! assert_eq!(*again, *weights);
//! # Ok(())
//! # }
//! ```
//!
//! # Why not ...
//!
//! - *an asynchronous runtime?* See [`io`]: a handle that can be polled or waited for is enough, and
//!   the process stays the user's.
//! - *`mmap` for everything?* A page fault stops the thread that meets it, can't be given a
//!   priority, and turns a truncated file into a signal.
//! - *one error type per operation?* Callers decide by [`Kind`], and the message carries the rest.

pub mod activations;
pub mod checkpoint;
pub mod codec;
pub mod data;
pub mod device;
pub mod dtype;
pub mod error;
pub mod interrupt;
pub mod io;
pub mod memory;
pub mod metrics;
pub mod parameters;
pub mod plan;
pub mod size;
mod sync;
mod threads;
pub mod trace;

pub use error::{Error, Kind, Result};
pub use size::Size;
