//! Files that live in memory: for tests of everything above the kernel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::backend::{Backend, Ended, Patience, Transfer, Waker, Work};
use super::file::{File, Home, Mode};
use crate::error::{Error, Kind, Result};
use crate::sync::{Condvar, Mutex, lock, wait};

/// Above this a file in memory refuses to grow, as a file system does.
const FILE_LEN_MAX: u64 = 1 << 40;

/// The names of the files in memory and their bytes.
#[derive(Default)]
pub(super) struct Directory(Mutex<HashMap<PathBuf, Arc<Mutex<Vec<u8>>>>>);

impl Directory {
    pub(super) fn open(&self, path: &Path, mode: Mode, home: &Home) -> Result<File> {
        let mut files = lock(&self.0);
        let known = files.get(path).map(Arc::clone);
        let failed = |kind, why: &str| {
            Error::new(kind, "can't open file").with("file", path.display()).caused_by(why)
        };
        let content = match (mode, known) {
            (Mode::Read | Mode::Once | Mode::Update, None) => {
                return Err(failed(Kind::NotFound, "no such file in memory"));
            }
            (Mode::Unnamed, _) => Arc::default(),
            (Mode::New, Some(_)) => return Err(failed(Kind::Io, "it exists in memory")),
            (Mode::Replace, Some(content)) => {
                lock(&content).clear();
                content
            }
            (_, Some(content)) => content,
            (_, None) => Arc::clone(files.entry(path.into()).or_default()),
        };
        Ok(File::in_memory(path, mode, content, home))
    }
}

#[derive(Default)]
pub(super) struct Memory {
    ended: Vec<Ended>,
    alarm: Arc<Alarm>,
}

#[derive(Default)]
struct Alarm {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Memory {
    pub(super) fn open() -> (Self, Arc<dyn Waker>) {
        let memory = Self::default();
        let alarm = Arc::clone(&memory.alarm);
        (memory, alarm)
    }
}

/// Cuts a file in memory, or extends it with zeros.
pub(super) fn set_len(content: &mut Vec<u8>, len: u64) -> Result<(), Errno> {
    if len > FILE_LEN_MAX {
        return Err(Errno::FBIG);
    }
    let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
    content.try_reserve(len.saturating_sub(content.len())).map_err(|_| Errno::NOSPC)?;
    content.resize(len, 0);
    Ok(())
}

/// Moves the bytes of a transfer, on the calling thread.
pub(super) fn carry_out(transfer: &mut Transfer) -> Result<usize, Errno> {
    let content = transfer.file.content().ok_or(Errno::BADF)?;
    match &mut transfer.work {
        Work::Sync => Ok(0),
        Work::Read(part) => {
            let target = part.as_mut().ok_or(Errno::FAULT)?;
            copy_out(content, transfer.offset, &mut target[..transfer.len])
        }
        Work::Write(part) => write_at(content, transfer.offset, &part[..transfer.len]),
    }
}

/// Reads as `pread` does.
pub(super) fn copy_out(
    content: &Mutex<Vec<u8>>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize, Errno> {
    let content = lock(content);
    let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
    let bytes = content.get(start..).unwrap_or_default();
    let len = into.len().min(bytes.len());
    into[..len].copy_from_slice(&bytes[..len]);
    Ok(len)
}

/// Writes as `pwrite` does.
pub(super) fn write_at(content: &Mutex<Vec<u8>>, offset: u64, from: &[u8]) -> Result<usize, Errno> {
    let mut content = lock(content);
    let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
    let end = start.checked_add(from.len()).ok_or(Errno::FBIG)?;
    if content.len() < end {
        set_len(&mut content, end as u64)?;
    }
    content[start..end].copy_from_slice(from);
    Ok(from.len())
}

impl Backend for Memory {
    fn depth(&self) -> usize {
        64
    }

    fn start(&mut self, mut transfer: Transfer) {
        let result = carry_out(&mut transfer);
        self.ended.push(Ended { transfer, result });
    }

    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()> {
        let deadline = patience.deadline();
        let mut rung = lock(&self.alarm.rung);
        let mut in_time = patience != Patience::None;
        while in_time && self.ended.is_empty() && !*rung {
            (rung, in_time) = wait(&self.alarm.changed, rung, deadline);
        }
        *rung = false;
        ended.append(&mut self.ended);
        Ok(())
    }
}

impl Waker for Alarm {
    fn wake(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }
}
