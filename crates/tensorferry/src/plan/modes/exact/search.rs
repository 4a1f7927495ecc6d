//! The frontier: layer by layer, every way to begin that may still be the best.

use super::bound::{Bounds, Known};
use super::tail::Tail;
use crate::plan::modes::Mode;
use crate::plan::simulate::parameters::{Clocks, Cost, Simulator};

/// States of all layers together: bounds the time of a search.
pub const STATES_MAX: usize = 12_000;
/// States of one layer: at least, and at most.
pub const WIDTH: (usize, usize) = (12, 1 << 14);
/// So few layers get the most states.
const FEW: usize = 16;
/// States with which one is compared, best first. Comparing with more would take longer than it saves.
const RIVALS: usize = 12;
/// Parts of an iteration by which a plan has to be faster to be looked for: less is rounding.
const ROUNDING: f64 = 1e-12;

/// The best modes, and by how much others could at most be faster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) modes: Vec<Mode>,
    pub(super) gap_seconds: f64,
}

/// One way to decide about the first layers.
#[derive(Debug, Clone, Copy)]
struct State {
    known: Known,
    bound: f64,
    /// Where its last decision stands in the trail.
    trail: u32,
    mode: Mode,
}

/// Decisions, each with the one before.
struct Trail(Vec<(u32, Mode)>);

/// Before the first decision.
const START: u32 = u32::MAX;

/// The search. `best` are modes that fit, to begin with.
pub(super) fn search(
    simulator: &Simulator,
    capacity: u64,
    bounds: &Bounds,
    best: (Vec<Mode>, f64),
) -> Found {
    let costs = simulator.costs();
    let width = match costs.len() {
        0..=FEW => WIDTH.1,
        many => (STATES_MAX / many).clamp(WIDTH.0, WIDTH.1),
    };
    let (mut modes, mut seconds) = best;
    let mut trail = Trail(Vec::new());
    let known = Known { layers: 0, compute: 0.0, inwards: 0.0, bytes: 0, tail: Tail::NONE };
    let mut states = vec![State { known, bound: 0.0, trail: START, mode: Mode::Gfgb }];
    let (mut updates, mut dropped) = (0.0, f64::INFINITY);
    let mut next = Vec::new();
    for cost in costs {
        updates += cost.update;
        next.clear();
        for state in &states {
            let enough = seconds - seconds * ROUNDING;
            let all = state.successors(cost, updates, capacity);
            let judged = all.map(|state| State { bound: bounds.of(&state.known), ..state });
            next.extend(judged.filter(|state| state.bound < enough));
        }
        dropped = dropped.min(thin(&next, &mut states, width));
        for state in &mut states {
            state.trail = trail.add(state.trail, state.mode);
        }
    }
    let ends = states.iter().map(|state| (state.end(), state.trail));
    if let Some((end, at)) = ends.min_by(|a, b| a.0.total_cmp(&b.0))
        && end < seconds
    {
        (modes, seconds) = (trail.modes(at), end);
    }
    Found { modes, gap_seconds: (seconds - dropped).max(0.0) }
}

impl State {
    /// With one more layer in each mode that fits.
    fn successors<'a>(
        &'a self,
        cost: &'a Cost,
        updates: f64,
        capacity: u64,
    ) -> impl Iterator<Item = Self> + 'a {
        let modes = match cost.copy {
            None => &Mode::ALL[..1],
            // Copied for backward only, it would take room and gain nothing.
            Some(copy)
                if cost.direct_backward <= cost.backward && cost.direct_backward_link <= copy =>
            {
                &Mode::ALL[..2]
            }
            Some(_) => &Mode::ALL[..],
        };
        let room = capacity - self.known.bytes;
        let fits = move |mode: &&Mode| !mode.is_copied() || cost.bytes <= room;
        modes.iter().filter(fits).map(move |mode| self.with(cost, *mode, updates))
    }

    fn with(&self, cost: &Cost, mode: Mode, updates: f64) -> Self {
        let Known { layers, compute, inwards, bytes, tail } = self.known;
        let mut clocks = Clocks { compute, inwards, ..Default::default() };
        clocks.forward(cost, mode);
        let known = Known {
            layers: layers + 1,
            compute: clocks.compute,
            inwards: clocks.inwards,
            bytes: bytes + if mode.is_copied() { cost.bytes } else { 0 },
            tail: tail.after(cost, mode, updates),
        };
        Self { known, mode, ..*self }
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
    fn add(&mut self, before: u32, mode: Mode) -> u32 {
        self.0.push((before, mode));
        (self.0.len() - 1) as u32
    }

    fn modes(&self, mut at: u32) -> Vec<Mode> {
        let mut modes = Vec::new();
        while at != START {
            let (before, mode) = self.0[at as usize];
            modes.push(mode);
            at = before;
        }
        modes.reverse();
        modes
    }
}
