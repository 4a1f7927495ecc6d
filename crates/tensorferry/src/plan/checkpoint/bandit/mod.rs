//! Our algorithm: one belief about all tools at all sizes, and looks that pay.
//!
//! In each situation one Gaussian says how long every tool takes at every size, and how sure that is
//! (`field.rs`); rather, two do, one for a machine that is like those that the built-in table was made on
//! and one for any other, and the values say how far to believe either (`opinions.rs`). A choice takes the
//! tool that is expected to be fastest, unless a *look* at another one is worth more than it costs, and can
//! be paid:
//!
//! ```text
//!   worth   the saving that the look may show, here and at all sizes that learn from it, times the
//!           seconds to come that may profit
//!   cost    the seconds that it is believed to take longer, doubt included
//!   purse   shares of the seconds already spent at this size: looks at the unknown, other looks
//! ```
//!
//! *Expected.* What counts is the mean: a tool that is mostly fast and sometimes slow has to make up for the
//! latter, and one of which little is known may well be slower than its median.
//!
//! *Saving.* A look removes doubt: it may show that the tool is faster than the best. How far it moves
//! what is believed, at this size and at others, follows from the covariance; so a look that takes a
//! millisecond pays although all that it can save lies at sizes that take seconds. And what was not
//! looked at for long may have changed altogether; the chance of that grows with the operations since.
//!
//! *Seconds to come.* As many operations as there were since something changed, because what has lasted
//! will last, within limits.
//!
//! *Elsewhere.* If a smaller size can take a look, pay it, and tell much of the same, a larger size leaves it to
//! that one. Once it was taken there, it tells less, so nobody waits for ever.
//!
//! *Purse.* The extra seconds of looks stay below [`LOOK_SHARE`] of the seconds spent in that situation
//! and class; what a look takes longer than believed is paid after it, and the next one waits for that. A
//! look at a tool that is as good as unknown is paid from another purse, that of [`FIRST_SHARE`]: nothing
//! is known at the start, and most is gained from knowing it early.
//!
//! *Noise.* How far values of a tool scatter at a size shows only after many. Until then they are taken to
//! scatter as all tools do near by, so that one slow look on a noisy machine is not the last.
//!
//! *Drift.* What is known fades, and tools that were seen side by side are expected to drift together.
//! A few surprises in a row, at one size or over neighbouring ones, are a jump: doubt comes back, most of it
//! shared by all tools that were not seen since, so that the values that showed the jump move those along.
//!
//! There is no randomness: the same operations give the same choices. The constants were chosen on
//! made-up machines like those of the tests, of other seeds, and on other orders of the recorded traces.

mod alarm;
mod alike;
mod belief;
mod choice;
mod field;
mod ledger;
mod opinions;
mod place;
mod prior;
mod show;
mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod track;
mod value;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use self::alarm::{Alarm, STREAK};
use self::belief::Belief;
use self::choice::{Candidate, Options};
use self::ledger::{Ledger, Looker};
use self::opinions::Opinions;
use self::place::Place;
use self::state::State;
use self::track::{Jump, Shown, Track};
use super::ask::{Goal, Load, Observed, Save, Situation};
use super::class::SizeClass;
use super::tool::{Format, Tool, Tools};
use crate::error::Result;

/// No look is taken unless the extra seconds of all stay below this share of the seconds spent, in every
/// situation and size class.
pub const LOOK_SHARE: f64 = 0.015;

/// Extra seconds of first looks stay below this share, likewise, for each of those who look: reads,
/// and writes that are chosen for the sake of reads.
pub const FIRST_SHARE: f64 = 0.2;

/// Surprises add up, and a jump makes things new, over classes up to this far apart.
const REACH: u8 = 8;

type Key = (Situation, Tool, SizeClass);

/// Fields, tracks and ledgers; see the [module](self).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "State", into = "State")]
pub struct Bandit {
    fields: BTreeMap<Situation, Opinions>,
    tracks: BTreeMap<Key, Track>,
    alarms: BTreeMap<(Situation, Tool), Alarm>,
    ledgers: BTreeMap<(Situation, SizeClass), Ledger>,
    /// Operations so far, by situation.
    ticks: [u64; 4],
}

/// What is believed of situations that were never met.
static UNKNOWN: LazyLock<[Opinions; 4]> = LazyLock::new(|| Situation::ALL.map(Opinions::new));

impl Bandit {
    /// The tool to write with.
    pub fn choose_write(&mut self, goal: Goal, save: &Save) -> Result<Tool> {
        let writers = save.writers()?;
        // A look is paid where its seconds are saved; for both goals by the writes alone.
        let (payer, looker) = match goal {
            Goal::Read => (save.reading.into(), Looker::Writer),
            Goal::Write | Goal::Both => (save.writing.into(), Looker::Own),
        };
        let chosen = self.choose(payer, save.size, looker, |bandit, size| {
            let save = Save { size, ..*save };
            let candidates = bandit.candidates(goal, &save, writers);
            if goal == Goal::Read {
                return bandit.one_writer_a_format(&save, candidates);
            }
            candidates
        });
        Ok(chosen.unwrap_or(Tool::Direct))
    }

    /// The tool to read with.
    pub fn choose_read(&mut self, load: &Load) -> Result<Tool> {
        let readers = load.readers()?;
        let situation = load.reading.into();
        let chosen = self.choose(situation, load.size, Looker::Own, |bandit, size| {
            let belief = |tool| bandit.belief(situation, tool, size);
            let candidate = |tool| Candidate::new(tool, None, Some(belief(tool)));
            readers.into_iter().map(candidate).collect()
        });
        Ok(chosen.unwrap_or(load.written_with))
    }

    /// The tool believed best, or a look that is paid: `candidates` are those for an object of that size.
    fn choose(
        &mut self,
        payer: Situation,
        size: u64,
        looker: Looker,
        candidates: impl for<'a> Fn(&'a Self, u64) -> Vec<Candidate<'a>>,
    ) -> Option<Tool> {
        let class = SizeClass::of(size);
        let own = self.ledgers.get(&(payer, class)).copied().unwrap_or_default();
        let here = Options::new(candidates(self, size), own)?;
        let best = here.best().tool;
        if !here.affords_a_look(looker) {
            return Some(best);
        }
        let ledgers = self.ledgers.range((payer, SizeClass::MIN)..=(payer, SizeClass::MAX));
        let others = ledgers.filter(|((_, other), _)| *other != class);
        let options = |((_, other), ledger): (&(Situation, SizeClass), &Ledger)| {
            Options::new(candidates(self, other.start()), *ledger)
        };
        let elsewhere: Vec<_> = others.filter_map(options).collect();
        let look = here.look(&elsewhere, looker);
        let ledger = self.ledgers.entry((payer, class)).or_default();
        let look = look.filter(|look| ledger.pay(looker, look.tool, look.variance, look.cost));
        Some(look.map_or(best, |look| look.tool))
    }

    /// Learns from an operation.
    pub fn record(&mut self, observed: &Observed) -> Result<()> {
        observed.check()?;
        let Observed { situation, tool, size, seconds, .. } = *observed;
        let (class, place) = (SizeClass::of(size), Place::of(tool, size));
        let Belief { seconds: believed, noise, .. } = self.belief(situation, tool, size);
        self.ledgers.entry((situation, class)).or_default().record(tool, seconds, believed);
        let tick = self.tick(situation) + 1;
        self.ticks[situation as usize] = tick;
        let field = self.fields.entry(situation).or_insert_with(|| Opinions::new(situation));
        field.fade();
        let level = field.level(&place);
        let step = observed.ln_seconds() - prior::ln_seconds(situation, tool, size) - level;
        let key = (situation, tool, class);
        let track = self.tracks.entry(key).or_insert_with(|| Track::new(class, tick, noise));
        match track.follow(class, step, field.variance(&place), tick) {
            Shown::First { noise } => field.meet(&place, level + step, noise),
            Shown::Jump(jump) => self.jump(key, &place, jump),
            Shown::Step { step: shown, noise, surprise } => {
                let alarm = self.alarms.entry((situation, tool)).or_insert(Alarm::new(class));
                let Some((by, from)) = alarm.note(class, surprise, tick, STREAK) else {
                    field.learn(&place, level + shown, noise);
                    return Ok(());
                };
                // Neighbours showed it; this size no further than it did itself.
                let by = if step.abs() < by.abs() { step } else { by };
                let jump = track.jump(by, from, 1.0);
                self.jump(key, &place, jump);
            }
        }
        Ok(())
    }

    /// A tool has changed at a size: so may all have that were not seen since.
    fn jump(&mut self, (situation, _, class): Key, place: &Place, jump: Jump) {
        let Jump { by, noise, from } = jump;
        let seen = self
            .tracks
            .iter()
            .filter(|((found, ..), track)| *found == situation && track.seen() >= from);
        let seen: Vec<_> = seen.map(|((_, tool, at), _)| Place::of(*tool, at.start())).collect();
        let field = self.fields.entry(situation).or_insert_with(|| Opinions::new(situation));
        let level = field.level(place);
        field.jump(place, by, &seen);
        field.learn(place, level + by, noise);
        for ((found, other), ledger) in &mut self.ledgers {
            if *found == situation && other.distance(class) <= REACH {
                ledger.renew();
            }
        }
    }

    /// Forgets how sure it was: every tool gets another look where that may matter.
    pub fn flush(&mut self) {
        self.fields.values_mut().for_each(Opinions::forget);
        self.ledgers.values_mut().for_each(Ledger::renew);
    }

    fn tick(&self, situation: Situation) -> u64 {
        self.ticks[situation as usize]
    }

    fn field(&self, situation: Situation) -> &Opinions {
        self.fields.get(&situation).unwrap_or(&UNKNOWN[situation as usize])
    }

    fn candidates(&self, goal: Goal, save: &Save, writers: Tools) -> Vec<Candidate<'_>> {
        let write = |tool| self.belief(save.writing.into(), tool, save.size);
        let read = |tool: Tool| self.read_belief(save, tool.format());
        let candidate = |tool| {
            let write = goal.writes().then(|| write(tool));
            Candidate::new(tool, write, goal.reads().then(|| read(tool)).flatten())
        };
        writers.into_iter().map(candidate).collect()
    }

    /// The fastest way to read a format.
    fn read_belief(&self, save: &Save, format: Format) -> Option<Belief<'_>> {
        let readers = save.eligible.reading(format).into_iter();
        let beliefs = readers.map(|tool| self.belief(save.reading.into(), tool, save.size));
        beliefs.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// Where only reading counts, the writers of one format differ in nothing but seconds to write.
    fn one_writer_a_format<'a>(
        &self,
        save: &Save,
        candidates: Vec<Candidate<'a>>,
    ) -> Vec<Candidate<'a>> {
        let seconds = |tool| self.belief(save.writing.into(), tool, save.size).seconds;
        let mut kept: Vec<Candidate<'a>> = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let format = candidate.tool.format();
            match kept.iter_mut().find(|kept| kept.tool.format() == format) {
                Some(kept) if seconds(candidate.tool) < seconds(kept.tool) => *kept = candidate,
                Some(_) => {}
                None => kept.push(candidate),
            }
        }
        kept
    }
}
