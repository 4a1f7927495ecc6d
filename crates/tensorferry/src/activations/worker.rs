//! Workers: each takes a chunk through all of its way, one after the other.
//!
//! A worker has a staging buffer of its own. Between the lock and the disk it waits for nobody but
//! the disk, so that so many chunks are under way as there are workers. Reads come first: somebody
//! will wait for them, while a write only frees memory; once backward has begun, a tensor is written
//! only if the room is needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::chunk_queue::{ChunkRead, ChunkWrite};
use super::encoding::{self, Compress, Encoding, StoredChunk, room_beside};
use super::fetch::ChunkSource;
use super::scratch::ScratchRange;
use super::shared::Shared;
use super::traffic::Mark;
use crate::error::{Error, Kind, Result, panic_text};
use crate::io::{Failed, Priority};
use crate::memory::{ALIGNMENT, Block, Buffer, Part, complete};
use crate::size::Size;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{lock, now, seconds_since, wait};

/// Chunks under way at once.
pub(super) const THREADS: usize = 4;

/// A worker's own memory.
struct WorkerMemory {
    /// Room for a chunk; away while the disk has it.
    staging: Option<Buffer>,
    beside: Vec<u8>,
    chunk_bytes: usize,
}

enum Task {
    Write(ChunkWrite),
    Read(ChunkRead),
}

impl Task {
    fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    fn key(&self) -> u64 {
        match self {
            Self::Write(write) => write.key,
            Self::Read(read) => read.key,
        }
    }
}

pub(super) fn start(shared: &Arc<Shared>, threads: usize) -> Result<Vec<JoinHandle<()>>> {
    let begin = |number: usize| {
        let mut memory = WorkerMemory::new(shared.chunk_bytes, shared.config.compress)?;
        let shared = Arc::clone(shared);
        thread::Builder::new()
            .name(format!("ferry-activ-{number}"))
            .spawn(move || run(&shared, &mut memory))
            .map_err(|error| Error::from_io(error, "can't start a thread for activations"))
    };
    let mut workers = Vec::new();
    for number in 0..threads {
        match begin(number) {
            Ok(worker) => workers.push(worker),
            // Those that there are do all the work.
            Err(_) if number > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(workers)
}

fn run(shared: &Arc<Shared>, memory: &mut WorkerMemory) {
    while let Some((task, taken)) = next(shared) {
        let (key, is_read) = (task.key(), task.is_read());
        let done = catch_unwind(AssertUnwindSafe(|| match task {
            Task::Write(write) => write_chunk(shared, memory, &write),
            Task::Read(read) => read_chunk(shared, memory, read),
        }));
        let done = done.unwrap_or_else(|panic| {
            let message =
                format!("tensorferry has a bug, please report it: {}", panic_text(&*panic));
            Err(Error::new(Kind::Internal, message))
        });
        let mut state = lock(&shared.state);
        let (bytes, dropped) = match done {
            Ok(bytes) => (bytes, Vec::new()),
            Err(error) => (0, state.fail(key, &error)),
        };
        state.queue.end();
        if let Some((step, mark)) = taken
            && let Some(step) = state.steps.get_mut(step)
        {
            step.traffic(is_read).end(mark, bytes);
        }
        drop(state);
        drop(dropped);
        shared.changed.notify_all();
    }
}

/// Waits for something to do, and says for which step, and when it was taken; `None` when nothing will come
/// any more.
fn next(shared: &Shared) -> Option<(Task, Option<(u64, Mark)>)> {
    let mut state = lock(&shared.state);
    loop {
        let read = state.queue.pop_read().map(Task::Read);
        if let Some(task) = read.or_else(|| state.next_write().map(Task::Write)) {
            state.queue.begin();
            let step = state.records.step_of(task.key()).ok();
            let taken = step.and_then(|number| {
                let step = state.steps.get_mut(number)?;
                // A read is in line since it was wanted; a write may stand there until its room is.
                if !task.is_read() {
                    step.writes.queue(1);
                }
                Some((number, step.traffic(task.is_read()).take()))
            });
            return Some((task, taken));
        }
        if state.is_closing {
            return None;
        }
        state = wait(&shared.work, state, None).0;
    }
}

/// Takes a chunk to disk; the bytes that were written.
fn write_chunk(shared: &Shared, memory: &mut WorkerMemory, write: &ChunkWrite) -> Result<u64> {
    let Some((block, element, compress)) = lock(&shared.state).chunk_to_write(write) else {
        return Ok(0);
    };
    let start = write.chunk * shared.chunk_bytes;
    let from = &block[start..block.len().min(start + shared.chunk_bytes)];
    let mut staging = memory.staging()?;
    let began = now();
    let stored = encoding::store(from, element, compress, &mut staging, &mut memory.beside)?;
    let (raw, seconds) = (from.len() as u64, seconds_since(began));
    drop(block);

    memory.staging = Some(staging);
    let range = write_somewhere(shared, memory, stored.len.next_multiple_of(ALIGNMENT))?;
    let mut state = lock(&shared.state);
    // A copy and a checksum are part of every write.
    if compress != Compress::None
        && let Ok(step) = state.step_of(write.key)
    {
        step.encoding = (step.encoding.0 + raw, step.encoding.1 + seconds);
    }
    let bytes = stored.len as u64;
    let dropped = state.chunk_written(write, range, stored);
    drop(state);
    drop(dropped);
    Ok(bytes)
}

/// Writes so many bytes of the staging buffer to a drive that has room for them.
fn write_somewhere(
    shared: &Shared,
    memory: &mut WorkerMemory,
    bytes: usize,
) -> Result<ScratchRange> {
    let drives = lock(&shared.state).scratch.drives();
    let mut tries = 0;
    loop {
        tries += 1;
        let mut state = lock(&shared.state);
        let range = state.scratch.take(bytes as u64)?;
        let (drive, offset) = state.scratch.at(range);
        drop(state);
        let reserved = drive.reserve(offset + bytes as u64);
        lock(&shared.state).scratch.begin(range, bytes as u64);
        let written = reserved.and_then(|()| {
            let block = Block::from(memory.staging()?).narrow(0..bytes)?;
            memory.back(shared.engine.write(drive.file(), offset, block, Priority::Offload).wait())
        });
        let mut state = lock(&shared.state);
        state.scratch.end(range, bytes as u64, written.is_ok());
        let Err(error) = written else { return Ok(range) };
        let is_full = matches!(error.kind(), Kind::OutOfSpace | Kind::FileTooLarge);
        if !is_full {
            state.scratch.free(range);
            return Err(error.with("in use", Size(state.scratch.used())));
        }
        state.scratch.mark_full(range);
        // What was staged is there for the next drive, unless the disk kept it.
        if tries >= drives || memory.staging.is_none() {
            return Err(error.with("in use", Size(state.scratch.used())));
        }
    }
}

/// Takes a chunk back to memory; the bytes that were read.
fn read_chunk(shared: &Shared, memory: &mut WorkerMemory, read: ChunkRead) -> Result<u64> {
    let Some((from, stored)) = lock(&shared.state).chunk_to_read(&read) else {
        return Ok(0);
    };
    let ChunkRead { key, part, permit: _permit, .. } = read;
    let raw = part.len() as u64;
    // Either way the part is gone when it is said to have arrived: then all of them are joined.
    let decoding = match stored.encoding {
        Encoding::Raw => read_raw(shared, &from, &stored, part).map(|()| None),
        _ => memory.read_coded(shared, &from, &stored, part).map(Some),
    };
    let mut state = lock(&shared.state);
    state.scratch.end(from.range, stored.len as u64, decoding.is_ok());
    let decoding = decoding?;
    if let (Some(seconds), Ok(step)) = (decoding, state.step_of(key)) {
        step.decoding = (step.decoding.0 + raw, step.decoding.1 + seconds);
    }
    let dropped = state.chunk_read(key);
    drop(state);
    drop(dropped);
    Ok(stored.len as u64)
}

/// Reads a chunk straight to where it belongs.
fn read_raw(
    shared: &Shared,
    from: &ChunkSource,
    stored: &StoredChunk,
    mut part: Part,
) -> Result<()> {
    if let Some(bytes) = part.as_mut() {
        complete(bytes);
    }
    let read = shared.engine.read(from.drive.file(), from.offset, part.into(), from.priority);
    let bytes = read.wait().map_err(|failed| failed.error)?;
    encoding::check(stored, &bytes)
}

impl WorkerMemory {
    fn new(chunk_bytes: usize, compress: Compress) -> Result<Self> {
        let staging = Some(Buffer::zeroed(chunk_bytes)?);
        Ok(Self { staging, beside: vec![0; room_beside(chunk_bytes, compress)], chunk_bytes })
    }

    /// The staging buffer; another one if the disk did not give it back.
    fn staging(&mut self) -> Result<Buffer> {
        self.staging.take().map_or_else(|| Buffer::zeroed(self.chunk_bytes), Ok)
    }

    /// Takes the staging buffer back from a transfer.
    fn back(&mut self, transfer: Result<Block, Failed>) -> Result<()> {
        let (block, outcome) = match transfer {
            Ok(block) => (Some(block), Ok(())),
            Err(Failed { error, block }) => (block, Err(error)),
        };
        self.staging = block.and_then(|block| block.into_buffer().ok());
        outcome
    }

    /// Reads a chunk that was coded; the seconds that decoding took.
    fn read_coded(
        &mut self,
        shared: &Shared,
        from: &ChunkSource,
        stored: &StoredChunk,
        mut part: Part,
    ) -> Result<f64> {
        let padded = stored.len.next_multiple_of(ALIGNMENT);
        let block = Block::from(self.staging()?).narrow(0..padded)?;
        self.back(shared.engine.read(from.drive.file(), from.offset, block, from.priority).wait())?;
        let staging = self.staging()?;
        let began = now();
        let (read, into) = (&staging[..stored.len], part.as_mut().unwrap_or_default());
        let outcome = encoding::check(stored, read)
            .and_then(|()| encoding::restore(stored, read, into, &mut self.beside));
        self.staging = Some(staging);
        outcome.map(|()| seconds_since(began))
    }
}
