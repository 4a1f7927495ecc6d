//! JSON as it stands: objects keep the order of their keys, and those that stand twice.
//!
//! The usual readers would drop one of two equal keys, and turn an integer that is too large into a
//! float, where Python reads it exactly. Both must be seen here to be refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Kind, Result};

#[derive(Debug)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Reads a text whose integers all fit; `what` it is, for errors.
pub fn read(text: &str, what: &str) -> Result<Json> {
    let json = serde_json::from_str(text).map_err(|error| {
        Error::new(Kind::Corrupt, format!("{what} is not JSON")).caused_by(error)
    })?;
    check_integers(text)?;
    Ok(json)
}

/// Refuses integers that have no place in an `i64`, in a text that is JSON, and `-0`, which is an
/// integer to some and a float to others.
fn check_integers(text: &str) -> Result<()> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => end_of_text(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let len = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                check_number(&text[at..at + len]).map_err(|error| error.with("byte", at))?;
                at + len
            }
            _ => at + 1,
        }
    }
    Ok(())
}

/// Behind the quote that ends the text that begins here.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn check_number(number: &str) -> Result<()> {
    let is_float = number.contains(['.', 'e', 'E']);
    if is_float || (number != "-0" && number.parse::<i64>().is_ok()) {
        return Ok(());
    }
    let shown = number.get(..40).map_or(number.to_owned(), |start| format!("{start}..."));
    Err(Error::new(Kind::Corrupt, format!("{shown} is no integer of 64 bits")))
}

impl Json {
    /// What it is, for errors.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub fn boolean(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// An integer that is not negative.
    pub fn number(&self) -> Option<u64> {
        if let Self::Int(value) = self { u64::try_from(*value).ok() } else { None }
    }

    /// An array of such.
    pub fn numbers(&self) -> Option<Vec<u64>> {
        if let Self::Array(items) = self { items.iter().map(Self::number).collect() } else { None }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        // What does not fit is refused before anybody looks at it.
        Ok(Json::Int(value as i64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = map.next_entry()? {
            items.push(item);
        }
        Ok(Json::Object(items))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn integers_that_do_not_fit_are_refused_wherever_they_stand_and_texts_are_left_alone() {
        for good in [
            "9223372036854775807",
            "[-9223372036854775808, 1e30, 0, -1, -0.0, 1E-5]",
            r#"{"99999999999999999999": "a\"99999999999999999999\\"}"#,
        ] {
            read(good, "it").unwrap();
        }
        for (bad, number) in [
            ("[1, 9223372036854775808]", "9223372036854775808"),
            (r#"{"\\": -9223372036854775809}"#, "-9223372036854775809"),
            ("[-0]", "-0"),
            ("100000000000000000000", "100000000000000000000"),
        ] {
            let error = read(bad, "it").unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().starts_with(&format!("{number} is no integer")), "{error}");
        }
        let long = read(&"1".repeat(10_000), "it").unwrap_err();
        assert!(long.to_string().len() < 200, "{long}");
    }
}
