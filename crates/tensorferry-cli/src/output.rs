//! Standard output: written in one go, coloured only for people, quiet when the reader has left.

use std::error::Error as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use tensorferry::{Error, Kind, Result};

/// Prints `text`. `println!` would panic when the other end of a pipe is closed.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::from_io(error, "can't write to standard output"))
}

/// Prints `report` as a document for programs.
pub(crate) fn print_json(report: &impl Serialize) -> Result<()> {
    print(&json_of(report, "report")?)
}

fn json_of(document: &impl Serialize, what: &str) -> Result<String> {
    let text = serde_json::to_string_pretty(document).map_err(|error| {
        Error::new(Kind::Internal, format!("can't write the {what} as JSON")).caused_by(error)
    })?;
    Ok(text + "\n")
}

/// Prints a report, for people or for programs.
pub(crate) fn show(report: &(impl Serialize + std::fmt::Display), json: bool) -> Result<()> {
    if json { print_json(report) } else { print(&format!("{report}\n")) }
}

/// Writes a figure into a file of the user's naming.
pub(crate) fn write_figure(file: &Path, drawing: &str) -> Result<()> {
    write(file, "figure", drawing)
}

/// Writes a document into a file of the user's naming; errors call it `what`.
pub(crate) fn write_json(file: &Path, what: &str, document: &impl Serialize) -> Result<()> {
    write(file, what, &json_of(document, what)?)
}

fn write(file: &Path, what: &str, text: &str) -> Result<()> {
    std::fs::write(file, text).map_err(|error| {
        Error::from_io(error, format!("can't write the {what}")).with("file", file.display())
    })
}

/// Whether standard output is a terminal that shows colours, and the user has not said no.
pub(crate) fn is_coloured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && !dumb && !set("NO_COLOR")
}

/// The text without what steers a terminal: names in files and other programs' output may hold
/// anything.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Whether the command failed only because nobody reads its output any more.
pub(crate) fn reader_is_gone(error: &Error) -> bool {
    error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_means_that_the_reader_is_gone() {
        let failed = |kind: io::ErrorKind| Error::from_io(kind.into(), "can't write");
        assert!(reader_is_gone(&failed(io::ErrorKind::BrokenPipe)));
        assert!(!reader_is_gone(&failed(io::ErrorKind::StorageFull)));
        assert!(!reader_is_gone(&Error::new(Kind::Io, "no cause")));
    }
}
