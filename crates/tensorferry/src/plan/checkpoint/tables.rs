//! The three dictionaries as plain data, in the shape of the paper's figure 4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tool::Tool;

/// By size in bytes.
pub type Table = BTreeMap<u64, Entry>;

/// What is known of one size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Seconds of each tool that was tried.
    #[serde(default)]
    pub times: BTreeMap<Tool, f64>,
    /// The tool that is taken, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Tool>,
}

/// The three dictionaries.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Writing.
    #[serde(rename = "WDic", default)]
    pub write: Table,
    /// Reading.
    #[serde(rename = "RDic", default)]
    pub read: Table,
    /// Writing, then reading; by the tool that writes.
    #[serde(rename = "WRDic", default)]
    pub both: Table,
}
