//! The published algorithm (Fastensor, algorithms 1 and 2), step by step.
//!
//! Three dictionaries by exact size in bytes: `WDic`, `RDic` and `WRDic`. Each size holds a speed
//! list of (seconds, tool), and the best tool once the list is complete. A tool is tried once for
//! each size; what it took that one time decides, until everything is flushed and tried again.
//!
//! ```text
//!   save   goal w+r and WRDic has the size          its best
//!          goal r and RDic's list is complete       its best
//!          WDic's list is complete                  its best
//!          otherwise                                the next untried tool, in a fixed order
//!   wrote  first time of tool and size: into WDic; the last tool completes the list
//!   load   complete RDic's list; build WRDic when both are complete; the tool is the one that wrote
//!   read   first time of tool and size: into RDic
//! ```
//!
//! Where the paper misprints: algorithm 2 loads `npy` files with "cpy"; a load follows what is
//! stored. Its lists have four tools, always; here a list is complete when it holds all tools that
//! were eligible at the last save of that size, so that a tool which can't move an object does not
//! keep its dictionaries open for ever. Their order cpy, npy, pt, DALI becomes [`ORDER`].
//!
//! Beyond [`SIZES_MAX`] sizes nothing new is learned until the next flush.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ask::Goal;
use super::tables::{Entry, Table, Tables};
use super::tool::{Tool, Tools};
use crate::error::{Error, Kind, Result};

/// In which order tools are tried; then come those that were added.
pub const ORDER: [Tool; 4] = [Tool::Direct, Tool::Numpy, Tool::Torch, Tool::Buffered];

/// Sizes that one dictionary remembers at most.
pub const SIZES_MAX: usize = 65_536;

/// The three dictionaries.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The tools that a complete list holds.
    wanted: BTreeMap<u64, Tools>,
    #[serde(rename = "WDic")]
    write: BTreeMap<u64, Speeds>,
    #[serde(rename = "RDic")]
    read: BTreeMap<u64, Speeds>,
    #[serde(rename = "WRDic")]
    both: BTreeMap<u64, Speeds>,
}

/// A speed list, in the order of the trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Speeds {
    times: Vec<(f64, Tool)>,
    best: Option<Tool>,
}

impl Speeds {
    fn of(&self, tool: Tool) -> Option<f64> {
        self.times.iter().find(|(_, tried)| *tried == tool).map(|(seconds, _)| *seconds)
    }

    fn holds(&self, tools: Tools) -> bool {
        !tools.is_empty() && tools.into_iter().all(|tool| self.of(tool).is_some())
    }

    /// The fastest of `tools` that were tried; of equals, the first tried.
    fn fastest(&self, tools: Tools) -> Option<Tool> {
        let tried = self.times.iter().filter(|(_, tool)| tools.contains(*tool));
        tried.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, tool)| *tool)
    }

    fn complete(&mut self, wanted: Tools) {
        if self.best.is_none() && self.holds(wanted) {
            self.best = self.fastest(wanted);
        }
    }

    fn add(&mut self, tool: Tool, seconds: f64) {
        if self.of(tool).is_none() {
            self.times.push((seconds, tool));
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(Kind::Corrupt, why));
        for (position, (seconds, tool)) in self.times.iter().enumerate() {
            if !(seconds.is_finite() && *seconds >= 0.0 && tool.writes()) {
                return wrong("a speed list holds a time or a tool that can't be");
            }
            if self.times[..position].iter().any(|(_, before)| before == tool) {
                return wrong("a speed list holds a tool twice");
            }
        }
        if self.best.is_some_and(|best| self.of(best).is_none()) {
            return wrong("the best tool of a speed list is not in it");
        }
        Ok(())
    }
}

impl Paper {
    /// Algorithm 1 up to the write: the tool to save with. `writers` is not empty.
    pub fn save(&mut self, goal: Goal, size: u64, writers: Tools) -> Tool {
        if self.has_room(size) {
            self.wanted.insert(size, writers);
        }
        let best_of = |table: &BTreeMap<u64, Speeds>| {
            table.get(&size).and_then(|speeds| speeds.best).filter(|best| writers.contains(*best))
        };
        let from_goal = match goal {
            Goal::Both => best_of(&self.both),
            Goal::Read => best_of(&self.read),
            Goal::Write => None,
        };
        let tried = self.write.get(&size);
        let untried = || {
            let is_untried = |tool: &Tool| tried.is_none_or(|tried| tried.of(*tool).is_none());
            let ours = ORDER.into_iter().filter(|tool| writers.contains(*tool));
            let added = writers.into_iter().filter(|tool| !ORDER.contains(tool));
            ours.chain(added).find(is_untried)
        };
        from_goal
            .or_else(|| best_of(&self.write))
            .or_else(untried)
            .or_else(|| tried.and_then(|tried| tried.fastest(writers)))
            .unwrap_or(ORDER[0])
    }

    /// Algorithm 1 after the write.
    pub fn wrote(&mut self, size: u64, tool: Tool, seconds: f64) {
        if !self.has_room(size) {
            return;
        }
        let wanted = self.wanted.get(&size).copied().unwrap_or_default();
        let speeds = self.write.entry(size).or_default();
        speeds.add(tool, seconds);
        speeds.complete(wanted);
    }

    /// Algorithm 2 up to the read: completes what was learned so far. The tool to load with is the
    /// one that wrote.
    pub fn load(&mut self, size: u64) {
        let wanted = self.wanted.get(&size).copied().unwrap_or_default();
        if let Some(read) = self.read.get_mut(&size) {
            read.complete(wanted);
        }
        let (Some(write), Some(read)) = (self.write.get(&size), self.read.get(&size)) else {
            return;
        };
        if write.best.is_none() || read.best.is_none() || self.both.contains_key(&size) {
            return;
        }
        let sum = |(seconds, tool): &(f64, Tool)| Some((seconds + read.of(*tool)?, *tool));
        let mut both = Speeds { times: write.times.iter().filter_map(sum).collect(), best: None };
        both.best = both.fastest(wanted);
        self.both.insert(size, both);
    }

    /// Algorithm 2 after the read.
    pub fn read(&mut self, size: u64, tool: Tool, seconds: f64) {
        // Nothing was written with a mapping: no save can choose it.
        if self.has_room(size) && tool.writes() {
            self.read.entry(size).or_default().add(tool, seconds);
        }
    }

    /// Empties the dictionaries.
    pub fn flush(&mut self) {
        *self = Self::default();
    }

    /// The dictionaries as plain data.
    pub fn tables(&self) -> Tables {
        Tables { write: table(&self.write), read: table(&self.read), both: table(&self.both) }
    }

    fn has_room(&self, size: u64) -> bool {
        let is_known = |table: &BTreeMap<u64, Speeds>| table.contains_key(&size);
        let longest = self.wanted.len().max(self.write.len()).max(self.read.len());
        longest < SIZES_MAX
            || self.wanted.contains_key(&size)
            || is_known(&self.write)
            || is_known(&self.read)
    }

    /// Judges a state that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        let tables = [("WDic", &self.write), ("RDic", &self.read), ("WRDic", &self.both)];
        for (name, table) in tables {
            if table.len() > 2 * SIZES_MAX || self.wanted.len() > 2 * SIZES_MAX {
                return Err(Error::new(Kind::Corrupt, "there are too many sizes").with("in", name));
            }
            for (size, speeds) in table {
                speeds.check().map_err(|error| error.with("in", name).with("size", size))?;
            }
        }
        if self.wanted.values().any(|tools| *tools != tools.writing()) {
            return Err(Error::new(Kind::Corrupt, "a tool is wanted that does not write"));
        }
        Ok(())
    }
}

fn table(speeds: &BTreeMap<u64, Speeds>) -> Table {
    let entry = |speeds: &Speeds| Entry {
        times: speeds.times.iter().map(|(seconds, tool)| (*tool, *seconds)).collect(),
        best: speeds.best,
    };
    speeds.iter().map(|(size, speeds)| (*size, entry(speeds))).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Algorithms 1 and 2 again, line by line, as the paper prints them but for the misprints: lists of
    /// any length, closed by a name.
    #[derive(Default)]
    struct Printed {
        w: HashMap<u64, List>,
        r: HashMap<u64, List>,
        wr: HashMap<u64, Tool>,
    }

    type List = (Vec<(f64, Tool)>, Option<Tool>);

    fn smallest(list: &[(f64, Tool)]) -> Tool {
        let mut best = list[0];
        for item in list {
            if item.0 < best.0 {
                best = *item;
            }
        }
        best.1
    }

    impl Printed {
        fn save(
            &mut self,
            goal: Goal,
            size: u64,
            tools: &[Tool],
            time: impl Fn(Tool) -> f64,
        ) -> Tool {
            if goal == Goal::Both && self.wr.contains_key(&size) {
                return self.wr[&size];
            }
            if let (Goal::Read, Some((_, Some(best)))) = (goal, self.r.get(&size)) {
                return *best;
            }
            let (list, best) = self.w.entry(size).or_default();
            if let Some(best) = best {
                return *best;
            }
            let tool = tools[list.len()];
            list.push((time(tool), tool));
            if list.len() == tools.len() {
                *best = Some(smallest(list));
            }
            tool
        }

        fn load(&mut self, size: u64, stored: Tool, tools: &[Tool], time: impl Fn(Tool) -> f64) {
            let (list, best) = self.r.entry(size).or_default();
            if list.len() == tools.len() && best.is_none() {
                *best = Some(smallest(list));
            }
            if let (Some((written, Some(_))), Some(_)) = (self.w.get(&size), &best) {
                let read = |tool| list.iter().find(|item| item.1 == tool).unwrap().0;
                let sums: Vec<_> =
                    written.iter().map(|(s, tool)| (s + read(*tool), *tool)).collect();
                self.wr.entry(size).or_insert_with(|| smallest(&sums));
            }
            if !list.iter().any(|(_, tool)| *tool == stored) {
                list.push((time(stored), stored));
            }
        }
    }

    /// A time for anything, the same whoever asks.
    fn time(seed: u64, moment: usize, tool: Tool, write: bool) -> f64 {
        let mixed = (seed ^ (moment as u64) << 8 ^ (tool.number() as u64) << 1 ^ u64::from(write))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1.0 + ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 44) as f64
    }

    proptest! {
        #[test]
        fn every_choice_is_the_one_that_the_printed_algorithm_makes(
            seed: u64,
            goal in prop::sample::select(Goal::ALL.to_vec()),
            tools in prop::sample::subsequence(ORDER.to_vec(), 1..=4),
            // Size, and whether it is loaded after it was saved, or flushed before.
            steps in prop::collection::vec((0u64..3, any::<bool>(), 0u8..20), 0..80),
        ) {
            let (mut ours, mut printed) = (Paper::default(), Printed::default());
            let writers: Tools = tools.iter().copied().collect();
            for (moment, (size, loads, flush)) in steps.into_iter().enumerate() {
                if flush == 0 {
                    ours.flush();
                    printed = Printed::default();
                }
                let write = |tool| time(seed, moment, tool, true);
                let read = |tool| time(seed, moment, tool, false);
                let tool = ours.save(goal, size, writers);
                ours.wrote(size, tool, write(tool));
                prop_assert_eq!(tool, printed.save(goal, size, &tools, write));
                if loads {
                    ours.load(size);
                    ours.read(size, tool, read(tool));
                    printed.load(size, tool, &tools, read);
                }
            }
            let tables = ours.tables();
            for (size, entry) in &tables.write {
                prop_assert_eq!(entry.best, printed.w[size].1);
                prop_assert_eq!(entry.times.len(), printed.w[size].0.len());
            }
            for (size, entry) in &tables.read {
                prop_assert_eq!(entry.best, printed.r[size].1);
            }
            prop_assert_eq!(tables.both.len(), printed.wr.len());
        }
    }

    #[test]
    fn tools_are_tried_once_in_order_and_the_fastest_is_kept() {
        let mut paper = Paper::default();
        let seconds = [(Tool::Direct, 3.0), (Tool::Numpy, 1.0), (Tool::Torch, 2.0)];
        let writers = seconds.iter().map(|(tool, _)| *tool).collect();
        for (tool, seconds) in seconds {
            assert_eq!(paper.save(Goal::Write, 7, writers), tool);
            paper.wrote(7, tool, seconds);
        }
        assert_eq!(paper.save(Goal::Write, 7, writers), Tool::Numpy);
        paper.wrote(7, Tool::Numpy, 100.0);
        assert_eq!(paper.save(Goal::Write, 7, writers), Tool::Numpy, "what was fixed stays");
        let without = writers.into_iter().filter(|tool| *tool != Tool::Numpy).collect();
        assert_eq!(paper.save(Goal::Write, 7, without), Tool::Torch, "the best that is eligible");
        assert_eq!(paper.save(Goal::Write, 8, writers), Tool::Direct, "another size starts anew");
    }

    #[test]
    fn beyond_its_limit_of_sizes_nothing_new_is_kept() {
        let mut paper = Paper::default();
        let writers = Tools::ALL.writing();
        for size in 0..SIZES_MAX as u64 + 10 {
            let tool = paper.save(Goal::Write, size, writers);
            paper.wrote(size, tool, 1.0);
        }
        assert_eq!(paper.tables().write.len(), SIZES_MAX);
        assert_eq!(paper.save(Goal::Write, u64::MAX, writers), ORDER[0]);
        assert_eq!(paper.save(Goal::Write, 0, writers), ORDER[1], "known sizes are learned on");
    }
}
