//! Where samples lie.
//!
//! A source is a list of samples, made once when it is opened and fixed from then on; fetching one
//! gives its stored bytes. It is called by many threads at once and waits for storage in the thread
//! that calls.
//!
//! ```text
//!   Spec ─open─► Folder   ImageFolder's tree         ┐
//!                Tar      shards of members          ├─► Store: local, remote
//!                Files    paths, URLs, patterns      ┘
//!                Throttled, Faulty   around any source: a slow one, a broken one
//! ```
//!
//! Who fails when: what makes the list wrong (no such directory, a shard that is cut, credentials
//! refused) fails when the source is opened, because every index behind it would mean another sample.
//! What is wrong with one sample (gone, cut, changed since, a field missing) fails when it is
//! fetched, so that a loader can pass over it.

mod faulty;
mod files;
mod folder;
mod names;
mod pattern;
mod side;
mod spec;
pub mod store;
mod tar;
mod throttled;

pub use faulty::{Fault, Faulty};
pub use files::{Files, Labels};
pub use folder::Folder;
pub use names::Names;
pub(super) use names::ending;
pub use spec::{Paths, Spec, open};
pub use tar::{Progress, Scanned, Tar, TarOptions, scan_tar};
pub use throttled::Throttled;

use super::sample::Raw;
use crate::error::Result;

/// A list of stored samples.
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a sample lies, for people: a path, or a shard and what is in it.
    fn name(&self, index: usize) -> String;

    /// The stored bytes of a sample, as they were when the list was made.
    fn bytes(&self, index: usize) -> u64;

    /// What the fields of every sample are: the endings of their names, `jpg` or `npy`, in lower
    /// case. A source of files whose endings differ says the empty string.
    fn fields(&self) -> &[String];

    /// What the sample is labelled with.
    fn label(&self, index: usize) -> Label;

    /// The names of the classes, if labels are their numbers.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// What was found to be wrong when the list was made and is left out of it.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Whether samples come over a network, or as slowly: then they are worth keeping near, and many
    /// are asked for at once.
    fn is_remote(&self) -> bool {
        false
    }

    /// The stored bytes of a sample. Errors name it.
    fn fetch(&self, index: usize) -> Result<Raw>;
}

/// A source around another one, of which only fetching differs.
pub trait Around: Send + Sync {
    /// The other one.
    fn inner(&self) -> &dyn Source;

    /// Whether samples come over a network, or as slowly, as [`Source::is_remote`].
    fn is_remote_around(&self) -> bool {
        self.inner().is_remote()
    }

    /// The stored bytes of a sample, as [`Source::fetch`].
    fn fetch_around(&self, index: usize) -> Result<Raw>;
}

impl<T: Around> Source for T {
    fn len(&self) -> usize {
        self.inner().len()
    }

    fn name(&self, index: usize) -> String {
        self.inner().name(index)
    }

    fn bytes(&self, index: usize) -> u64 {
        self.inner().bytes(index)
    }

    fn fields(&self) -> &[String] {
        self.inner().fields()
    }

    fn label(&self, index: usize) -> Label {
        self.inner().label(index)
    }

    fn classes(&self) -> &[String] {
        self.inner().classes()
    }

    fn warnings(&self) -> &[String] {
        self.inner().warnings()
    }

    fn is_remote(&self) -> bool {
        self.is_remote_around()
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        self.fetch_around(index)
    }
}

/// What a source knows about a sample beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Label {
    /// Nothing.
    None,
    /// A class, or any whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A number.
    Float(f64),
}
