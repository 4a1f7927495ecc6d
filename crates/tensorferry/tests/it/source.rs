//! Sources from end to end: one list of laws for all of them, and what each promises beside.

mod files;
mod folder;
mod laws;
#[cfg(all(feature = "remote", not(loom)))]
mod remote;
mod tar;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tensorferry::data::source::{Source, Spec, open};
use tensorferry::{Error, Result};

use super::engine::shared;

/// Opens what a JSON text describes.
fn opened(spec: &serde_json::Value) -> Result<Arc<dyn Source>> {
    let spec: Spec = serde_json::from_value(spec.clone()).unwrap();
    open(&spec, &shared(), &|_| ())
}

#[track_caller]
fn refused(spec: &serde_json::Value) -> Error {
    opened(spec).err().unwrap()
}

/// Makes files, and the directories above them.
fn write_all(root: &Path, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The fields of a sample, in memory.
fn content(source: &dyn Source, index: usize) -> Vec<Vec<u8>> {
    let raw = source.fetch(index).unwrap();
    (0..raw.len()).map(|at| raw.field(at).all().unwrap().into_owned()).collect()
}

/// Names of all samples, without what is in front of the dataset.
fn names(source: &dyn Source, root: &str) -> Vec<String> {
    let short = |index| {
        let name = source.name(index);
        name.strip_prefix(root).unwrap_or(&name).trim_start_matches('/').to_owned()
    };
    (0..source.len()).map(short).collect()
}
