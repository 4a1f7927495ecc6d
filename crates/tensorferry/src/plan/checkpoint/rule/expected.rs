//! The rule: what each tool is expected to take, before anything was measured here.
//!
//! Medians on a local solid-state disk, by situation and size. Only how tools compare matters: how fast
//! the machine is follows from the first operation, whatever tool it was done with. Between two sizes
//! the table is straight in logarithms; smaller objects take as long as the smallest here, larger ones as
//! much longer as they are larger.
//!
//! What is remembered is relative to this table, so whoever changes it raises
//! [`VERSION`](crate::plan::checkpoint::VERSION).

use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::tool::Tool;

/// Microseconds at [`SIZES`].
type Times = [f64; 6];

/// Binary logarithms of 4 KiB, 64 KiB, 1, 16 and 128 MiB, 1 GiB.
const SIZES: Times = [12.0, 16.0, 20.0, 24.0, 27.0, 30.0];

/// In the order of `Tool::ALL`.
const DURABLE: [Times; 5] = [
    [500.0, 530.0, 1020.0, 8900.0, 67_600.0, 537e3],
    [490.0, 540.0, 1240.0, 12_100.0, 100e3, 860e3],
    NEVER,
    [620.0, 710.0, 1620.0, 17_700.0, 170e3, 1720e3],
    [520.0, 590.0, 1350.0, 13_000.0, 129e3, 1310e3],
];
const RELAXED: [Times; 5] = [
    [100.0, 150.0, 900.0, 12_000.0, 85e3, 640e3],
    [35.0, 60.0, 400.0, 6000.0, 55e3, 470e3],
    NEVER,
    [250.0, 320.0, 1000.0, 15_000.0, 134e3, 1074e3],
    [70.0, 110.0, 600.0, 8000.0, 80e3, 767e3],
];
const COLD: [Times; 5] = [
    [170.0, 190.0, 520.0, 5800.0, 44_900.0, 358e3],
    [150.0, 210.0, 950.0, 9000.0, 74_700.0, 609e3],
    [130.0, 200.0, 920.0, 8900.0, 52_500.0, 467e3],
    [360.0, 440.0, 1000.0, 6300.0, 67_400.0, 645e3],
    [200.0, 290.0, 690.0, 5800.0, 63_000.0, 1170e3],
];
const WARM: [Times; 5] = [
    [110.0, 130.0, 460.0, 5700.0, 44_800.0, 358e3],
    [40.0, 45.0, 150.0, 2500.0, 21_000.0, 170e3],
    [47.0, 55.0, 195.0, 3000.0, 24_000.0, 190e3],
    [240.0, 260.0, 520.0, 6900.0, 53_800.0, 430e3],
    [100.0, 120.0, 300.0, 4200.0, 33_600.0, 268e3],
];

/// Nothing is written with a mapping.
const NEVER: Times = [1e9; 6];

/// How many observations the table counts for, beside what is seen of a tool. Of a tool that was added it
/// knows nothing.
pub(super) fn weight(tool: Tool) -> f64 {
    if matches!(tool, Tool::Added(_)) { 0.0 } else { 1.0 }
}

/// Natural logarithm of the seconds expected; of a tool that was added, those of the best of ours.
pub(super) fn ln_seconds(situation: Situation, tool: Tool, bytes: u64) -> f64 {
    let table = match situation {
        Situation::Durable => &DURABLE,
        Situation::Relaxed => &RELAXED,
        Situation::Cold => &COLD,
        Situation::Warm => &WARM,
    };
    let octave = (bytes.max(1) as f64).log2().max(SIZES[0]);
    match table.get(tool.number()) {
        Some(times) => ln_time(times, octave),
        None => table.iter().map(|times| ln_time(times, octave)).fold(f64::INFINITY, f64::min),
    }
}

fn ln_time(times: &Times, octave: f64) -> f64 {
    let ln = |at: usize| (times[at] * 1e-6).ln();
    let Some(above) = SIZES.iter().position(|size| *size >= octave) else {
        let last = SIZES.len() - 1;
        return ln(last) + (octave - SIZES[last]) * std::f64::consts::LN_2;
    };
    let below = above.saturating_sub(1);
    let apart = (SIZES[above] - SIZES[below]).max(1.0);
    ln(below) + (octave - SIZES[below]) / apart * (ln(above) - ln(below))
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
    fn the_rule_names_a_tool_that_can_for_every_situation_and_size() {
        for power in 0..64 {
            for situation in Situation::ALL {
                assert!(situation.admits(best(situation, 1 << power)), "{situation} 2^{power}");
            }
        }
    }

    #[test]
    fn large_durable_writes_and_cold_reads_go_around_the_page_cache_and_all_others_through_it() {
        for power in 20..=36 {
            assert_eq!(best(Situation::Durable, 1 << power), Tool::Direct, "2^{power}");
            assert_eq!(best(Situation::Cold, 1 << power), Tool::Direct, "2^{power}");
        }
        for power in 0..=36 {
            assert_eq!(best(Situation::Relaxed, 1 << power), Tool::Buffered, "2^{power}");
            assert_eq!(best(Situation::Warm, 1 << power), Tool::Buffered, "2^{power}");
        }
    }

    #[test]
    fn larger_objects_are_never_expected_to_take_less() {
        for situation in Situation::ALL {
            for tool in Tool::ALL.into_iter().filter(|tool| situation.admits(*tool)) {
                let times = (0..=640).map(|tenths| f64::from(tenths) / 10.0);
                let times = times.map(|octave| {
                    ln_seconds(situation, tool, octave.exp2().min(u64::MAX as f64) as u64)
                });
                assert!(times.collect::<Vec<_>>().is_sorted(), "{situation} {tool}");
            }
        }
    }
}
