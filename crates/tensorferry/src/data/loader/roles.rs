//! Who may do what: the plan of a crew, and what it is made from.
//!
//! Every finished task is entered into a portfolio: so many bytes, so many threads at the same kind of
//! work, so many seconds. Every few batches the split is planned anew from that. In a static crew it is
//! even and stays so.

use super::config::Mode;
use super::line::Line;
use crate::plan::data::threads::forecast::Forecast;
use crate::plan::data::threads::{Consumer, Machine, Portfolio, Split, fixed, split};

/// Batches that are taken between two plans.
const REPLAN_BATCHES: u32 = 4;

/// The two kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Load,
    Prepare,
}

/// The plan of a crew.
pub(super) struct Roles {
    pub mode: Mode,
    pub machine: Machine,
    split: Split,
    load: Portfolio,
    prepare: Portfolio,
    taken: u32,
}

impl Roles {
    pub fn new(mode: Mode, machine: Machine) -> Self {
        let split = Split::default();
        let (load, prepare) = (Portfolio::default(), Portfolio::default());
        Self { mode, machine, split, load, prepare, taken: 0 }
    }

    /// Whether one more thread may load for the line at this place.
    pub fn may_load(&self, at: usize, line: &Line) -> bool {
        self.split.is_shared() || self.split.load.get(at).is_some_and(|most| line.loading < *most)
    }

    /// Whether one more thread may prepare, when so many do.
    pub fn may_prepare(&self, preparing: usize) -> bool {
        let most = match self.mode {
            _ if self.split.is_shared() => self.machine.threads,
            Mode::Static => self.split.prepare,
            // A thread that has nothing to load helps; more than there are cores would not.
            Mode::Auto => self.split.prepare.max(self.machine.cores.min(self.machine.threads)),
        };
        preparing < most
    }

    /// Whether a thread may do what is not its role, rather than rest.
    pub fn may_help(&self) -> bool {
        self.mode == Mode::Auto
    }

    /// A task was done in so many seconds, while `beside` threads did the same kind of work.
    pub fn observe(&mut self, kind: Kind, bytes: u64, beside: usize, seconds: f64) {
        let portfolio = if kind == Kind::Load { &mut self.load } else { &mut self.prepare };
        portfolio.observe(bytes, beside, seconds);
    }

    /// A batch was taken; from time to time, that is a reason to think again.
    pub fn taken(&mut self, lines: &[Line]) {
        self.taken += 1;
        if self.taken >= REPLAN_BATCHES {
            self.plan(lines);
        }
    }

    /// Plans anew: for other lines, or by what was measured since.
    pub fn plan(&mut self, lines: &[Line]) {
        self.taken = 0;
        let consumers: Vec<_> = lines.iter().map(Line::consumer).collect();
        let next = match self.mode {
            Mode::Static => fixed(self.machine, lines.len()),
            Mode::Auto => split(self.machine, &self.prepare, &self.load, &consumers, &self.split),
        };
        let predicted = self.predict(&consumers, &next);
        for (at, line) in lines.iter().enumerate() {
            // Of a line that has nothing left to load, what was last planned for it is told.
            if let Some(load) = next.load.get(at).filter(|_| consumers[at].is_busy()) {
                line.work.tally.planned(*load, next.prepare, predicted);
            }
        }
        self.split = next;
    }

    /// Seconds of a batch by this split, of the consumer that waits longest.
    fn predict(&self, consumers: &[Consumer], split: &Split) -> Option<f64> {
        let forecast = Forecast::new(self.machine, &self.prepare, &self.load, consumers)?;
        (!split.is_shared()).then(|| forecast.score(split).iteration)
    }
}
