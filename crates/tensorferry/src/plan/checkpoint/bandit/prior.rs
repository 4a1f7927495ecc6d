//! What is expected of a tool before anything was measured.
//!
//! Seconds are taken as `latency + bytes / bandwidth`, times a *bend*: tools have cliffs, such as NumPy
//! reading a gigabyte, for which it takes new memory page by page. The numbers are those of a local
//! solid-state disk. Only the ratios between tools and the bend between small and large objects matter: how
//! fast the machine really is follows from the first operation, whatever tool it was done with. How far all
//! this is believed is another question (`opinions.rs`).
//!
//! Durable writes and cold reads are means over the quiet phases of the traces that were recorded up to
//! 2026-11-18 (`benches/README.md`), corrected for what became faster after them (small files are one write, and one read into a huge
//! page, but not yet that the caller's own thread makes these requests). Relaxed writes and warm reads are round numbers, without bends.
//!
//! Levels are kept relative to this table, so a change here changes what a saved state means:
//! raise [`VERSION`](crate::plan::checkpoint::VERSION) with it.

use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::tool::Tool;

/// Microseconds that any object takes, and gigabytes a second of large ones.
type Cost = (f64, f64);

/// In the order of `Tool::ALL`. Relaxed, buffered is best below 1 MiB and direct from there on.
const DURABLE: [Cost; 5] = [(500.0, 2.0), (490.0, 1.4), NEVER, (620.0, 0.75), (520.0, 1.0)];
const RELAXED: [Cost; 5] = [(100.0, 2.5), (25.0, 2.1), NEVER, (250.0, 1.0), (60.0, 1.4)];
const COLD: [Cost; 5] = [(170.0, 3.0), (150.0, 1.8), (130.0, 2.0), (310.0, 2.0), (180.0, 2.2)];
const WARM: [Cost; 5] = [(110.0, 3.0), (20.0, 6.0), (25.0, 8.0), (150.0, 2.5), (40.0, 4.0)];

/// Nothing is written with a mapping.
const NEVER: Cost = (1e6, 1e-3);

/// By which factor a time differs from that, at [`BENT_AT`].
type Bends = [f64; 6];

/// Binary logarithms of the sizes of bends: 4 KiB, 64 KiB, 1, 16 and 128 MiB, 1 GiB.
const BENT_AT: [f64; 6] = [12.0, 16.0, 20.0, 24.0, 27.0, 30.0];
const STRAIGHT: Bends = [1.0; 6];
const DURABLE_BENDS: [Bends; 5] = [
    STRAIGHT,
    [1.0, 1.0, 1.0, 0.97, 1.04, 1.12],
    STRAIGHT,
    [1.0, 1.0, 0.8, 0.77, 0.95, 1.2],
    [1.0, 1.0, 0.86, 0.75, 0.96, 1.22],
];
const COLD_BENDS: [Bends; 5] = [
    STRAIGHT,
    [1.0, 1.12, 1.3, 0.95, 1.0, 1.02],
    [1.0, 1.27, 1.4, 1.05, 0.78, 0.87],
    [1.15, 1.29, 1.2, 0.73, 1.0, 1.2],
    [1.13, 1.37, 1.05, 0.74, 1.03, 2.4],
];

fn bends(situation: Situation) -> Option<&'static [Bends; 5]> {
    match situation {
        Situation::Durable => Some(&DURABLE_BENDS),
        Situation::Cold => Some(&COLD_BENDS),
        Situation::Relaxed | Situation::Warm => None,
    }
}

/// Of how much tools differ, the part that is expected where nothing is as in the table.
const UNLIKE_PART: f64 = 0.3;

/// What is expected of a machine that is like none of those that the table was made on, relative to it:
/// no bends, and tools that are closer to one another.
pub(super) fn ln_unlike(situation: Situation, tool: Tool, octave: f64) -> f64 {
    let straight = |tool| ln_straight(situation, tool, octave.exp2());
    let differs = straight(tool) - straight(Tool::Direct);
    (UNLIKE_PART - 1.0) * differs - ln_bend(situation, tool, octave)
}

/// Natural logarithm of the factor by which a tool is expected to differ from a latency and a bandwidth.
fn ln_bend(situation: Situation, tool: Tool, octave: f64) -> f64 {
    let Some(bends) = bends(situation).map(|bends| &bends[tool as usize]) else { return 0.0 };
    let above = BENT_AT.iter().position(|at| *at >= octave).unwrap_or(BENT_AT.len() - 1);
    let below = above.saturating_sub(1);
    let [one, other] = [below, above].map(|at| bends[at].ln());
    let apart = (BENT_AT[above] - BENT_AT[below]).max(1.0);
    let part = ((octave - BENT_AT[below]) / apart).clamp(0.0, 1.0);
    one + part * (other - one)
}

/// Natural logarithm of the seconds expected.
pub(super) fn ln_seconds(situation: Situation, tool: Tool, bytes: u64) -> f64 {
    let bytes = bytes as f64;
    ln_straight(situation, tool, bytes) + ln_bend(situation, tool, bytes.max(1.0).log2())
}

/// The same without bends.
fn ln_straight(situation: Situation, tool: Tool, bytes: f64) -> f64 {
    let table = match situation {
        Situation::Durable => &DURABLE,
        Situation::Relaxed => &RELAXED,
        Situation::Cold => &COLD,
        Situation::Warm => &WARM,
    };
    let (micros, gigabytes) = table[tool as usize];
    (micros * 1e-6 + bytes / (gigabytes * 1e9)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(situation: Situation, bytes: u64) -> Tool {
        let seconds = |tool: &Tool| ln_seconds(situation, *tool, bytes);
        let order = |a: &Tool, b: &Tool| seconds(a).total_cmp(&seconds(b));
        Tool::ALL.into_iter().min_by(order).unwrap()
    }

    #[test]
    fn direct_is_expected_best_for_large_objects_and_buffered_for_small_relaxed_ones() {
        for power in 0..=36 {
            let relaxed = if power < 20 { Tool::Buffered } else { Tool::Direct };
            assert_eq!(best(Situation::Relaxed, 1 << power), relaxed, "2^{power}");
            if power >= 20 {
                assert_eq!(best(Situation::Durable, 1 << power), Tool::Direct, "2^{power}");
                assert_eq!(best(Situation::Cold, 1 << power), Tool::Direct, "2^{power}");
            }
        }
    }
}
