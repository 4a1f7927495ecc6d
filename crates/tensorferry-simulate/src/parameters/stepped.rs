//! The same rules once more, second by second and without any cleverness: the judge of the simulator.
//!
//! All costs are whole seconds. In each second, everybody works on what the rules say, or waits.

use tensorferry::plan::parameters::{Gradient, Mode, Profile};

/// Seconds after which an iteration is taken to have no end.
const PATIENCE: u64 = 100_000;

/// One kernel of the course.
struct Kernel {
    layer: usize,
    /// Whether it waits for a copy.
    waits: bool,
    seconds: u64,
    /// Seconds, from its start on, in which copies can't use the link.
    reads: u64,
    is_backward: bool,
}

struct Machine<'a> {
    profile: &'a Profile,
    gradients: &'a [Gradient],
    kernels: Vec<Kernel>,
    /// Copies inwards, in order, with the seconds that are left.
    copies: Vec<(usize, u64)>,
    /// Gradients outwards, in order: layer, seconds left, whether its kernel waits for it.
    leaving: Vec<(usize, u64, bool)>,
    arrived: Vec<usize>,
    updating: Option<(usize, u64)>,
}

/// The seconds of an iteration; nothing if it never ends.
pub fn seconds(profile: &Profile, modes: &[Mode], gradients: &[Gradient]) -> Option<u64> {
    let layers = 0..profile.layers.len();
    let kernels = |is_backward| {
        move |layer| kernel(profile, layer, modes[layer], gradients[layer], is_backward)
    };
    let of_mode = |mode: Mode| {
        let wanted = move |layer: &usize| modes[*layer] == mode && has_parameters(profile, *layer);
        layers.clone().filter(wanted)
    };
    let copies = of_mode(Mode::Gfgb).chain(of_mode(Mode::Dfgb).rev());
    let mut machine = Machine {
        profile,
        gradients,
        kernels: layers
            .clone()
            .map(kernels(false))
            .chain(layers.rev().map(kernels(true)))
            .collect(),
        copies: copies.map(|layer| (layer, profile.copy_seconds(layer) as u64)).collect(),
        leaving: Vec::new(),
        arrived: Vec::new(),
        updating: None,
    };
    machine.run()
}

fn has_parameters(profile: &Profile, layer: usize) -> bool {
    profile.layers[layer].parameter_bytes > 0
}

fn kernel(
    profile: &Profile,
    number: usize,
    mode: Mode,
    gradient: Gradient,
    is_backward: bool,
) -> Kernel {
    let (layer, link) = (&profile.layers[number], &profile.link);
    let direct = if is_backward { mode == Mode::Dha } else { mode.is_direct_in_forward() };
    let direct = direct && has_parameters(profile, number);
    let (seconds, bytes) = match (is_backward, direct) {
        (false, false) => (layer.forward_seconds, 0),
        (false, true) => (layer.direct_forward_seconds, layer.direct_forward_bytes),
        (true, false) => (layer.backward_seconds, 0),
        (true, true) => (layer.direct_backward_seconds, layer.direct_backward_bytes),
    };
    let writes = is_backward && gradient == Gradient::Host;
    let seconds = seconds + if writes { layer.direct_gradient_seconds } else { 0.0 };
    let read = link.inwards.seconds(bytes as f64 * link.direct_slowdown);
    let waits = mode == if is_backward { Mode::Dfgb } else { Mode::Gfgb };
    Kernel {
        layer: number,
        waits: waits && has_parameters(profile, number),
        seconds: seconds as u64,
        reads: if link.direct_shares { read.min(seconds) as u64 } else { 0 },
        is_backward,
    }
}

impl Machine<'_> {
    fn run(&mut self) -> Option<u64> {
        if self.profile.layers.is_empty() {
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
            if updated == self.profile.layers.len() {
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
        let (layer, gradient) = (kernel.layer, self.gradients[kernel.layer]);
        let Some(done) = *ran else {
            if kernel.waits && self.copies.iter().any(|(copied, _)| *copied == layer) {
                return;
            }
            let link = &self.profile.link;
            if kernel.is_backward && gradient == Gradient::Host && link.direct_shares {
                let bytes = self.profile.layers[layer].gradient_bytes as f64;
                let write = link.outwards.seconds(bytes * link.direct_slowdown);
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
            if gradient == Gradient::Device {
                let copy = self.profile.gradient_copy_seconds(layer);
                self.leaving.push((layer, copy as u64, false));
            } else {
                self.arrived.push(layer);
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
        let layers = &self.profile.layers;
        let next = layers.len() - 1 - (*updated).min(layers.len() - 1);
        if self.updating.is_none() && *updated < layers.len() && self.arrived.contains(&next) {
            self.updating = Some((next, layers[next].update_seconds as u64));
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
