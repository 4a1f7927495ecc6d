//! The user's own dictionary: a tool for each size, written by hand or taken from another run.
//!
//! Two shapes are read: the three dictionaries as [`Tables`] shows them, of which only `best` must be
//! there, and the shorthand `{"4096": "buffered", "1MiB": "direct"}`, which is a `WDic`. A size that
//! is not in it uses the nearest one, by ratio; of two as near, the smaller.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ask::{Goal, Load, Save};
use super::tables::{Entry, Table, Tables};
use super::tool::{Tool, Tools};
use crate::error::{Error, Result};
use crate::size::Size;

const NAMES: [&str; 3] = ["WDic", "RDic", "WRDic"];

/// A dictionary that never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Tables", into = "Tables")]
pub struct Own(Tables);

impl Own {
    /// Reads a dictionary in either shape.
    pub fn parse(json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| Error::invalid("the dictionary is not JSON").caused_by(error))?;
        let Value::Object(map) = value else {
            return Err(Error::invalid("the dictionary must be an object of sizes or of tables"));
        };
        if !map.keys().any(|key| NAMES.contains(&key.as_str())) {
            let write = table(&map, "the dictionary", true)?;
            return Self::try_from(Tables { write, ..Tables::default() });
        }
        let mut tables = Tables::default();
        for (name, value) in &map {
            let (into, writes) = match name.as_str() {
                "WDic" => (&mut tables.write, true),
                "RDic" => (&mut tables.read, false),
                "WRDic" => (&mut tables.both, true),
                _ => return Err(wrong("WDic, RDic and WRDic are all there can be", name)),
            };
            let map =
                value.as_object().ok_or_else(|| wrong("an object of sizes is needed", name))?;
            *into = table(map, name, writes)?;
        }
        Self::try_from(tables)
    }

    /// As plain data.
    pub fn tables(&self) -> Tables {
        self.0.clone()
    }

    /// The tool to write with: that of the nearest size, in the table of the goal, which can move the
    /// object.
    pub(super) fn choose_write(&self, goal: Goal, save: &Save) -> Result<Tool> {
        let Tables { write, read, both } = &self.0;
        let tables = match goal {
            Goal::Write => [write, both, read],
            Goal::Read => [read, both, write],
            Goal::Both => [both, write, read],
        };
        let writers = save.writers()?;
        let mut found = tables.into_iter().filter_map(|table| nearest(table, save.size, writers));
        found.next().ok_or_else(|| {
            Error::invalid("the dictionary names no tool that can write this object")
                .with("size", save.size)
                .with("eligible", writers)
        })
    }

    /// The tool to read with: what `RDic` says, where it reads the format, else the one that wrote.
    pub(super) fn choose_read(&self, load: &Load) -> Result<Tool> {
        let found = nearest(&self.0.read, load.size, load.readers()?);
        found.map_or_else(|| load.plainly(), Ok)
    }
}

/// The best tool of the nearest size that has one among `tools`; a tool that can't write stands for
/// the one that writes its format.
fn nearest(table: &Table, size: u64, tools: Tools) -> Option<Tool> {
    let choice = |entry: &Entry| {
        let best = entry.best?;
        [best, best.format().tool()].into_iter().find(|tool| tools.contains(*tool))
    };
    let distance = |known: u64| ((known.max(1) as f64).ln() - (size.max(1) as f64).ln()).abs();
    let fitting =
        table.iter().filter_map(|(known, entry)| Some((distance(*known), choice(entry)?)));
    fitting.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, tool)| tool)
}

fn wrong(why: impl Into<String>, at: impl std::fmt::Display) -> Error {
    Error::invalid(why).with("at", at)
}

fn table(map: &Map<String, Value>, name: &str, writes: bool) -> Result<Table> {
    let mut table = Table::new();
    for (key, value) in map {
        let at = format!("{name}[{key:?}]");
        let size = key.parse::<Size>().map_err(|error| error.with("at", &at))?;
        let entry = entry(value, writes).map_err(|error| error.with("at", &at))?;
        if table.insert(size.0, entry).is_some() {
            return Err(wrong("the size stands twice", at));
        }
    }
    Ok(table)
}

fn entry(value: &Value, writes: bool) -> Result<Entry> {
    let entry = match value {
        Value::String(name) => Entry { best: Some(Tool::named(name)?), ..Entry::default() },
        Value::Object(map) => full_entry(map)?,
        _ => return Err(Error::invalid("write a tool's name, or an object with \"best\"")),
    };
    complete(entry, writes)
}

fn full_entry(map: &Map<String, Value>) -> Result<Entry> {
    let mut entry = Entry::default();
    for (name, value) in map {
        match (name.as_str(), value) {
            ("best", Value::String(tool)) => entry.best = Some(Tool::named(tool)?),
            ("best", Value::Null) => {}
            ("times", Value::Object(times)) => {
                for (tool, seconds) in times {
                    let seconds = seconds.as_f64().unwrap_or(f64::NAN);
                    entry.times.insert(Tool::named(tool)?, seconds);
                }
            }
            _ => {
                let message = format!("{name:?} is not \"best\" with a tool or \"times\" of tools");
                return Err(Error::invalid(message));
            }
        }
    }
    Ok(entry)
}

/// Judges an entry; where no best is named, the least time names it.
fn complete(mut entry: Entry, writes: bool) -> Result<Entry> {
    if let Some((tool, _)) =
        entry.times.iter().find(|(_, time)| !(time.is_finite() && **time >= 0.0))
    {
        return Err(Error::invalid(format!("the time of {tool} is no length of time")));
    }
    let mut named = entry.times.keys().chain(&entry.best);
    if let Some(tool) = named.find(|tool| writes && !tool.writes()) {
        return Err(Error::invalid(format!("{tool} can't write; name it in RDic only")));
    }
    let fastest = entry.times.iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
    entry.best = entry.best.or(fastest.map(|(tool, _)| *tool));
    if entry.best.is_none() {
        return Err(Error::invalid("no tool is named as \"best\""));
    }
    Ok(entry)
}

impl TryFrom<Tables> for Own {
    type Error = Error;

    fn try_from(mut tables: Tables) -> Result<Self> {
        let judged =
            [(&mut tables.write, true), (&mut tables.read, false), (&mut tables.both, true)];
        for ((table, writes), name) in judged.into_iter().zip(NAMES) {
            for (size, entry) in table {
                let at = |error: Error| error.with("at", format!("{name}[\"{size}\"]"));
                *entry = complete(std::mem::take(entry), writes).map_err(at)?;
            }
        }
        if tables == Tables::default() {
            return Err(Error::invalid("the dictionary names no size"));
        }
        Ok(Self(tables))
    }
}

impl From<Own> for Tables {
    fn from(own: Own) -> Self {
        own.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::checkpoint::ask::{Reading, Writing};

    fn save(size: u64) -> Save {
        Save { size, writing: Writing::Durable, reading: Reading::Cold, eligible: Tools::ALL }
    }

    #[test]
    fn a_size_uses_the_nearest_one_by_ratio() {
        let own = Own::parse(r#"{"4096": "buffered", "1MiB": "direct"}"#).unwrap();
        for (size, tool) in [
            (0, Tool::Buffered),
            (4096, Tool::Buffered),
            (65_536, Tool::Buffered),
            (65_537, Tool::Direct),
            (u64::MAX, Tool::Direct),
        ] {
            assert_eq!(own.choose_write(Goal::Write, &save(size)).unwrap(), tool, "{size}");
        }
    }

    #[test]
    fn the_goal_chooses_the_table_and_a_missing_one_is_stood_in_for() {
        let json = r#"{"WDic": {"1": {"times": {"torch": 2.5, "numpy": 3}}}, "RDic": {"1":
                    {"best": "mapped"}}, "WRDic": {"1": {"best": "numpy", "times": {}}}}"#;
        let own = Own::parse(json).unwrap();
        assert_eq!(own.choose_write(Goal::Write, &save(9)).unwrap(), Tool::Torch, "the least time");
        assert_eq!(own.choose_write(Goal::Both, &save(9)).unwrap(), Tool::Numpy);
        assert_eq!(own.choose_write(Goal::Read, &save(9)).unwrap(), Tool::Direct, "for a mapping");
        let shorthand = Own::parse(r#"{"1": "numpy"}"#).unwrap();
        assert_eq!(shorthand.choose_write(Goal::Read, &save(9)).unwrap(), Tool::Numpy);
    }

    #[test]
    fn what_was_written_is_read_by_a_tool_of_its_format() {
        let own = Own::parse(r#"{"RDic": {"1": "mapped"}}"#).unwrap();
        let load = |written_with| Load {
            size: 1,
            reading: Reading::Cold,
            written_with,
            eligible: Tools::ALL,
        };
        assert_eq!(own.choose_read(&load(Tool::Buffered)).unwrap(), Tool::Mapped);
        assert_eq!(own.choose_read(&load(Tool::Torch)).unwrap(), Tool::Torch);
    }

    #[test]
    fn a_tool_that_cannot_move_the_object_is_passed_over() {
        let own = Own::parse(r#"{"8": "numpy", "4096": "torch"}"#).unwrap();
        let save = Save { eligible: Tools::default().with(Tool::Torch), ..save(8) };
        assert_eq!(own.choose_write(Goal::Write, &save).unwrap(), Tool::Torch);
        let save = Save { eligible: Tools::default().with(Tool::Direct), ..save };
        assert_eq!(
            own.choose_write(Goal::Write, &save).unwrap_err().to_string(),
            "the dictionary names no tool that can write this object (size: 8, eligible: direct)"
        );
    }

    #[test]
    fn a_dictionary_that_makes_no_sense_is_an_error_that_says_where() {
        let not_a_size = "is not a size; write a whole number of bytes or a number with a unit such as \
                          \"8GiB\", \"500MB\" or \"1.5TiB\"";
        for (json, error) in [
            ("[]", "the dictionary must be an object of sizes or of tables".to_owned()),
            ("{}", "the dictionary names no size".to_owned()),
            (
                r#"{"4096": "gds"}"#,
                "\"gds\" is no tool; choose direct, buffered, mapped, torch or numpy \
                 (at: the dictionary[\"4096\"])"
                    .to_owned(),
            ),
            (
                r#"{"4096": "mapped"}"#,
                "mapped can't write; name it in RDic only (at: the dictionary[\"4096\"])"
                    .to_owned(),
            ),
            (
                r#"{"WRDic": {"8": {"times": {"mapped": 1}, "best": "torch"}}}"#,
                "mapped can't write; name it in RDic only (at: WRDic[\"8\"])".to_owned(),
            ),
            (
                r#"{"WDic": {"-4096": "torch"}}"#,
                format!("\"-4096\" {not_a_size} (at: WDic[\"-4096\"])"),
            ),
            (
                r#"{"RDic": {"8": {"times": {"torch": -1}}}}"#,
                "the time of torch is no length of time (at: RDic[\"8\"])".to_owned(),
            ),
            (
                r#"{"8": {"times": {}}}"#,
                "no tool is named as \"best\" (at: the dictionary[\"8\"])".to_owned(),
            ),
            (
                r#"{"1KiB": "torch", "1024": "numpy"}"#,
                "the size stands twice (at: the dictionary[\"1KiB\"])".to_owned(),
            ),
            (
                r#"{"8": {"fastest": "torch"}}"#,
                "\"fastest\" is not \"best\" with a tool or \"times\" of tools \
                 (at: the dictionary[\"8\"])"
                    .to_owned(),
            ),
            (
                r#"{"8": 3}"#,
                "write a tool's name, or an object with \"best\" (at: the dictionary[\"8\"])"
                    .to_owned(),
            ),
            (r#"{"WDic": 3}"#, "an object of sizes is needed (at: WDic)".to_owned()),
            (
                r#"{"WDic": {}, "XDic": {}}"#,
                "WDic, RDic and WRDic are all there can be (at: XDic)".to_owned(),
            ),
        ] {
            assert_eq!(Own::parse(json).unwrap_err().to_string(), error, "{json}");
        }
        let error = Own::parse("{").unwrap_err().to_string();
        assert!(error.starts_with("the dictionary is not JSON: EOF"), "{error}");
    }
}
