//! Seconds that one thread spends on a sample, by how many threads do the same at the time.
//!
//! Linear between measured points. A *point* is a running mean that forgets: a value weighs less with
//! every later one. Points at counts that are not in use can't follow what changes, so they are dropped:
//! at once when the mean of the latest values at a count in use leaves the mean of all by a factor of
//! [`CHANGED`], for then the machine is another one; and after very long anyway, so that a bad hour is not
//! held against a count forever.
//!
//! Beyond the points: fewer threads are in each other's way less, but are never taken to do more together
//! than the fewest that were measured; more threads are as slow as the last slope says, and not slower at
//! all while there is a single point. That is optimistic, so a count that would help is tried, and measured.

/// Values over which a mean reaches back, and the mean of the latest ones.
pub const WINDOW: f64 = 256.0;
const LATEST_WINDOW: f64 = 64.0;
/// The latest values lie off by this factor, either way, where they are no accident.
pub const CHANGED: f64 = 1.5;
/// Values that a mean counts for after a change, so that it comes to what holds now soon.
const CHANGED_WEIGHT: f64 = 16.0;
/// A point that is younger than so many values was measured in the change, not before it.
const FRESH: u64 = 256;
/// Thread counts that a model remembers; of more, the one not seen for longest goes.
pub const POINTS_MAX: usize = 64;
/// Values after which a point that got none of them is dropped.
pub const FORGOTTEN: u64 = 1 << 14;
/// What a clock shows lies between these.
const SECONDS: (f64, f64) = (1e-9, 1e6);

/// Seconds a sample by thread count, for samples of about one size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// By thread count, no count twice.
    points: Vec<Point>,
    /// Values so far: the clock by which points age.
    values: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    threads: usize,
    seconds: f64,
    /// Of the latest values only.
    latest: f64,
    /// Values in the mean, each counted for what is not forgotten of it.
    weight: f64,
    /// When its last own value came.
    seen: u64,
}

impl Model {
    /// Whether nothing was measured yet.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// One thread took `seconds` for a sample while `threads` did such work, itself included. What no
    /// clock shows is left out.
    pub fn observe(&mut self, threads: usize, seconds: f64) {
        if threads == 0 || !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        let seconds = seconds.clamp(SECONDS.0, SECONDS.1);
        self.values += 1;
        let now = self.values;
        match self.points.binary_search_by_key(&threads, |point| point.threads) {
            Ok(at) => {
                if self.points[at].follow(seconds, now) {
                    self.points.retain(|point| now - point.seen < FRESH);
                }
            }
            Err(at) => self.points.insert(at, Point::new(threads, seconds, now)),
        }
        self.drop_old();
    }

    /// Seconds that one of `threads` threads spends on a sample; nothing before the first value.
    pub fn seconds(&self, threads: usize) -> Option<f64> {
        let above = self.points.partition_point(|point| point.threads < threads);
        let Some(high) = self.points.get(above) else {
            return self.beyond(threads);
        };
        if high.threads == threads {
            return Some(high.seconds);
        }
        if above == 0 {
            return Some(self.below(threads));
        }
        let low = self.points[above - 1];
        Some(low.seconds + low.slope(high) * (threads - low.threads) as f64)
    }

    fn beyond(&self, threads: usize) -> Option<f64> {
        let last = self.points.last()?;
        let slope = self.points.iter().rev().nth(1).map_or(0.0, |before| before.slope(last));
        Some(last.seconds + slope.max(0.0) * (threads - last.threads) as f64)
    }

    /// For fewer threads than the first point, which there is.
    fn below(&self, threads: usize) -> f64 {
        let first = self.points[0];
        let slope = self.points.get(1).map_or(0.0, |second| first.slope(second));
        let same_rate = first.seconds / first.threads as f64;
        first.seconds - slope.clamp(0.0, same_rate) * (first.threads - threads.max(1)) as f64
    }

    fn drop_old(&mut self) {
        let now = self.values;
        self.points.retain(|point| now - point.seen < FORGOTTEN);
        if self.points.len() > POINTS_MAX {
            let oldest = (0..self.points.len()).min_by_key(|at| self.points[*at].seen);
            oldest.map(|at| self.points.remove(at));
        }
    }
}

impl Point {
    fn new(threads: usize, seconds: f64, now: u64) -> Self {
        Self { threads, seconds, latest: seconds, weight: 1.0, seen: now }
    }

    /// Takes a value in; whether the latest ones tell of another machine.
    fn follow(&mut self, seconds: f64, now: u64) -> bool {
        let kept = (1.0 - 1.0 / WINDOW).powf((now - self.seen) as f64);
        self.seen = now;
        self.weight = self.weight * kept + 1.0;
        self.seconds += (seconds - self.seconds) / self.weight;
        self.latest += (seconds - self.latest) / self.weight.min(LATEST_WINDOW);
        let alike = (1.0 / CHANGED..CHANGED).contains(&(self.latest / self.seconds));
        let changed = self.weight > LATEST_WINDOW && !alike;
        if changed {
            self.seconds = self.latest;
            self.weight = CHANGED_WEIGHT;
        }
        changed
    }

    fn slope(&self, other: &Self) -> f64 {
        (other.seconds - self.seconds) / (other.threads - self.threads) as f64
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured(points: &[(usize, f64)]) -> Model {
        let mut model = Model::default();
        for (threads, seconds) in points {
            model.observe(*threads, *seconds);
        }
        model
    }

    fn near(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    #[test]
    fn nothing_is_said_before_the_first_value() {
        assert_eq!(Model::default().seconds(3), None);
        let nonsense = measured(&[(0, 1.0), (2, f64::NAN), (2, f64::INFINITY), (2, -1.0)]);
        assert!(nonsense.is_empty());
    }

    #[test]
    fn between_points_the_time_is_linear() {
        let model = measured(&[(2, 1.0), (6, 3.0)]);
        assert!(near(model.seconds(2), 1.0));
        assert!(near(model.seconds(3), 1.5));
        assert!(near(model.seconds(6), 3.0));
    }

    #[test]
    fn one_point_is_taken_for_all_counts() {
        let model = measured(&[(4, 2.0)]);
        assert!([1, 4, 64].iter().all(|threads| near(model.seconds(*threads), 2.0)));
    }

    #[test]
    fn beyond_the_points_the_slope_goes_on_if_it_rises() {
        let rising = measured(&[(2, 1.0), (4, 2.0)]);
        assert!(near(rising.seconds(6), 3.0));
        let falling = measured(&[(2, 2.0), (4, 1.0)]);
        assert!(near(falling.seconds(6), 1.0));
        assert!(near(falling.seconds(1), 2.0));
    }

    #[test]
    fn fewer_threads_than_measured_never_do_more_together() {
        let steep = measured(&[(4, 1.0), (5, 3.0)]);
        assert!(near(steep.seconds(2), 0.5), "half the threads, each twice as fast: the same rate");
    }

    #[test]
    fn drift_is_followed_within_a_few_windows() {
        let mut model = Model::default();
        (0..1000).for_each(|_| model.observe(2, 1.0));
        (0..1000).for_each(|_| model.observe(2, 4.0));
        assert!((model.seconds(2).unwrap() - 4.0).abs() < 0.1);
    }

    fn often(model: &mut Model, threads: usize, seconds: f64) {
        (0..1000).for_each(|_| model.observe(threads, seconds));
    }

    #[test]
    fn what_was_measured_before_a_change_is_not_believed_after_it() {
        for factor in [0.1, 3.0, 30.0] {
            let mut model = Model::default();
            often(&mut model, 4, 2.0);
            often(&mut model, 2, 1.0);
            often(&mut model, 2, factor);
            assert!(near(model.seconds(4), model.seconds(2).unwrap()), "{factor}");
        }
    }

    #[test]
    fn a_count_that_was_first_tried_in_a_change_is_believed_after_it() {
        let mut model = Model::default();
        often(&mut model, 2, 1.0);
        (0..200).for_each(|_| model.observe(4, 20.0));
        often(&mut model, 2, 10.0);
        assert!(near(model.seconds(4), 20.0));
    }

    #[test]
    fn noise_does_not_make_a_model_forget_the_other_counts() {
        let mut model = Model::default();
        often(&mut model, 4, 2.0);
        (0..5000).for_each(|at| model.observe(2, if at % 10 == 0 { 5.0 } else { 0.5 }));
        assert!(near(model.seconds(4), 2.0));
    }

    #[test]
    fn counts_in_use_by_turns_are_learned_each_for_itself() {
        let mut model = measured(&[(2, 5.0), (4, 0.1)]);
        for _ in 0..2000 {
            model.observe(2, 1.0);
            model.observe(4, 2.0);
        }
        assert!((model.seconds(2).unwrap() - 1.0).abs() < 0.05);
        assert!((model.seconds(4).unwrap() - 2.0).abs() < 0.05);
    }

    #[test]
    fn a_bad_moment_is_not_held_against_a_count_forever() {
        let mut model = measured(&[(8, 100.0)]);
        (0..=FORGOTTEN).for_each(|_| model.observe(4, 1.0));
        assert!(near(model.seconds(8), 1.0));
    }

    #[test]
    fn a_model_keeps_no_more_points_than_it_may() {
        let mut model = Model::default();
        (1..=2 * POINTS_MAX).for_each(|threads| model.observe(threads, threads as f64));
        assert_eq!(model.points.len(), POINTS_MAX);
        assert_eq!(model.points[0].threads, POINTS_MAX + 1, "the first seen went first");
    }

    proptest! {
        #[test]
        fn whatever_was_measured_the_time_is_a_positive_number(
            values in prop::collection::vec((0usize..100, prop::num::f64::ANY), 1..200),
            threads in 0usize..1000,
        ) {
            let model = measured(&values);
            match model.seconds(threads) {
                Some(seconds) => prop_assert!(seconds > 0.0 && seconds.is_finite()),
                None => prop_assert!(model.is_empty()),
            }
        }
    }
}
