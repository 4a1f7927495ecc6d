//! What happened when.

use serde::Serialize;

/// One step, to be drawn.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Timeline {
    /// Those of compute by time, and those of the disk: never two of either at once.
    pub spans: Vec<Span>,
    /// Bytes held from each time on; before the first, none.
    pub memory: Vec<(f64, u64)>,
    /// Where the last span of compute stands.
    #[serde(skip)]
    computed: Option<usize>,
}

/// From when to when something was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Span {
    /// What.
    pub doing: Doing,
    /// Seconds since the start of forward, stalls counted.
    pub from: f64,
    /// As above.
    pub until: f64,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Doing {
    /// Forward computes.
    Forward,
    /// Backward computes.
    Backward,
    /// Compute waits.
    Stall,
    /// A tensor goes to disk.
    Write(usize),
    /// A tensor comes back.
    Read(usize),
}

/// Who is told what happens in a run.
pub(in crate::plan) trait Watch {
    /// Something was done, for however short.
    fn span(&mut self, doing: Doing, from: f64, until: f64);
    /// So many bytes are held from now on.
    fn memory(&mut self, at: f64, bytes: u64);
}

/// Nobody.
impl Watch for () {
    fn span(&mut self, _: Doing, _: f64, _: f64) {}
    fn memory(&mut self, _: f64, _: u64) {}
}

impl Watch for Timeline {
    fn span(&mut self, doing: Doing, from: f64, until: f64) {
        if until <= from {
            return;
        }
        if !doing.is_transfer() {
            // Compute comes to many events without a pause.
            if let Some(at) = self.computed
                && self.spans[at].doing == doing
                && self.spans[at].until >= from
            {
                self.spans[at].until = until;
                return;
            }
            self.computed = Some(self.spans.len());
        }
        self.spans.push(Span { doing, from, until });
    }

    fn memory(&mut self, at: f64, bytes: u64) {
        match self.memory.last_mut() {
            Some(last) if last.0 >= at => last.1 = bytes,
            _ => self.memory.push((at, bytes)),
        }
    }
}

impl Doing {
    /// Whether it is the disk that does it.
    pub const fn is_transfer(self) -> bool {
        matches!(self, Self::Write(_) | Self::Read(_))
    }
}
