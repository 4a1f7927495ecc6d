//! Values that follow one another, such as the losses of steps.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::Role;

/// Lines in one figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curves {
    /// What was done.
    pub name: String,
    /// On what.
    pub note: String,
    /// What goes from left to right.
    pub across: String,
    /// What goes up.
    pub up: String,
    /// The lines.
    pub curves: Vec<Curve>,
}

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    /// Whose.
    pub name: String,
    /// As what.
    pub role: Role,
    /// At equal distances.
    pub values: Vec<f64>,
}

/// The ends of each line: what people compare.
impl fmt::Display for Curves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.note)?;
        self.curves.iter().try_for_each(|Curve { name, values, .. }| {
            let ends = values.first().zip(values.last());
            let ends = ends.map_or_else(
                || "nothing was measured".into(),
                |(first, last)| format!("{} from {first:.4} to {last:.4}", self.up),
            );
            write!(f, "\n  {name}: {ends}, {} of {}", values.len(), self.across)
        })
    }
}
