//! From a plan to better ones, move by move.

use super::super::plan::Place;
use super::super::profile::Profile;
use super::forms;
use super::score::Score;
use crate::plan::activations::simulate::Simulator;
use crate::random::SplitMix64;

/// Tensors that are moved at random when nothing makes the plan better.
const SHAKEN_MAX: usize = 6;
/// Of so many climbs, one is from another start and the others are from the best, shaken.
const TURNS: usize = 4;
/// Where the sequence of moves begins.
const SEED: u64 = 0x5eed;

pub(super) struct Climb<'a> {
    profile: &'a Profile,
    simulator: &'a mut Simulator,
    /// For each tensor: how it may be offloaded.
    forms: Vec<Vec<Place>>,
    runs_left: usize,
    random: SplitMix64,
}

/// A plan and what it comes to.
#[derive(Clone)]
struct Point {
    places: Vec<Place>,
    score: Score,
}

impl<'a> Climb<'a> {
    pub(super) fn new(profile: &'a Profile, simulator: &'a mut Simulator, runs: usize) -> Self {
        let forms = (0..profile.tensors.len()).map(|tensor| forms(profile, tensor)).collect();
        Self { profile, simulator, forms, runs_left: runs, random: SplitMix64::new(SEED) }
    }

    /// The best that is found from there. Every start is tried, so none is better.
    pub(super) fn best(mut self, starts: Vec<Vec<Place>>) -> Vec<Place> {
        let mut points: Vec<Point> = Vec::new();
        for places in starts {
            let score = self.score(&places, Score::WORST);
            points.push(Point { places, score });
        }
        points.sort_by_key(|point| point.score);
        let mut best = points[0].clone();
        self.climb(&mut best);
        for turn in 1.. {
            if self.runs_left == 0 || best.score == Score::NOTHING_LEFT {
                break;
            }
            let mut other = if turn % TURNS == 0 {
                points[turn / TURNS % points.len()].clone()
            } else {
                self.shaken(&best)
            };
            self.climb(&mut other);
            if other.score < best.score {
                best = other;
            }
        }
        best.places
    }

    /// Moves while that helps.
    fn climb(&mut self, point: &mut Point) {
        while self.runs_left > 0 && (self.move_any(point) || self.exchange_any(point)) {}
    }

    /// Each tensor elsewhere, by itself; whether any made the plan better.
    fn move_any(&mut self, point: &mut Point) -> bool {
        let count = point.places.len();
        let first = self.random.place(count);
        let mut is_better = false;
        for tensor in (0..count).map(|at| (first + at) % count) {
            for place in self.elsewhere(tensor, point.places[tensor]) {
                let before = std::mem::replace(&mut point.places[tensor], place);
                if self.accepts(point) {
                    is_better = true;
                    break;
                }
                point.places[tensor] = before;
            }
        }
        is_better
    }

    /// Pairs of tensors at each distance, kept for one another, until a distance made the plan better.
    fn exchange_any(&mut self, point: &mut Point) -> bool {
        let count = point.places.len();
        let (first, nearest) = (self.random.place(count), self.random.place(count));
        for distance in (0..count).map(|at| (nearest + at) % count) {
            let mut is_better = false;
            for tensor in (0..count).map(|at| (first + at) % count) {
                let other = self.exchanged(point, tensor, (tensor + distance) % count);
                is_better |= other.is_some_and(|places| self.replaces(point, places));
            }
            if is_better || self.runs_left == 0 {
                return is_better;
            }
        }
        false
    }

    /// Moves one tensor, and others from `from` on the other way, so that about as much is kept as before.
    fn exchanged(&self, point: &Point, tensor: usize, from: usize) -> Option<Vec<Place>> {
        let is_kept = point.places[tensor] == Place::Keep;
        if from == tensor || (point.places[from] == Place::Keep) == is_kept {
            return None;
        }
        let mut places = point.places.clone();
        places[tensor] = if is_kept { self.forms[tensor][0] } else { Place::Keep };
        let count = places.len();
        let bytes = |id: usize| self.profile.tensors[id].bytes;
        let mut left = bytes(tensor);
        for other in (0..count).map(|at| (from + at) % count).filter(|other| *other != tensor) {
            if is_kept && point.places[other] != Place::Keep && bytes(other) <= left {
                places[other] = Place::Keep;
                left -= bytes(other);
            } else if !is_kept && point.places[other] == Place::Keep && left > 0 {
                places[other] = self.forms[other][0];
                left = left.saturating_sub(bytes(other));
            }
        }
        Some(places)
    }

    /// A few tensors elsewhere, whatever that costs.
    fn shaken(&mut self, best: &Point) -> Point {
        let mut point = best.clone();
        let count = point.places.len();
        for _ in 0..2 + self.random.place(SHAKEN_MAX - 1) {
            let tensor = self.random.place(count);
            let elsewhere = self.elsewhere(tensor, point.places[tensor]);
            point.places[tensor] = elsewhere[self.random.place(elsewhere.len())];
        }
        point.score = self.score(&point.places, Score::WORST);
        point
    }

    fn elsewhere(&self, tensor: usize, place: Place) -> Vec<Place> {
        let all = std::iter::once(&Place::Keep).chain(&self.forms[tensor]);
        all.copied().filter(|other| *other != place).collect()
    }

    /// Whether the places are better than the score beside them, which then is theirs.
    fn accepts(&mut self, point: &mut Point) -> bool {
        let score = self.score(&point.places, point.score);
        let is_better = score < point.score;
        if is_better {
            point.score = score;
        }
        is_better
    }

    fn replaces(&mut self, point: &mut Point, places: Vec<Place>) -> bool {
        let mut other = Point { places, score: point.score };
        let is_better = self.accepts(&mut other);
        if is_better {
            *point = other;
        }
        is_better
    }

    /// What the places come to; the worst if that is certainly worse than `known`, or nothing may be tried
    /// any more.
    fn score(&mut self, places: &[Place], known: Score) -> Score {
        if self.runs_left == 0 {
            return Score::WORST;
        }
        self.runs_left -= 1;
        let run = self.simulator.run(places, known.stall_max(), &mut ());
        run.map_or(Score::WORST, |prediction| Score::of(&prediction))
    }
}
