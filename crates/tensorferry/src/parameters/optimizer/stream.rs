//! Chunks through staging memory: read ahead, worked on, written behind.
//!
//! Each thread takes the next chunk, starts its read, and works on the oldest of its own that is
//! done; what it has worked on is written from the same memory. A thread has a share of the staging
//! buffers and waits only for its own transfers, so nobody waits for somebody who waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::vec;

use super::layout::Layout;
use super::ledger::Sums;
use crate::codec::checksum::crc32c;
use crate::error::{Error, Kind, Result};
use crate::io::{Engine, File, Pending, Priority};
use crate::memory::{Block, Pool};
use crate::sync::{Mutex, lock};
use crate::threads::on_threads;

/// More threads than this only wait for the disk.
pub(super) const THREADS_MAX: usize = 4;

/// The step is waited for, and it ends when the last write does: neither reads nor writes are less
/// urgent than the other.
const PRIORITY: Priority = Priority::Waiting;

/// A chunk to work on: some of its segments, by their place in it, with what the work needs.
pub(super) struct Task<P> {
    pub chunk: usize,
    pub parts: Vec<(usize, P)>,
}

/// What came of a chunk.
pub(super) struct Done {
    pub chunk: usize,
    /// Of its bytes, as they are now on the disk.
    pub state: u32,
    /// Of the parameters of segments, by their place in it, where they are known.
    pub parameters: Vec<(usize, Option<u32>)>,
}

/// The state on its way.
pub(super) struct Stream<'a> {
    pub engine: &'a dyn Engine,
    pub file: &'a File,
    pub layout: &'a Layout,
    pub sums: &'a [Sums],
    pub pool: &'a Pool,
    /// Whether what was worked on is written back.
    pub writes: bool,
}

/// What is done with a chunk: its number, its bytes and the task's parts; checksums of parameters.
pub(super) trait Worker<P>: Sync {
    fn work(
        &self,
        chunk: usize,
        bytes: &mut [u8],
        parts: Vec<(usize, P)>,
    ) -> Result<Vec<(usize, Option<u32>)>>;
}

impl Stream<'_> {
    /// Takes all tasks through `worker`; what came of them, and how long the disk was waited for.
    pub fn run<P: Send>(
        &self,
        tasks: Vec<Task<P>>,
        threads: usize,
        worker: &impl Worker<P>,
    ) -> Result<(Vec<Done>, Duration)> {
        let threads = threads.clamp(1, THREADS_MAX).min(tasks.len().max(1));
        let queue = Mutex::new(tasks.into_iter());
        let share = self.pool.slots() / threads;
        let results = on_threads(threads, || {
            let mut transfers = Transfers::new(self, share);
            let outcome = transfers.run(&queue, worker);
            if outcome.is_err() {
                // The others need not go on.
                lock(&queue).by_ref().for_each(drop);
            }
            outcome.map(|()| (std::mem::take(&mut transfers.done), transfers.waited))
        })?;
        let waited = results.iter().map(|(_, waited)| *waited).max().unwrap_or_default();
        Ok((results.into_iter().flat_map(|(done, _)| done).collect(), waited))
    }

    /// An error that names whose state it is about.
    fn named(&self, chunk: usize, error: Error) -> Error {
        let chunk = &self.layout.chunks[chunk];
        let names = chunk.segments.iter().map(|segment| &self.layout.tensors[segment.tensor].name);
        let others = chunk.segments.len() - 1;
        let first = names.into_iter().next().map_or("", String::as_str);
        let names =
            if others == 0 { first.to_owned() } else { format!("{first} and {others} more") };
        error.with("parameter", names).with("state at offset", chunk.offset)
    }
}

/// One thread's transfers.
struct Transfers<'a, P> {
    stream: &'a Stream<'a>,
    share: usize,
    reads: VecDeque<(Task<P>, Pending<Block>)>,
    writes: VecDeque<(usize, Pending<Block>)>,
    done: Vec<Done>,
    waited: Duration,
}

impl<'a, P> Transfers<'a, P> {
    fn new(stream: &'a Stream<'a>, share: usize) -> Self {
        let (reads, writes) = (VecDeque::new(), VecDeque::new());
        Self { stream, share, reads, writes, done: Vec::new(), waited: Duration::ZERO }
    }

    fn run(
        &mut self,
        queue: &Mutex<vec::IntoIter<Task<P>>>,
        worker: &impl Worker<P>,
    ) -> Result<()> {
        loop {
            self.read_ahead(queue)?;
            let Some((task, read)) = self.reads.pop_front() else { break };
            let chunk = task.chunk;
            let block = self.wait(chunk, read)?;
            self.work(task, block, worker)?;
        }
        while self.wait_for_write()? {}
        Ok(())
    }

    /// Starts reads, up to half of this thread's share of the memory.
    fn read_ahead(&mut self, queue: &Mutex<vec::IntoIter<Task<P>>>) -> Result<()> {
        while self.reads.len() < (self.share / 2).max(1) {
            let Some(task) = lock(queue).next() else { return Ok(()) };
            while self.reads.len() + self.writes.len() >= self.share {
                self.wait_for_write()?;
            }
            let chunk = &self.stream.layout.chunks[task.chunk];
            let block = Block::from(self.stream.pool.take()?).narrow(0..chunk.len())?;
            let read = self.stream.engine.read(self.stream.file, chunk.offset, block, PRIORITY);
            self.reads.push_back((task, read));
        }
        Ok(())
    }

    fn work(&mut self, task: Task<P>, mut block: Block, worker: &impl Worker<P>) -> Result<()> {
        let (stream, chunk) = (self.stream, task.chunk);
        let named = |error| stream.named(chunk, error);
        verify(crc32c(&block), stream.sums[chunk].state).map_err(named)?;
        let bytes = block.as_mut().unwrap_or_default();
        let parameters = worker.work(chunk, bytes, task.parts).map_err(named)?;
        if !stream.writes {
            return Ok(());
        }
        let state = crc32c(bytes);
        let offset = stream.layout.chunks[chunk].offset;
        let write = stream.engine.write(stream.file, offset, block, PRIORITY);
        self.writes.push_back((chunk, write));
        self.done.push(Done { chunk, state, parameters });
        Ok(())
    }

    /// Waits for the oldest write; whether there was one.
    fn wait_for_write(&mut self) -> Result<bool> {
        let Some((chunk, write)) = self.writes.pop_front() else { return Ok(false) };
        self.wait(chunk, write).map(|_| true)
    }

    fn wait(&mut self, chunk: usize, transfer: Pending<Block>) -> Result<Block> {
        let began = Instant::now();
        let block = transfer.wait();
        self.waited += began.elapsed();
        block.map_err(|failed| self.stream.named(chunk, failed.error))
    }
}

/// Also after a failure all transfers end first: what is written next must not meet what was.
impl<P> Drop for Transfers<'_, P> {
    fn drop(&mut self) {
        self.reads.iter().for_each(|(_, read)| read.see_out());
        self.writes.iter().for_each(|(_, write)| write.see_out());
    }
}

fn verify(found: u32, expected: u32) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let why = "the state of the optimizer was damaged on the disk: its checksum is wrong";
    let error = Error::new(Kind::Corrupt, why);
    Err(error.with("expected", format!("{expected:08x}")).with("found", format!("{found:08x}")))
}
