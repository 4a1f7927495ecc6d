//! The seam between the engine and whatever moves bytes.
//!
//! A backend takes transfers and gives them back, in any order, with what the kernel said: the
//! number of bytes moved, possibly fewer than asked, or a code. It neither retries nor
//! continues nor judges; the driver does, once, for all backends. A transfer owns the memory it
//! works on, so that a backend can't outlive it.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::file::File;
use crate::error::Result;
use crate::memory::Part;

/// One request to the kernel.
pub(super) struct Transfer {
    /// The driver's name for it.
    pub token: usize,
    pub file: File,
    /// Which of the file's descriptors to use.
    pub direct: bool,
    pub offset: u64,
    /// Bytes to move: the first of the part's, usually all.
    pub len: usize,
    pub work: Work,
}

/// What to do.
pub(super) enum Work {
    Read(Part),
    Write(Part),
    /// Make what was written survive a power cut.
    Sync,
}

/// A transfer that the kernel is done with.
pub(super) struct Ended {
    pub transfer: Transfer,
    pub result: std::result::Result<usize, Errno>,
}

/// How long to wait for the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Only look.
    None,
    /// Until one ends, the waker is used, or this much time has passed.
    AtMost(Duration),
    /// Until one ends or the waker is used.
    Unlimited,
}

impl Patience {
    /// When it is over, if that is a matter of time.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::AtMost(limit) => Instant::now().checked_add(limit),
            Self::None | Self::Unlimited => None,
        }
    }
}

/// Moves bytes between files and memory. Used from one thread.
pub(super) trait Backend {
    /// How many transfers may be under way at once.
    fn depth(&self) -> usize;

    /// Takes a transfer. Starting may be put off until the next [`reap`](Self::reap).
    fn start(&mut self, transfer: Transfer);

    /// Starts what was put off and adds every transfer that has ended to `ended`.
    /// An error means that nothing more can be started, ever.
    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()>;

    /// A file is gone; what is held for it can go too.
    fn forget(&mut self, _file: u64) {}
}

/// Ends a backend's waiting from another thread; a wake that comes early is not lost.
pub(super) trait Waker: Send + Sync {
    fn wake(&self);
}
