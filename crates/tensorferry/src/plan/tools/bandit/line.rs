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
