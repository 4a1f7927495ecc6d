//! Our way to choose a tool: a rule for each situation, and a short memory that overrules it.
//!
//! ```text
//!   rule     seconds of each tool by situation and size, from measured disks              expected.rs
//!   memory   for each situation and size class: how fast this machine is beside the rule
//!            (level), and how each tool differs from it beside the others (offset)        cell.rs
//!   choice   the least of rule x level x offset; now and then a look at another           here
//! ```
//!
//! Where tools differ most is between situations: whether a write must be durable, whether a file is in
//! the page cache, how large it is, on which file system it lies. The rule knows the first three, and
//! there is one dictionary for each file system. So the first operation is done well, and most of the
//! time nothing needs to be learned.
//!
//! *Learning.* What a tool shows is its own, and a little of it the machine's, which all tools share.
//! Older observations fade. A size that is new begins with what near ones know.
//!
//! *Looks.* What is not used is not seen, so another tool is tried now and then: the one that was not
//! seen for the most operations for what it costs. The extra seconds stay below
//! [`LOOK_SHARE`] of those spent in that situation and class, and below [`FIRST_SHARE`] more where the
//! tool is new; what a look takes longer than expected is charged too, and the next one waits. A tool
//! that is new is looked at where it costs least: a larger class waits while a smaller one could learn.
//!
//! *Changes.* After a few surprises in a row the machine is taken to have changed, and all other tools are
//! new. Then looks tell whether it was the machine or the tool.
//!
//! There is no randomness: the same operations give the same choices.

mod cell;
mod expected;
mod show;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::cell::{Cell, Known, Look};
pub use self::cell::{FIRST_SHARE, LOOK_SHARE};
use super::ask::{Direction, Goal, Load, Observed, Save, Situation};
use super::class::SizeClass;
use super::tool::{Format, Tool, Tools};
use crate::error::{Error, Kind, Result};

/// What is known of a size tells something of sizes less than so many classes away.
const REACH: u8 = 8;

/// A look at a tool of which nobody knows anything is taken to cost at least so many operations.
const GUESS_COST: f64 = 1.0;

/// A first look is left to a smaller size that was used among so many operations before.
const LEFT_TO: u64 = 64;

type Key = (Situation, SizeClass);

/// The memory beside the rule; see the [module](self).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Kept", into = "Kept")]
pub struct Rule {
    cells: BTreeMap<Key, Cell>,
    /// Operations so far, by situation.
    ticks: [u64; 4],
}

/// A memory as JSON holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    cells: Vec<(Situation, SizeClass, Cell)>,
    ticks: [u64; 4],
}

/// What is believed of one operation, or of a write and the read that follows.
#[derive(Debug, Clone, Copy)]
struct Belief {
    tool: Tool,
    seconds: f64,
    is_new: bool,
    /// Nobody knows anything: it may be looked at, and is not taken for the best.
    is_guess: bool,
}

impl Belief {
    fn order(&self, other: &Self) -> Ordering {
        self.is_guess.cmp(&other.is_guess).then(self.seconds.total_cmp(&other.seconds))
    }

    fn and(self, read: Self) -> Self {
        Self {
            tool: self.tool,
            seconds: self.seconds + read.seconds,
            is_new: self.is_new || read.is_new,
            is_guess: self.is_guess || read.is_guess,
        }
    }
}

/// A tool that could be chosen.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    tool: Tool,
    /// By the goal.
    cost: Belief,
    /// What will be seen of it where looks are paid.
    seen: Belief,
}

impl Rule {
    /// The tool to write with.
    pub fn choose_write(&mut self, goal: Goal, save: &Save) -> Result<Tool> {
        let writers = save.writers()?;
        let candidates = self.writing(goal, save, writers);
        // A look is paid where its seconds are saved; for both goals by the writes alone.
        let payer = if goal == Goal::Read { save.reading.into() } else { save.writing.into() };
        let chosen = self.choose((payer, SizeClass::of(save.size)), &candidates);
        Ok(chosen.or_else(|| writers.into_iter().next()).unwrap_or(Tool::Direct))
    }

    /// The tool to read with.
    pub fn choose_read(&mut self, load: &Load) -> Result<Tool> {
        let situation = load.reading.into();
        let belief = |tool| self.belief(situation, tool, load.size);
        let candidate = |tool| Candidate { tool, cost: belief(tool), seen: belief(tool) };
        let candidates: Vec<_> = load.readers()?.into_iter().map(candidate).collect();
        let chosen = self.choose((situation, SizeClass::of(load.size)), &candidates);
        Ok(chosen.unwrap_or(load.written_with))
    }

    fn writing(&self, goal: Goal, save: &Save, writers: Tools) -> Vec<Candidate> {
        let candidate = |tool: Tool| {
            let write = self.belief(save.writing.into(), tool, save.size);
            let read = || self.fastest_reader(save, tool.format());
            let (cost, seen) = match goal {
                Goal::Write => (write, write),
                Goal::Read => (read()?, read()?),
                Goal::Both => (write.and(read()?), write),
            };
            Some(Candidate { tool, cost, seen })
        };
        let candidates = writers.into_iter().filter_map(candidate).collect();
        if goal == Goal::Read { self.one_writer_a_format(save, candidates) } else { candidates }
    }

    fn fastest_reader(&self, save: &Save, format: Format) -> Option<Belief> {
        let readers = save.eligible.reading(format).into_iter();
        readers.map(|tool| self.belief(save.reading.into(), tool, save.size)).min_by(Belief::order)
    }

    /// Where only reading counts, the writers of one format differ in nothing but seconds to write.
    fn one_writer_a_format(&self, save: &Save, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let write = |one: &Candidate| self.belief(save.writing.into(), one.tool, save.size);
        candidates.sort_by(|a, b| write(a).order(&write(b)));
        let mut formats = Vec::new();
        candidates.retain(|candidate| {
            let format = candidate.tool.format();
            let is_first = !formats.contains(&format);
            formats.push(format);
            is_first
        });
        candidates
    }

    /// The tool believed best, or a look at another that can be paid.
    fn choose(&mut self, payer: Key, candidates: &[Candidate]) -> Option<Tool> {
        let best = candidates.iter().min_by(|a, b| a.cost.order(&b.cost))?;
        let Some(cell) = self.cells.get(&payer) else { return Some(best.tool) };
        let cost = |look: &Candidate| {
            let is_guess = look.cost.is_guess;
            let least = if is_guess { GUESS_COST } else { Cell::least_cost(look.cost.is_new) };
            (look.cost.seconds - best.cost.seconds).max(least * best.cost.seconds)
        };
        let is_look = |one: &&Candidate| {
            one.tool != best.tool && !(one.cost.is_new && self.is_left(payer, one.seen.tool))
        };
        let merit = |look: &Candidate| cell.age(look.seen.tool) as f64 / cost(look);
        let looks = candidates.iter().filter(is_look);
        let look = looks.max_by(|a, b| merit(a).total_cmp(&merit(b)));
        // Only that one: cheap looks at near equals would use up what it saves for.
        let look = look.filter(|look| cell.affords(cost(look), look.cost.is_new));
        let eligible = candidates.iter().map(|candidate| candidate.seen.tool).collect();
        let Some(look) = look else {
            self.cells.get_mut(&payer)?.eligible = eligible;
            return Some(best.tool);
        };
        let cost = cost(look);
        let seconds = look.seen.seconds.max(best.seen.seconds + cost);
        let cell = self.cells.get_mut(&payer)?;
        cell.eligible = eligible;
        cell.begin(Look { tool: look.tool, seconds }, cost);
        Some(look.tool)
    }

    /// Whether a smaller size can look at a tool that is new there too.
    fn is_left(&self, (situation, class): Key, tool: Tool) -> bool {
        let since = self.ticks[situation as usize].saturating_sub(LEFT_TO);
        let mut smaller = self.cells.range((situation, SizeClass::MIN)..(situation, class));
        smaller.any(|(key, cell)| {
            let could = cell.tick > since && cell.eligible.contains(tool);
            could && self.known(*key, tool).is_new()
        })
    }

    /// Learns from an operation.
    pub fn record(&mut self, observed: &Observed) -> Result<()> {
        observed.check()?;
        let Observed { situation, tool, size, seconds, .. } = *observed;
        let key = (situation, SizeClass::of(size));
        let level = self.level(key);
        let (from_afar, is_best) = (self.known(key, tool), self.is_best(key, tool, size));
        let believed = expected::ln_seconds(situation, tool, size) + level.unwrap_or(0.0);
        let step = observed.ln_seconds() - believed - from_afar.offset;
        self.ticks[situation as usize] += 1;
        let cell = self.cells.entry(key).or_insert_with(|| Cell::at(level.unwrap_or(0.0)));
        cell.pay(tool, seconds);
        cell.learn(tool, from_afar, step, is_best, level.is_none());
        cell.tick = self.ticks[situation as usize];
        Ok(())
    }

    /// Forgets everything, but how many operations there were.
    pub fn flush(&mut self) {
        self.cells.clear();
    }

    fn belief(&self, situation: Situation, tool: Tool, size: u64) -> Belief {
        let key = (situation, SizeClass::of(size));
        let known = self.known(key, tool);
        let expected = expected::ln_seconds(situation, tool, size);
        let seconds = (expected + self.level(key).unwrap_or(0.0) + known.offset).exp();
        Belief {
            tool,
            seconds: seconds.clamp(f64::MIN_POSITIVE, f64::MAX),
            is_new: known.is_new(),
            is_guess: known.is_new() && expected::weight(tool) == 0.0,
        }
    }

    /// What is remembered of a tool at a size, or at the nearest one that remembers it.
    fn known(&self, key: Key, tool: Tool) -> Known {
        let own = self.cells.get(&key).and_then(|cell| cell.tools.get(&tool));
        if let Some(own) = own {
            return *own;
        }
        let near = self.near(key).filter_map(|(apart, cell)| Some((apart, cell.tools.get(&tool)?)));
        let nearest = near.min_by_key(|(apart, _)| *apart);
        nearest.map_or_else(Known::default, |(apart, known)| {
            known.faded(1.0 - f64::from(apart) / f64::from(REACH))
        })
    }

    /// How fast the machine is beside the rule, at a size or at the nearest one; nothing where nothing is
    /// known.
    fn level(&self, key: Key) -> Option<f64> {
        let own = self.cells.get(&key).map(|cell| cell.level);
        own.or_else(|| Some(self.all(key).min_by_key(|(apart, _)| *apart)?.1.level))
    }

    /// Cells of a situation, and how many classes they are away.
    fn all(&self, (situation, class): Key) -> impl Iterator<Item = (u8, &Cell)> {
        let cells = self.cells.range((situation, SizeClass::MIN)..=(situation, SizeClass::MAX));
        cells.map(move |((_, other), cell)| (other.distance(class), cell))
    }

    fn near(&self, key: Key) -> impl Iterator<Item = (u8, &Cell)> {
        self.all(key).filter(|(apart, _)| *apart < REACH)
    }

    /// Whether no rival that is known here is believed to be faster. What was written in another format
    /// could not have been read otherwise.
    fn is_best(&self, key: Key, tool: Tool, size: u64) -> bool {
        let seconds = |tool| self.belief(key.0, tool, size).seconds;
        let own = seconds(tool);
        self.rivals(key, tool).all(|rival| seconds(rival) >= own)
    }

    /// The other tools that were seen here, and could have been chosen.
    fn rivals(&self, key: Key, tool: Tool) -> impl Iterator<Item = Tool> {
        let seen = self.cells.get(&key).into_iter().flat_map(|cell| cell.tools.keys().copied());
        seen.filter(move |other| {
            let comparable =
                key.0.direction() == Direction::Write || other.format() == tool.format();
            *other != tool && comparable
        })
    }
}

impl From<Rule> for Kept {
    fn from(rule: Rule) -> Self {
        let cells = rule.cells.into_iter();
        let cells = cells.map(|((situation, class), cell)| (situation, class, cell)).collect();
        Self { cells, ticks: rule.ticks }
    }
}

impl TryFrom<Kept> for Rule {
    type Error = Error;

    fn try_from(kept: Kept) -> Result<Self> {
        let corrupt = |why: String| Error::new(Kind::Corrupt, why);
        let mut cells = BTreeMap::new();
        for (number, (situation, class, cell)) in kept.cells.into_iter().enumerate() {
            let at = |error: Error| error.with("cell", number);
            cell.check().map_err(at)?;
            if let Some(tool) = cell.tools.keys().find(|tool| !situation.admits(**tool)) {
                return Err(at(corrupt(format!("{tool} does not write"))));
            }
            if cells.insert((situation, class), cell).is_some() {
                return Err(at(corrupt("a situation and size stand twice".to_owned())));
            }
        }
        if kept.ticks.iter().any(|ticks| *ticks > 1 << 52) {
            return Err(corrupt("more operations than can have been".to_owned()));
        }
        Ok(Self { cells, ticks: kept.ticks })
    }
}
