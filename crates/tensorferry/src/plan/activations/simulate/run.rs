//! The state of a step, and what each event does to it.

use std::collections::VecDeque;

use super::costs::Cost;
use super::course::{Course, Event};
use super::timeline::{Doing, Watch};
use crate::plan::activations::{Disk, Place, Prediction, Profile};

/// Why a run has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Stuck {
    /// This tensor never gets room.
    NoRoom(usize),
    /// Compute waited for longer than the caller cares.
    TooLong,
}

/// Runs of one profile under one budget: what they share is made once, and memory is used again.
#[derive(Debug, Clone)]
pub struct Simulator {
    course: Course,
    costs: Vec<Cost>,
    /// Where each tensor stands in the order of first uses; nowhere if it is never used.
    ranks: Vec<Option<usize>>,
    budget: u64,
    seconds: f64,
    disk: Disk,
    states: Vec<State>,
    line: VecDeque<usize>,
}

/// Where a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not saved yet, or freed.
    Nowhere,
    /// In memory until it is freed.
    Held,
    /// In memory, in line to be written.
    InLine,
    /// In memory until its write completes.
    Leaving,
    /// Being written, and used meanwhile: it stays.
    LeavingUsed,
    /// Being written, and not needed any more.
    LeavingDone,
    OnDisk,
    /// On its way back.
    Coming,
    /// Read, and not used yet.
    Back,
}

impl Simulator {
    /// For a profile that holds together.
    pub fn new(profile: &Profile, budget: u64) -> Self {
        let course = Course::new(profile);
        let count = profile.tensors.len();
        let mut ranks = vec![None; count];
        for (rank, tensor) in course.needed().iter().enumerate() {
            ranks[*tensor] = Some(rank);
        }
        Self {
            course,
            costs: (0..count).map(|tensor| Cost::of(profile, tensor)).collect(),
            ranks,
            budget,
            seconds: profile.seconds(),
            disk: profile.disk,
            states: Vec::new(),
            line: VecDeque::new(),
        }
    }

    /// What a step comes to with these places, one for each tensor; nothing if it can't be carried out.
    pub fn predict(&mut self, places: &[Place]) -> Option<Prediction> {
        self.run(places, f64::INFINITY, &mut ()).ok()
    }

    /// The same, told to whoever watches. Ends early once compute has waited for longer than
    /// `stall_max`.
    pub(in crate::plan) fn run<W: Watch>(
        &mut self,
        places: &[Place],
        stall_max: f64,
        watch: &mut W,
    ) -> Result<Prediction, Stuck> {
        self.states.clear();
        self.states.resize(places.len(), State::Nowhere);
        self.line.clear();
        let run = Run {
            course: &self.course,
            costs: &self.costs,
            ranks: &self.ranks,
            places,
            budget: self.budget,
            disk: self.disk,
            stall_max,
            states: &mut self.states,
            line: &mut self.line,
            transfer: None,
            held: 0,
            next_read: usize::MAX,
            now: 0.0,
            turned: false,
            came: Prediction::default(),
            watch,
        };
        let mut prediction = run.finish()?;
        prediction.seconds = self.seconds + prediction.stall();
        Ok(prediction)
    }
}

struct Run<'a, W> {
    course: &'a Course,
    costs: &'a [Cost],
    ranks: &'a [Option<usize>],
    places: &'a [Place],
    budget: u64,
    disk: Disk,
    stall_max: f64,
    states: &'a mut [State],
    /// To be written; those whose state says otherwise were called off.
    line: &'a mut VecDeque<usize>,
    transfer: Option<Transfer>,
    held: u64,
    /// No tensor before this rank is to be read.
    next_read: usize,
    /// Stalls counted.
    now: f64,
    turned: bool,
    came: Prediction,
    watch: &'a mut W,
}

/// What the disk does.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    tensor: usize,
    is_read: bool,
    from: f64,
    /// Beside compute; sooner if compute waits for it.
    until: f64,
}

impl<W: Watch> Run<'_, W> {
    fn finish(mut self) -> Result<Prediction, Stuck> {
        let course = self.course;
        for step in course.steps() {
            self.compute(step.at + self.came.stall());
            self.wait(step.event)?;
            self.happen(step.event);
            self.dispatch();
        }
        if let Some(open) = self.transfer {
            self.watch.span(open.doing(), open.from, open.until);
        }
        Ok(self.came)
    }

    /// Goes on to that time, while the disk works.
    fn compute(&mut self, until: f64) {
        let from = self.now;
        // What is added up in another order may come out a little smaller.
        let until = until.max(from);
        while let Some(transfer) = self.transfer
            && transfer.until <= until
        {
            self.complete(transfer);
            self.dispatch();
        }
        self.now = until;
        let doing = if self.turned { Doing::Backward } else { Doing::Forward };
        self.watch.span(doing, from, until);
    }

    /// Waits until the event can happen.
    fn wait(&mut self, event: Event) -> Result<(), Stuck> {
        let from = self.now;
        while let Some(tensor) = self.lacks(event) {
            // The disk is idle only if there is nothing that it could do.
            let transfer = self.transfer.ok_or(Stuck::NoRoom(tensor))?;
            self.complete(transfer.awaited(self.now, &self.disk));
            self.dispatch();
        }
        let waited = self.now - from;
        if waited > 0.0 {
            self.watch.span(Doing::Stall, from, self.now);
            let stall = if self.turned {
                &mut self.came.backward_stall
            } else {
                &mut self.came.forward_stall
            };
            *stall += waited;
        }
        if self.came.stall() > self.stall_max { Err(Stuck::TooLong) } else { Ok(()) }
    }

    /// The tensor for which the event has to wait.
    fn lacks(&self, event: Event) -> Option<usize> {
        match event {
            Event::Save(tensor) => (!self.fits(tensor)).then_some(tensor),
            Event::Use(tensor) => {
                let away = matches!(self.states[tensor], State::OnDisk | State::Coming);
                away.then_some(tensor)
            }
            Event::Turn | Event::Free(_) | Event::End => None,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Save(tensor) => {
                self.take(tensor);
                let offloaded = self.places[tensor].is_offloaded();
                self.states[tensor] = if offloaded { State::InLine } else { State::Held };
                if offloaded {
                    self.line.push_back(tensor);
                }
            }
            Event::Turn => {
                self.turned = true;
                self.next_read = 0;
            }
            Event::Use(tensor) => {
                let state = &mut self.states[tensor];
                *state = match *state {
                    State::Leaving | State::LeavingUsed => State::LeavingUsed,
                    _ => State::Held,
                };
            }
            Event::Free(tensor) if self.states[tensor] == State::LeavingUsed => {
                self.states[tensor] = State::LeavingDone;
            }
            Event::Free(tensor) => self.give(tensor, State::Nowhere),
            Event::End => {}
        }
    }

    /// The disk is done with that, at its time.
    fn complete(&mut self, transfer: Transfer) {
        let Transfer { tensor, from, until, .. } = transfer;
        self.now = until;
        self.transfer = None;
        self.watch.span(transfer.doing(), from, until);
        match self.states[tensor] {
            State::Leaving => {
                self.give(tensor, State::OnDisk);
                self.look_again(tensor);
            }
            State::LeavingUsed => self.states[tensor] = State::Held,
            State::LeavingDone => self.give(tensor, State::Nowhere),
            _ => self.states[tensor] = State::Back,
        }
    }

    /// Gives the disk its next work, if it has none.
    fn dispatch(&mut self) {
        if self.transfer.is_some() {
            return;
        }
        if let Some(tensor) = self.first_away().filter(|tensor| self.fits(*tensor)) {
            self.take(tensor);
            self.states[tensor] = State::Coming;
            let moved = self.costs[tensor].moved(self.places[tensor]);
            self.came.read_bytes += moved.stored_bytes;
            return self.begin(tensor, true, moved.read_seconds);
        }
        while let Some(tensor) = self.line.pop_front() {
            if self.states[tensor] == State::InLine {
                self.states[tensor] = State::Leaving;
                let moved = self.costs[tensor].moved(self.places[tensor]);
                self.came.written_bytes += moved.stored_bytes;
                return self.begin(tensor, false, moved.write_seconds);
            }
        }
    }

    fn begin(&mut self, tensor: usize, is_read: bool, seconds: f64) {
        let from = self.now;
        self.transfer = Some(Transfer { tensor, is_read, from, until: from + seconds });
    }

    /// What is on disk and needed first. Nothing in forward.
    fn first_away(&mut self) -> Option<usize> {
        let needed = self.course.needed();
        while let Some(tensor) = needed.get(self.next_read) {
            if self.states[*tensor] == State::OnDisk {
                return Some(*tensor);
            }
            self.next_read += 1;
        }
        None
    }

    /// What is written in backward may be needed before what is read next.
    fn look_again(&mut self, tensor: usize) {
        if let Some(rank) = self.ranks[tensor].filter(|_| self.turned) {
            self.next_read = self.next_read.min(rank);
        }
    }

    fn fits(&self, tensor: usize) -> bool {
        self.held + self.costs[tensor].bytes <= self.budget
    }

    fn take(&mut self, tensor: usize) {
        self.held += self.costs[tensor].bytes;
        self.came.peak_bytes = self.came.peak_bytes.max(self.held);
        self.watch.memory(self.now, self.held);
    }

    fn give(&mut self, tensor: usize, state: State) {
        self.held -= self.costs[tensor].bytes;
        self.states[tensor] = state;
        self.watch.memory(self.now, self.held);
    }
}

impl Transfer {
    /// The same if compute waits from now until it is done. A wait ends when a transfer does, so none is
    /// awaited for a part of what is left of it.
    fn awaited(self, now: f64, disk: &Disk) -> Self {
        let speedup =
            if self.is_read { disk.awaited_read_speedup } else { disk.awaited_write_speedup };
        Self { until: now + (self.until - now) / speedup, ..self }
    }

    fn doing(&self) -> Doing {
        if self.is_read { Doing::Read(self.tensor) } else { Doing::Write(self.tensor) }
    }
}
