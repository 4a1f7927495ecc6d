//! What happened when.

use serde::Serialize;

use super::clocks::Turn;
use super::costs::Cost;

/// One iteration, to be drawn.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Timeline {
    /// By time within each lane: compute, link inwards, link outwards, update. Never two of one lane at once.
    pub spans: Vec<Span>,
}

/// From when to when something was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Span {
    /// What.
    pub doing: Doing,
    /// Seconds since the start of forward.
    pub from: f64,
    /// As above.
    pub until: f64,
}

/// What is done, and for which layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Doing {
    /// Forward computes.
    Forward(usize),
    /// Backward computes.
    Backward(usize),
    /// Compute waits, before that layer.
    Wait(usize),
    /// Parameters are copied in. A copy that kernels interrupt has several spans.
    Copy(usize),
    /// A kernel reads parameters over the link.
    Read(usize),
    /// A gradient goes to the host, copied or written.
    Gradient(usize),
    /// The optimizer works.
    Update(usize),
}

/// Who works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The device.
    Compute,
    /// The link from host to device.
    In,
    /// The link from device to host.
    Out,
    /// The optimizer.
    Update,
}

/// Who is told what happens in a run.
pub(in crate::plan) trait Watch {
    /// Something was done, for however short.
    fn span(&mut self, doing: Doing, turn: Turn);
}

/// Nobody.
impl Watch for () {
    fn span(&mut self, _: Doing, _: Turn) {}
}

impl Watch for Timeline {
    fn span(&mut self, doing: Doing, Turn { from, until }: Turn) {
        if until > from {
            self.spans.push(Span { doing, from, until });
        }
    }
}

impl Doing {
    /// Who does it.
    pub const fn lane(self) -> Lane {
        match self {
            Self::Forward(_) | Self::Backward(_) | Self::Wait(_) => Lane::Compute,
            Self::Copy(_) | Self::Read(_) => Lane::In,
            Self::Gradient(_) => Lane::Out,
            Self::Update(_) => Lane::Update,
        }
    }
}

impl Timeline {
    /// What one of them did, by time.
    pub fn lane(&self, lane: Lane) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.doing.lane() == lane)
    }

    /// Adds the copies: they use the link in their order while no kernel does.
    pub(super) fn add_copies(&mut self, order: &[usize], costs: &[Cost]) {
        let mut reads = self.lane(Lane::In).copied().collect::<Vec<_>>().into_iter().peekable();
        let mut now = 0.0;
        let mut copies = Vec::new();
        for layer in order {
            let mut left = costs[*layer].copy.unwrap_or(0.0);
            while left > 0.0 {
                let Some(read) = reads.next_if(|read| read.from < now + left) else {
                    copies.push(Span { doing: Doing::Copy(*layer), from: now, until: now + left });
                    now += left;
                    break;
                };
                if read.from > now {
                    copies.push(Span { doing: Doing::Copy(*layer), from: now, until: read.from });
                    left -= read.from - now;
                }
                now = now.max(read.until);
            }
        }
        self.spans.extend(copies);
    }

    /// Adds what compute does between its spans, and puts all of them in order.
    pub(super) fn finish(&mut self) {
        let mut waits = Vec::new();
        let mut last = 0.0;
        for span in self.lane(Lane::Compute) {
            if let Doing::Forward(layer) | Doing::Backward(layer) = span.doing
                && span.from > last
            {
                waits.push(Span { doing: Doing::Wait(layer), from: last, until: span.from });
            }
            last = span.until;
        }
        self.spans.extend(waits);
        let place = |span: &Span| (span.doing.lane() as u8, span.from);
        self.spans.sort_by(|a, b| {
            let ((lane, from), (other, than)) = (place(a), place(b));
            lane.cmp(&other).then(from.total_cmp(&than))
        });
    }
}
