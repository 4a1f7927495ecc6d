//! The frontier: layer by layer, every way to begin that may still be the best.

use super::bound::{Bounds, Known};
use super::tail::Tail;
use super::{Decided, Problem};
use crate::plan::parameters::simulate::{Clocks, Cost};
use crate::plan::parameters::{Gradient, Mode};

/// States of all layers together, if there are `SOME` or more: bounds the time of a search.
pub const STATES_MAX: usize = 12_000;
/// States of one layer: at least, and at most.
pub const WIDTH: (usize, usize) = (12, 1 << 14);
/// So few layers get the most states.
const FEW: usize = 16;
/// Fewer get [`MORE`] times as many.
const SOME: usize = 64;
/// As above.
const MORE: usize = 5;
/// States with which one is compared, best first. Comparing with more would take longer than it saves.
const RIVALS: usize = 12;
/// Parts of an iteration by which a plan has to be faster to be looked for: less is rounding.
const ROUNDING: f64 = 1e-12;

/// One way to decide about the first layers.
#[derive(Debug, Clone, Copy)]
struct State {
    known: Known,
    bound: f64,
    /// Where its last decision stands in the trail.
    trail: u32,
    choice: (Mode, Gradient),
}

/// Decisions, each with the one before.
struct Trail(Vec<(u32, (Mode, Gradient))>);

/// Before the first decision.
const START: u32 = u32::MAX;

/// States of a layer, where there are so many.
pub(super) fn width(layers: usize) -> usize {
    let states = if layers < SOME { MORE * STATES_MAX } else { STATES_MAX };
    if layers <= FEW { WIDTH.1 } else { (states / layers).clamp(WIDTH.0, WIDTH.1) }
}

/// The search: what it finds, and before when no other could end unless it is found too. `best` is what is known
/// to fit, to begin with.
pub(super) fn search(
    problem: &Problem,
    bounds: &Bounds,
    mut best: Decided,
    width: usize,
) -> (Decided, f64) {
    let mut trail = Trail(Vec::new());
    let mut states = vec![State::START];
    let (mut updates, mut dropped) = (0.0, f64::INFINITY);
    let mut next = Vec::new();
    for layer in &problem.layers {
        updates += layer.quickest.update;
        next.clear();
        let enough = best.seconds - best.seconds * ROUNDING;
        for state in &states {
            for cost in layer.all() {
                let all = state.successors(cost, updates, problem);
                let judged = all.map(|state| State { bound: bounds.of(&state.known), ..state });
                next.extend(judged.filter(|state| state.bound < enough));
            }
        }
        dropped = dropped.min(thin(&next, &mut states, width));
        for state in &mut states {
            state.trail = trail.add(state.trail, state.choice);
        }
    }
    let ends = states.iter().map(|state| (state.end(), state.trail));
    if let Some((end, at)) = ends.min_by(|a, b| a.0.total_cmp(&b.0))
        && end < best.seconds
    {
        best = Decided { choices: trail.choices(at), seconds: end };
    }
    (best, dropped)
}

impl State {
    /// Before the first decision.
    const START: Self = Self {
        known: Known { layers: 0, compute: 0.0, inwards: 0.0, bytes: 0, kept: 0, tail: Tail::NONE },
        bound: 0.0,
        trail: START,
        choice: (Mode::Gfgb, Gradient::None),
    };

    /// With one more layer in each mode that fits beside its gradient.
    fn successors<'a>(
        &'a self,
        cost: &'a Cost,
        updates: f64,
        problem: &Problem,
    ) -> impl Iterator<Item = Self> + 'a {
        let modes = match cost.copy {
            _ if self.known.kept + cost.kept > problem.reserve => &[],
            None => &Mode::ALL[..1],
            // Copied for backward only, it would take room and gain nothing.
            Some(copy)
                if cost.direct_backward <= cost.backward && cost.direct_backward_link <= copy =>
            {
                &Mode::ALL[..2]
            }
            Some(_) => &Mode::ALL[..],
        };
        let room = problem.capacity.checked_sub(self.known.bytes + cost.kept);
        let fits =
            move |mode: &&Mode| room.is_some_and(|room| !mode.is_copied() || cost.bytes <= room);
        modes.iter().filter(fits).map(move |mode| self.with(cost, *mode, updates))
    }

    fn with(&self, cost: &Cost, mode: Mode, updates: f64) -> Self {
        let Known { layers, compute, inwards, bytes, kept, tail } = self.known;
        let mut clocks = Clocks { compute, inwards, ..Default::default() };
        clocks.forward(cost, mode);
        let known = Known {
            layers: layers + 1,
            compute: clocks.compute,
            inwards: clocks.inwards,
            bytes: bytes + cost.kept + if mode.is_copied() { cost.bytes } else { 0 },
            kept: kept + cost.kept,
            tail: tail.after(cost, mode, updates),
        };
        Self { known, choice: (mode, cost.gradient), ..*self }
    }

    /// When the iteration ends, once all layers have their modes.
    fn end(&self) -> f64 {
        let Known { compute, inwards, tail, .. } = self.known;
        (compute + tail.compute).max(inwards + tail.inwards)
    }

    /// Whether the other is behind in everything, or level.
    fn covers(&self, other: &Self) -> bool {
        let (a, b) = (&self.known, &other.known);
        a.compute <= b.compute
            && a.inwards <= b.inwards
            && a.tail.compute <= b.tail.compute
            && a.tail.inwards <= b.tail.inwards
            && a.tail.outwards <= b.tail.outwards
            && a.bytes <= b.bytes
            && a.kept <= b.kept
    }
}

/// Leaves out states that another covers and, beyond `width`, those with the worst bounds; the best bound
/// of these.
fn thin(states: &[State], kept: &mut Vec<State>, width: usize) -> f64 {
    let mut order: Vec<(f64, f64, u32)> = states
        .iter()
        .zip(0..)
        .map(|(state, place)| (state.bound, state.known.compute, place))
        .collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    kept.clear();
    for (bound, _, place) in order {
        let state = &states[place as usize];
        let count = kept.len();
        let is_covered = kept[..count.min(RIVALS)].iter().any(|rival| rival.covers(state))
            || kept[count.saturating_sub(RIVALS)..].iter().any(|rival| rival.covers(state));
        if is_covered {
            continue;
        }
        if count == width {
            return bound;
        }
        kept.push(*state);
    }
    f64::INFINITY
}

impl Trail {
    fn add(&mut self, before: u32, choice: (Mode, Gradient)) -> u32 {
        self.0.push((before, choice));
        (self.0.len() - 1) as u32
    }

    fn choices(&self, mut at: u32) -> Vec<(Mode, Gradient)> {
        let mut choices = Vec::new();
        while at != START {
            let (before, choice) = self.0[at as usize];
            choices.push(choice);
            at = before;
        }
        choices.reverse();
        choices
    }
}
