//! Documents that users name: read, judged, and refused with their name.

use std::fs;
use std::path::Path;

use tensorferry::{Error, Result};

/// Reads a document; errors call it `what`.
pub(crate) fn read<T>(file: &Path, what: &str, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let text = fs::read_to_string(file)
        .map_err(|error| Error::from_io(error, format!("can't read the {what}")));
    text.and_then(|text| parse(&text)).map_err(|error| error.with("file", file.display()))
}
