//! What is believed, for reports and as the three dictionaries.

use super::Rule;
use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::class::SizeClass;
use crate::plan::checkpoint::tables::{Entry, Table, Tables};
use crate::plan::checkpoint::tool::Tool;

type Times = Vec<(Tool, f64)>;

impl Rule {
    /// The seconds that the best known tool is believed to take, over those of `tool`; at most one.
    pub(crate) fn best_share(&self, situation: Situation, tool: Tool, size: u64) -> f64 {
        let seconds = |tool| self.belief(situation, tool, size).seconds;
        let rivals = self.rivals((situation, SizeClass::of(size)), tool).map(seconds);
        (rivals.fold(f64::INFINITY, f64::min) / seconds(tool)).min(1.0)
    }

    /// The tool believed best among those that were tried.
    pub(crate) fn best_known(&self, situation: Situation, size: u64) -> Option<Tool> {
        best(&self.times(situation, SizeClass::of(size)))
    }

    /// The three dictionaries, for one situation of writing and one of reading.
    pub(crate) fn tables(&self, write: Situation, read: Situation) -> Tables {
        let table = |situation: Situation| -> Table {
            let own = self.cells.keys().filter(|(found, _)| *found == situation);
            own.map(|(_, class)| (class.start(), entry(self.times(situation, *class)))).collect()
        };
        let (write, read) = (table(write), table(read));
        let both = write.iter().filter_map(|(size, entry_of)| {
            let times = sums(entry_of, read.get(size)?);
            (!times.is_empty()).then(|| (*size, entry(times)))
        });
        Tables { both: both.collect(), write, read }
    }

    fn times(&self, situation: Situation, class: SizeClass) -> Times {
        let tried = self.cells.get(&(situation, class)).into_iter();
        let tried = tried.flat_map(|cell| cell.tools.keys().copied());
        tried.map(|tool| (tool, self.belief(situation, tool, class.start()).seconds)).collect()
    }
}

fn entry(times: Times) -> Entry {
    Entry { best: best(&times), times: times.into_iter().collect() }
}

/// Seconds to write with a tool and to read its format in the fastest way.
fn sums(write: &Entry, read: &Entry) -> Times {
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
