//! What is believed, for reports and as the three dictionaries.

use super::Bandit;
use crate::plan::checkpoint::ask::{Direction, Situation};
use crate::plan::checkpoint::class::SizeClass;
use crate::plan::checkpoint::tables::{Entry, Table, Tables};
use crate::plan::checkpoint::tool::{Tool, Tools};

impl Bandit {
    /// The seconds that the best known tool is believed to take, over those of `tool`; at most one.
    /// What was written in another format could not have been read otherwise.
    pub(crate) fn best_share(&self, situation: Situation, tool: Tool, size: u64) -> f64 {
        let is_rival = |other: &Tool| {
            situation.direction() == Direction::Write || other.format() == tool.format()
        };
        let seconds = |tool| self.belief(situation, tool, size).seconds;
        let rivals = self.known(situation, SizeClass::of(size)).into_iter().filter(is_rival);
        (rivals.map(seconds).fold(f64::INFINITY, f64::min) / seconds(tool)).min(1.0)
    }

    /// The tool believed best among those that were tried.
    pub(crate) fn best_known(&self, situation: Situation, size: u64) -> Option<Tool> {
        let times = self.times(situation, SizeClass::of(size));
        best(&times)
    }

    /// The three dictionaries, for one situation of writing and one of reading.
    pub(crate) fn tables(&self, write: Situation, read: Situation) -> Tables {
        let table = |situation: Situation| -> Table {
            let own = self.tracks.keys().filter(|(found, ..)| *found == situation);
            let entry = |class: SizeClass| {
                let times = self.times(situation, class);
                (class.start(), Entry { best: best(&times), times: times.into_iter().collect() })
            };
            own.map(|(.., class)| entry(*class)).collect()
        };
        let (write, read) = (table(write), table(read));
        let both = write.iter().filter_map(|(size, entry)| {
            let times = sums(entry, read.get(size)?);
            let best = best(&times);
            best.map(|_| (*size, Entry { best, times: times.into_iter().collect() }))
        });
        Tables { both: both.collect(), write, read }
    }

    /// The tools that were tried.
    fn known(&self, situation: Situation, class: SizeClass) -> Tools {
        let tried = |tool: &Tool| self.tracks.contains_key(&(situation, *tool, class));
        Tool::ALL.into_iter().filter(tried).collect()
    }

    fn times(&self, situation: Situation, class: SizeClass) -> Vec<(Tool, f64)> {
        let seconds = |tool| (tool, self.belief(situation, tool, class.start()).seconds);
        self.known(situation, class).into_iter().map(seconds).collect()
    }
}

/// Seconds to write with a tool and to read its format in the fastest way.
fn sums(write: &Entry, read: &Entry) -> Vec<(Tool, f64)> {
    let sum = |(tool, seconds): (&Tool, &f64)| {
        let readers = read.times.iter().filter(|(reader, _)| reader.format() == tool.format());
        let fastest = readers.map(|(_, seconds)| *seconds).min_by(f64::total_cmp)?;
        Some((*tool, seconds + fastest))
    };
    write.times.iter().filter_map(sum).collect()
}

fn best(times: &[(Tool, f64)]) -> Option<Tool> {
    times.iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(tool, _)| *tool)
}
