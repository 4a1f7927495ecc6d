//! Where in the object a judge is, in Python's notation: `optimizer.state[3].hook`.

use std::fmt;

use crate::checkpoint::structure::node::Node;
use crate::checkpoint::structure::tree::shown;

/// From a container to one of its items.
pub enum Step<'a> {
    Key(&'a str),
    Index(usize),
    /// A key that is no text, as it is shown.
    Shown(String),
}

impl Step<'_> {
    pub fn of(key: &Node) -> Self {
        Self::Shown(match key {
            Node::Str(text) => format!("{text:?}"),
            other => shown(other),
        })
    }
}

/// The steps from the root.
#[derive(Default)]
pub struct Path<'a>(Vec<Step<'a>>);

impl<'a> Path<'a> {
    pub fn push(&mut self, step: Step<'a>) {
        self.0.push(step);
    }

    pub fn pop(&mut self) {
        self.0.pop();
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the object");
        }
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if is_identifier(key) && position == 0 => f.write_str(key)?,
                Step::Key(key) if is_identifier(key) => write!(f, ".{key}")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Shown(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

fn is_identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
