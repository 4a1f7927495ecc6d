//! Those who wait for bytes, in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicU64, fence};
use crate::sync::{Condvar, Mutex, lock, now, wait};

/// Whose turn it is.
#[derive(Default)]
pub(super) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
    /// Bytes that those in line wait for: others leave them alone.
    awaited: AtomicU64,
}

#[derive(Default)]
struct Line {
    next: u64,
    waiting: VecDeque<u64>,
}

/// A place in line; the next one moves up when it is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    bytes: u64,
}

impl Turns {
    /// Bytes that those in line wait for.
    pub(super) fn awaited(&self) -> u64 {
        self.awaited.load(SeqCst)
    }

    /// Has those in line look again.
    pub(super) fn ring(&self) {
        // Who is about to wait has the lock until it does.
        drop(lock(&self.line));
        self.moved.notify_all();
    }

    /// Waits in line, for at most so long, until it is its turn and `take` could; an error if the caller
    /// is interrupted before. Memory that others keep comes without being told of: `make_room` asks for it.
    pub(super) fn wait(
        &self,
        bytes: u64,
        patience: Duration,
        make_room: impl Fn(),
        take: impl Fn() -> bool,
    ) -> Result<bool> {
        let deadline = now().checked_add(patience);
        let turn = self.join(bytes);
        loop {
            if turn.is_next() {
                make_room();
            }
            let line = lock(&self.line);
            if line.waiting.front() == Some(&turn.number) && take() {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| now() >= deadline) {
                return Ok(false);
            }
            drop(wait(&self.moved, line, now().checked_add(INTERVAL)));
            interrupt::check()?;
        }
    }

    fn join(&self, bytes: u64) -> Turn<'_> {
        let mut line = lock(&self.line);
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        self.awaited.fetch_add(bytes, SeqCst);
        fence(SeqCst);
        Turn { turns: self, number, bytes }
    }
}

impl Turn<'_> {
    fn is_next(&self) -> bool {
        lock(&self.turns.line).waiting.front() == Some(&self.number)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.turns.line);
        line.waiting.retain(|number| *number != self.number);
        self.turns.awaited.fetch_sub(self.bytes, SeqCst);
        drop(line);
        self.turns.moved.notify_all();
    }
}
