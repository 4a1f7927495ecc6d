//! What an iteration came to.

use serde::{Deserialize, Serialize};

/// One iteration, in numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Which one, from 1 on; 0 if there was none yet.
    pub iteration: u64,
    /// From its begin to its end.
    pub seconds: f64,
    /// In the order of the installed layers.
    pub layers: Vec<Spans>,
    /// All layers together.
    pub total: Spans,
    /// In which the link inwards was taken, as far as its speed is known.
    pub link_in_seconds: f64,
    /// In which the link outwards was.
    pub link_out_seconds: f64,
    /// The most that was on the device since the plan was installed.
    pub peak_bytes: u64,
    /// What may be there.
    pub budget: u64,
}

/// One layer's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spans {
    /// Forward waited, for its copy or for what it used in place.
    pub forward_wait: f64,
    /// Backward waited, also for gradients that it wrote in place.
    pub backward_wait: f64,
    /// The optimizer worked.
    pub update: f64,
    /// Bytes copied in.
    pub copied_bytes: u64,
    /// Bytes that kernels read in place.
    pub direct_bytes: u64,
    /// Bytes of gradients that left, copied or written in place.
    pub gradient_bytes: u64,
}

impl Report {
    pub(super) fn of(iteration: u64, layers: usize) -> Self {
        Self { iteration, layers: vec![Spans::default(); layers], ..Self::default() }
    }

    /// The same with all layers added up.
    pub(super) fn summed(mut self) -> Self {
        self.total = self.layers.iter().fold(Spans::default(), |all, layer| Spans {
            forward_wait: all.forward_wait + layer.forward_wait,
            backward_wait: all.backward_wait + layer.backward_wait,
            update: all.update + layer.update,
            copied_bytes: all.copied_bytes + layer.copied_bytes,
            direct_bytes: all.direct_bytes + layer.direct_bytes,
            gradient_bytes: all.gradient_bytes + layer.gradient_bytes,
        });
        self
    }
}
