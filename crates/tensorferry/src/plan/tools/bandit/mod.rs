//! Our algorithm: estimates that age, and looks that pay.
//!
//! For each (situation, tool, size class) an estimate is kept of how long the tool takes, and of how
//! sure that is. A choice takes the tool believed best, unless a *look* at another one is worth more
//! than it costs, and can be paid:
//!
//! ```text
//!   worth   the saving that the look may show, times the seconds to come that may profit
//!   cost    the seconds that it is believed to take longer, doubt included
//!   purse   shares of the seconds already spent at this size: first looks, other looks
//! ```
//!
//! *Saving.* A look removes doubt: it may show that the tool is faster than the best. And what was not
//! looked at for long may have changed altogether; the chance of that grows with the operations since,
//! and so does what a change may save. So a tool that is surely several times slower is looked at again
//! too, after thousands of operations, and one that is nearly as fast after hundreds.
//!
//! *Seconds to come.* As many operations as there were since something changed, because what has lasted
//! will last, within limits. A tool's first look at a size profits other sizes too, the nearer the more:
//! a look that takes a millisecond pays although all that it can save lies at sizes that take seconds.
//! That is how looks come first where they are cheap.
//!
//! *Purse.* The extra seconds of looks stay below [`LOOK_SHARE`] of the seconds spent in that situation
//! and class; what a look takes longer than believed is paid after it, and the next one waits for that. A
//! tool's first look, after the start, a flush or a jump, while it is as good as unknown, is paid from
//! another purse, that of [`FIRST_SHARE`]: nothing is known at the start, and most is gained from knowing
//! it early. A look that costs as much as the operation itself comes no earlier than after five
//! operations, one at a tool believed several times slower much later or never.
//!
//! *Sizes.* Each tool has a line, a latency and a bandwidth, fitted over all its classes; one that was
//! not tried takes the machine's, which follows from the other tools (`line.rs`, `belief.rs`). A class
//! without values of its own starts on the line, corrected by how far the nearest classes lie off it.
//! When a tool's estimate wanders, the stale ones of its neighbours wander along. Lines know of no cliff:
//! a class's first value is believed against them at once, not only when it has come several times.
//!
//! *Drift.* A few surprises in a row, at one size or over neighbouring ones, are a jump. It shakes the
//! other estimates of the situation that were not seen since: their levels shift by a part and their
//! doubt grows, so that they get a look, those first that were faster once.
//!
//! There is no randomness: the same operations give the same choices. At most
//! `4 * 5 * SizeClass::COUNT` estimates exist. The constants were chosen on made-up machines like those
//! of the tests, of other seeds.

mod alarm;
mod belief;
mod choice;
mod estimate;
mod ledger;
mod line;
mod prior;
mod show;
mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod value;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::alarm::Alarm;
use self::choice::{Candidate, choose};
use self::estimate::{DOUBT_MAX, Estimate, Moved};
use self::ledger::{Ledger, Looker};
use self::state::State;
use super::ask::{Goal, Load, Observed, Reading, Save, Situation};
use super::class::SizeClass;
use super::tool::{Format, Tool, Tools};
use crate::error::Result;

/// No look is taken unless the extra seconds of all stay below this share of the seconds spent, in every
/// situation and size class.
pub const LOOK_SHARE: f64 = 0.015;

/// Extra seconds of first looks stay below this share, likewise, for each of those who look: reads,
/// and writes that are chosen for the sake of reads.
pub const FIRST_SHARE: f64 = 0.2;

/// Estimates of one tool at neighbouring classes wander alike by this factor for each class between.
const CLASS_LIKENESS: f64 = 0.9;
/// One tool jumps alike at two sizes by this factor, before their distance.
const SIZE_LIKENESS: f64 = 0.5;
/// Two tools jump alike by this factor.
const TOOL_LIKENESS: f64 = 0.7;
/// Classes further away than this have nothing to do with one another.
const REACH: u8 = 8;

type Key = (Situation, Tool, SizeClass);

/// Estimates and ledgers; see the [module](self).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "State", into = "State")]
pub struct Bandit {
    estimates: BTreeMap<Key, Estimate>,
    alarms: BTreeMap<(Situation, Tool), Alarm>,
    ledgers: BTreeMap<(Situation, SizeClass), Ledger>,
    /// Operations so far, by situation.
    ticks: [u64; 4],
}

impl Bandit {
    /// The tool to write with.
    pub fn choose_write(&mut self, goal: Goal, save: &Save) -> Result<Tool> {
        let writers = save.writers()?;
        let mut candidates = self.candidates(goal, save, writers);
        if goal == Goal::Read {
            candidates = self.one_writer_a_format(save, &candidates);
        }
        // A look is paid where its seconds are saved; for both goals by the writes alone.
        let (payer, looker) = match goal {
            Goal::Read => (save.reading.into(), Looker::Writer),
            Goal::Write | Goal::Both => (save.writing.into(), Looker::Own),
        };
        let class = SizeClass::of(save.size);
        let elsewhere = self.elsewhere(payer, class);
        let ledger = self.ledgers.entry((payer, class)).or_default();
        Ok(choose(&candidates, ledger, elsewhere, looker).unwrap_or(Tool::Direct))
    }

    /// The tool to read with.
    pub fn choose_read(&mut self, load: &Load) -> Result<Tool> {
        let readers = load.readers()?;
        let situation = load.reading.into();
        let candidate = |tool| Candidate {
            tool,
            write: None,
            read: Some(self.belief(situation, tool, load.size)),
        };
        let candidates: Vec<_> = readers.into_iter().map(candidate).collect();
        let class = SizeClass::of(load.size);
        let elsewhere = self.elsewhere(situation, class);
        let ledger = self.ledgers.entry((situation, class)).or_default();
        Ok(choose(&candidates, ledger, elsewhere, Looker::Own).unwrap_or(load.written_with))
    }

    /// Learns from an operation.
    pub fn record(&mut self, observed: &Observed) -> Result<()> {
        observed.check()?;
        let Observed { situation, tool, size, seconds, .. } = *observed;
        let class = SizeClass::of(size);
        let believed = self.belief(situation, tool, size).seconds;
        self.ledgers.entry((situation, class)).or_default().record(tool, seconds, believed);
        let value = observed.ln_seconds() - prior::ln_seconds(situation, tool, size);
        let tick = self.tick(situation) + 1;
        self.ticks[situation as usize] = tick;
        let key = (situation, tool, class);
        let known = self.estimates.get(&key).copied();
        let known = known.unwrap_or_else(|| {
            let (level, variance, common) = self.guess(situation, tool, class);
            Estimate::new(level, variance + common, tick)
        });
        let estimate = self.estimates.entry(key).or_insert(known);
        let mut moved = estimate.follow(value, tick);
        if let Moved::Followed { surprise, .. } = moved {
            let alarm = self.alarms.entry((situation, tool)).or_insert(Alarm::new(class));
            if let Some((by, from)) = alarm.note(class, surprise, tick) {
                let own = value - estimate.level;
                estimate.jump(if own.abs() < by.abs() { own } else { by }, 1.0);
                moved = Moved::Jumped { by, from };
            }
        }
        self.spread(key, &moved, tick);
        Ok(())
    }

    /// Forgets how sure it was: every tool gets another look where that may matter.
    pub fn flush(&mut self) {
        self.estimates.values_mut().for_each(|estimate| estimate.doubt(DOUBT_MAX));
        self.ledgers.values_mut().for_each(Ledger::renew);
    }

    fn tick(&self, situation: Situation) -> u64 {
        self.ticks[situation as usize]
    }

    /// Seconds at other sizes that profit from what is learned at this one.
    fn elsewhere(&self, situation: Situation, class: SizeClass) -> f64 {
        let ledgers = self.ledgers.range((situation, SizeClass::MIN)..=(situation, SizeClass::MAX));
        let others = ledgers.filter(|((_, other), _)| *other != class);
        let ahead = |((_, other), ledger): (&(Situation, SizeClass), &Ledger)| {
            CLASS_LIKENESS.powi(i32::from(other.distance(class))) * ledger.ahead()
        };
        others.map(ahead).sum()
    }

    fn candidates(&self, goal: Goal, save: &Save, writers: Tools) -> Vec<Candidate> {
        let write = |tool| self.belief(save.writing.into(), tool, save.size);
        let read = |tool: Tool| self.read_belief(save, save.reading, tool.format());
        let candidate = |tool| Candidate {
            tool,
            write: goal.writes().then(|| write(tool)),
            read: goal.reads().then(|| read(tool)).flatten(),
        };
        writers.into_iter().map(candidate).collect()
    }

    /// The fastest way to read a format.
    fn read_belief(&self, save: &Save, reading: Reading, format: Format) -> Option<belief::Belief> {
        let readers = save.eligible.reading(format).into_iter();
        let beliefs = readers.map(|tool| self.belief(reading.into(), tool, save.size));
        beliefs.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// Where only reading counts, the writers of one format differ in nothing but seconds to write.
    fn one_writer_a_format(&self, save: &Save, candidates: &[Candidate]) -> Vec<Candidate> {
        let seconds = |tool| self.belief(save.writing.into(), tool, save.size).seconds;
        let mut kept: Vec<Candidate> = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let format = candidate.tool.format();
            match kept.iter_mut().find(|kept| kept.tool.format() == format) {
                Some(kept) if seconds(candidate.tool) < seconds(kept.tool) => *kept = *candidate,
                Some(_) => {}
                None => kept.push(*candidate),
            }
        }
        kept
    }

    /// Tells the neighbours what an operation showed.
    fn spread(&mut self, (situation, tool, class): Key, moved: &Moved, tick: u64) {
        let near = |found: Situation, near: SizeClass| {
            let distance = near.distance(class);
            let nearness = CLASS_LIKENESS.powi(i32::from(distance));
            (found == situation && distance <= REACH).then_some((distance, nearness))
        };
        for ((found, other, size), estimate) in &mut self.estimates {
            let Some((distance, nearness)) = near(*found, *size) else { continue };
            match *moved {
                _ if *other == tool && distance == 0 => {}
                Moved::Followed { step, spread, wandered, .. } if *other == tool => {
                    estimate.lean((step, spread, wandered), nearness, tick);
                }
                Moved::Followed { .. } => {}
                Moved::Jumped { by, from } => {
                    let likeness =
                        if *other == tool { SIZE_LIKENESS } else { TOOL_LIKENESS } * nearness;
                    estimate.shake(by, from, (likeness, nearness), tick);
                }
            }
        }
        if let Moved::Jumped { .. } = moved {
            let ledgers = self.ledgers.iter_mut();
            let shaken = ledgers.filter(|((found, size), _)| near(*found, *size).is_some());
            shaken.for_each(|(_, ledger)| ledger.renew());
        }
    }
}
