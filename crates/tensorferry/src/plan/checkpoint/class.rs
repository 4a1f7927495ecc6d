//! Sizes in half octaves: two classes to each doubling.
//!
//! A tool's time for one size tells much of its time for a size near by, so what was seen is kept by
//! class. Half an octave is fine enough that the step from one class to the next stays below the
//! noise of disks, and coarse enough that a model's many sizes meet in few classes.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Class `2k` starts at `2^k` bytes, class `2k + 1` at the first whole byte from `2^(k + 1/2)` on.
/// Nothing counts as one byte. Between one and two bytes there is no whole one: class 1 stays empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct SizeClass(u8);

impl SizeClass {
    /// How many classes there are.
    pub const COUNT: u8 = 128;
    /// That of nothing and of one byte.
    pub const MIN: Self = Self(0);
    /// That of the largest size there is.
    pub const MAX: Self = Self(Self::COUNT - 1);

    /// The class of an object of that many bytes.
    pub const fn of(bytes: u64) -> Self {
        let bytes = if bytes == 0 { 1 } else { bytes };
        let octave = bytes.ilog2() as u8;
        let upper = bytes as u128 * bytes as u128 >= 1 << (2 * octave + 1);
        Self(2 * octave + upper as u8)
    }

    /// The fewest bytes of the class.
    pub const fn start(self) -> u64 {
        let power = 1u128 << self.0;
        let root = power.isqrt();
        (if root * root == power { root } else { root + 1 }) as u64
    }

    /// How many classes lie between, in either direction.
    pub const fn distance(self, other: Self) -> u8 {
        self.0.abs_diff(other.0)
    }
}

impl TryFrom<u8> for SizeClass {
    type Error = Error;

    fn try_from(number: u8) -> Result<Self> {
        if number >= Self::COUNT {
            return Err(Error::invalid(format!("there is no size class {number}")));
        }
        Ok(Self(number))
    }
}

impl From<SizeClass> for u8 {
    fn from(class: SizeClass) -> Self {
        class.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_class_but_the_empty_one_starts_where_it_says() {
        for number in (0..SizeClass::COUNT).filter(|number| *number != 1) {
            let class = SizeClass::try_from(number).unwrap();
            assert_eq!(SizeClass::of(class.start()), class);
            if class.start() > 1 {
                assert!(SizeClass::of(class.start() - 1) < class, "{class:?}");
            }
        }
        assert_eq!(SizeClass::of(0), SizeClass::of(1));
        assert_eq!(SizeClass::of(u64::MAX), SizeClass(127));
        assert_eq!(SizeClass::of(1 << 20).start(), 1 << 20);
        assert_eq!(SizeClass::of(3 << 19).start(), 1_482_911, "2^20.5 is 1482910.4");
    }

    #[test]
    fn the_first_ten_thousand_sizes_are_classed_as_logarithms_would() {
        for bytes in 1..10_000u64 {
            // No whole number is so near to a half power that rounding could tell otherwise.
            let expected = (2.0 * (bytes as f64).log2() + 1e-12).floor() as u8;
            assert_eq!(u8::from(SizeClass::of(bytes)), expected, "{bytes}");
        }
    }

    #[test]
    fn a_class_that_does_not_exist_is_refused() {
        let error = SizeClass::try_from(128).unwrap_err();
        assert_eq!(error.to_string(), "there is no size class 128");
        assert!(serde_json::from_str::<SizeClass>("128").is_err());
    }

    proptest! {
        #[test]
        fn a_size_lies_between_its_class_and_the_next(bytes in 1u64.., shift in 0u32..64) {
            let bytes = (bytes >> shift).max(1);
            let class = SizeClass::of(bytes);
            prop_assert!(class.start() <= bytes);
            if let Ok(next) = SizeClass::try_from(class.0 + 1) {
                prop_assert!(bytes < next.start());
            }
        }

        #[test]
        fn larger_sizes_have_no_smaller_class(a: u64, b: u64) {
            prop_assert!(a > b || SizeClass::of(a) <= SizeClass::of(b));
        }
    }
}
