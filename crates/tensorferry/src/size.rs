//! Sizes as people write them: `"8GiB"`, `"500MB"`, `4096`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A number of bytes, parsed from and shown with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub u64);

/// Unit names in lower case and their factors; powers of 1024 carry an `i`.
const UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        factor.and_then(|factor| scale(number, factor)).map(Self).ok_or_else(|| {
            Error::invalid(format!(
                "{text:?} is not a size; write a whole number of bytes or a number with a unit \
                 such as \"8GiB\", \"500MB\" or \"1.5TiB\""
            ))
        })
    }
}

/// `number * factor`, exactly; `None` for nonsense, overflow and fractions of a byte.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat().chars().filter(|c| *c != '_').collect();
    let has_point = number.contains('.');
    if digits.is_empty() || whole.is_empty() || (has_point && fraction.is_empty()) {
        return None;
    }
    let places = fraction.chars().filter(char::is_ascii_digit).count() as u32;
    let scaled = digits.parse::<u128>().ok()?.checked_mul(u128::from(factor))?;
    let divisor = 10u128.checked_pow(places)?;
    (scaled % divisor == 0).then_some(scaled / divisor).and_then(|bytes| bytes.try_into().ok())
}

impl fmt::Display for Size {
    /// The largest binary unit in which the number stays exact to two places: `1.50 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let power = (self.0.checked_ilog2().unwrap_or(0) / 10).min(5) as usize;
        let unit = 1u64 << (10 * power);
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {}", self.0 / unit, NAMES[power])
        } else {
            write!(f, "{:.2} {}", self.0 as f64 / unit as f64, NAMES[power])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1_000", 1000),
            ("8GiB", 8 << 30),
            ("500MB", 500_000_000),
            (" 64 mib ", 64 << 20),
            ("1.5KiB", 1536),
            ("0.5 GB", 500_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse::<Size>().unwrap(), Size(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_an_error_that_shows_how_to_write_a_size() {
        for text in [
            "",
            " ",
            "lots",
            "-1",
            "-1GiB",
            "8 GiB free",
            "GiB",
            ".",
            "1.",
            ".5GiB",
            "1.2.3",
            "_",
            "8gibi",
            "0.3",
            "1e9",
            "20000000PiB",
            "18446744073709551616",
            "0x10",
            "８GiB",
        ] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains("is not a size") && error.contains("8GiB"), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_reads_best() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(1536).to_string(), "1.50 KiB");
        assert_eq!(Size(8 << 30).to_string(), "8 GiB");
    }

    proptest! {
        #[test]
        fn any_text_gives_a_size_or_an_error(text in ".{0,24}") {
            let _ = text.parse::<Size>();
        }

        #[test]
        fn whole_numbers_of_any_unit_are_exact(n in 0u64..1 << 20, unit in 0usize..UNITS.len()) {
            let (name, factor) = UNITS[unit];
            prop_assume!(n.checked_mul(factor).is_some());
            prop_assert_eq!(format!("{n}{name}").parse::<Size>().unwrap(), Size(n * factor));
        }
    }
}
