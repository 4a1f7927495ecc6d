//! What `doctor` found: plain data. Its JSON form is read by programs; names only get added.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

/// How well a thing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// There, but less than it could be.
    Limited,
    Missing,
    /// There or not, this version does nothing with it.
    Unused,
    /// Looking at it failed.
    Error,
}

impl Status {
    pub(super) const ALL: [Self; 5] =
        [Self::Ok, Self::Limited, Self::Missing, Self::Unused, Self::Error];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Unused => "unused",
            Self::Error => "error",
        }
    }
}

/// One thing looked at.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// What was read, in a few words.
    pub(super) value: String,
    /// What that means for the user, in a sentence or two.
    pub(super) meaning: String,
    /// How to get it or more of it, in one line.
    pub(super) remedy: Option<String>,
    /// The same as `value`, for programs.
    pub(super) facts: Map<String, Value>,
}

impl Finding {
    pub(super) fn new(name: &'static str, status: Status, value: impl Into<String>) -> Self {
        let (meaning, remedy, facts) = (String::new(), None, Map::new());
        Self { name, status, value: value.into(), meaning, remedy, facts }
    }

    pub(super) fn means(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = meaning.into();
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub(super) fn remedy_if_any(self, remedy: Option<&str>) -> Self {
        match remedy {
            Some(remedy) => self.remedy(remedy),
            None => self,
        }
    }

    pub(super) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}

/// What tensorferry will use here, and why not the better one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) because: Option<String>,
}

impl Choice {
    pub(super) fn best(name: impl Into<String>) -> Self {
        Self { name: name.into(), because: None }
    }

    pub(super) fn fallback(name: impl Into<String>, because: impl Into<String>) -> Self {
        Self { name: name.into(), because: Some(because.into()) }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    /// `ring`, `threads`, or `none` when no engine opens.
    pub(super) engine: Choice,
    /// `direct` or `buffered`.
    pub(super) files: Choice,
    /// `avx512`, `avx2` or `portable`.
    pub(super) codec: Choice,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// Grows when a name changes its meaning or goes away.
    pub(super) schema: u32,
    pub(super) version: &'static str,
    pub(super) path: String,
    pub(super) summary: Summary,
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<&'static str>,
}

/// Said in every report: nothing in `findings` may be read as a claim about hardware.
const UNTESTED: &str =
    "No part of tensorferry has been tested on GPU hardware; an emulated device stands in.";

impl Report {
    pub(super) fn new(path: &Path, summary: Summary, findings: Vec<Finding>) -> Self {
        Self {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            path: path.to_string_lossy().into_owned(),
            summary,
            findings,
            notes: vec![UNTESTED],
        }
    }
}
