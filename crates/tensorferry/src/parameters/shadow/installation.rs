//! Layers and a plan, installed on the device.
//!
//! An installation has its buffers, its streams and three threads: one for each direction of the link, one
//! for updates. They end when it is dropped, after at most the pieces that are in line.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::buffer::{Buffer, room};
use super::host_memory::Slice;
use super::link::{piece_bytes, speed};
use super::report::Report;
use super::state::{LinkTransfer, Payload, Progress, State};
use crate::device::link::Speed;
use crate::device::{
    ALLOCATION_ALIGNMENT, Device, DeviceMemory, DevicePointer, Direction, Facts, Stream,
};
use crate::error::{Error, Kind, Result};
use crate::plan::parameters::{Gradient, Mode, Plan, Profile};
use crate::size::Size;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// How long a wait lasts before its caller is asked whether to go on.
const PAUSE: Duration = Duration::from_millis(50);

/// Asked now and then during a wait; its error ends the wait.
pub type Pause<'a> = &'a mut dyn FnMut() -> Result<()>;

/// The parameters of one layer, and their gradients.
#[derive(Debug, Clone)]
pub struct Layer {
    /// In the order of the layer.
    pub parameters: Vec<Slice>,
    /// One for each parameter, without bytes where it is frozen.
    pub gradients: Vec<Slice>,
}

/// What a thread does until the installation is closed.
type Life = fn(&Installed);

pub(super) struct Installation {
    installed: Arc<Installed>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads and callers share.
pub(super) struct Installed {
    pub device: Arc<dyn Device>,
    pub layers: Vec<InstalledLayer>,
    pub copy_order: Vec<usize>,
    /// Inwards, outwards.
    pub ways: [Way; 2],
    /// On which kernels that read in place occupy the link, before copies.
    pub direct: Stream,
    pub state: Mutex<State>,
    pub changed: Condvar,
    /// Stands for what the iteration needs apart from parameters and gradients.
    _work: Option<DeviceMemory>,
}

/// One direction of the link.
pub(super) struct Way {
    pub stream: Stream,
    pub piece: usize,
    pub speed: Option<Speed>,
}

/// A layer with its memory on the device.
pub(super) struct InstalledLayer {
    pub name: String,
    pub mode: Mode,
    pub gradient: Gradient,
    pub slices: Layer,
    pub parameters: Option<Buffer>,
    pub gradients: Option<Buffer>,
    /// The parameters in their buffer, for kernels.
    pub pointers: Vec<DevicePointer>,
    /// Layers with a parameter in common, itself among them.
    pub sharing: Vec<usize>,
}

impl Installation {
    /// Allocates everything, within the budget, and starts the threads. Tells `peak` how much is on
    /// the device.
    pub fn install(
        device: &Arc<dyn Device>,
        budget: u64,
        layers: Vec<Layer>,
        (plan, profile): (&Plan, &Profile),
        peak: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        plan.check(profile)?;
        check(&layers, plan, profile)?;
        let needed = needed_bytes(&layers, plan, profile);
        if needed > budget {
            let (needed, budget) = (Size(needed), Size(budget));
            let message = format!("the plan needs {needed} on the device, above the budget");
            let advice = "; plan within the budget, with sizes of layers as `room` gives them";
            return Err(Error::new(Kind::OutOfMemory, message + advice).with("budget", budget));
        }
        let mut sample = || peak(device.facts().used_bytes);
        let work = profile.work_bytes as usize;
        let work = (work > 0).then(|| device.allocate(work)).transpose()?;
        sample();
        let installed = allocate(device, layers, (plan, profile), &mut sample)?;
        let facts = device.facts();
        let state = State {
            layers: installed.iter().map(|_| Progress::default()).collect(),
            report: Report::of(0, installed.len()),
            ..State::default()
        };
        Self::start(Installed {
            device: Arc::clone(device),
            layers: installed,
            copy_order: plan.copy_order.clone(),
            ways: [
                Way::new(&**device, &facts, Direction::In)?,
                Way::new(&**device, &facts, Direction::Out)?,
            ],
            direct: device.stream()?,
            state: Mutex::new(state),
            changed: Condvar::new(),
            _work: work,
        })
    }

    fn start(installed: Installed) -> Result<Self> {
        let mut installation = Self { installed: Arc::new(installed), threads: Vec::new() };
        let works: [(&str, Life); 3] = [
            ("ferry-shadow-in", |installed| installed.serve(Direction::In)),
            ("ferry-shadow-out", |installed| installed.serve(Direction::Out)),
            ("ferry-update", Installed::serve_updates),
        ];
        for (name, work) in works {
            let installed = Arc::clone(&installation.installed);
            let thread = thread::Builder::new().name(name.into()).spawn(move || work(&installed));
            let refused = |error| Error::from_io(error, "can't start a thread of a shadow model");
            installation.threads.push(thread.map_err(refused)?);
        }
        Ok(installation)
    }

    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Lets threads end and waits fail.
    pub fn close(&self) {
        self.installed.lock().is_closing = true;
        self.installed.changed.notify_all();
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Way {
    fn new(device: &dyn Device, facts: &Facts, direction: Direction) -> Result<Self> {
        let (piece, speed) = (piece_bytes(facts, direction), speed(facts, direction));
        Ok(Self { stream: device.stream()?, piece, speed })
    }

    /// Seconds that so many bytes take, as far as the speed is known.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.speed.map_or(0.0, |speed| speed.time(bytes).as_secs_f64())
    }
}

fn check(layers: &[Layer], plan: &Plan, profile: &Profile) -> Result<()> {
    let (given, planned) = (layers.len(), profile.layers.len());
    if given != planned {
        return Err(Error::invalid(format!("{given} layers for a plan of {planned}")));
    }
    for (number, layer) in layers.iter().enumerate() {
        let inside = |error: Error| error.with("layer", number);
        layer.check(plan.choices[number].gradient).map_err(inside)?;
    }
    Ok(())
}

impl Layer {
    fn check(&self, place: Gradient) -> Result<()> {
        let (parameters, gradients) = (self.parameters.len(), self.gradients.len());
        if parameters != gradients {
            let message = format!("{gradients} gradients for {parameters} parameters");
            return Err(Error::invalid(message + "; give one without bytes where there is none"));
        }
        self.parameters.iter().chain(&self.gradients).try_for_each(Slice::check)?;
        let is_frozen = self.gradients.iter().all(|slice| slice.len == 0);
        if is_frozen != (place == Gradient::None) {
            let message = "the plan has a gradient for this layer and the layer has none, or the \
                           other way round; plan again with the layers as they are";
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    fn sizes(slices: &[Slice]) -> impl Iterator<Item = usize> {
        slices.iter().map(|slice| slice.len)
    }
}

fn needed_bytes(layers: &[Layer], plan: &Plan, profile: &Profile) -> u64 {
    let of = |(layer, choice): (&Layer, &crate::plan::parameters::Choice)| {
        let copied =
            if choice.mode.is_copied() { room(Layer::sizes(&layer.parameters)) } else { 0 };
        let kept = choice.gradient == Gradient::Device;
        (copied + if kept { room(Layer::sizes(&layer.gradients)) } else { 0 }) as u64
    };
    let work = profile.work_bytes.next_multiple_of(ALLOCATION_ALIGNMENT as u64);
    layers.iter().zip(&plan.choices).map(of).sum::<u64>() + work
}

/// Buffers for all layers that have a copy or keep a gradient.
fn allocate(
    device: &Arc<dyn Device>,
    layers: Vec<Layer>,
    (plan, profile): (&Plan, &Profile),
    sample: &mut dyn FnMut(),
) -> Result<Vec<InstalledLayer>> {
    let meets = |a: &Layer, b: &Layer| {
        a.parameters.iter().any(|slice| b.parameters.iter().any(|other| slice.meets(other)))
    };
    let sharing: Vec<Vec<usize>> = layers
        .iter()
        .enumerate()
        .map(|(at, layer)| {
            let others =
                (0..layers.len()).filter(|other| *other == at || meets(layer, &layers[*other]));
            others.collect()
        })
        .collect();
    let mut buffer = |slices: &[Slice], is_wanted: bool| {
        let is_wanted = is_wanted && slices.iter().any(|slice| slice.len > 0);
        let buffer = is_wanted.then(|| Buffer::new(&**device, slices)).transpose();
        sample();
        buffer
    };
    let each = layers.into_iter().zip(&plan.choices).zip(&profile.layers).zip(sharing);
    each.map(|(((slices, choice), layer), sharing)| {
        let parameters = buffer(&slices.parameters, choice.mode.is_copied())?;
        let gradients = buffer(&slices.gradients, choice.gradient == Gradient::Device)?;
        let pointers = match &parameters {
            Some(buffer) => buffer.pointers(&**device, &slices.parameters)?,
            None => Vec::new(),
        };
        let (name, mode, gradient) = (layer.name.clone(), choice.mode, choice.gradient);
        Ok(InstalledLayer {
            name,
            mode,
            gradient,
            slices,
            parameters,
            gradients,
            pointers,
            sharing,
        })
    })
    .collect()
}

impl InstalledLayer {
    /// What the link carries inwards for it.
    pub fn parameter_pieces(&self, piece: usize) -> Vec<Payload> {
        let all: Vec<_> = (0..self.slices.parameters.len()).collect();
        let pieces = |buffer: &Buffer| buffer.pieces(&self.slices.parameters, &all, piece);
        let pieces = self.parameters.as_ref().map(pieces).unwrap_or_default();
        pieces.into_iter().map(Payload::Parameters).collect()
    }

    /// What it carries outwards for gradients that were made.
    pub fn gradient_pieces(&self, made: &[usize], piece: usize) -> Vec<Payload> {
        let pieces = |buffer: &Buffer| buffer.pieces(&self.slices.gradients, made, piece);
        let pieces = self.gradients.as_ref().map(pieces).unwrap_or_default();
        pieces.into_iter().map(Payload::Gradients).collect()
    }

    /// What backward makes in all.
    pub fn gradient_bytes(&self) -> u64 {
        Layer::sizes(&self.slices.gradients).sum::<usize>() as u64
    }

    pub fn trained(&self) -> usize {
        self.slices.gradients.iter().filter(|slice| slice.len > 0).count()
    }
}

impl Installed {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The layer of this number.
    pub fn layer(&self, layer: usize) -> Result<&InstalledLayer> {
        self.layers.get(layer).ok_or_else(|| {
            let layers = self.layers.len();
            Error::invalid(format!("there is no layer {layer}: the course has {layers}"))
        })
    }

    /// What errors call a layer.
    pub fn name(&self, layer: usize) -> String {
        format!("layer {layer} ({})", self.layers[layer].name)
    }

    /// Puts transfers in line.
    pub fn send(&self, state: &mut State, lane: usize, layer: usize, payloads: Vec<Payload>) {
        let transfers = payloads.into_iter().map(|payload| LinkTransfer { layer, payload });
        state.lanes[lane].line.extend(transfers);
        self.changed.notify_all();
    }

    /// Waits until `done` answers; an error once the installation is over, or nothing at all has moved
    /// for [`PATIENCE`].
    pub fn wait_until<T>(
        &self,
        what: &dyn Fn() -> String,
        pause: Pause<'_>,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<(T, Duration)> {
        let start = Instant::now();
        let (mut moved, mut quiet_since, mut asked) = (None, start, start);
        let mut state = self.lock();
        loop {
            state.check()?;
            if let Some(answer) = done(&mut state) {
                return Ok((answer, start.elapsed()));
            }
            let now = Instant::now();
            if moved.replace(state.moved) != Some(state.moved) {
                quiet_since = now;
            } else if now.duration_since(quiet_since) >= PATIENCE {
                return Err(too_long(&what()));
            }
            if now.duration_since(asked) >= PAUSE {
                drop(state);
                pause()?;
                asked = Instant::now();
                state = self.lock();
                continue;
            }
            state = wait(&self.changed, state, now.checked_add(PAUSE)).0;
        }
    }
}

#[cold]
pub(super) fn too_long(what: &str) -> Error {
    let message = format!("nothing has moved for {PATIENCE:?} while waiting for {what}");
    Error::new(Kind::Timeout, message)
}
