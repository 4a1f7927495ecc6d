//! A thread for each direction of the link: sends what is in line, two pieces at a time.

use std::collections::VecDeque;

use super::installation::Installed;
use super::link::{Crossing, IN_LINE_MAX, copy};
use super::runtime::kernels;
use super::state::{CopyState, LinkTransfer, Payload, State};
use crate::device::{DeviceMemory, Direction};
use crate::error::{Error, Kind, Result};
use crate::sync::wait;

/// A transfer that has set off.
struct Sent {
    layer: usize,
    is_parameters: bool,
    bytes: u64,
    crossing: Crossing,
}

pub(super) fn number(direction: Direction) -> usize {
    match direction {
        Direction::In => 0,
        Direction::Out => 1,
    }
}

impl Installed {
    /// The life of such a thread.
    pub(super) fn serve(&self, direction: Direction) {
        let mut sent = VecDeque::new();
        loop {
            match self.next(direction, sent.is_empty()) {
                Next::Close => return,
                Next::Transfer(LinkTransfer { layer, payload }) => {
                    match self.start(direction, layer, payload) {
                        Ok(transfer) => sent.push_back(transfer),
                        Err(error) => self.over(direction, layer, |_| Err(error)),
                    }
                }
                Next::Nothing => self.finish(direction, sent.pop_front()),
            }
            if sent.len() >= IN_LINE_MAX {
                self.finish(direction, sent.pop_front());
            }
        }
    }

    /// What to do next; waits if nothing is to be done.
    fn next(&self, direction: Direction, is_idle: bool) -> Next {
        let mut state = self.lock();
        loop {
            let is_open = !state.is_closing;
            let lane = &mut state.lanes[number(direction)];
            if is_open && let Some(transfer) = lane.line.pop_front() {
                lane.under_way += 1;
                return Next::Transfer(transfer);
            } else if !is_idle {
                return Next::Nothing;
            } else if !is_open {
                return Next::Close;
            }
            state = wait(&self.changed, state, None).0;
        }
    }

    fn start(&self, direction: Direction, layer: usize, payload: Payload) -> Result<Sent> {
        let (device, stream) = (&*self.device, &self.ways[number(direction)].stream);
        let is_parameters = matches!(payload, Payload::Parameters(_));
        let installed = &self.layers[layer];
        let buffer = if is_parameters { &installed.parameters } else { &installed.gradients };
        let memory = || -> Result<&DeviceMemory> {
            let missing = || Error::new(Kind::Internal, "a layer without a buffer is copied");
            buffer.as_ref().map(|buffer| &buffer.memory).ok_or_else(missing)
        };
        let (bytes, crossing) = match payload {
            Payload::Parameters(piece) | Payload::Gradients(piece) => {
                let bytes = piece.range.len() as u64;
                let host = (&*piece.host, piece.range);
                (bytes, copy(device, stream, direction, host, (memory()?, piece.offset))?)
            }
            Payload::Writes(bytes) => {
                let event = kernels(device)?.direct_access(stream, direction, bytes)?;
                (bytes, Crossing::Use(event))
            }
        };
        Ok(Sent { layer, is_parameters, bytes, crossing })
    }

    fn finish(&self, direction: Direction, sent: Option<Sent>) {
        let Some(Sent { layer, is_parameters, bytes, crossing }) = sent else { return };
        let result = crossing.finish();
        self.over(direction, layer, |state| {
            result?;
            let progress = &mut state.layers[layer];
            let spans = &mut state.report.layers[layer];
            if is_parameters {
                spans.copied_bytes += bytes;
                progress.copy = match progress.copy {
                    CopyState::UnderWay(1) => CopyState::Ready,
                    CopyState::UnderWay(left) => CopyState::UnderWay(left.saturating_sub(1)),
                    other => other,
                };
            } else {
                spans.gradient_bytes += bytes;
                progress.leaving = progress.leaving.saturating_sub(1);
            }
            let seconds = self.ways[number(direction)].seconds(bytes);
            match direction {
                Direction::In => state.report.link_in_seconds += seconds,
                Direction::Out => state.report.link_out_seconds += seconds,
            }
            Ok(())
        });
    }

    /// Notes the end of a transfer, well or not.
    fn over(
        &self,
        direction: Direction,
        layer: usize,
        note: impl FnOnce(&mut State) -> Result<()>,
    ) {
        let mut state = self.lock();
        state.moved += 1;
        let lane = &mut state.lanes[number(direction)];
        lane.under_way = lane.under_way.saturating_sub(1);
        if let Err(error) = note(&mut state) {
            let what = match direction {
                Direction::In => "the parameters",
                Direction::Out => "a gradient",
            };
            state.fail(format!("{what} of {} did not cross the link", self.name(layer)), error);
        }
        self.changed.notify_all();
    }
}

enum Next {
    Transfer(LinkTransfer),
    /// Nothing is in line, something is under way.
    Nothing,
    Close,
}
