//! What a histogram is of, and the unit in which it is read.

use std::time::Duration;

use serde::Serialize;

use crate::size::Size;

/// What a histogram is of: [`Duration`], [`Size`] or plain `u64`.
pub trait Quantity: sealed::Raw {
    /// The unit in which it is read.
    const UNIT: Unit;
}

impl Quantity for Duration {
    const UNIT: Unit = Unit::Seconds;
}

impl Quantity for Size {
    const UNIT: Unit = Unit::Bytes;
}

impl Quantity for u64 {
    const UNIT: Unit = Unit::Ones;
}

mod sealed {
    use super::{Duration, Size};

    /// The whole number that is counted.
    pub trait Raw {
        fn raw(self) -> u64;
    }

    impl Raw for Duration {
        fn raw(self) -> u64 {
            // 2^64 nanoseconds are 584 years.
            u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
        }
    }

    impl Raw for Size {
        fn raw(self) -> u64 {
            self.0
        }
    }

    impl Raw for u64 {
        fn raw(self) -> u64 {
            self
        }
    }
}

/// The unit in which a histogram is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Counted in nanoseconds.
    Seconds,
    /// Counted in bytes.
    Bytes,
    /// Plain numbers.
    Ones,
}

impl Unit {
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Seconds => "_seconds",
            Self::Bytes => "_bytes",
            Self::Ones => "",
        }
    }

    pub(super) fn scale(self, raw: u128) -> f64 {
        match self {
            Self::Seconds => raw as f64 / 1e9,
            Self::Bytes | Self::Ones => raw as f64,
        }
    }
}
