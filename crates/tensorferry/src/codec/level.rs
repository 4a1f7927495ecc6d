//! Which instructions the processor offers, as a short ladder.

use std::fmt;

use crate::error::{Error, Kind, Result};

/// A set of instructions that the codecs have a version for, from the narrowest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust: runs everywhere and says what is right.
    Portable,
    /// AVX2 with F16C and POPCNT: x86 since 2013.
    Avx2,
    /// AVX-512 F, BW, VL and VBMI2, on top of AVX2: Ice Lake, Zen 4 and later.
    ///
    /// Older AVX-512 processors can't compress 16-bit elements and lower their clock when they
    /// use the wide registers, so they stay at AVX2.
    Avx512,
}

impl Level {
    /// Every level, narrowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The widest level of this processor, which the codecs use.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// The levels of this processor, narrowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_available())
    }

    /// Whether this processor has the level. The standard library caches what the processor says.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
            }
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi2")
            }
        }
    }

    /// Whether this processor has the level: others than x86-64 run the portable versions.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// Proof that this processor has the level, or an error.
    pub(super) fn check(self) -> Result<Usable> {
        if self.is_available() {
            return Ok(Usable(self));
        }
        Err(Error::new(Kind::Unsupported, "this processor lacks the instructions asked for")
            .with("level", self)
            .with("best", Self::detect()))
    }

    /// The level's name as it stands in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// A level that this processor was seen to have. Only [`Level::check`] and detection make one, so
/// whoever holds one may call kernels of that level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usable(Level);

impl Usable {
    /// The widest level of this processor.
    pub(super) fn best() -> Self {
        Self(Level::detect())
    }

    /// The level that every processor has.
    pub(super) const fn portable() -> Self {
        Self(Level::Portable)
    }

    pub(super) const fn level(self) -> Level {
        self.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_accepted_exactly_when_the_processor_has_it() {
        for level in Level::ALL {
            match level.check() {
                Ok(usable) => assert!(level.is_available() && usable.level() == level),
                Err(error) => {
                    assert!(!level.is_available());
                    assert_eq!(error.kind(), Kind::Unsupported);
                }
            }
        }
    }

    #[test]
    fn the_best_level_is_available_and_portable_always_is() {
        assert!(Level::Portable.is_available());
        assert!(Level::detect().is_available());
        assert_eq!(Level::available().next(), Some(Level::Portable));
    }

    /// Tests of the codecs loop over the available levels, and so pass without the others. `make
    /// test` shows the line that this one prints.
    #[test]
    fn the_levels_that_tests_here_exercise_are_told() {
        let names = |available: bool| {
            let levels = Level::ALL.into_iter().filter(|level| level.is_available() == available);
            let names: Vec<_> = levels.map(Level::name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        println!(
            "codec levels exercised: {}; not on this processor: {}",
            names(true),
            names(false)
        );
        assert!(names(true).starts_with("portable"));
    }
}
