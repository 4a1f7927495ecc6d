//! Profiles and plans as they are kept: JSON that says its version, judged before it is used.
//!
//! ```text
//!   text ─► version ─► fields ─► numbers in bounds ─► the document, or an error that says what is wrong
//! ```
//!
//! The version is judged before the rest, which another version may have changed. What is wrong is said with what to
//! do about it; whoever has the text from a file adds the name.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// What a clock or a bandwidth shows lies below this.
pub(in crate::plan) const NUMBER_MAX: f64 = 1e15;

/// What is looked at before the rest.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads a document that errors call `what`; `judge` judges its version.
pub(in crate::plan) fn read<T: DeserializeOwned>(
    json: &str,
    what: &str,
    judge: impl FnOnce(u32) -> Result<()>,
) -> Result<T> {
    let wrong = |error: serde_json::Error| corrupt(format!("this is no {what}")).caused_by(error);
    let Versioned { version } = serde_json::from_str(json).map_err(wrong)?;
    judge(version)?;
    serde_json::from_str(json).map_err(wrong)
}

/// Writes a document that errors call `what`.
pub(in crate::plan) fn write(document: &impl Serialize, what: &str) -> Result<String> {
    serde_json::to_string(document).map_err(|error| {
        Error::new(Kind::Internal, format!("can't write a {what}")).caused_by(error)
    })
}

/// Refuses another version than is known; `again` says how to get a document of this one.
pub(in crate::plan) fn check_version(
    name: &str,
    version: u32,
    known: u32,
    again: &str,
) -> Result<()> {
    if version == known {
        return Ok(());
    }
    Err(corrupt(format!("the {name} has version {version}, not {known}; {again}")))
}

/// How to get a plan that can be used.
pub(in crate::plan) const PLAN_AGAIN: &str = "make the plan again from this profile";

/// A plan that is not one for the profile beside it.
pub(in crate::plan) fn stale(what: &str) -> Error {
    corrupt(format!("{what}; {PLAN_AGAIN}"))
}

/// Refuses a number outside of its bounds; `said` says which and what it is.
pub(in crate::plan) fn in_bounds(
    value: f64,
    (least, most): (f64, f64),
    said: impl FnOnce() -> String,
) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(corrupt(format!("{}; it lies between {least} and {most}", said())))
}

/// A document that does not hold together.
pub(in crate::plan) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, message)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Noted {
        version: u32,
        seconds: f64,
    }

    fn parse(json: &str) -> Result<Noted> {
        read(json, "note", |version| check_version("note", version, 3, "take it again"))
    }

    #[test]
    fn a_document_comes_back_as_it_was_written_to_the_last_bit() {
        let noted = Noted { version: 3, seconds: 0.1 + 0.2 };
        assert_eq!(parse(&write(&noted, "note").unwrap()).unwrap(), noted);
    }

    #[test]
    fn another_version_is_told_whatever_else_it_has() {
        let error = parse(r#"{"version": 4, "milliseconds": 1}"#).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert_eq!(error.to_string(), "the note has version 4, not 3; take it again");
    }

    #[test]
    fn what_is_no_such_document_is_told_with_the_place() {
        for (text, error) in [
            ("", "this is no note: EOF while parsing a value at line 1 column 0"),
            ("{}", "this is no note: missing field `version` at line 1 column 2"),
            (
                r#"{"version": 3, "minutes": 1}"#,
                "this is no note: unknown field `minutes`, expected `version` or `seconds` at line 1 \
                 column 24",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_number_outside_of_its_bounds_is_told_with_them() {
        let check = |value| in_bounds(value, (0.5, 2.0), || format!("it is {value}"));
        assert!([0.5, 2.0].into_iter().all(|value| check(value).is_ok()));
        for value in [0.4, 2.1, f64::NAN, f64::INFINITY] {
            let error = check(value).unwrap_err().to_string();
            assert_eq!(error, format!("it is {value}; it lies between 0.5 and 2"));
        }
    }
}
