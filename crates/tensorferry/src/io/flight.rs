//! A piece in flight: what the driver remembers while a backend works on it.

use std::time::Instant;

use super::backend::{Transfer, Work};
use super::file::File;
use super::operation::Piece;
use super::piece::{Flow, Way};
use crate::memory::{Lease, Part, Parts};

pub(super) struct Flight {
    /// The operation it belongs to.
    pub operation: usize,
    /// Bytes as the schedule counts them.
    pub scheduled: u64,
    /// Where the caller's bytes are in the file.
    pub offset: u64,
    pub began: Instant,
    /// The caller's memory, when the transfer itself works on a staging buffer.
    staged: Option<Staged>,
}

struct Staged {
    part: Part,
    /// Where in the staging buffer the caller's bytes start.
    lead: usize,
}

impl Flight {
    /// A sync: no bytes.
    pub(super) fn sync(operation: usize, file: File) -> (Self, Transfer) {
        let transfer =
            Transfer { token: 0, file, direct: false, offset: 0, len: 0, work: Work::Sync };
        let began = Instant::now();
        (Self { operation, scheduled: 0, offset: 0, began, staged: None }, transfer)
    }

    /// A piece of a read or a write, with the buffer that a staged one needs.
    pub(super) fn new(
        operation: usize,
        flow: Flow,
        piece: Piece,
        file: File,
        buffer: Option<Lease>,
    ) -> (Self, Transfer) {
        let Piece { offset, part, way } = piece;
        let (start, part, staged) = match (way, buffer) {
            (Way::Staged { lead, span }, Some(mut lease)) => {
                lease.truncate(span);
                if flow == Flow::Write {
                    lease[lead..lead + part.len()].copy_from_slice(&part);
                }
                let buffer = Parts::new(lease.into()).cut(span);
                (offset - lead as u64, buffer, Some(Staged { part, lead }))
            }
            _ => (offset, part, None),
        };
        let len = part.len();
        let work = match flow {
            Flow::Read => Work::Read(part),
            Flow::Write => Work::Write(part),
        };
        let direct = way != Way::Buffered;
        let transfer = Transfer { token: 0, file, direct, offset: start, len, work };
        let began = Instant::now();
        (Self { operation, scheduled: len as u64, offset, began, staged }, transfer)
    }

    /// The caller's memory again, and how many of its bytes were moved when the kernel moved
    /// `moved`; `None` for a sync.
    pub(super) fn land(self, work: Work, moved: usize) -> Option<(Part, usize)> {
        let (transferred, is_read) = match work {
            Work::Read(part) => (part, true),
            Work::Write(part) => (part, false),
            Work::Sync => return None,
        };
        let Some(Staged { mut part, lead }) = self.staged else {
            return Some((transferred, moved));
        };
        let arrived = moved.saturating_sub(lead).min(part.len());
        if is_read {
            // A read's memory was checked to be writable when the operation was accepted.
            let target = part.as_mut()?;
            target[..arrived].copy_from_slice(&transferred[lead..lead + arrived]);
        }
        Some((part, arrived))
    }
}
