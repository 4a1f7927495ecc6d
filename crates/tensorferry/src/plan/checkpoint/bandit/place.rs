//! Where the level of a tool at a size lies among those that are kept.
//!
//! Levels are kept at *knots*, two octaves apart, for each tool, and run straight between them. Smaller
//! and larger objects than the first and last knot stand for are taken for those.

use crate::plan::checkpoint::tool::Tool;

/// Levels of one tool: from 4 KiB to 64 GiB.
pub(super) const KNOTS: usize = 13;
/// Levels of all tools.
pub(super) const LEVELS: usize = KNOTS * Tool::ALL.len();
/// Between two knots.
const OCTAVES: f64 = 2.0;
/// Of the first knot.
const FIRST_OCTAVE: f64 = 12.0;
/// Bytes whose transfer takes as long as the latency.
const EVEN_BYTES: f64 = (1 << 19) as f64;

/// A tool at a size, as a mixture of two levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    tool: Tool,
    /// In knots from the first, a whole number at a knot.
    position: f64,
    /// The knot below; the last has none above.
    below: usize,
}

impl Place {
    pub(super) fn of(tool: Tool, bytes: u64) -> Self {
        let octave = (bytes.max(1) as f64).log2();
        let position = ((octave - FIRST_OCTAVE) / OCTAVES).clamp(0.0, (KNOTS - 1) as f64);
        Self { tool, position, below: (position as usize).min(KNOTS - 2) }
    }

    pub(super) fn tool(&self) -> Tool {
        self.tool
    }

    /// How many knots lie between this size and one of the knots.
    pub(super) fn distance(&self, knot: usize) -> f64 {
        (self.position - knot as f64).abs()
    }

    /// The part of the latency in the seconds, roughly.
    pub(super) fn latency_share(&self) -> f64 {
        latency_share(FIRST_OCTAVE + OCTAVES * self.position)
    }

    /// The two levels, and the part that each has.
    pub(super) fn parts(&self) -> [(usize, f64); 2] {
        let (first, above) = (level(self.tool, self.below), self.position - self.below as f64);
        [(first, 1.0 - above), (first + 1, above)]
    }
}

/// The logarithm of the bytes of a knot.
pub(super) fn octave(knot: usize) -> f64 {
    FIRST_OCTAVE + OCTAVES * knot as f64
}

/// The part of the latency in the seconds for so many bytes, given as a logarithm.
pub(super) fn latency_share(octave: f64) -> f64 {
    1.0 / (1.0 + octave.exp2() / EVEN_BYTES)
}

/// The number of a tool's level at a knot.
pub(super) const fn level(tool: Tool, knot: usize) -> usize {
    tool as usize * KNOTS + knot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_between_two_knots_are_mixtures_and_those_beyond_the_last_stand_for_it() {
        for (bytes, parts) in [
            (0, [(13, 1.0), (14, 0.0)]),
            (4096, [(13, 1.0), (14, 0.0)]),
            (8192, [(13, 0.5), (14, 0.5)]),
            (1 << 30, [(22, 1.0), (23, 0.0)]),
            (u64::MAX, [(24, 0.0), (25, 1.0)]),
        ] {
            assert_eq!(Place::of(Tool::Buffered, bytes).parts(), parts, "{bytes}");
        }
    }
}
