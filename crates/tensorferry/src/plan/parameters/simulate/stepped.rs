//! The same rules once more, second by second and without any cleverness: the judge of the simulator.
//!
//! All costs are whole seconds. In each second, everybody works on what the rules say, or waits.

use super::costs::{Cost, Leaving};
use crate::plan::parameters::Mode;

/// Seconds after which an iteration is taken to have no end.
const PATIENCE: u64 = 100_000;

/// One kernel of the course.
struct Kernel {
    layer: usize,
    /// The copy it waits for.
    waits: bool,
    seconds: u64,
    reads: u64,
    is_backward: bool,
}

struct Machine<'a> {
    costs: &'a [Cost],
    kernels: Vec<Kernel>,
    /// Copies inwards, in order, with the seconds that are left.
    copies: Vec<(usize, u64)>,
    /// Gradients outwards, in order: layer, seconds left, whether its kernel waits for it.
    leaving: Vec<(usize, u64, bool)>,
    arrived: Vec<usize>,
    updating: Option<(usize, u64)>,
}

/// The seconds of an iteration whose copies go in this order.
pub(super) fn seconds(costs: &[Cost], modes: &[Mode], order: &[usize]) -> Option<u64> {
    let kernel = |layer: usize, is_backward: bool| {
        let (cost, mode) = (&costs[layer], modes[layer]);
        let (seconds, reads) =
            if is_backward { cost.backward_in(mode) } else { cost.forward_in(mode) };
        let waits = mode == if is_backward { Mode::Dfgb } else { Mode::Gfgb };
        let waits = waits && cost.copy.is_some();
        Kernel { layer, waits, seconds: seconds as u64, reads: reads as u64, is_backward }
    };
    let forward = (0..costs.len()).map(|layer| kernel(layer, false));
    let backward = (0..costs.len()).rev().map(|layer| kernel(layer, true));
    let copy = |layer: &usize| (*layer, costs[*layer].copy.unwrap_or(0.0) as u64);
    let mut machine = Machine {
        costs,
        kernels: forward.chain(backward).collect(),
        copies: order.iter().map(copy).collect(),
        leaving: Vec::new(),
        arrived: Vec::new(),
        updating: None,
    };
    machine.run()
}

impl Machine<'_> {
    fn run(&mut self) -> Option<u64> {
        if self.costs.is_empty() {
            return Some(0);
        }
        let (mut next, mut ran) = (0, None);
        let mut updated = 0;
        for now in 0..PATIENCE {
            // What takes no time happens at once, so everybody is asked until nothing changes.
            loop {
                let before = (next, ran, updated, self.queues());
                self.copies.retain(|(_, left)| *left > 0);
                self.finish_leaving();
                self.advance(&mut next, &mut ran);
                self.finish_updates(&mut updated);
                if before == (next, ran, updated, self.queues()) {
                    break;
                }
            }
            if updated == self.costs.len() {
                return Some(now);
            }
            self.work(next, &mut ran);
        }
        None
    }

    fn queues(&self) -> (usize, usize, usize, Option<(usize, u64)>) {
        (self.copies.len(), self.leaving.len(), self.arrived.len(), self.updating)
    }

    /// Starts and ends kernels that can be.
    fn advance(&mut self, next: &mut usize, ran: &mut Option<u64>) {
        let Some(kernel) = self.kernels.get(*next) else { return };
        let layer = kernel.layer;
        let leaving = self.costs[layer].leaving;
        let Some(done) = *ran else {
            if kernel.waits && self.copies.iter().any(|(copied, _)| *copied == layer) {
                return;
            }
            if let (true, Leaving::Written(write)) = (kernel.is_backward, leaving) {
                self.leaving.push((layer, write as u64, true));
            }
            *ran = Some(0);
            return;
        };
        let is_held_up = self.leaving.iter().any(|(id, _, held)| *id == layer && *held);
        if done < kernel.seconds || is_held_up {
            return;
        }
        if kernel.is_backward {
            match leaving {
                Leaving::Copied(copy) => self.leaving.push((layer, copy as u64, false)),
                Leaving::AtOnce | Leaving::Written(_) => self.arrived.push(layer),
            }
        }
        (*next, *ran) = (*next + 1, None);
    }

    fn finish_leaving(&mut self) {
        while let Some((layer, 0, held)) = self.leaving.first().copied() {
            self.leaving.remove(0);
            if !held {
                self.arrived.push(layer);
            }
        }
    }

    fn finish_updates(&mut self, updated: &mut usize) {
        if let Some((_, 0)) = self.updating {
            self.updating = None;
            *updated += 1;
        }
        let next = self.costs.len() - 1 - (*updated).min(self.costs.len() - 1);
        if self.updating.is_none() && *updated < self.costs.len() && self.arrived.contains(&next) {
            self.updating = Some((next, self.costs[next].update as u64));
        }
    }

    /// One second.
    fn work(&mut self, next: usize, ran: &mut Option<u64>) {
        let mut reads = false;
        if let (Some(kernel), Some(done)) = (self.kernels.get(next), ran) {
            reads = *done < kernel.reads;
            *done += 1;
        }
        if let Some((_, left)) = self.copies.first_mut().filter(|_| !reads) {
            *left -= 1;
        }
        if let Some((_, left, _)) = self.leaving.first_mut() {
            *left -= 1;
        }
        if let Some((_, left)) = &mut self.updating {
            *left -= 1;
        }
    }
}
