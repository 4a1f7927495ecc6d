//! The threads of a process that load and prepare, for all consumers.
//!
//! There is one lock. Under it, a thread asks the lines for the most urgent task, and afterwards tells
//! the line what became of it; between the two it works without the lock. A thread that finds nothing
//! sleeps until somebody brings work: a batch was submitted, a sample was loaded, or a batch was
//! taken, so that the window moved.
//!
//! *Whose task?* That of the line with the fewest batches ready, then of the one served least: the
//! consumer that would wait first is helped first. *Which kind?* Loading, as long as fewer threads
//! load for the line than [planned](super::roles); then preparing; then, unless the split is static,
//! whatever there is, so that no thread is idle while there is work.
//!
//! Threads are made when the first run needs them. They are never waited for: one may be stuck in a
//! read from a source that stalls. A closed crew takes no more tasks, and its threads end by
//! themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::config::Mode;
use super::line::{Line, Task, What};
use super::roles::{Kind, Roles};
use super::work::Work;
use crate::data::recipe::Scratch;
use crate::error::{self, Error, Result};
use crate::memory::process_id;
use crate::plan::threads::Machine;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// Threads that load and prepare, for all loaders of a process.
pub struct Crew {
    shared: Arc<Shared>,
    process: u32,
}

pub(super) struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

/// Lines and threads, guarded by the crew's lock.
pub(super) struct State {
    lines: Vec<Line>,
    roles: Roles,
    /// Threads that were made.
    made: usize,
    /// Threads at work, by line. One that is held up by a store may be so long after its line is gone.
    hands: BTreeMap<u64, usize>,
    /// Threads that load now, and that prepare now.
    loading: usize,
    preparing: usize,
    next_line: u64,
    closed: bool,
}

impl Crew {
    /// A crew of so many threads.
    pub fn new(threads: usize, mode: Mode) -> Result<Arc<Self>> {
        if threads == 0 {
            return Err(Error::invalid("a crew needs at least one thread"));
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let state = State {
            lines: Vec::new(),
            roles: Roles::new(mode, Machine { threads, cores }),
            made: 0,
            hands: BTreeMap::new(),
            loading: 0,
            preparing: 0,
            next_line: 0,
            closed: false,
        };
        let shared = Shared { state: Mutex::new(state), work: Condvar::new() };
        Ok(Arc::new(Self { shared: Arc::new(shared), process: process_id() }))
    }

    /// Has so many threads from now on, or more if it had more. Who works goes on.
    pub fn grow(&self, threads: usize) -> Result<()> {
        let mut state = self.lock()?;
        if threads <= state.roles.machine.threads {
            return Ok(());
        }
        state.roles.machine.threads = threads;
        state.replan();
        if state.made > 0 { self.man(&mut state) } else { Ok(()) }
    }

    /// A new consumer.
    pub(super) fn join(&self, work: Arc<Work>, epoch: u32) -> Result<u64> {
        let mut state = self.lock()?;
        let id = state.next_line;
        state.next_line += 1;
        state.lines.push(Line::new(id, work, epoch));
        state.replan();
        self.man(&mut state)?;
        Ok(id)
    }

    /// A consumer is gone; what is under way for it is dropped when it is done, and who waits for it
    /// is woken.
    pub(super) fn leave(&self, id: u64) {
        if let Ok(mut state) = self.lock() {
            let Ok(line) = state.line(id) else { return };
            line.ready.notify_all();
            state.lines.retain(|line| line.id != id);
            state.replan();
            drop(state);
            self.shared.work.notify_all();
        }
    }

    pub(super) fn submit(&self, id: u64, indices: &[u32]) -> Result<()> {
        let mut state = self.lock()?;
        let line = state.line(id)?;
        let first = line.open_batches() == 0;
        line.submit(indices);
        if first {
            state.replan();
            self.man(&mut state)?;
        }
        drop(state);
        self.shared.work.notify_all();
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
        let mut state = self.lock()?;
        loop {
            let line = state.line(id)?;
            if let Some(taken) = take(line) {
                // The window has moved: there may be work for everybody.
                let State { lines, roles, .. } = &mut *state;
                roles.taken(lines);
                drop(state);
                self.shared.work.notify_all();
                return Ok(Some(taken));
            }
            let ready = Arc::clone(&line.ready);
            let in_time;
            (state, in_time) = wait(&ready, state, deadline);
            if !in_time {
                return Ok(None);
            }
        }
    }

    /// Locks, unless this process was forked from the one that has the threads.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        if self.process != process_id() {
            let message = "this loader was made before the fork, and its threads are not here; make \
                           a new one in this process";
            return Err(Error::new(error::Kind::Closed, message));
        }
        Ok(lock(&self.shared.state))
    }

    /// Starts the threads that are missing, and others for those that a line which is gone still holds
    /// up.
    fn man(&self, state: &mut State) -> Result<()> {
        while state.made - state.lost() < state.roles.machine.threads {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("ferry-data".into());
            match builder.spawn(move || work_until_closed(&shared)) {
                Ok(_) => state.made += 1,
                // Fewer threads are slower; none at all would never finish.
                Err(_) if state.made > 0 => return Ok(()),
                Err(error) => return Err(Error::from_io(error, "can't start a thread")),
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if let Ok(mut state) = self.lock() {
            state.closed = true;
            state.lines.clear();
            drop(state);
            self.shared.work.notify_all();
        }
    }
}

impl State {
    fn line(&mut self, id: u64) -> Result<&mut Line> {
        let line = self.lines.iter_mut().find(|line| line.id == id);
        line.ok_or_else(|| Error::new(error::Kind::Closed, "this run of the loader is over"))
    }

    /// Threads at work for lines that are gone.
    fn lost(&self) -> usize {
        let gone = |id: &u64| self.lines.iter().all(|line| line.id != *id);
        self.hands.iter().filter(|(id, _)| gone(id)).map(|(_, hands)| hands).sum()
    }

    /// A thread has come back from a task; whether it is one too many now.
    fn come_back(&mut self, id: u64) -> bool {
        if let Some(hands) = self.hands.get_mut(&id) {
            *hands -= 1;
            if *hands == 0 {
                self.hands.remove(&id);
            }
        }
        let surplus = self.made - self.lost() > self.roles.machine.threads;
        self.made -= usize::from(surplus);
        surplus
    }

    fn replan(&mut self) {
        self.roles.plan(&self.lines);
    }

    /// The most urgent task, if a thread may take one now.
    fn choose(&mut self) -> Option<Task> {
        let places = self.by_urgency();
        let roles = &self.roles;
        let in_role = |(at, line): &(usize, &Line)| roles.may_load(*at, line) && line.can_load();
        if let Some(at) = self.find(&places, in_role) {
            return self.load(at);
        }
        if roles.may_prepare(self.preparing)
            && let Some(at) = self.find(&places, |(_, line)| line.can_prepare())
        {
            let task = self.lines[at].next_prepare()?;
            self.preparing += 1;
            return Some(Task { beside: self.preparing, ..task });
        }
        let help = self.roles.may_help().then(|| self.find(&places, |(_, line)| line.can_load()));
        self.load(help.flatten()?)
    }

    /// Places of lines, the one that is served next first: whose consumer would wait first, or, where
    /// nobody is to be preferred, who was served least.
    fn by_urgency(&self) -> Vec<usize> {
        let mut places: Vec<_> = (0..self.lines.len()).collect();
        let even = self.roles.mode == Mode::Static;
        places.sort_by_key(|at| {
            let line = &self.lines[*at];
            (if even { 0 } else { line.ready_batches() }, line.served)
        });
        places
    }

    fn find(&self, places: &[usize], fits: impl Fn(&(usize, &Line)) -> bool) -> Option<usize> {
        let lines = places.iter().map(|at| (*at, &self.lines[*at]));
        lines.into_iter().find(|line| line.1.has_hands() && fits(line)).map(|(at, _)| at)
    }

    fn load(&mut self, at: usize) -> Option<Task> {
        let task = self.lines[at].next_load()?;
        self.loading += 1;
        Some(Task { beside: self.loading, ..task })
    }
}

fn work_until_closed(shared: &Shared) {
    let mut scratch = Scratch::default();
    let mut state = lock(&shared.state);
    while !state.closed {
        let Some(task) = state.choose() else {
            (state, _) = wait(&shared.work, state, None);
            continue;
        };
        let id = task.line;
        *state.hands.entry(id).or_default() += 1;
        drop(state);
        state = carry_out(shared, task, &mut scratch);
        if state.come_back(id) {
            // It may have been what others waited for: it was counted among those who prepare.
            shared.work.notify_all();
            return;
        }
    }
}

/// Does a task without the lock, and tells its line with it.
fn carry_out<'a>(shared: &'a Shared, task: Task, scratch: &mut Scratch) -> MutexGuard<'a, State> {
    let Task { line: id, ticket, index, now, beside, work, what } = task;
    let began = Instant::now();
    let bytes = work.source.bytes(index as usize);
    match what {
        What::Load => {
            let loaded = work.load(index, now);
            let mut state = lock(&shared.state);
            state.loading -= 1;
            let seconds = began.elapsed().as_secs_f64();
            state.roles.observe(Kind::Load, bytes, beside, seconds);
            if let Ok(line) = state.line(id) {
                line.loaded((ticket, index), loaded, seconds);
                shared.work.notify_one();
            }
            state
        }
        What::Prepare { loaded, making } => {
            let (prepared, spent) =
                work.prepare((index, now), &loaded, (&making, ticket.slot), scratch);
            // Whoever takes the batch must be the only one who has it.
            drop((loaded, making));
            let mut state = lock(&shared.state);
            state.preparing -= 1;
            let seconds = began.elapsed().as_secs_f64();
            state.roles.observe(Kind::Prepare, bytes, beside, seconds);
            if let Ok(line) = state.line(id) {
                line.prepared((ticket, index), prepared, spent);
            }
            state
        }
    }
}
