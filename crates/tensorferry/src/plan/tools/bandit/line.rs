//! How a tool's seconds grow with the size: a latency and a bandwidth, fitted over all its classes.
//!
//! What is fitted are two factors on the built-in table, one on the latency and one on the seconds a
//! byte, as logarithms: whatever comes out is positive, and a tool without values keeps the factors it
//! started from. A class counts by how sure its level is, and no line is trusted to be straighter than
//! `MISFIT`.

/// Variance of levels around the straightest line: caches, chunks and batches bend it.
pub(super) const MISFIT: f64 = 0.03;
/// Gauss and Newton's steps; the sum of squares is all but flat after two.
const STEPS: usize = 4;

/// One class as the fit sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// Share of the latency in the seconds that the table expects.
    pub(super) latency: f64,
    pub(super) level: f64,
    pub(super) variance: f64,
}

/// Logarithms of the two factors, and their covariance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    factors: [f64; 2],
    /// Of latency, of both, of bandwidth.
    covariance: [f64; 3],
}

impl Line {
    /// Before there are values: each factor unknown by `apart`, and both alike by `common`.
    pub(super) fn new(factors: [f64; 2], apart: f64, common: f64) -> Self {
        Self { factors, covariance: [apart + common, common, apart + common] }
    }

    /// The start, corrected by points.
    pub(super) fn fit(self, points: &[Point]) -> Self {
        (0..STEPS).fold(self, |line, _| self.step(line.factors, points))
    }

    /// Level and variance where the latency has that share in the table.
    pub(super) fn at(&self, latency: f64) -> (f64, f64) {
        let (level, [a, b]) = bend(self.factors, latency);
        let [aa, ab, bb] = self.covariance;
        (level, a * a * aa + 2.0 * a * b * ab + b * b * bb)
    }

    pub(super) fn factors(&self) -> [f64; 2] {
        self.factors
    }

    /// The least squares of what is linear near `factors`.
    fn step(&self, factors: [f64; 2], points: &[Point]) -> Self {
        let [a, b] = self.factors;
        let mut matrix = inverse(self.covariance);
        let [aa, ab, bb] = matrix;
        let mut right = [aa * a + ab * b, ab * a + bb * b];
        for point in points {
            let (level, slope) = bend(factors, point.latency);
            let [a, b] = slope;
            let weight = 1.0 / (point.variance + MISFIT);
            let target = point.level - level + a * factors[0] + b * factors[1];
            matrix = [
                matrix[0] + weight * a * a,
                matrix[1] + weight * a * b,
                matrix[2] + weight * b * b,
            ];
            right = [right[0] + weight * a * target, right[1] + weight * b * target];
        }
        let covariance = inverse(matrix);
        let [aa, ab, bb] = covariance;
        let factors = [aa * right[0] + ab * right[1], ab * right[0] + bb * right[1]];
        Self { factors, covariance }
    }
}

/// Of a symmetric matrix, given as its upper half.
fn inverse([aa, ab, bb]: [f64; 3]) -> [f64; 3] {
    let determinant = aa * bb - ab * ab;
    [bb / determinant, -ab / determinant, aa / determinant]
}

/// The level that two factors give, and by how much each moves it.
fn bend([latency, bandwidth]: [f64; 2], share: f64) -> (f64, [f64; 2]) {
    // The larger factor is taken out, so that no exponential overflows.
    let top = latency.max(bandwidth);
    let (a, b) = (share * (latency - top).exp(), (1.0 - share) * (bandwidth - top).exp());
    let sum = (a + b).max(f64::MIN_POSITIVE);
    (top + sum.ln(), [a / sum, b / sum])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one millisecond and one gigabyte a second, and a tool with other numbers.
    fn points(sizes: &[f64], latency: f64, bandwidth: f64) -> Vec<Point> {
        let point = |size: &f64| Point {
            latency: 1e-3 / (1e-3 + size * 1e-9),
            level: ((latency * 1e-3 + size * 1e-9 / bandwidth) / (1e-3 + size * 1e-9)).ln(),
            variance: 1e-3,
        };
        sizes.iter().map(point).collect()
    }

    #[test]
    fn a_latency_and_a_bandwidth_are_found_from_a_few_sizes() {
        let start = Line::new([0.0; 2], 0.5, 4.0);
        for (latency, bandwidth) in [(1.0, 1.0), (5.0, 2.0), (0.2, 0.5), (20.0, 0.1)] {
            let line = start.fit(&points(&[4e3, 1e5, 1e6, 1e7, 1e8], latency, bandwidth));
            let [small, large] = [line.at(1.0), line.at(0.0)];
            assert!((small.0 - latency.ln()).abs() < 0.1, "{latency}, {bandwidth}: {line:?}");
            assert!((large.0 + bandwidth.ln()).abs() < 0.1, "{latency}, {bandwidth}: {line:?}");
            assert!(small.1 < 0.05 && large.1 < 0.05, "{line:?}");
        }
    }

    #[test]
    fn small_sizes_say_little_of_the_bandwidth_and_nothing_keeps_the_start() {
        let start = Line::new([0.3, -0.2], 0.5, 0.0);
        let line = start.fit(&points(&[1e3, 2e3, 4e3], 3.0, 1.0));
        assert!((line.at(1.0).0 - 3f64.ln()).abs() < 0.1, "{line:?}");
        assert!((line.at(0.0).0 + 0.2).abs() < 0.1 && line.at(0.0).1 > 0.4, "{line:?}");
        assert!((start.fit(&[]).at(0.0).0 + 0.2).abs() < 1e-9);
    }

    #[test]
    fn whatever_the_points_a_line_is_finite() {
        for level in [-60.0, 0.0, 60.0] {
            for latency in [0.0, 1e-12, 0.5, 1.0] {
                let point = Point { latency, level, variance: 0.0 };
                let other = Point { latency: 1.0 - latency, level: -level, variance: 0.5 };
                let line = Line::new([0.0; 2], 1.0, 4.0).fit(&[point, other]);
                let (level, variance) = line.at(latency);
                assert!(level.is_finite() && variance.is_finite() && variance >= 0.0, "{line:?}");
            }
        }
    }
}
