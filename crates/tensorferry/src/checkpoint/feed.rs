//! The tensors on their way into windows.
//!
//! Sources are asked for tensor after tensor, in the order of the file, when the first window that
//! needs one is filled; a tensor's memory is let go of when its last window is. So what a source
//! has to make on the way, a copy of a tensor that is not contiguous or lies on a device, exists
//! one at a time and not for all tensors at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::header::Tensor;
use super::window::{Segment, Window, Windows};
use crate::codec::checksum::{copy_and_crc32c, crc32c};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::io::Pending;
use crate::memory::{Block, Lease, Pool};
use crate::sync::{Condvar, Mutex, lock};

/// Gives the bytes of a tensor, once, when its turn comes.
pub trait Source: Send {
    /// All bytes of `tensor`, which was given in this place when the file was laid out.
    fn bytes(&mut self, tensor: &Tensor) -> Result<Block>;
}

impl<F: FnMut(&Tensor) -> Result<Block> + Send> Source for F {
    fn bytes(&mut self, tensor: &Tensor) -> Result<Block> {
        self(tensor)
    }
}

/// Windows to fill, one after the other.
pub(super) struct Feed<'a> {
    tensors: &'a [Tensor],
    windows: Windows<'a>,
    source: &'a mut dyn Source,
    current: Option<(usize, Arc<Block>)>,
    failed: bool,
}

/// A feed that several threads take from, one at a time. A source may take long: who waits for its turn here
/// hears of an interruption.
pub(super) struct Shared<'a> {
    state: Mutex<State<'a>>,
    back: Condvar,
}

struct State<'a> {
    /// Away while somebody takes from it.
    feed: Option<Feed<'a>>,
    failed: bool,
}

/// Puts a feed back, whatever becomes of who took from it.
struct Taken<'s, 'a> {
    shared: &'s Shared<'a>,
    feed: Option<Feed<'a>>,
}

/// A window and the memory it is filled from.
pub(super) struct Load {
    pub window: Window,
    sources: Vec<Arc<Block>>,
}

impl<'a> Feed<'a> {
    pub fn new(tensors: &'a [Tensor], source: &'a mut dyn Source) -> Self {
        let windows = Windows::over(tensors);
        Self { tensors, windows, source, current: None, failed: false }
    }

    /// The next window; `None` after the last, and after a source has failed or panicked.
    pub fn next(&mut self) -> Result<Option<Load>> {
        if self.failed {
            return Ok(None);
        }
        let Some(window) = self.windows.next() else { return Ok(None) };
        self.failed = true;
        let sources = window.segments.iter().map(|segment| self.source_of(segment.tensor));
        let sources = sources.collect::<Result<_>>()?;
        self.failed = false;
        Ok(Some(Load { window, sources }))
    }

    fn source_of(&mut self, index: usize) -> Result<Arc<Block>> {
        if let Some((current, block)) = &self.current
            && *current == index
        {
            return Ok(Arc::clone(block));
        }
        let tensor = &self.tensors[index];
        self.current = None;
        let block = self.source.bytes(tensor)?;
        if block.len() as u64 != tensor.len() {
            let message = format!("a tensor of {} bytes came with {}", tensor.len(), block.len());
            return Err(Error::invalid(message).with("tensor", &tensor.name));
        }
        let block = Arc::new(block);
        self.current = Some((index, Arc::clone(&block)));
        Ok(block)
    }
}

impl<'a> Shared<'a> {
    pub fn new(feed: Feed<'a>) -> Self {
        let state = Mutex::new(State { feed: Some(feed), failed: false });
        Self { state, back: Condvar::new() }
    }

    /// The next window; `None` also after [`fail`](Self::fail).
    pub fn next(&self) -> Result<Option<Load>> {
        let mut state = lock(&self.state);
        while !state.failed {
            if let Some(feed) = state.feed.take() {
                drop(state);
                let mut taken = Taken { shared: self, feed: Some(feed) };
                return taken.feed.as_mut().map_or(Ok(None), Feed::next);
            }
            state = interrupt::wait(&self.state, &self.back, state)?;
        }
        Ok(None)
    }

    /// Hands out no more windows: somebody has failed, and the others need not go on.
    pub fn fail(&self) {
        lock(&self.state).failed = true;
        self.back.notify_all();
    }
}

impl Drop for Taken<'_, '_> {
    fn drop(&mut self) {
        lock(&self.shared.state).feed = self.feed.take();
        self.shared.back.notify_all();
    }
}

/// A window in staging memory.
pub(super) struct Staged {
    pub window: Window,
    pub memory: Lease,
    /// One for each segment, once they are known.
    pub checksums: Vec<u32>,
}

impl Load {
    /// Copies the window's bytes into `memory`, and checksums them on the way if asked to.
    pub fn stage(self, mut memory: Lease, checksum: bool) -> Staged {
        memory.truncate((self.window.range.end - self.window.range.start) as usize);
        let checksums = self.fill(&mut memory, checksum);
        Staged { window: self.window, memory, checksums }
    }

    /// Copies the window's bytes, and gives the checksums of its segments if asked to.
    pub fn fill(&self, memory: &mut [u8], checksum: bool) -> Vec<u32> {
        let mut checksums = Vec::with_capacity(if checksum { self.sources.len() } else { 0 });
        let mut rest = memory;
        for (Segment { range, .. }, source) in self.window.segments.iter().zip(&self.sources) {
            let (into, behind) = rest.split_at_mut(range.len());
            rest = behind;
            let from = &source[range.clone()];
            if checksum {
                checksums.push(copy_and_crc32c(into, from));
            } else {
                into.copy_from_slice(from);
            }
        }
        checksums
    }
}

impl Staged {
    /// Computes the checksums of what was staged without them.
    pub fn checksum(&mut self) {
        let mut rest = &*self.memory;
        for Segment { range, .. } in &self.window.segments {
            let (bytes, behind) = rest.split_at(range.len());
            rest = behind;
            self.checksums.push(crc32c(bytes));
        }
    }
}

/// Writes of one thread that are under way, oldest first, at most a given number.
pub(super) struct Writes {
    under_way: VecDeque<Pending<Block>>,
    most: usize,
    waited: Duration,
}

impl Writes {
    pub fn new(most: usize) -> Self {
        Self { under_way: VecDeque::new(), most, waited: Duration::ZERO }
    }

    /// Adds one, after waiting for the oldest if there are too many.
    pub fn add(&mut self, write: Pending<Block>) -> Result<()> {
        self.under_way.push_back(write);
        if self.under_way.len() > self.most {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    /// A buffer of the pool; while there is none, the oldest write is waited for, whose own comes
    /// back then.
    pub fn take(&mut self, pool: &Pool) -> Result<Lease> {
        loop {
            if let Some(lease) = pool.try_take() {
                return Ok(lease);
            }
            if !self.wait_for_oldest()? {
                return pool.take();
            }
        }
    }

    /// Waits for all of them.
    pub fn finish(mut self) -> Result<Duration> {
        while self.wait_for_oldest()? {}
        Ok(self.waited)
    }

    /// Waits for the oldest and gives its memory back; whether there was one.
    pub fn wait_for_oldest(&mut self) -> Result<bool> {
        let start = Instant::now();
        let done = self.under_way.pop_front().map(Pending::wait);
        self.waited += start.elapsed();
        Ok(done.transpose()?.is_some())
    }
}
