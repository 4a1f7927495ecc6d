//! One contest: who came to what, beside the first of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::Samples;

/// A contest as Python tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    name: String,
    note: String,
    measures: Vec<Measure>,
    rows: Vec<ToldRow>,
    #[serde(default)]
    findings: Vec<Finding>,
    absent: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToldRow {
    name: String,
    role: Role,
    /// Raw samples by measure.
    values: BTreeMap<String, Vec<f64>>,
    absent: Option<String>,
}

/// A contest.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What was done.
    pub name: String,
    /// On what.
    pub note: String,
    /// The columns.
    pub measures: Vec<Measure>,
    /// The first is what the others are compared to.
    pub rows: Vec<Row>,
    /// The numbers that it was held for.
    pub findings: Vec<Finding>,
    /// Why there are none.
    pub absent: Option<String>,
}

/// A number that a contest was held for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// Of what.
    pub what: String,
    /// The number.
    pub value: f64,
    /// What it should be.
    pub aim: Option<String>,
    /// Whether it is.
    pub met: Option<bool>,
}

/// A column.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measure {
    /// What was measured.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// Which way is good.
    pub better: Better,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// How many.
    Count,
    /// Samples, in a second.
    SamplesPerSecond,
    /// Bytes, in a second.
    BytesPerSecond,
    /// Time.
    Seconds,
    /// Memory, or what was moved.
    Bytes,
    /// A part of something.
    Share,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// As for speed.
    More,
    /// As for cost.
    Less,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// tensorferry, in one of its ways.
    Ours,
    /// Somebody else.
    Rival,
    /// A bound or a prediction.
    Limit,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Who.
    pub name: String,
    /// As what.
    pub role: Role,
    /// One for each measure; none where nothing was told.
    pub cells: Vec<Option<Cell>>,
    /// Why there are no figures, or no more of them.
    pub absent: Option<String>,
}

/// What one came to in one measure.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// All samples.
    pub samples: Samples,
    /// The first row's median divided by this one's; none for shares, whose quotient says nothing.
    pub ratio: Option<f64>,
}

impl Table {
    pub(super) fn of(told: Told) -> Self {
        let Told { name, note, measures, rows, findings, absent } = told;
        let mut rows: Vec<Row> = rows.into_iter().map(|row| row.with(&measures)).collect();
        for (place, measure) in measures.iter().enumerate() {
            compare(&mut rows, place, measure.unit);
        }
        Self { name, note, measures, rows, findings, absent }
    }
}

/// Fills in the ratios of a column.
fn compare(rows: &mut [Row], place: usize, unit: Unit) {
    let median = |row: &Row| row.cells[place].as_ref().map(|cell| cell.samples.median);
    let Some(ours) = rows.first().and_then(median) else { return };
    for cell in rows.iter_mut().filter_map(|row| row.cells[place].as_mut()) {
        let ratio = ours / cell.samples.median;
        cell.ratio = (unit != Unit::Share && ratio.is_finite()).then_some(ratio);
    }
}

impl ToldRow {
    fn with(mut self, measures: &[Measure]) -> Row {
        let mut cell = |measure: &Measure| {
            let samples = Samples::of(self.values.remove(&measure.name)?)?;
            Some(Cell { samples, ratio: None })
        };
        let cells = measures.iter().map(&mut cell).collect();
        Row { name: self.name, role: self.role, cells, absent: self.absent }
    }
}

impl Unit {
    /// A figure as people read it.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            // A step of a large batch takes long.
            Self::SamplesPerSecond if value < 10.0 => format!("{value:.2}/s"),
            Self::SamplesPerSecond => format!("{value:.0}/s"),
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::Seconds if value < 1.0 => format!("{:.2} ms", value * 1e3),
            Self::Seconds => format!("{value:.2} s"),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Share => format!("{:.1} %", value * 100.0),
        }
    }
}

const NAME: usize = 32;
const FIGURE: usize = 16;
const RATIO: usize = 9;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        if let Some(reason) = &self.absent {
            return write!(f, "\n  absent: {reason}");
        }
        let column = |measure: &Measure| format!("{:>FIGURE$}{:>RATIO$}", measure.name, "ratio");
        let head: String = self.measures.iter().map(column).collect();
        write!(f, "\n  {:NAME$}{head}", "")?;
        self.rows.iter().try_for_each(|row| write!(f, "\n  {}", row.line(&self.measures)))?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n  - {finding}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, aim, met } = self;
        write!(f, "{what}: {value:.2}")?;
        let Some(aim) = aim else { return Ok(()) };
        let met = met.map_or("", |met| if met { ": met" } else { ": missed" });
        write!(f, " (aim: {aim}{met})")
    }
}

impl Row {
    fn line(&self, measures: &[Measure]) -> String {
        let Self { name, cells, absent, .. } = self;
        if cells.iter().all(Option::is_none) {
            let reason = absent.as_deref().unwrap_or("nothing was measured");
            return format!("{name:NAME$}absent: {reason}");
        }
        let figures: String = cells.iter().zip(measures).map(figure).collect();
        let line = format!("{name:NAME$}{figures}");
        // Some rounds went well before it failed.
        let then = absent.as_ref().map_or_else(String::new, |reason| format!("  (then: {reason})"));
        format!("{}{then}", line.trim_end())
    }
}

fn figure((cell, measure): (&Option<Cell>, &Measure)) -> String {
    let Some(cell) = cell else { return " ".repeat(FIGURE + RATIO) };
    let ratio = cell.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} x"));
    format!("{:>FIGURE$}{ratio:>RATIO$}", measure.unit.show(cell.samples.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let told = r#"{"name": "n", "note": "of", "absent": null,
            "measures": [{"name": "speed", "unit": "samples_per_second", "better": "more"},
                         {"name": "growth", "unit": "share", "better": "less"}],
            "rows": [{"name": "a", "role": "ours", "absent": null,
                      "values": {"speed": [10, 30, 20], "growth": [0.02]}},
                     {"name": "b", "role": "rival", "absent": "it broke", "values": {"speed": [5]}},
                     {"name": "c", "role": "limit", "absent": "not here", "values": {}}]}"#;
        Table::of(serde_json::from_str(told).unwrap())
    }

    #[test]
    fn everybody_is_compared_with_the_first_by_medians() {
        let table = table();
        let ratios = |place: usize| -> Vec<_> {
            let ratio = |row: &Row| row.cells[place].as_ref().and_then(|cell| cell.ratio);
            table.rows.iter().map(ratio).collect()
        };
        assert_eq!(ratios(0), [Some(1.0), Some(4.0), None]);
        assert_eq!(ratios(1), [None, None, None]);
    }

    #[test]
    fn the_text_names_columns_figures_and_reasons() {
        let text = table().to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "n: of");
        assert!(lines[1].contains("speed") && lines[1].contains("growth"), "{text}");
        assert!(lines[2].contains(" 20/s") && lines[2].contains("2.0 %"), "{text}");
        assert!(lines[3].contains("4.00 x") && lines[3].ends_with("(then: it broke)"), "{text}");
        assert!(lines[4].ends_with("absent: not here"), "{text}");
    }
}
