//! An iteration, as the computation sees it: begin, enter and leave layers, hand over gradients, end.

use std::time::{Duration, Instant};

use super::PATIENCE;
use super::host_memory::Slice;
use super::installation::{Installed, Pause, too_long};
use super::lane::number;
use super::report::Report;
use super::runtime::kernels;
use super::state::{CopyState, Payload, State, Work};
use crate::device::{Direction, Event, Operand};
use crate::error::{Error, Kind, Result};
use crate::plan::parameters::{Gradient, Mode};

const IN: usize = 0;
const OUT: usize = 1;

/// How long an event is waited for before the caller is asked whether to go on.
const EVENT_PAUSE: Duration = Duration::from_millis(50);

impl Installed {
    /// Sets copies off, once no update writes what they read. Does nothing within an iteration.
    pub fn begin(&self, pause: Pause<'_>) -> Result<()> {
        let what = || "the updates of the last iteration".to_owned();
        self.wait_until(&what, pause, |state| {
            if state.began.is_some() {
                return Some(());
            }
            (state.updates.is_empty() && !state.is_updating).then(|| self.set_off(state))
        })?;
        Ok(())
    }

    fn set_off(&self, state: &mut State) {
        state.began = Some(Instant::now());
        state.is_backward = false;
        let fresh = Report::of(state.report.iteration + 1, self.layers.len());
        state.previous = std::mem::replace(&mut state.report, fresh);
        for progress in &mut state.layers {
            (progress.copy, progress.made_in_all, progress.prepaid) = (CopyState::Absent, 0, None);
        }
        for &layer in &self.copy_order {
            let pieces = self.layers[layer].parameter_pieces(self.ways[IN].piece);
            state.layers[layer].copy = match pieces.len() {
                0 => CopyState::Ready,
                pieces => CopyState::UnderWay(pieces),
            };
            self.send(state, IN, layer, pieces);
        }
    }

    /// Makes the calling thread a kernel of the layer: on the device, after waiting for the copy
    /// where the plan has one, or in place, where `direct_bytes` begin to cross the link.
    pub fn enter(
        &self,
        layer: usize,
        is_backward: bool,
        direct_bytes: u64,
        pause: Pause<'_>,
    ) -> Result<(bool, Duration)> {
        self.layer(layer)?;
        let what = || format!("the parameters of {}", self.name(layer));
        let (entered, waited) = self.wait_until(&what, pause, |state| {
            state.is_backward |= is_backward && state.began.is_some();
            let is_on_device = self.is_on_device(state, layer, is_backward)?;
            Some(self.enter_kernel(state, layer, is_backward, is_on_device, direct_bytes))
        })?;
        self.note_wait(layer, is_backward, waited);
        Ok((entered?, waited))
    }

    /// Whether the kernel is to use the device's copy; `None` while it is on its way.
    fn is_on_device(&self, state: &State, layer: usize, is_backward: bool) -> Option<bool> {
        let (mode, progress) = (self.layers[layer].mode, &state.layers[layer]);
        let kernel = &progress.kernels[usize::from(is_backward)];
        if kernel.depth > 0 {
            return Some(kernel.is_on_device);
        }
        match (mode, progress.copy) {
            _ if state.began.is_none() => Some(false),
            // Forward comes before the copy, unless backward computes it once more.
            (Mode::Dfgb, CopyState::UnderWay(_)) if !is_backward => Some(false),
            (Mode::Dfgb, CopyState::Ready) if !is_backward => Some(state.is_backward),
            (_, CopyState::Ready) => Some(true),
            (_, CopyState::UnderWay(_)) => None,
            (_, CopyState::Absent) => Some(false),
        }
    }

    fn enter_kernel(
        &self,
        state: &mut State,
        layer: usize,
        is_backward: bool,
        is_on_device: bool,
        direct_bytes: u64,
    ) -> Result<bool> {
        let (installed, kernels) = (&self.layers[layer], kernels(&*self.device)?);
        let mut crossing = None;
        if !is_on_device && direct_bytes > 0 {
            crossing = Some(kernels.direct_access(&self.direct, Direction::In, direct_bytes)?);
            state.report_direct(layer, direct_bytes, self.ways[IN].seconds(direct_bytes));
        }
        let kernel = &mut state.layers[layer].kernels[usize::from(is_backward)];
        if kernel.depth == 0 {
            let operands = match &installed.parameters {
                Some(buffer) if is_on_device => {
                    vec![Operand::read(&buffer.memory, 0..buffer.memory.len())]
                }
                _ => {
                    let used = installed.slices.parameters.iter().filter(|slice| slice.len > 0);
                    used.map(|slice| Operand::read_mapped(slice.home.mapped(), slice.range()))
                        .collect()
                }
            };
            kernel.entered = Some(kernels.enter(operands)?);
            kernel.is_on_device = is_on_device;
        }
        kernel.depth += 1;
        kernel.crossing.extend(crossing);
        if is_backward {
            self.prepay(state, layer);
        }
        Ok(is_on_device)
    }

    /// Lets an entered kernel see its parameters, wherever they are.
    pub fn look<T>(
        &self,
        layer: usize,
        is_backward: bool,
        compute: impl FnOnce(&[&[u8]]) -> T,
    ) -> Result<T> {
        let (installed, state) = (self.layer(layer)?, self.lock());
        let kernel = &state.layers[layer].kernels[usize::from(is_backward)];
        let Some(entered) = &kernel.entered else { return Err(self.not_entered(&state, layer)) };
        let mut views = entered.views.iter();
        let whole =
            installed.parameters.as_ref().filter(|_| kernel.is_on_device).zip(views.clone().next());
        let see = |(parameter, slice): (usize, &Slice)| match whole {
            Some((buffer, view)) => &view[buffer.slot(slice, parameter)],
            None if slice.len == 0 => &[],
            None => views.next().map_or(&[] as &[u8], |view| &**view),
        };
        let seen: Vec<&[u8]> = installed.slices.parameters.iter().enumerate().map(see).collect();
        Ok(compute(&seen))
    }

    /// A backward that writes its gradients in place does so while it computes: from its start.
    fn prepay(&self, state: &mut State, layer: usize) {
        let installed = &self.layers[layer];
        let progress = &mut state.layers[layer];
        if installed.gradient == Gradient::Host
            && progress.prepaid.is_none()
            && state.began.is_some()
        {
            let bytes = installed.gradient_bytes();
            progress.prepaid = Some(bytes);
            progress.leaving += 1;
            self.send(state, OUT, layer, vec![Payload::Writes(bytes)]);
        }
    }

    /// Ends the kernel, once what it has read and written in place has crossed the link.
    pub fn leave(&self, layer: usize, is_backward: bool, pause: Pause<'_>) -> Result<Duration> {
        self.layer(layer)?;
        let phase = usize::from(is_backward);
        let events = {
            let mut state = self.lock();
            let kernel = &mut state.layers[layer].kernels[phase];
            match kernel.depth {
                0 => return Err(self.not_entered(&state, layer)),
                1 => std::mem::take(&mut kernel.crossing),
                _ => {
                    kernel.depth -= 1;
                    return Ok(Duration::ZERO);
                }
            }
        };
        let start = Instant::now();
        let crossed = self.crossed(layer, is_backward, &events, pause);
        let waited = start.elapsed();
        let mut state = self.lock();
        let kernel = &mut state.layers[layer].kernels[phase];
        (kernel.depth, kernel.entered) = (0, None);
        if is_backward {
            self.send_made(&mut state, layer);
        }
        self.changed.notify_all();
        crossed.and_then(|()| state.check())?;
        drop(state);
        self.note_wait(layer, is_backward, waited);
        Ok(waited)
    }

    fn not_entered(&self, state: &State, layer: usize) -> Error {
        let message = format!("{} is left without having been entered", self.name(layer));
        state.check().err().unwrap_or_else(|| Error::invalid(message))
    }

    fn crossed(
        &self,
        layer: usize,
        is_backward: bool,
        events: &[Event],
        pause: Pause<'_>,
    ) -> Result<()> {
        let what = || format!("what {} uses in place", self.name(layer));
        for event in events {
            wait_for(event, &what, pause)?;
        }
        if is_backward && self.layers[layer].gradient == Gradient::Host {
            let over = |state: &mut State| (state.layers[layer].leaving == 0).then_some(());
            self.wait_until(&what, pause, over)?;
        }
        Ok(())
    }

    fn note_wait(&self, layer: usize, is_backward: bool, waited: Duration) {
        let mut state = self.lock();
        if let (true, Some(spans)) = (state.began.is_some(), state.report.layers.get_mut(layer)) {
            let wait = if is_backward { &mut spans.backward_wait } else { &mut spans.forward_wait };
            *wait += waited.as_secs_f64();
        }
    }

    /// Takes a gradient that backward has made to its buffer on the device, from which it is copied
    /// out behind compute, or to host memory.
    pub fn gradient(&self, layer: usize, parameter: usize, bytes: &[u8]) -> Result<()> {
        self.lock().check()?;
        let installed = self.layer(layer)?;
        let slice =
            installed.slices.gradients.get(parameter).filter(|slice| slice.len == bytes.len());
        let slice = slice.ok_or_else(|| {
            let (name, bytes) = (self.name(layer), bytes.len());
            let message =
                format!("{name} has no gradient of {bytes} bytes for parameter {parameter}");
            Error::invalid(message + "; install the layers again if they have changed")
        })?;
        if bytes.is_empty() {
            return Ok(());
        }
        let operand = match &installed.gradients {
            Some(buffer) => Operand::write(&buffer.memory, buffer.slot(slice, parameter)),
            None => Operand::write_mapped(slice.home.mapped(), slice.range()),
        };
        let mut entered = kernels(&*self.device)?.enter(vec![operand])?;
        let target = entered.views.first_mut().and_then(|view| view.as_mut());
        let missing = || Error::new(Kind::Internal, "a gradient has no place");
        target.ok_or_else(missing)?.copy_from_slice(bytes);
        drop(entered);
        self.made(layer, parameter, bytes.len() as u64);
        Ok(())
    }

    fn made(&self, layer: usize, parameter: usize, bytes: u64) {
        let (installed, mut state) = (&self.layers[layer], self.lock());
        let progress = &mut state.layers[layer];
        if installed.gradient == Gradient::Device {
            progress.made.push(parameter);
            progress.made_in_all += 1;
            if progress.made_in_all >= installed.trained() {
                self.send_made(&mut state, layer);
            }
        } else if let Some(left) = progress.prepaid.and_then(|prepaid| prepaid.checked_sub(bytes)) {
            progress.prepaid = Some(left);
        } else {
            progress.leaving += 1;
            self.send(&mut state, OUT, layer, vec![Payload::Writes(bytes)]);
        }
    }

    /// Puts gradients that are in their buffer in line for host memory.
    fn send_made(&self, state: &mut State, layer: usize) {
        let mut made = std::mem::take(&mut state.layers[layer].made);
        made.sort_unstable();
        let pieces = self.layers[layer].gradient_pieces(&made, self.ways[OUT].piece);
        if state.fault.is_none() && !pieces.is_empty() {
            state.layers[layer].leaving += pieces.len();
            self.send(state, OUT, layer, pieces);
        }
    }

    /// Waits until the layer's gradients are in host memory.
    pub fn arrived(&self, layer: usize, pause: Pause<'_>) -> Result<Duration> {
        self.layer(layer)?;
        self.send_made(&mut self.lock(), layer);
        let what = || format!("the gradients of {}", self.name(layer));
        let arrived = |state: &mut State| state.layers[layer].has_arrived().then_some(());
        self.wait_until(&what, pause, arrived).map(|((), waited)| waited)
    }

    /// Puts an update in line, to be done when the layer's gradients have arrived.
    pub fn update(&self, layer: usize, work: Work) -> Result<()> {
        self.layer(layer)?;
        let mut state = self.lock();
        if let Err(error) = state.check() {
            drop(state);
            drop(work);
            return Err(error);
        }
        self.send_made(&mut state, layer);
        state.updates.push_back((layer, work));
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for all updates.
    pub fn finish_updates(&self, pause: Pause<'_>) -> Result<Duration> {
        let what = || "the updates of all layers".to_owned();
        let over =
            |state: &mut State| (state.updates.is_empty() && !state.is_updating).then_some(());
        self.wait_until(&what, pause, over).map(|((), waited)| waited)
    }

    /// Ends the iteration: waits for gradients; copies that have not set off are given up.
    pub fn end(&self, pause: Pause<'_>) -> Result<Duration> {
        self.give_up_copies();
        let what = || "the gradients of the iteration".to_owned();
        let over = |state: &mut State| {
            let all = state.layers.iter().all(super::state::Progress::has_arrived);
            (all && state.is_idle(IN)).then_some(())
        };
        let waited = self.wait_until(&what, pause, over);
        let mut state = self.lock();
        if let Some(began) = state.began.take() {
            state.report.seconds = began.elapsed().as_secs_f64();
        }
        for progress in &mut state.layers {
            progress.kernels = Default::default();
        }
        self.changed.notify_all();
        waited.map(|((), waited)| waited)
    }

    /// What the last iteration came to that has ended.
    pub fn last(&self) -> Report {
        let state = self.lock();
        if state.began.is_some() { state.previous.clone() } else { state.report.clone() }
    }

    fn give_up_copies(&self) {
        let mut state = self.lock();
        for layer in 0..self.layers.len() {
            self.send_made(&mut state, layer);
        }
        let given_up = std::mem::take(&mut state.lanes[number(Direction::In)].line);
        for transfer in given_up {
            state.layers[transfer.layer].copy = CopyState::Absent;
        }
        self.changed.notify_all();
    }
}

impl State {
    fn report_direct(&mut self, layer: usize, bytes: u64, seconds: f64) {
        if self.began.is_none() {
            return;
        }
        if let Some(spans) = self.report.layers.get_mut(layer) {
            spans.direct_bytes += bytes;
            self.report.link_in_seconds += seconds;
        }
    }
}

fn wait_for(event: &Event, what: &dyn Fn() -> String, pause: Pause<'_>) -> Result<()> {
    let start = Instant::now();
    loop {
        match event.wait_within(EVENT_PAUSE) {
            // It may have ended since; then this says how.
            Err(error) if error.kind() == Kind::Timeout && event.is_done() => {
                return event.wait_within(Duration::ZERO);
            }
            Err(error) if error.kind() == Kind::Timeout => pause()?,
            over => return over,
        }
        if start.elapsed() >= PATIENCE {
            return Err(too_long(&what()));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::Completion;
    use crate::memory::Block;

    /// Ends between the end of a wait and the next look at it.
    struct AtTheLastMoment;

    impl Completion for AtTheLastMoment {
        fn poll(&self) -> Option<Result<()>> {
            Some(Ok(()))
        }

        fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<()>> {
            deadline.is_some_and(|deadline| deadline <= Instant::now()).then_some(Ok(()))
        }

        fn take_block(&self) -> Option<Block> {
            None
        }
    }

    #[test]
    fn an_event_that_ends_with_the_pause_has_ended() {
        let event = Event::new(Arc::new(AtTheLastMoment), Arc::new(()));
        let never = &mut || Err(Error::invalid("it was taken for one that goes on"));
        wait_for(&event, &|| "nothing".to_owned(), never).unwrap();
    }
}
