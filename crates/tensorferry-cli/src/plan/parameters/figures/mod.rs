//! The shapes of the paper's figures 9 to 14, from modelled profiles.
//!
//! | what | file |
//! |---|---|
//! | how one system trains one network | `system.rs` |
//! | what each figure compares, and what the paper says there | `paper.rs` |
//!
//! Nothing is measured. What can be compared with the paper are ratios and directions.

mod paper;
mod system;

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;
use tensorferry::{Error, Result};
use tensorferry_bench::plot::{Bar, Bars, Group, Line, Lines, Paint, Value};

use crate::output;

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    /// The paper's number.
    number: &'static str,
    title: &'static str,
    /// What goes up, with its unit.
    unit: &'static str,
    /// What is assumed, beside what every profile assumes.
    assumed: &'static str,
    /// What the paper says.
    paper: &'static str,
    /// What comes out here, to be compared with that.
    ours: String,
    groups: Vec<Compared>,
    /// Whether the groups are points of lines rather than bars.
    #[serde(skip)]
    is_a_line: bool,
}

/// Systems side by side.
#[derive(Debug, Serialize)]
struct Compared {
    name: String,
    /// Nothing where a network does not fit.
    values: Vec<(&'static str, Option<f64>)>,
}

#[derive(Debug, Serialize)]
struct Figures(Vec<Figure>);

/// Draws all figures and prints their numbers.
pub(super) fn draw(folder: &Path, json: bool) -> Result<()> {
    let figures = Figures(paper::all()?);
    fs::create_dir_all(folder).map_err(|error| {
        Error::from_io(error, "can't make the folder").with("folder", folder.display())
    })?;
    for figure in &figures.0 {
        let file = folder.join(format!("figure-{}.svg", figure.number));
        let drawn = if figure.is_a_line { figure.lines().draw() } else { figure.bars().draw() };
        output::write_figure(&file, &drawn)?;
    }
    output::show(&figures, json)
}

impl Figure {
    fn notes(&self) -> Vec<String> {
        let modelled = format!("modelled, not measured; {}", self.assumed);
        let paper = format!("the paper: {}", self.paper);
        [modelled, paper, format!("here: {}", self.ours)]
            .iter()
            .flat_map(|note| wrapped(note))
            .collect()
    }

    fn title(&self) -> String {
        format!("The paper's figure {}: {}", self.number, self.title)
    }

    fn bars(&self) -> Bars {
        let group = |compared: &Compared| Group {
            name: compared.name.clone(),
            bars: compared
                .values
                .iter()
                .map(|(name, value)| bar(name, *value, self.unit))
                .collect(),
        };
        let groups = self.groups.iter().map(group).collect();
        Bars { title: self.title(), notes: self.notes(), groups }
    }

    /// A line for each system, a point for each group.
    fn lines(&self) -> Lines {
        let names = self.groups.first().map(|group| group.values.as_slice()).unwrap_or_default();
        let line = |(place, (name, _)): (usize, &(&str, Option<f64>))| Line {
            name: (*name).into(),
            values: self
                .groups
                .iter()
                .map(|group| group.values[place].1.unwrap_or(f64::NAN))
                .collect(),
            paint: if place == 0 { Paint::Highlight } else { Paint::Plain },
        };
        Lines {
            title: self.title(),
            notes: self.notes(),
            across: "reserve factor from 0 to 1, points".into(),
            up: self.unit.into(),
            lines: names.iter().enumerate().map(line).collect(),
        }
    }
}

fn bar(name: &str, value: Option<f64>, unit: &str) -> Bar {
    let label = value.map_or("does not fit".into(), |value| format!("{value:.3} {unit}"));
    let ours = ["exact", "exact, gradients to host"].contains(&name);
    Bar {
        name: name.into(),
        value: value.map(|median| Value { median, min: median, max: median }),
        label,
        paint: if ours { Paint::Highlight } else { Paint::Plain },
    }
}

/// Characters of a note.
const NOTE_CHARS_MAX: usize = 125;

/// A note in lines that fit.
fn wrapped(note: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let full = lines.last().is_some_and(|line| line.len() + word.len() >= NOTE_CHARS_MAX);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in &self.0 {
            writeln!(f, "{}, {}", figure.title(), figure.unit)?;
            figure.notes().iter().try_for_each(|note| writeln!(f, "  {note}"))?;
            for Compared { name, values } in &figure.groups {
                write!(f, "    {name}:")?;
                for (place, (system, value)) in values.iter().enumerate() {
                    let separator = if place == 0 { "" } else { "," };
                    let value = value.map_or("does not fit".into(), |value| format!("{value:.4}"));
                    write!(f, "{separator} {system} {value}")?;
                }
                writeln!(f)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
