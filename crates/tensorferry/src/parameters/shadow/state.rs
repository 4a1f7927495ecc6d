//! What is known about an iteration, under one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::buffer::Piece;
use super::report::Report;
use crate::device::{Entered, Event};
use crate::error::{Error, Kind, Result};

/// An update: what the optimizer does with a layer. The memory it works on is its maker's concern.
pub type Work = Box<dyn FnOnce() -> Result<()> + Send>;

#[derive(Default)]
pub(super) struct State {
    /// Since when an iteration is under way.
    pub began: Option<Instant>,
    /// Whether a layer's backward has begun in it.
    pub is_backward: bool,
    pub layers: Vec<Progress>,
    /// Inwards, outwards.
    pub lanes: [Lane; 2],
    pub updates: VecDeque<(usize, Work)>,
    pub is_updating: bool,
    /// Grows with everything that ends, so that a wait knows whether anything moves.
    pub moved: u64,
    pub fault: Option<Fault>,
    pub is_closing: bool,
    /// Of the iteration under way, or the last one: updates may follow its end.
    pub report: Report,
    /// Of the one before.
    pub previous: Report,
}

/// One direction of the link.
#[derive(Default)]
pub(super) struct Lane {
    pub line: VecDeque<LinkTransfer>,
    /// Taken from the line and not over.
    pub under_way: usize,
}

/// A transfer over the link, for a layer.
pub(super) struct LinkTransfer {
    pub layer: usize,
    pub payload: Payload,
}

/// What goes over the link at once.
pub(super) enum Payload {
    /// Parameters, to the device.
    Parameters(Piece),
    /// Gradients, to host memory.
    Gradients(Piece),
    /// A kernel's writes to host memory.
    Writes(u64),
}

/// One layer in an iteration.
#[derive(Default)]
pub(super) struct Progress {
    pub copy: CopyState,
    /// Forward, backward.
    pub kernels: [Kernel; 2],
    /// Gradients in their device buffer that have not set off, by parameter.
    pub made: Vec<usize>,
    /// Gradients that were made in this iteration.
    pub made_in_all: usize,
    /// Transfers of gradients that are not over.
    pub leaving: usize,
    /// Bytes of gradients to be written in place whose transfer was put in line already.
    pub prepaid: Option<u64>,
}

/// Where a layer's copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CopyState {
    /// Not copied, or given up.
    #[default]
    Absent,
    /// So many pieces are missing.
    UnderWay(usize),
    Ready,
}

/// The calling thread as a kernel of a layer.
#[derive(Default)]
pub(super) struct Kernel {
    /// It may be entered again before it is left.
    pub depth: usize,
    pub is_on_device: bool,
    pub entered: Option<Entered>,
    /// What it reads in place.
    pub crossing: Vec<Event>,
}

/// What has ended an installation.
pub(super) struct Fault {
    pub message: String,
    pub cause: Arc<Error>,
}

impl State {
    /// An error if the installation is over.
    pub fn check(&self) -> Result<()> {
        if self.is_closing {
            return Err(Error::new(Kind::Closed, "the shadow model is closed"));
        }
        let Some(Fault { message, cause }) = &self.fault else { return Ok(()) };
        let message = format!(
            "{message}; what was not updated yet is unharmed, install the plan again to go on"
        );
        Err(Error::new(cause.kind(), message).caused_by(Arc::clone(cause)))
    }

    /// Ends the installation: the first fault counts, and nothing in line sets off any more.
    pub fn fail(&mut self, message: String, cause: Error) {
        self.fault.get_or_insert(Fault { message, cause: Arc::new(cause) });
        self.lanes.iter_mut().for_each(|lane| lane.line.clear());
    }

    pub fn is_idle(&self, lane: usize) -> bool {
        self.lanes[lane].line.is_empty() && self.lanes[lane].under_way == 0
    }
}

impl Progress {
    pub fn has_arrived(&self) -> bool {
        self.made.is_empty() && self.leaving == 0
    }

    /// Whether nobody reads the layer's parameters, on their way or in a kernel.
    pub fn is_unused(&self) -> bool {
        self.kernels.iter().all(|kernel| kernel.depth == 0)
            && !matches!(self.copy, CopyState::UnderWay(_))
    }
}
