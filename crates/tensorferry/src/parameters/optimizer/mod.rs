//! The optimizer: steps of Adam and `AdamW`, and who keeps the state between them.
//!
//! ```text
//!   memory   parameters, gradients, moments ─► pieces ─► threads: one pass over each
//!
//!   SSD      chunks ─► read ahead ─► verify ─► step ─► checksum ─► written behind, in place
//!            layout    engine        with the parameters and       engine
//!                                    gradients in memory
//! ```
//!
//! The arithmetic is [`codec::adam`](crate::codec::adam), which gives the same bits however the
//! elements are cut: both keepers, any number of threads and any chunk give the same parameters.
//!
//! **Who owns what.** Parameters and gradients are the caller's, lent for the length of a call. In
//! memory, so is the state. On SSD, a [`Store`] owns a file, and the file's lock: nobody else can
//! continue it meanwhile. Staging memory comes from a pool of the store's.
//!
//! **Bounds.** A step in memory needs no memory of its own. A store has [`STAGING_BYTES`] of
//! staging, whatever the size of the model; each thread has a share of it, half for reads ahead and
//! half for writes behind, and waits for its own writes only.
//!
//! # Never a mixture
//!
//! A step replaces the state in place: 8 bytes of each element are read and 8 written (12 and 12
//! with a master), and the file is as large as the state. A second generation of extents would move
//! as many bytes and need twice the disk, and what it could bring back, the state before the step,
//! would be of no use: the parameters that belong to it are in memory, which the crash took.
//!
//! What can be promised instead is that nothing is continued that does not fit together:
//!
//! ```text
//!   Whole ──step: ledger removed──► in the middle ──all chunks written──► ledger published ──► Whole
//!                                       │
//!                                       └─ a fault: Broken until a state is loaded
//!                                       └─ the end of the process: no ledger, can't be resumed
//! ```
//!
//! The *ledger*, a small file beside the large one, says of which step the state is and has the
//! checksum of every chunk; it is removed before the first chunk changes and published, by a
//! rename, after the last one is written. So a process that is killed leaves the state of its last
//! whole step, or none that would be taken for one. Nothing is synced: a power cut may leave
//! any mixture of old and new on the disk, but not one that the checksums agree with. Every chunk is
//! verified whenever it is read, also in the process that wrote it.
//!
//! The ledger also has checksums of the parameters after the step. Whoever resumes a state brings
//! the parameters from elsewhere, and gets an error if they are not those that the state belongs to.

mod layout;
mod ledger;
mod memory;
mod part;
mod state_file;
mod store;
mod stream;

pub use layout::{CHUNK_BYTES, Shape};
pub use memory::{Tensor, step, zeroed};
pub use store::{Contents, Report, STAGING_BYTES, Store, Work};
