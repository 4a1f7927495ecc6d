//! What a layer costs, worked out once for all plans that are tried.

use crate::plan::parameters::{Gradient, Layer, Link, Mode, Profile};

/// One layer, its gradient's place decided. Seconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Cost {
    /// The place.
    pub(in crate::plan) gradient: Gradient,
    /// Bytes that it takes on the device there.
    pub(in crate::plan) kept: u64,
    /// To copy the parameters in; nothing if there are none.
    pub(in crate::plan) copy: Option<f64>,
    /// Bytes of the parameters.
    pub(in crate::plan) bytes: u64,
    /// With the parameters on the device.
    pub(in crate::plan) forward: f64,
    /// As above, with what the gradient adds.
    pub(in crate::plan) backward: f64,
    /// With the parameters in host memory.
    pub(in crate::plan) direct_forward: f64,
    /// As above, with what the gradient adds.
    pub(in crate::plan) direct_backward: f64,
    /// Of which copies can't use the link.
    pub(in crate::plan) direct_forward_link: f64,
    /// As above.
    pub(in crate::plan) direct_backward_link: f64,
    /// How the gradient leaves.
    pub(in crate::plan) leaving: Leaving,
    /// On the host.
    pub(in crate::plan) update: f64,
}

/// One layer, with its gradient in each place that it may have.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Variants {
    /// With the shortest backward: the gradient's copy is no kernel's time.
    pub(in crate::plan) quickest: Cost,
    /// If there is another place.
    pub(in crate::plan) other: Option<Cost>,
}

impl Variants {
    /// Those of all layers, with no more than `reserve` bytes for any gradient.
    pub(in crate::plan) fn of(profile: &Profile, reserve: u64) -> Vec<Self> {
        let variants = |(number, layer): (usize, &Layer)| match layer.gradient_bytes {
            0 => Self::only(Cost::new(profile, number, Gradient::None)),
            bytes if bytes > reserve => Self::only(Cost::new(profile, number, Gradient::Host)),
            _ => Self {
                quickest: Cost::new(profile, number, Gradient::Device),
                other: Some(Cost::new(profile, number, Gradient::Host)),
            },
        };
        profile.layers.iter().enumerate().map(variants).collect()
    }

    /// A place that is decided.
    pub(in crate::plan) fn only(cost: Cost) -> Self {
        Self { quickest: cost, other: None }
    }

    /// One after the other.
    pub(in crate::plan) fn all(&self) -> impl Iterator<Item = &Cost> {
        std::iter::once(&self.quickest).chain(&self.other)
    }
}

/// How a gradient gets to the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::plan) enum Leaving {
    /// With backward's end: there is none, or it is written while no copy is disturbed.
    AtOnce,
    /// Copied after backward, for so long.
    Copied(f64),
    /// Written while backward computes, for so long, behind the copies before it.
    Written(f64),
}

impl Leaving {
    /// For how long it takes the link outwards.
    pub(in crate::plan) fn seconds(self) -> f64 {
        match self {
            Self::AtOnce => 0.0,
            Self::Copied(seconds) | Self::Written(seconds) => seconds,
        }
    }
}

impl Cost {
    /// The costs of all layers.
    pub(in crate::plan) fn of(profile: &Profile, gradients: &[Gradient]) -> Vec<Self> {
        let cost = |(layer, gradient): (usize, &Gradient)| Self::new(profile, layer, *gradient);
        gradients.iter().enumerate().map(cost).collect()
    }

    fn new(profile: &Profile, number: usize, gradient: Gradient) -> Self {
        let (layer, link) = (&profile.layers[number], &profile.link);
        let longer = if gradient == Gradient::Host { layer.direct_gradient_seconds } else { 0.0 };
        let has_parameters = layer.parameter_bytes > 0;
        let mut cost = Self {
            gradient,
            kept: if gradient == Gradient::Device { layer.gradient_bytes } else { 0 },
            copy: has_parameters.then(|| profile.copy_seconds(number)),
            bytes: layer.parameter_bytes,
            forward: layer.forward_seconds,
            backward: layer.backward_seconds + longer,
            direct_forward: layer.forward_seconds,
            direct_backward: layer.backward_seconds + longer,
            direct_forward_link: 0.0,
            direct_backward_link: 0.0,
            leaving: leaving(profile, number, gradient),
            update: layer.update_seconds,
        };
        if has_parameters {
            cost.direct_forward = layer.direct_forward_seconds;
            cost.direct_backward = layer.direct_backward_seconds + longer;
            let Layer { direct_forward_bytes, direct_backward_bytes, .. } = *layer;
            cost.direct_forward_link = direct_link(link, direct_forward_bytes, cost.direct_forward);
            cost.direct_backward_link =
                direct_link(link, direct_backward_bytes, cost.direct_backward);
        }
        cost
    }

    /// Forward in that mode, and how long it keeps copies from the link.
    pub(in crate::plan) fn forward_in(&self, mode: Mode) -> (f64, f64) {
        match mode {
            Mode::Gfgb => (self.forward, 0.0),
            Mode::Dha | Mode::Dfgb => (self.direct_forward, self.direct_forward_link),
        }
    }

    /// Backward in that mode, and how long it keeps copies from the link.
    pub(in crate::plan) fn backward_in(&self, mode: Mode) -> (f64, f64) {
        match mode {
            Mode::Dha => (self.direct_backward, self.direct_backward_link),
            Mode::Gfgb | Mode::Dfgb => (self.backward, 0.0),
        }
    }
}

/// The link's part of a kernel, which is no longer than the kernel.
fn direct_link(link: &Link, bytes: u64, kernel: f64) -> f64 {
    if !link.direct_shares {
        return 0.0;
    }
    link.inwards.seconds(bytes as f64 * link.direct_slowdown).min(kernel)
}

fn leaving(profile: &Profile, number: usize, gradient: Gradient) -> Leaving {
    let link = &profile.link;
    match gradient {
        Gradient::Device => Leaving::Copied(profile.gradient_copy_seconds(number)),
        Gradient::Host if link.direct_shares => {
            let bytes = profile.layers[number].gradient_bytes as f64;
            Leaving::Written(link.outwards.seconds(bytes * link.direct_slowdown))
        }
        Gradient::Host | Gradient::None => Leaving::AtOnce,
    }
}
