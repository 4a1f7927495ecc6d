//! What is expected of a tool before anything was measured.
//!
//! Seconds are taken as `latency + bytes / bandwidth`. The numbers are round ones for a local solid-state
//! disk. Only the ratios between tools and the bend between small and large objects matter: how fast
//! the machine really is follows from the first operation, whatever tool it was done with. They are
//! weak: a look or two outweighs them.
//!
//! Levels are kept relative to this table, so a change here changes what a saved state means:
//! raise [`VERSION`](crate::plan::tools::VERSION) with it.

use crate::plan::tools::ask::Situation;
use crate::plan::tools::tool::Tool;

/// Microseconds that any object takes, and gigabytes a second of large ones.
type Cost = (f64, f64);

/// In the order of `Tool::ALL`. Relaxed, buffered is best below 1 MiB and direct from there on.
const DURABLE: [Cost; 5] = [(400.0, 1.8), (450.0, 1.4), NEVER, (700.0, 0.8), (500.0, 1.0)];
const RELAXED: [Cost; 5] = [(100.0, 2.5), (25.0, 2.1), NEVER, (250.0, 1.0), (60.0, 1.4)];
const COLD: [Cost; 5] = [(120.0, 3.0), (110.0, 2.0), (150.0, 1.8), (250.0, 1.2), (130.0, 1.6)];
const WARM: [Cost; 5] = [(110.0, 3.0), (20.0, 6.0), (25.0, 8.0), (150.0, 2.5), (40.0, 4.0)];

/// Nothing is written with a mapping.
const NEVER: Cost = (1e6, 1e-3);

/// Natural logarithm of the seconds expected.
pub(super) fn ln_seconds(situation: Situation, tool: Tool, bytes: u64) -> f64 {
    let table = match situation {
        Situation::Durable => &DURABLE,
        Situation::Relaxed => &RELAXED,
        Situation::Cold => &COLD,
        Situation::Warm => &WARM,
    };
    let (micros, gigabytes) = table[tool as usize];
    (micros * 1e-6 + bytes as f64 / (gigabytes * 1e9)).ln()
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
