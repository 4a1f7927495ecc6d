//! A save that goes on behind its caller.
//!
//! ```text
//!   caller and helpers: stage ─► Backlog ─► writer's thread: checksum ─► write ─► finish
//!   wait here only               windows in staging memory
//! ```
//!
//! The caller is held while its tensors are copied, and may then change them. Meanwhile the writer
//! sleeps, so that the copying has the processor to itself, unless the staging memory is full: then
//! it starts, and the rest is streamed through what it frees. So it is when the machine or the container
//! runs short of memory. What goes wrong after the caller has left is told by [`Saving::wait`].
//!
//! The backlog is *filling*, then *complete* (all is staged) or *abandoned* (staging failed, nothing
//! is to be published); *broken* once the writer has failed. It is bounded by the staging memory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::feed::{Feed, Shared, Source, Staged, Writes};
use super::header::Header;
use super::save::{Options, Output, Report, WINDOWS_MAX};
use super::window::WINDOW_BYTES;
use crate::error::{Error, Kind, Result};
use crate::interrupt::{self, Token};
use crate::io::{Engine, Pending, Priority, promise};
use crate::memory::is_short_of;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::threads::on_threads;
use crate::trace;

/// Windows after which a save looks again how much memory there is.
const LOOK_WINDOWS: usize = 16;

/// A save whose tensors are staged.
#[derive(Debug)]
pub struct Saving {
    outcome: Pending<Report>,
    staged_seconds: f64,
}

impl Saving {
    /// How long the caller was held.
    pub fn staged_seconds(&self) -> f64 {
        self.staged_seconds
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.outcome.is_done()
    }

    /// Waits at most `limit`; whether the save is done.
    pub fn wait_within(&self, limit: Duration) -> bool {
        self.outcome.wait_within(limit)
    }

    /// Waits until the file is in its place, or the reason why it is not.
    pub fn wait(self) -> Result<Report> {
        Ok(self.outcome.wait()?)
    }
}

/// Saves as [`save`](super::save()) does, but returns as soon as all tensors are in staging memory.
pub fn save_behind(
    engine: &Arc<dyn Engine>,
    path: &Path,
    header: Header,
    source: &mut dyn Source,
    options: &Options,
) -> Result<Saving> {
    let output = Arc::new(Output::begin(engine, path, header, options, Priority::Background)?);
    let backlog = Arc::new(Backlog::default());
    let (promise, outcome) = promise();
    // The writer works for nobody who can be interrupted, but it is told when staging has failed.
    let writing = Token::default();
    let writer = {
        let (backlog, output, writing) =
            (Arc::clone(&backlog), Arc::clone(&output), writing.clone());
        move || {
            let written = writing.help(|| write_behind(&backlog, output));
            promise.fulfil(written.map_err(Into::into));
        }
    };
    thread::Builder::new()
        .name("ferry-save".into())
        .spawn(writer)
        .map_err(|error| Error::from_io(error, "can't start a thread to save with"))?;
    let filling = Filling { backlog: &backlog, writing, outcome: &outcome };
    stage_all(&output, &backlog, source)?;
    let staged = output.began.elapsed();
    // Now the writer is the only one to hold the draft, which it is going to publish.
    output.draft.hand_over();
    drop(output);
    backlog.close(Over::Complete(staged));
    drop(filling);
    Ok(Saving { outcome, staged_seconds: staged.as_secs_f64() })
}

/// Staging under way: if it ends early, by an error or a panic, the backlog is abandoned. The writer
/// waits for no disk from then on, and is waited for, so that the draft is gone when the caller hears of it.
struct Filling<'a> {
    backlog: &'a Backlog,
    writing: Token,
    outcome: &'a Pending<Report>,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        if self.backlog.close(Over::Abandoned) == Over::Abandoned {
            self.writing.interrupt();
            self.outcome.see_out();
        }
    }
}

/// Copies every window into staging memory, on this thread and on others beside it.
fn stage_all(output: &Output, backlog: &Backlog, source: &mut dyn Source) -> Result<()> {
    let _span = trace::span("checkpoint", "stage");
    let feed = Shared::new(Feed::new(&output.header.tensors, source));
    let growth = Growth::default();
    let stage = || {
        loop {
            interrupt::check()?;
            let load = feed.next()?;
            let Some(load) = load else { return Ok(()) };
            let most = growth.windows_max();
            let mut memory = if let Some(memory) = output.staging.try_take_of(most) {
                memory
            } else {
                backlog.start_writing();
                output.staging.take_of(most)?
            };
            // A caller waits, so pages are taken in the size that is made faster.
            memory.populate();
            if !backlog.add(load.stage(memory, false)) {
                feed.fail();
            }
        }
    };
    on_threads(output.threads(), || stage().inspect_err(|_| feed.fail()))?;
    Ok(())
}

/// How much staging memory a save takes: while memory is short, no more than a save that is waited for.
#[derive(Default)]
struct Growth {
    asked: AtomicUsize,
    short: AtomicBool,
}

impl Growth {
    /// How many windows may be in memory.
    fn windows_max(&self) -> usize {
        if self.asked.fetch_add(1, Relaxed).is_multiple_of(LOOK_WINDOWS) {
            self.short.store(is_short_of(LOOK_WINDOWS as u64 * WINDOW_BYTES), Relaxed);
        }
        if self.short.load(Relaxed) { WINDOWS_MAX } else { usize::MAX }
    }
}

/// The writer's life.
fn write_behind(backlog: &Backlog, output: Arc<Output>) -> Result<Report> {
    let _span = trace::span("checkpoint", "write behind");
    let _writing = Writing(backlog);
    let waited = write_all(backlog, &output)?;
    let staged = backlog.wait_until_closed()?;
    let output = Arc::into_inner(output)
        .ok_or_else(|| Error::new(Kind::Internal, "a save is still being staged"))?;
    output.finish(staged, waited)
}

/// Writing under way: however it ends, nobody waits for the writer from then on.
struct Writing<'a>(&'a Backlog);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Writes all windows; how long the disk was waited for.
fn write_all(backlog: &Backlog, output: &Output) -> Result<Duration> {
    let mut writes = Writes::new(WINDOWS_MAX - 1);
    loop {
        let staged = match backlog.next_at_once() {
            // The memory of a write comes back when it is waited for, and staging may wait for it.
            None if writes.wait_for_oldest()? => continue,
            None => backlog.next(),
            staged => staged,
        };
        let Some(mut staged) = staged else { return writes.finish() };
        if output.checksum {
            staged.checksum();
        }
        writes.add(output.write(staged))?;
    }
}

/// Windows that are staged and not yet written.
#[derive(Default)]
struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    windows: VecDeque<Staged>,
    may_start: bool,
    broken: bool,
    over: Option<Over>,
}

/// How staging ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// All is staged, after so long.
    Complete(Duration),
    /// It failed, and nothing is to be published.
    Abandoned,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a window; `false` when the writer has failed and nothing more is wanted.
    fn add(&self, staged: Staged) -> bool {
        let mut state = self.lock();
        if !state.broken {
            state.windows.push_back(staged);
            self.changed.notify_all();
        }
        !state.broken
    }

    fn start_writing(&self) {
        self.lock().may_start = true;
        self.changed.notify_all();
    }

    /// Staging is over; how it has ended. Only the first call counts.
    fn close(&self, over: Over) -> Over {
        let mut state = self.lock();
        state.may_start = true;
        self.changed.notify_all();
        *state.over.get_or_insert(over)
    }

    /// The next window, if there is one to be written now.
    fn next_at_once(&self) -> Option<Staged> {
        let mut state = self.lock();
        let is_wanted = state.may_start && state.over != Some(Over::Abandoned);
        if is_wanted { state.windows.pop_front() } else { None }
    }

    /// The next window, once the writer may start; `None` after the last.
    fn next(&self) -> Option<Staged> {
        let mut state = self.lock();
        loop {
            if state.over == Some(Over::Abandoned) {
                return None;
            }
            if state.may_start {
                if let Some(staged) = state.windows.pop_front() {
                    return Some(staged);
                }
                if state.over.is_some() {
                    return None;
                }
            }
            state = wait(&self.changed, state, None).0;
        }
    }

    /// The writer has failed, or is done: what is staged goes back to the pool, for whoever waits for it.
    fn fail(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.windows.clear();
    }

    /// How long staging took, when it is over.
    fn wait_until_closed(&self) -> Result<Duration> {
        let mut state = self.lock();
        loop {
            match state.over {
                Some(Over::Complete(staged)) => return Ok(staged),
                Some(Over::Abandoned) => {
                    return Err(Error::new(Kind::Closed, "staging has failed"));
                }
                None => {
                    state = wait(&self.changed, state, None).0;
                }
            }
        }
    }
}
