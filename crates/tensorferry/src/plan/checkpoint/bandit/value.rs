//! What another look at a tool is worth.

/// By how much, on average, a normal variable of standard deviation `spread` falls below a point
/// that lies `gap` under its mean. The relative saving that a look may bring, before it costs.
pub(super) fn expected_saving(gap: f64, spread: f64) -> f64 {
    if spread <= 0.0 {
        return (-gap).max(0.0);
    }
    let z = gap / spread;
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (spread * (density - z * upper_tail(z))).max(0.0)
}

/// The chance that a standard normal variable exceeds `z`: Zelen and Severo's polynomial, right to
/// seven places.
fn upper_tail(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let tail = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_tables() {
        for (z, tail) in [(0.0, 0.5), (1.0, 0.158_655_3), (2.0, 0.022_750_1), (-1.0, 0.841_344_7)] {
            assert!((upper_tail(z) - tail).abs() < 1e-6, "{z}");
        }
    }

    #[test]
    fn a_saving_grows_with_doubt_and_shrinks_with_the_gap() {
        assert!((expected_saving(0.0, 1.0) - 0.398_942).abs() < 1e-5);
        assert!((expected_saving(1.0, 1.0) - 0.083_315).abs() < 1e-5);
        assert!((expected_saving(-3.0, 0.0) - 3.0).abs() < 1e-12);
        let mut before = f64::INFINITY;
        for step in 0..60 {
            let saving = expected_saving(f64::from(step) * 0.1, 0.5);
            assert!(saving >= 0.0 && saving <= before);
            before = saving;
        }
    }
}
