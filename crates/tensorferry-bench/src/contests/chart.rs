//! The report as a figure: a group for each measure of each contest.

use super::curves::{Curve, Curves};
use super::report::Report;
use super::table::{Better, Measure, Role, Row, Table};
use crate::plot::{Bar, Bars, Group, Line, Lines, Paint, Value, shortened};
use crate::sample::Samples;

/// What a line of notes holds.
const NOTE_CHARS_MAX: usize = 110;

impl Report {
    /// The figure.
    pub fn chart(&self) -> Bars {
        let reading = "medians, turns alternate; lines reach from the smallest to the largest \
                       sample; each group has its own scale";
        let mut notes = vec![self.place()];
        notes.extend(wrapped(&format!("{}, {}", self.programs(), self.date)));
        notes.push(reading.into());
        Bars {
            title: self.suite.title.into(),
            notes,
            groups: self.tables.iter().flat_map(groups).collect(),
        }
    }

    /// The figure of values that follow one another, if there are any.
    pub fn curves_chart(&self) -> Option<Lines> {
        self.curves.first().map(|curves| curves.chart(self))
    }
}

impl Curves {
    /// The figure, which says where it was measured.
    fn chart(&self, report: &Report) -> Lines {
        let line = |curve: &Curve| Line {
            name: curve.name.clone(),
            values: curve.values.clone(),
            paint: paint(curve.role),
        };
        let mut notes = vec![self.note.clone(), report.place()];
        notes.extend(wrapped(&format!("{}, {}", report.programs(), report.date)));
        Lines {
            title: format!("{}: {}", report.suite.title, self.name),
            notes,
            across: self.across.clone(),
            up: self.up.clone(),
            lines: self.curves.iter().map(line).collect(),
        }
    }
}

/// A list in lines, broken between its items.
fn wrapped(list: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in list.split(", ") {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() < NOTE_CHARS_MAX => {
                line.push_str(", ");
                line.push_str(item);
            }
            _ => lines.push(item.into()),
        }
    }
    lines
}

fn groups(table: &Table) -> Vec<Group> {
    if let Some(reason) = &table.absent {
        let label = shortened(&format!("absent: {reason}"));
        let bar = Bar { name: "everybody".into(), value: None, label, paint: Paint::Plain };
        return vec![Group { name: table.name.clone(), bars: vec![bar] }];
    }
    let group = |(place, measure): (usize, &Measure)| Group {
        name: format!("{}: {}, {}", table.name, measure.name, direction(measure.better)),
        bars: table.rows.iter().map(|row| bar(row, place, measure)).collect(),
    };
    table.measures.iter().enumerate().map(group).collect()
}

fn direction(better: Better) -> &'static str {
    match better {
        Better::More => "more is better",
        Better::Less => "less is better",
    }
}

fn paint(role: Role) -> Paint {
    match role {
        Role::Ours => Paint::Highlight,
        Role::Rival => Paint::Plain,
        Role::Limit => Paint::Limit,
    }
}

fn bar(row: &Row, place: usize, measure: &Measure) -> Bar {
    let paint = paint(row.role);
    let Some(cell) = &row.cells[place] else {
        let label = row.absent.as_ref().map_or_else(String::new, |why| format!("absent: {why}"));
        return Bar { name: row.name.clone(), value: None, label: shortened(&label), paint };
    };
    let Samples { median, min, max, .. } = cell.samples;
    let label = measure.unit.show(median);
    // A share can be below nothing, a bar can't.
    let [median, min, max] = [median, min, max].map(|each| each.max(0.0));
    Bar { name: row.name.clone(), value: Some(Value { median, min, max }), label, paint }
}
