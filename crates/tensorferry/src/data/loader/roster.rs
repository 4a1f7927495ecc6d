//! Who takes which task.
//!
//! A roster has no threads, no lock and no clock: the crew calls it under its lock. All threads are
//! alike, so that whether a task may be taken does not depend on who asks: if one finds none, none
//! would.
//!
//! *Whose task?* That of the line with the fewest batches ready, then of the one served least: the
//! consumer that would wait first is helped first. *Which kind?* Loading, as long as fewer threads
//! load for the line than [planned](super::roles); then preparing; then, unless the split is static,
//! whatever there is, so that no thread is idle while there is work.
//!
//! A thread is *resting*, or *at work* for a line. One whose line is gone is *lost* until it comes
//! back: another one is made in its place, and whoever is one too many then ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::Mode;
use super::line::{Line, Task, Ticket};
use super::open::Together;
use super::roles::{Kind, Roles};
use super::work::{Loaded, Work};
use crate::data::spent::Spent;
use crate::error::{self, Error, Result};
use crate::plan::data::threads::Machine;

/// Lines, and the threads that work for them.
pub(super) struct Roster {
    lines: Vec<Line>,
    roles: Roles,
    /// Threads that were made and have not ended.
    made: usize,
    /// Threads at work, by line. One that is held up by a store may be so long after its line is gone.
    hands: BTreeMap<u64, usize>,
    /// Threads that load now, and that prepare now.
    loading: usize,
    preparing: usize,
    next_line: u64,
    closed: bool,
}

/// A task that is over.
pub(super) struct Done {
    pub line: u64,
    pub ticket: Ticket,
    pub index: u32,
    /// Stored bytes of the sample.
    pub bytes: u64,
    pub beside: usize,
    pub seconds: f64,
    pub outcome: Outcome,
}

/// What came of a task.
pub(super) enum Outcome {
    Loaded(Result<Loaded>),
    Prepared(Result<()>, Spent),
    /// There was no room to load it, or to prepare what was loaded.
    Crowded(Option<Loaded>, Error),
}

impl Roster {
    pub fn new(mode: Mode, machine: Machine) -> Self {
        Self {
            lines: Vec::new(),
            roles: Roles::new(mode, machine),
            made: 0,
            hands: BTreeMap::new(),
            loading: 0,
            preparing: 0,
            next_line: 0,
            closed: false,
        }
    }

    // -- lines --

    /// A new consumer.
    pub fn join(&mut self, work: Arc<Work>, epoch: u32) -> u64 {
        let id = self.next_line;
        self.next_line += 1;
        self.lines.push(Line::new(id, work, epoch));
        self.replan();
        id
    }

    /// A consumer is gone, and who waits for it is woken.
    pub fn leave(&mut self, id: u64) {
        let Ok(line) = self.line(id) else { return };
        line.ready.notify_all();
        self.lines.retain(|line| line.id != id);
        self.replan();
    }

    pub fn submit(&mut self, id: u64, indices: &[u32], together: Together) -> Result<()> {
        let line = self.line(id)?;
        let first = line.open_batches() == 0;
        line.submit(indices, together);
        if first {
            self.replan();
        }
        Ok(())
    }

    /// A batch was taken from a line.
    pub fn taken(&mut self) {
        self.roles.taken(&self.lines);
    }

    pub fn line(&mut self, id: u64) -> Result<&mut Line> {
        let line = self.lines.iter_mut().find(|line| line.id == id);
        line.ok_or_else(|| Error::new(error::Kind::Closed, "this run of the loader is over"))
    }

    /// Nothing is taken any more.
    pub fn close(&mut self) {
        self.closed = true;
        self.lines.clear();
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn replan(&mut self) {
        self.roles.plan(&self.lines);
    }

    // -- threads --

    /// So many threads are wanted from now on, or more if more were.
    pub fn grow(&mut self, threads: usize) {
        if threads > self.roles.machine.threads {
            self.roles.machine.threads = threads;
            self.replan();
        }
    }

    /// Whether any thread was made.
    pub fn has_threads(&self) -> bool {
        self.made > 0
    }

    /// Whether one more is to be made: one is missing, or a line that is gone still holds one up.
    pub fn lacks_threads(&self) -> bool {
        self.made - self.lost() < self.roles.machine.threads
    }

    /// A thread was made.
    pub fn made_one(&mut self) {
        self.made += 1;
    }

    /// Threads at work for lines that are gone.
    fn lost(&self) -> usize {
        let gone = |id: &u64| self.lines.iter().all(|line| line.id != *id);
        self.hands.iter().filter(|(id, _)| gone(id)).map(|(_, hands)| hands).sum()
    }

    // -- tasks --

    /// Whether there is a task that a thread may take now.
    pub fn has_task(&self) -> bool {
        !self.closed && self.choose().is_some()
    }

    /// Takes the most urgent task that a thread may take now.
    pub fn take(&mut self) -> Option<Task> {
        let (at, kind) = self.choose()?;
        let (task, beside) = match kind {
            Kind::Load => (self.lines[at].next_load()?, &mut self.loading),
            Kind::Prepare => (self.lines[at].next_prepare()?, &mut self.preparing),
        };
        *beside += 1;
        *self.hands.entry(task.line).or_default() += 1;
        Some(Task { beside: *beside, ..task })
    }

    /// A thread has come back from a task; whether it is one too many now, and ends.
    pub fn done(&mut self, done: Done) -> bool {
        let Done { line: id, ticket, index, bytes, beside, seconds, outcome } = done;
        let kind = match &outcome {
            Outcome::Loaded(_) | Outcome::Crowded(None, _) => Kind::Load,
            Outcome::Prepared(..) | Outcome::Crowded(Some(_), _) => Kind::Prepare,
        };
        if !matches!(outcome, Outcome::Crowded(..)) {
            self.roles.observe(kind, bytes, beside, seconds);
        }
        match kind {
            Kind::Load => self.loading -= 1,
            Kind::Prepare => self.preparing -= 1,
        }
        if let Ok(line) = self.line(id) {
            match outcome {
                Outcome::Loaded(loaded) => line.loaded((ticket, index), loaded, seconds),
                Outcome::Prepared(prepared, spent) => {
                    line.prepared((ticket, index), prepared, spent);
                }
                Outcome::Crowded(loaded, error) => line.put_back((ticket, index), loaded, error),
            }
        }
        self.come_back(id)
    }

    /// Whether some tasks are left because memory is short.
    pub fn is_crowded(&self) -> bool {
        self.lines.iter().any(Line::is_crowded)
    }

    /// There may be room for them now.
    pub fn look_again(&mut self) {
        self.lines.iter_mut().for_each(Line::look_again);
    }

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

    /// The line whose task is the most urgent, by its place, and the kind of it.
    fn choose(&self) -> Option<(usize, Kind)> {
        let places = self.by_urgency();
        let roles = &self.roles;
        let in_role = |at: usize, line: &Line| roles.may_load(at, line) && line.can_load();
        if let Some(at) = self.find(&places, in_role) {
            return Some((at, Kind::Load));
        }
        if roles.may_prepare(self.preparing)
            && let Some(at) = self.find(&places, |_, line| line.can_prepare())
        {
            return Some((at, Kind::Prepare));
        }
        let help = roles.may_help().then(|| self.find(&places, |_, line| line.can_load()));
        help.flatten().map(|at| (at, Kind::Load))
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

    fn find(&self, places: &[usize], fits: impl Fn(usize, &Line) -> bool) -> Option<usize> {
        let fits = |at: &usize| self.lines[*at].has_hands() && fits(*at, &self.lines[*at]);
        places.iter().copied().find(fits)
    }
}
