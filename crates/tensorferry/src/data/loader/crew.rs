//! The threads of a process that load and prepare, for all consumers.
//!
//! There is one lock, around the [roster](super::roster). Under it, a thread takes the most urgent
//! task, and afterwards tells what became of it; between the two it works without the lock.
//!
//! *Who is woken?* A thread that finds no task rests. Whoever changes the roster wakes one that rests,
//! if there is a task then: it brought a batch, took one, so that the window moved, left, or took a
//! task and goes to work, or ends. Who was woken does the same when it has a task. So nobody rests
//! while there is a task that may be taken, and nobody is woken for none.
//!
//! Threads are made when the first run needs them. They are never waited for: one may be stuck in a
//! read from a source that stalls. A closed crew takes no more tasks, and its threads end by
//! themselves.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use super::config::Mode;
use super::crowd::{LOOK_EVERY, is_no_room};
use super::line::{Line, Task, What};
use super::open::Together;
use super::roster::{Done, Outcome, Roster};
use super::work::Work;
use crate::data::recipe::Scratch;
use crate::error::{self, Error, Result};
use crate::memory::process_id;
use crate::plan::data::threads::Machine;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, now, seconds_since, thread, wait};

/// Threads that load and prepare, for all loaders of a process.
pub struct Crew {
    shared: Arc<Shared>,
    process: u32,
}

struct Shared {
    roster: Mutex<Roster>,
    /// Rung for a thread that rests, when there is a task.
    work: Condvar,
}

impl Crew {
    /// A crew of so many threads.
    pub fn new(threads: usize, mode: Mode) -> Result<Arc<Self>> {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::on(Machine { threads, cores }, mode)
    }

    pub(super) fn on(machine: Machine, mode: Mode) -> Result<Arc<Self>> {
        if machine.threads == 0 {
            return Err(Error::invalid("a crew needs at least one thread"));
        }
        let roster = Mutex::new(Roster::new(mode, machine));
        let shared = Arc::new(Shared { roster, work: Condvar::new() });
        Ok(Arc::new(Self { shared, process: process_id() }))
    }

    /// Has so many threads from now on, or more if it had more. Who works goes on.
    pub fn grow(&self, threads: usize) -> Result<()> {
        let mut roster = self.lock()?;
        roster.grow(threads);
        if roster.has_threads() {
            self.man(&mut roster)?;
        }
        self.shared.release(roster);
        Ok(())
    }

    /// A new consumer.
    pub(super) fn join(&self, work: Arc<Work>, epoch: u32) -> Result<u64> {
        let mut roster = self.lock()?;
        let id = roster.join(work, epoch);
        let manned = self.man(&mut roster);
        if manned.is_err() {
            roster.leave(id);
        }
        self.shared.release(roster);
        manned.map(|()| id)
    }

    /// A consumer is gone; what is under way for it is dropped when it is done, and who waits for it
    /// is woken.
    pub(super) fn leave(&self, id: u64) {
        if let Ok(mut roster) = self.lock() {
            roster.leave(id);
            self.shared.release(roster);
        }
    }

    pub(super) fn submit(&self, id: u64, indices: &[u32], together: Together) -> Result<()> {
        let mut roster = self.lock()?;
        roster.submit(id, indices, together)?;
        self.man(&mut roster)?;
        self.shared.release(roster);
        Ok(())
    }

    /// Looks at a line, and leaves it as it is.
    pub(super) fn look<T>(&self, id: u64, see: impl FnOnce(&Line) -> T) -> Result<T> {
        self.lock()?.line(id).map(|line| see(line))
    }

    /// Waits until `take` finds something in the line, at most until `deadline`.
    pub(super) fn wait_for<T>(
        &self,
        id: u64,
        deadline: Option<Instant>,
        mut take: impl FnMut(&mut Line) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut roster = self.lock()?;
        loop {
            let line = roster.line(id)?;
            if let Some(taken) = take(line) {
                line.is_awaited = false;
                roster.taken();
                self.shared.release(roster);
                return Ok(Some(taken));
            }
            line.is_awaited = true;
            let ready = Arc::clone(&line.ready);
            let in_time;
            (roster, in_time) = wait(&ready, roster, deadline);
            if !in_time {
                return Ok(None);
            }
        }
    }

    /// Locks, unless this process was forked from the one that has the threads.
    fn lock(&self) -> Result<MutexGuard<'_, Roster>> {
        if self.process != process_id() {
            let message = "this loader was made before the fork, and its threads are not here; make \
                           a new one in this process";
            return Err(Error::new(error::Kind::Closed, message));
        }
        Ok(lock(&self.shared.roster))
    }

    /// Starts the threads that are missing.
    fn man(&self, roster: &mut Roster) -> Result<()> {
        while roster.lacks_threads() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("ferry-data".into());
            match builder.spawn(move || work_until_closed(&shared)) {
                Ok(_) => roster.made_one(),
                // Fewer threads are slower; none at all would never finish.
                Err(_) if roster.has_threads() => return Ok(()),
                Err(error) => return Err(Error::from_io(error, "can't start a thread")),
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if let Ok(mut roster) = self.lock() {
            roster.close();
            drop(roster);
            self.shared.work.notify_all();
        }
    }
}

impl Shared {
    /// Lets go of a roster that has changed: if there is a task now, or one to look for, one who rests is
    /// woken for it.
    fn release(&self, roster: MutexGuard<'_, Roster>) {
        let is_wanted = roster.has_task() || roster.is_crowded();
        drop(roster);
        if is_wanted {
            self.work.notify_one();
        }
    }
}

fn work_until_closed(shared: &Shared) {
    let mut scratch = Scratch::default();
    let mut roster = lock(&shared.roster);
    while !roster.is_closed() {
        let Some(task) = roster.take() else {
            // Nobody tells when memory comes free: so who rests looks for it.
            let until = if roster.is_crowded() { now().checked_add(LOOK_EVERY) } else { None };
            (roster, _) = wait(&shared.work, roster, until);
            if until.is_some_and(|until| now() >= until) {
                roster.look_again();
            }
            continue;
        };
        shared.release(roster);
        let done = carry_out(task, &mut scratch);
        roster = lock(&shared.roster);
        if roster.done(done) {
            // What it has made possible is for others to do.
            return shared.release(roster);
        }
    }
}

/// Does a task, without the lock.
fn carry_out(task: Task, scratch: &mut Scratch) -> Done {
    let Task { line, ticket, index, now: moment, beside, work, what } = task;
    let began = now();
    let outcome = match what {
        What::Load => match work.load(index, moment) {
            Err(error) if is_no_room(&error) => Outcome::Crowded(None, error),
            loaded => Outcome::Loaded(loaded),
        },
        What::Prepare { loaded, making, place } => {
            let slot = (&*making, place);
            let (prepared, spent) = work.prepare((index, moment), &loaded, slot, scratch);
            match prepared {
                Err(error) if is_no_room(&error) => {
                    making.forget(place);
                    Outcome::Crowded(Some(loaded), error)
                }
                prepared => {
                    // Whoever takes the batch must be the only one who has it.
                    drop((loaded, making));
                    Outcome::Prepared(prepared, spent)
                }
            }
        }
    };
    let (bytes, seconds) = (work.source.bytes(index as usize), seconds_since(began));
    Done { line, ticket, index, bytes, beside, seconds, outcome }
}
