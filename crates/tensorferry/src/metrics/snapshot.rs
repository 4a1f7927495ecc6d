//! Snapshots: all numbers of a registry at one moment, as plain data.

use std::collections::BTreeMap;

use serde::Serialize;

use super::quantity::Unit;
use crate::error::{Error, Kind, Result};

/// All numbers of a registry, as plain data.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Snapshot {
    /// In the order of names and labels.
    pub series: Vec<Series>,
    /// What names mean, where somebody said so.
    pub help: BTreeMap<String, String>,
}

/// One series of a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What is counted.
    pub name: String,
    /// Of which kind, in which stage.
    pub labels: BTreeMap<String, String>,
    /// As JSON: `"kind": "counter", "value": 7`.
    #[serde(flatten)]
    pub value: Value,
}

/// A series' number or numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum Value {
    /// A number that only grows.
    Counter(u64),
    /// A number that goes up and down.
    Gauge(f64),
    /// A distribution.
    Histogram(Summary),
}

/// A distribution, in its unit. What an empty one does not have is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The unit of all numbers but the counts.
    pub unit: Unit,
    /// Number of occurrences.
    pub count: u64,
    /// Sum of all occurrences.
    pub sum: f64,
    /// The least, exactly.
    pub min: Option<f64>,
    /// The most, exactly.
    pub max: Option<f64>,
    /// Half of all occurrences are at most this, to 1/32 of it.
    pub p50: Option<f64>,
    /// 90% of all occurrences are at most this, to 1/32 of it.
    pub p90: Option<f64>,
    /// 99% of all occurrences are at most this, to 1/32 of it.
    pub p99: Option<f64>,
    /// The buckets that are not empty, from the lowest; their counts are not cumulated.
    pub buckets: Vec<Bucket>,
}

/// Occurrences above the bucket before and up to `le`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// The largest number that falls into this bucket.
    pub le: f64,
    /// Number of occurrences in this bucket alone.
    pub count: u64,
}

impl Snapshot {
    /// The numbers as a JSON document.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::new(Kind::Internal, "can't write metrics as JSON").caused_by(error)
        })
    }
}
