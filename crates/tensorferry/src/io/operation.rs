//! One operation on its way through the driver.
//!
//! ```text
//!   queued ──► some pieces in flight ──► all pieces moved ──► done
//!      ▲              │      │
//!      └── leftovers ─┘      └── a piece failed: no more start; when the last has ended ──► failed
//! ```
//!
//! An operation owns its block as [`Parts`] from the moment it is accepted until it answers its
//! promise. Bytes that a piece did not move (short transfers, passing errors) come back as a
//! leftover and go out again before anything new does.

use std::time::Instant;

use rustix::io::Errno;

use super::backend::{Ended, Transfer};
use super::file::File;
use super::flight::Flight;
use super::meter::{Meter, Verb};
use super::pending::{Failed, Promise};
use super::piece::{Flow, Range, Way};
use super::priority::Priority;
use crate::error::{Error, Kind};
use crate::memory::{Block, Part, Parts, Pool};
use crate::size::Size;
use crate::trace;

/// Passing errors in a row after which an operation fails.
pub(super) const RETRIES_MAX: usize = 100;

pub(super) struct Operation {
    pub file: File,
    pub priority: Priority,
    pub in_flight: usize,
    /// Whether it stands in a lane of the schedule.
    pub queued: bool,
    pub job: Job,
    accepted: Instant,
    /// Seen in a trace from accepting to answering.
    span: trace::Operation,
    error: Option<Error>,
    /// Passing errors since the last byte moved.
    retries: usize,
}

pub(super) enum Job {
    Move(Move),
    Sync { promise: Promise<()>, started: bool },
}

/// A read or a write.
pub(super) struct Move {
    pub flow: Flow,
    pub offset: u64,
    pub len: usize,
    parts: Parts,
    leftovers: Vec<Leftover>,
    promise: Promise<Block>,
}

/// How a piece came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    Short,
    Hindered,
}

/// A part that has to go out again, at this offset of the file.
struct Leftover {
    offset: u64,
    part: Part,
}

/// A piece ready to start.
pub(super) struct Piece {
    pub offset: u64,
    pub part: Part,
    pub way: Way,
}

impl Operation {
    pub(super) fn new(file: File, priority: Priority, job: Job) -> Self {
        let extent = match &job {
            Job::Move(job) => Some((job.offset, job.len)),
            Job::Sync { .. } => None,
        };
        let span = span(job.verb(), &file, priority, extent);
        let accepted = Instant::now();
        Self {
            file,
            priority,
            in_flight: 0,
            queued: false,
            job,
            accepted,
            span,
            error: None,
            retries: 0,
        }
    }

    /// Whether another piece could start.
    pub(super) fn has_more(&self) -> bool {
        self.error.is_none()
            && match &self.job {
                Job::Move(job) => job.parts.remaining() > 0 || !job.leftovers.is_empty(),
                Job::Sync { started, .. } => !started,
            }
    }

    /// Whether it fills memory.
    pub(super) fn is_read(&self) -> bool {
        matches!(&self.job, Job::Move(job) if job.flow == Flow::Read)
    }

    /// Whether nobody would see what a further piece brings.
    pub(super) fn is_pointless(&self) -> bool {
        matches!(&self.job, Job::Move(job) if job.flow == Flow::Read && job.promise.is_abandoned())
    }

    /// The next piece, of an operation with this number; `None` while all staging buffers are in use. They
    /// come back with the transfers that use them.
    pub(super) fn lift_off(
        &mut self,
        number: usize,
        piece_max: usize,
        staging: &Pool,
        meter: &Meter,
    ) -> Option<(Flight, Transfer)> {
        let file = &self.file;
        match &mut self.job {
            Job::Sync { started, .. } => {
                *started = true;
                Some(Flight::sync(number, file.clone()))
            }
            Job::Move(job) => {
                let (len, way) = job.next_piece(file, piece_max);
                let (counter, buffer) = match way {
                    Way::Direct => (&meter.direct, None),
                    Way::Buffered => (&meter.buffered, None),
                    Way::Staged { .. } => (&meter.staged, Some(staging.try_take()?)),
                };
                counter.add(1);
                let piece = job.cut(len, way);
                Some(Flight::new(number, job.flow, piece, file.clone(), buffer))
            }
        }
    }

    /// Takes back a piece that the kernel is done with, and judges what it did.
    pub(super) fn settle(&mut self, flight: Flight, ended: Ended) -> Outcome {
        let Ended { transfer, result } = ended;
        let (direct, offset) = (transfer.direct, flight.offset);
        let moved = *result.as_ref().unwrap_or(&0);
        let landed = flight.land(transfer.work, moved);
        let outcome = match (&result, &landed) {
            (Err(_), _) => Outcome::Hindered,
            (Ok(_), Some((part, arrived))) if *arrived < part.len() => Outcome::Short,
            (Ok(_), _) => Outcome::Whole,
        };
        match (&mut self.job, landed) {
            (Job::Sync { started, .. }, _) => match result {
                Ok(_) => {}
                Err(errno) if is_passing(errno) && self.retries < RETRIES_MAX => {
                    self.retries += 1;
                    *started = false;
                }
                Err(errno) => {
                    self.file.poison();
                    self.fail(Error::from_errno(errno, "can't sync file"));
                }
            },
            (Job::Move(job), Some((mut part, arrived))) => {
                drop(part.split_to(arrived));
                job.keep(offset + arrived as u64, part);
                match result {
                    Ok(_) if arrived > 0 => self.retries = 0,
                    Ok(_) => self.stalled(offset),
                    Err(errno) => self.hindered(errno, direct),
                }
            }
            (Job::Move(_), None) => self.fail(lost_part()),
        }
        outcome
    }

    /// Nothing of the caller's bytes moved, and the kernel did not complain: the file has ended, or
    /// a short transfer covered only what lies in front of them.
    fn stalled(&mut self, offset: u64) {
        let Job::Move(job) = &self.job else { return };
        let (what, flow) = (job.describe(), job.flow);
        match self.file.len() {
            Ok(len) if flow == Flow::Read && len <= offset => {
                let message = format!("{what}: the file has only {len} bytes");
                self.fail(Error::new(Kind::Truncated, message));
            }
            _ if self.retries < RETRIES_MAX => self.retries += 1,
            _ => self.fail(Error::new(Kind::Io, format!("{what}: the device moves no bytes"))),
        }
    }

    /// The kernel moved nothing and said why.
    fn hindered(&mut self, errno: Errno, direct: bool) {
        if errno == Errno::INVAL && direct {
            // This file system takes the flag and not the transfers; the page cache takes all.
            self.file.refuse_direct();
        } else if is_passing(errno) && self.retries < RETRIES_MAX {
            self.retries += 1;
        } else if let Job::Move(job) = &self.job {
            let error = Error::from_errno(errno, job.describe());
            self.fail(if is_passing(errno) { error.retryable(true) } else { error });
        }
    }

    /// A failure, unless there was one before: the first is the cause.
    pub(super) fn fail(&mut self, error: Error) {
        if self.error.is_none() {
            self.error = Some(error.with("file", self.file.path().display()));
        }
    }

    /// Answers the promise. All pieces have ended.
    pub(super) fn finish(self, meter: &Meter) {
        let bytes = match (&self.error, &self.job) {
            (Some(_), _) => None,
            (None, Job::Move(job)) => Some(job.len as u64),
            (None, Job::Sync { .. }) => Some(0),
        };
        meter.done(self.job.verb(), self.priority, self.accepted.elapsed(), bytes);
        drop(self.span);
        // A caller that has its answer may expect its file to be closed with its own last handle.
        drop(self.file);
        match (self.job, self.error) {
            (Job::Sync { promise, .. }, None) => promise.fulfil(Ok(())),
            (Job::Sync { promise, .. }, Some(error)) => promise.fulfil(Err(error.into())),
            (Job::Move(job), error) => {
                drop(job.leftovers);
                let block = job.parts.join().ok();
                job.promise.fulfil(match (error, block) {
                    (None, Some(block)) => Ok(block),
                    (None, None) => Err(lost_part().into()),
                    (Some(error), block) => Err(Failed { error, block }),
                });
            }
        }
    }
}

/// Seen in a trace until it is dropped.
pub(super) fn span(
    verb: Verb,
    file: &File,
    priority: Priority,
    extent: Option<(u64, usize)>,
) -> trace::Operation {
    let mut span = trace::operation("io", verb.name());
    if trace::is_on() {
        span.add("file", file.path().to_string_lossy().as_ref());
        span.add("priority", priority.name());
        if let Some((offset, bytes)) = extent {
            span.add("offset", offset);
            span.add("bytes", bytes as u64);
        }
    }
    span
}

impl Job {
    fn verb(&self) -> Verb {
        match self {
            Self::Move(job) => Verb::of(job.flow),
            Self::Sync { .. } => Verb::Sync,
        }
    }
}

impl Move {
    pub(super) fn new(flow: Flow, offset: u64, block: Block, promise: Promise<Block>) -> Self {
        let (len, parts) = (block.len(), Parts::new(block));
        Self { flow, offset, len, parts, leftovers: Vec::new(), promise }
    }

    /// How many bytes the next piece has, and the way it would take.
    fn next_piece(&self, file: &File, piece_max: usize) -> (usize, Way) {
        let (offset, len, address) = match self.leftovers.last() {
            Some(Leftover { offset, part }) => {
                (*offset, part.len(), part.start().as_ptr() as usize)
            }
            None => (self.uncut_offset(), self.parts.remaining(), self.parts.address()),
        };
        let range = Range { flow: self.flow, offset, len, address };
        range.next_piece(file.geometry(), piece_max)
    }

    /// Cuts the next piece off, as [`next_piece`](Self::next_piece) said.
    fn cut(&mut self, len: usize, way: Way) -> Piece {
        let Some(mut leftover) = self.leftovers.pop() else {
            return Piece { offset: self.uncut_offset(), part: self.parts.cut(len), way };
        };
        let piece = Piece { offset: leftover.offset, part: leftover.part.split_to(len), way };
        leftover.offset += len as u64;
        self.keep(leftover.offset, leftover.part);
        piece
    }

    /// Where in the file the bytes belong that no piece was made of yet.
    fn uncut_offset(&self) -> u64 {
        self.offset + (self.len - self.parts.remaining()) as u64
    }

    /// Bytes that did not arrive go out again.
    fn keep(&mut self, offset: u64, part: Part) {
        if !part.is_empty() {
            self.leftovers.push(Leftover { offset, part });
        }
    }

    fn describe(&self) -> String {
        describe(self.flow, self.offset, self.len)
    }
}

/// What was asked for, for an error's message.
pub(super) fn describe(flow: Flow, offset: u64, len: usize) -> String {
    format!("can't {} {} at offset {offset}", Verb::of(flow).name(), Size(len as u64))
}

/// Whether trying again at once can help.
pub(super) fn is_passing(errno: Errno) -> bool {
    errno == Errno::INTR || errno == Errno::AGAIN
}

fn lost_part() -> Error {
    Error::new(Kind::Internal, "a part of a block outlived its operation")
}
