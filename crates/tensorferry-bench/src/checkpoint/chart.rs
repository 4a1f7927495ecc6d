//! The report as a figure: a group for each contest over each state.

use super::contest::Unit;
use super::report::{Measured, Report, Row, Table};
use crate::plot::{Bar, Bars, Group, Paint, Value, shortened};

impl Report {
    /// The figure.
    pub fn chart(&self) -> Bars {
        let rounds: Vec<_> =
            self.measured.iter().map(|measured| measured.workload.rounds.to_string()).collect();
        let reading = format!(
            "medians of {}, samples in turn; lines reach from the slowest to the fastest sample; \
             each group has its own scale",
            rounds.join(", ")
        );
        Bars {
            title: "Checkpoints: more a second is better".into(),
            notes: vec![self.place(), format!("{}, {}", self.programs(), self.date), reading],
            groups: self.measured.iter().flat_map(groups).collect(),
        }
    }
}

fn groups(measured: &Measured) -> impl Iterator<Item = Group> {
    let workload = measured.workload;
    measured.tables.iter().map(move |Table { name, unit, rows, .. }| Group {
        name: format!("{name}: {workload}"),
        bars: rows.iter().enumerate().map(|(place, row)| bar(place, row, *unit)).collect(),
    })
}

fn bar(place: usize, row: &Row, unit: Unit) -> Bar {
    let value =
        row.rate.as_ref().map(|rate| Value { median: rate.median, min: rate.min, max: rate.max });
    let paint = match place {
        0 => Paint::Highlight,
        _ if row.name.starts_with("fio") => Paint::Limit,
        _ => Paint::Plain,
    };
    Bar { name: row.name.into(), value, label: shortened(&row.label(unit)), paint }
}
