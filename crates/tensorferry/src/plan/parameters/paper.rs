//! The paper's planner (section IV-B).
//!
//! *Forward*, algorithm 1: a layer is used in place if that takes no longer than its forward on the device and
//! what of its copy can't be hidden. Otherwise it is copied, and if its copy can't be hidden, earlier copied
//! layers are turned to direct access, from the first that was not tried yet, as long as that makes the time
//! shorter. *Backward*: while the link is idle between the last copy and the first gradient, layers used in
//! place are copied after all, those first whose backward gets shortest.
//!
//! *Misprints*, resolved: the first comparison takes off what compute hides (the paper prints `max(T, 0)`); the
//! time is set after backtracking, not added to; a layer that was turned counts in the time for the next one
//! that is tried; and the first copied layer opens the range of those to try, also if its copy was not hidden.
//!
//! *Where the paper leaves a gap.* It knows no budget. What does not fit is given up: first copies for
//! backward, then copies for forward, those first whose bytes gain least.

use super::plan::Mode;
use crate::plan::parameters::simulate::{Cost, Simulator};

/// The modes, within `capacity` bytes of parameters.
pub(super) fn modes(simulator: &Simulator, capacity: u64) -> Vec<Mode> {
    let costs = simulator.costs();
    let mut forward = Forward::new(costs);
    forward.decide();
    let Forward { mut modes, all, .. } = forward;
    backward(costs, &mut modes, all);
    fit(costs, &mut modes, capacity);
    modes
}

/// Gives up copies until the others fit.
pub(super) fn fit(costs: &[Cost], modes: &mut [Mode], capacity: u64) {
    let copied = |modes: &[Mode]| -> u64 {
        let all = costs.iter().zip(modes).filter(|(_, mode)| mode.is_copied());
        all.map(|(cost, _)| cost.bytes).sum()
    };
    let mut taken = copied(modes);
    for mode in [Mode::Dfgb, Mode::Gfgb] {
        let loss = |layer: usize| {
            let cost: &Cost = &costs[layer];
            let backward = cost.direct_backward - cost.backward;
            let forward = cost.direct_forward - cost.forward;
            let lost = if mode == Mode::Dfgb { backward } else { backward + forward };
            lost / cost.bytes as f64
        };
        let those = (0..modes.len()).filter(|layer| modes[*layer] == mode);
        let mut those: Vec<usize> = those.filter(|layer| costs[*layer].bytes > 0).collect();
        those.sort_by(|a, b| loss(*a).total_cmp(&loss(*b)));
        for layer in those {
            if taken <= capacity {
                return;
            }
            modes[layer] = Mode::Dha;
            taken -= costs[layer].bytes;
        }
    }
}

struct Forward<'a> {
    costs: &'a [Cost],
    modes: Vec<Mode>,
    /// The paper's `T_all`: the time so far.
    all: f64,
    /// `T_res`: the transfer time that compute can still hide.
    hidden: f64,
    /// `tag`: the first copied layer that backtracking has not tried.
    untried: Option<usize>,
}

impl<'a> Forward<'a> {
    fn new(costs: &'a [Cost]) -> Self {
        Self { costs, modes: Vec::with_capacity(costs.len()), all: 0.0, hidden: 0.0, untried: None }
    }

    fn decide(&mut self) {
        for (layer, cost) in self.costs.iter().enumerate() {
            let Some(copy) = cost.copy else {
                self.pass(cost.forward, cost.forward);
                self.modes.push(Mode::Gfgb);
                continue;
            };
            if cost.direct_forward <= cost.forward + (copy - self.hidden).max(0.0) {
                self.pass(cost.direct_forward, cost.direct_forward);
                self.modes.push(Mode::Dha);
                continue;
            }
            if copy < self.hidden {
                self.pass(cost.forward, cost.forward - copy);
            } else {
                self.backtrack(layer, copy);
            }
            self.untried.get_or_insert(layer);
            self.modes.push(Mode::Gfgb);
        }
    }

    fn pass(&mut self, time: f64, hidden: f64) {
        self.all += time;
        self.hidden += hidden;
    }

    /// Turns earlier layers to direct access, so that more of this copy is hidden.
    fn backtrack(&mut self, layer: usize, copy: f64) {
        let forward = self.costs[layer].forward;
        let mut best = self.all + copy + forward - self.hidden;
        for earlier in self.untried.unwrap_or(layer)..layer {
            let cost = &self.costs[earlier];
            let Some(given_back) = cost.copy.filter(|_| self.modes[earlier] == Mode::Gfgb) else {
                continue;
            };
            let longer = cost.direct_forward - cost.forward;
            let gain = given_back + longer;
            let time = (copy - self.hidden - gain).max(0.0) + self.all + longer + forward;
            if time < best {
                self.modes[earlier] = Mode::Dha;
                self.untried = Some(earlier + 1);
                best = time;
                self.pass(longer, gain);
                if self.hidden >= copy {
                    break;
                }
            }
        }
        self.all = best;
        self.hidden = (self.hidden - copy).max(0.0) + forward;
    }
}

/// Copies layers after forward has used them in place, while the link would be idle.
fn backward(costs: &[Cost], modes: &mut [Mode], forward_seconds: f64) {
    let copied = costs.iter().zip(&*modes).filter(|(_, mode)| **mode == Mode::Gfgb);
    let copied: f64 = copied.filter_map(|(cost, _)| cost.copy).sum();
    let last = costs.last().zip(modes.last());
    let first_gradient =
        forward_seconds + last.map_or(0.0, |(cost, mode)| cost.backward_in(*mode).0);
    let mut idle = first_gradient - copied;
    let gain = |layer: usize| costs[layer].direct_backward - costs[layer].backward;
    let direct = (0..modes.len()).filter(|layer| modes[*layer] == Mode::Dha && gain(*layer) > 0.0);
    let mut direct: Vec<usize> = direct.collect();
    direct.sort_by(|a, b| gain(*b).total_cmp(&gain(*a)));
    for layer in direct {
        let copy = costs[layer].copy.unwrap_or(0.0);
        if copy <= idle {
            idle -= copy;
            modes[layer] = Mode::Dfgb;
        }
    }
}
