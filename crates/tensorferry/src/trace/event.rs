//! Events: what is kept of whatever ended, and the facts that were added to it.

use serde::Serialize;

/// The most arguments of one event; more are left out.
pub const ARGUMENTS_MAX: usize = 8;
/// The most bytes of a text argument; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) thread: u64,
    pub(super) name: &'static str,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Span { category: &'static str, nanos: u64, arguments: Arguments },
    Operation { category: &'static str, nanos: u64, arguments: Arguments, id: u64, ended_on: u64 },
    Counter(f64),
}

/// A fact about an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// A whole number.
    Whole(u64),
    /// A number; one that is not finite is written as `null`.
    Real(f64),
    /// A text of at most [`TEXT_BYTES_MAX`] bytes.
    Text(String),
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Argument {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
    }
}

pub(super) type Arguments = Vec<(&'static str, Argument)>;
