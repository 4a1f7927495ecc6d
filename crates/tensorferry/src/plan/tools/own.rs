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
