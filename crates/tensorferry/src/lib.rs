//! tensorferry moves tensors between storage, host memory and accelerators while a model trains, so
//! that the accelerator never waits and memory is never the limit.
//!
//! This crate is the core. It knows neither Python nor torch; the package `tensorferry` for Python
//! and the command `tensorferry` are thin layers over it.
//!
//! # What to call
//!
//! | to | call | more in |
//! |---|---|---|
//! | read and write files past the page cache, by priority | [`io::open`], which gives an [`Engine`] | [`io`] |
//! | save tensors, behind the training if wanted | [`save`], [`save_behind`] | [`checkpoint`] |
//! | load them, some or all, verified | [`Checkpoint`] | [`checkpoint`] |
//! | turn stored samples into batches, in a known order | [`Loader`] over a [`Source`] | [`data`] |
//! | keep activations on SSD between forward and backward | [`ActivationStore`] | [`activations`] |
//! | take steps of Adam, with the state in memory or on SSD | [`parameters::optimizer::step`], [`OptimizerStore`] | [`parameters::optimizer`] |
//! | run a model whose parameters stay in host memory | [`Shadow`] on a [`Device`] | [`parameters::shadow`] |
//! | plan by own measurements, without any of these | [`plan::activations::plan()`], [`plan::parameters::plan()`], ... | [`plan`] |
//!
//! ```
//! use tensorferry::checkpoint::{Header, Options, Tensor, Wanted, staging};
//! use tensorferry::{Buffer, Checkpoint, Dtype, io, save};
//!
//! # fn main() -> tensorferry::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory for the example");
//! # let path = directory.path().join("model.ferry");
//! // One engine does all reading and writing of a process.
//! let engine = io::open(&io::Config::default())?;
//!
//! let tensors = [("weight".to_owned(), Dtype::F32, vec![2, 2])];
//! let header = Header::lay_out(tensors, Default::default())?;
//! let mut source = |_: &Tensor| Ok(Buffer::copy_of(&[7; 16])?.into());
//! save(&engine, &path, header, &mut source, &Options::new(staging(64 << 20)?))?;
//!
//! let checkpoint = Checkpoint::open(&engine, &path, None, true)?;
//! let loaded = checkpoint.load(vec![Wanted { tensor: 0, into: None }])?;
//! assert_eq!(*loaded[0], [7; 16]);
//! # Ok(())
//! # }
//! ```
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
//! Four *paths* stand on four *grounds* and on the plans for them.
//!
//! ```text
//!   checkpoint    tensors ─► windows ─► checksum ─► file ─► tensors
//!   data          source ─► cache ─► prepare ─► batch
//!   activations   saved tensor ─► encode ─► SSD ─► decode ─► backward
//!   parameters    host parameters ─► device, or in place ─► gradients ─► optimizer
//!  ───────────────────────────────────────────────────────────────────────────── no path above
//!   plan          checkpoint, data, activations, parameters: pure                 knows another
//!   memory        Buffer, Pool, Block; Ledger (who holds how much)
//!   io            Engine: read, write, sync at four priorities; ring, threads
//!   device        Device: memory, streams, events; host, emulated
//!   codec         bitmap (sparse), half (f16, bf16), checksum (CRC-32C), adam (a step's arithmetic)
//!  ─────────────────────────────────────────────────────────────────────────────
//!   error, size, dtype, random, interrupt, metrics, trace: what everybody speaks
//! ```
//!
//! One read on its way through the grounds:
//!
//! ```text
//!   Pool ──Lease──► Block ──► Engine::read ──► driver ──► io_uring ──► Pending ──► Block
//!                             (Priority)       pieces, retries          wait        with bytes
//! ```
//!
//! ```
//! use tensorferry::io::{self, Config, Mode, Open};
//! use tensorferry::{Buffer, Priority};
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

// Made-up cases are written against the crate's name, also where its own tests use them.
#[cfg(test)]
extern crate self as tensorferry;

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
pub mod random;
pub mod size;
mod sync;
mod threads;
pub mod trace;

#[doc(inline)]
pub use activations::Store as ActivationStore;
#[doc(inline)]
pub use checkpoint::{Checkpoint, save, save_behind};
#[doc(inline)]
pub use data::{loader::Loader, source::Source};
#[doc(inline)]
pub use device::Device;
#[doc(inline)]
pub use dtype::Dtype;
#[doc(inline)]
pub use error::{Error, Kind, Result};
#[doc(inline)]
pub use io::{Engine, Priority};
#[doc(inline)]
pub use memory::{Block, Buffer, Pool};
#[doc(inline)]
pub use parameters::{optimizer::Store as OptimizerStore, shadow::Shadow};
#[doc(inline)]
pub use size::Size;
