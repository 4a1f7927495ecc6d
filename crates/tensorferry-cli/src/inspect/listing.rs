//! What is in a file, as plain data.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tensorferry::checkpoint::{CHECKSUMS, Header, STRUCTURE, Structure};
use tensorferry::{Error, Kind};

/// A file, listed.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    pub file: String,
    /// In the whole file.
    pub bytes: u64,
    /// Where the tensors' bytes start.
    pub data_offset: u64,
    pub tensor_count: usize,
    pub tensor_bytes: u64,
    pub tensors: Vec<Row>,
    /// The object that the tensors belong to, if the file says so.
    pub object: Option<Object>,
    /// What is neither the object nor the checksums.
    pub metadata: BTreeMap<String, String>,
    pub checksums: Checksums,
    pub error: Option<Damage>,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<u64>,
    pub bytes: u64,
    /// From the start of the file.
    pub offset: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Object {
    pub version: u64,
    /// What wrote the file.
    pub tool: String,
    /// A line for each of its parts.
    pub tree: Vec<String>,
}

/// What is known of the checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Checksums {
    /// All are right.
    Verified,
    /// One is wrong.
    Wrong,
    /// There are some, and what they are of was not read to its end.
    Unverified,
    /// The header has one, and it is right; the tensors have none.
    OfHeader,
    /// The file has none.
    None,
}

#[derive(Debug, Serialize)]
pub(super) struct Damage {
    pub kind: &'static str,
    pub message: String,
}

impl Checksums {
    pub fn of(header: &Header, damage: Option<&Error>, no_verify: bool) -> Self {
        let Some(text) = header.metadata.get(CHECKSUMS) else { return Self::None };
        let of_tensors = text.contains(' ') || header.tensors.is_empty();
        match damage {
            Some(damage) if damage.kind() == Kind::Corrupt => Self::Wrong,
            Some(_) => Self::Unverified,
            None if !of_tensors => Self::OfHeader,
            None if no_verify => Self::Unverified,
            None => Self::Verified,
        }
    }
}

impl Listing {
    pub fn new(file: &Path, header: &Header, data_start: u64, checksums: Checksums) -> Self {
        let rows = header.tensors.iter().map(|tensor| Row {
            name: tensor.name.clone(),
            dtype: tensor.dtype.name(),
            shape: tensor.shape.clone(),
            bytes: tensor.len(),
            offset: data_start + tensor.range.start,
        });
        let structure = header.metadata.get(STRUCTURE);
        // One that can't be read is what is wrong with the file, and told as that.
        let structure = structure.and_then(|text| Structure::parse(text, header).ok());
        let mut metadata = header.metadata.clone();
        metadata.retain(|name, _| name != CHECKSUMS && name != STRUCTURE);
        Self {
            file: file.display().to_string(),
            bytes: data_start + header.data_len(),
            data_offset: data_start,
            tensor_count: header.tensors.len(),
            tensor_bytes: header.data_len(),
            tensors: rows.collect(),
            object: structure.map(Object::new),
            metadata,
            checksums,
            error: None,
        }
    }

    pub fn damaged(mut self, damage: &Error) -> Self {
        self.error = Some(Damage::of(damage));
        self
    }

    /// With the first of its tensors only.
    pub fn cut(mut self, limit: usize) -> Self {
        self.tensors.truncate(limit);
        self
    }
}

impl Damage {
    pub fn of(error: &Error) -> Self {
        Self { kind: error.kind().name(), message: error.to_string() }
    }
}

impl Object {
    fn new(structure: Structure) -> Self {
        let tree = structure.tree(usize::MAX).to_string();
        let tree = tree.lines().map(str::to_owned).collect();
        Self { version: structure.version, tool: structure.tool, tree }
    }
}
