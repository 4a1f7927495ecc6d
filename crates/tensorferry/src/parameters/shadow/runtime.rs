//! The runtime of a shadow model: a device with a budget, and the plan that is installed on it.

use std::sync::Arc;
use std::time::Duration;

use super::buffer::room;
use super::host_memory::HostMemory;
use super::installation::{Installation, Layer, Pause};
use super::link;
use super::report::Report;
use super::state::Work;
use crate::device::{self, ALLOCATION_ALIGNMENT, Device, DevicePointer, Direction, Facts, Kernels};
use crate::error::{Error, Kind, Result};
use crate::plan::parameters::{self, Link, Plan, Planner, Profile};
use crate::size::Size;
use crate::sync::{Mutex, lock};

/// See the [module](super).
pub struct Shadow {
    /// Before the device: its threads end first.
    installation: Mutex<Option<Arc<Installation>>>,
    peak: Mutex<u64>,
    budget: u64,
    device: Arc<dyn Device>,
}

/// How kernels that are host code reach the device: the one place where a device without them is refused.
pub(super) fn kernels(device: &dyn Device) -> Result<&dyn Kernels> {
    device.kernels().ok_or_else(|| {
        let name = device.facts().name;
        let message = format!("a shadow model can't run on {name:?} yet");
        Error::new(Kind::Unsupported, message + "; take an emulated device, or \"host\"")
    })
}

impl Shadow {
    /// On the device of this name, with at most `budget` bytes there, or all it has.
    pub fn open(name: &str, budget: Option<u64>) -> Result<Self> {
        Self::new(device::open(name)?, budget)
    }

    /// On this device.
    pub fn new(device: Arc<dyn Device>, budget: Option<u64>) -> Result<Self> {
        kernels(&*device)?;
        let capacity = device.facts().capacity_bytes;
        let budget = budget.unwrap_or(capacity);
        if budget > capacity {
            let (budget, capacity) = (Size(budget), Size(capacity));
            let message = format!("a budget of {budget} on a device with {capacity}");
            return Err(Error::invalid(message + "; give at most what the device has"));
        }
        Ok(Self { installation: Mutex::new(None), peak: Mutex::new(0), budget, device })
    }

    /// What is known about the device.
    pub fn facts(&self) -> Facts {
        self.device.facts()
    }

    /// Bytes that may be on it.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Memory for parameters or gradients.
    pub fn host_memory(&self, bytes: usize) -> Result<HostMemory> {
        HostMemory::new(&*self.device, bytes)
    }

    /// The former name of [`host_memory`](Self::host_memory).
    pub fn home(&self, bytes: usize) -> Result<HostMemory> {
        self.host_memory(bytes)
    }

    /// Measures the link with copies of up to so many bytes, which must fit into the budget beside
    /// what is installed.
    pub fn measure_link(&self, bytes: usize) -> Result<Link> {
        let used = self.device.facts().used_bytes;
        if used.saturating_add(room([bytes]) as u64) > self.budget {
            let message = format!("{} to measure the link with do not fit", Size(bytes as u64));
            let (used, budget) = (Size(used), Size(self.budget));
            let error = Error::new(Kind::OutOfMemory, message + "; measure with less");
            return Err(error.with("used", used).with("budget", budget));
        }
        link::measure(&*self.device, bytes)
    }

    /// How long a kernel takes that computes for so long, with so many bytes in host memory.
    pub fn direct_time(&self, way: Direction, bytes: u64, compute: Duration) -> Result<Duration> {
        Ok(kernels(&*self.device)?.direct_time(way, bytes, compute))
    }

    /// A plan within the budget. Work counts as the device counts an allocation.
    pub fn plan(&self, profile: &Profile, gradient_reserve: u64, planner: Planner) -> Result<Plan> {
        let mut profile = profile.clone();
        profile.work_bytes = profile.work_bytes.next_multiple_of(ALLOCATION_ALIGNMENT as u64);
        parameters::plan(&profile, self.budget, gradient_reserve, planner)
    }

    /// Installs layers and a plan in the place of the last ones, which are freed first.
    pub fn install(&self, layers: Vec<Layer>, plan: &Plan, profile: &Profile) -> Result<()> {
        let mut installed = lock(&self.installation);
        if installed.as_ref().is_some_and(|before| before.installed().has_updates()) {
            let message = "updates are in line; finish them before another plan is installed";
            return Err(Error::invalid(message));
        }
        end(installed.take());
        let mut peak = lock(&self.peak);
        *peak = 0;
        let mut sample = |bytes: u64| *peak = bytes.max(*peak);
        let installation =
            Installation::install(&self.device, self.budget, layers, (plan, profile), &mut sample)?;
        *installed = Some(Arc::new(installation));
        Ok(())
    }

    /// A parameter in its layer's device buffer, for kernels; `None` if the layer is never copied. Its bytes are
    /// there while the layer is entered.
    pub fn device_pointer(&self, layer: usize, parameter: usize) -> Result<Option<DevicePointer>> {
        let installation = self.installation()?;
        let placed = installation.installed().layer(layer)?;
        if parameter >= placed.slices.parameters.len() {
            let message =
                format!("{} has no parameter {parameter}", installation.installed().name(layer));
            return Err(Error::invalid(message));
        }
        Ok(placed.pointers.get(parameter).cloned())
    }

    /// The former name of [`device_pointer`](Self::device_pointer).
    pub fn sight(&self, layer: usize, parameter: usize) -> Result<Option<DevicePointer>> {
        self.device_pointer(layer, parameter)
    }

    /// An iteration begins: copies set off. Does nothing within one.
    pub fn begin(&self, pause: Pause<'_>) -> Result<()> {
        self.installation()?.installed().begin(pause)
    }

    /// Makes the calling thread a kernel of a layer, in forward or backward; whether it is to use
    /// the device's copy, and how long it waited for that. If not, it uses the parameters in host memory,
    /// and `direct_bytes` begin to cross the link.
    pub fn enter(
        &self,
        layer: usize,
        is_backward: bool,
        direct_bytes: u64,
        pause: Pause<'_>,
    ) -> Result<(bool, Duration)> {
        self.installation()?.installed().enter(layer, is_backward, direct_bytes, pause)
    }

    /// Shows an entered kernel its parameters, wherever they are: for kernels that are written here.
    /// Others use [`device_pointer`](Self::device_pointer), or the address of the host memory. It must call nothing of
    /// the shadow model.
    pub fn look<T>(
        &self,
        layer: usize,
        is_backward: bool,
        compute: impl FnOnce(&[&[u8]]) -> T,
    ) -> Result<T> {
        self.installation()?.installed().look(layer, is_backward, compute)
    }

    /// Ends that kernel, when what it has read and written in place has crossed; how long that took.
    pub fn leave(&self, layer: usize, is_backward: bool, pause: Pause<'_>) -> Result<Duration> {
        self.installation()?.installed().leave(layer, is_backward, pause)
    }

    /// Backward has made a parameter's gradient: moves it to its place.
    pub fn gradient(&self, layer: usize, parameter: usize, bytes: &[u8]) -> Result<()> {
        self.installation()?.installed().gradient(layer, parameter, bytes)
    }

    /// Waits until a layer's gradients are in host memory.
    pub fn arrived(&self, layer: usize, pause: Pause<'_>) -> Result<Duration> {
        self.installation()?.installed().arrived(layer, pause)
    }

    /// Lets the updating thread do `work` once the layer's gradients have arrived and nobody reads
    /// its parameters any more, in the order of calls.
    pub fn update(&self, layer: usize, work: Work) -> Result<()> {
        self.installation()?.installed().update(layer, work)
    }

    /// Waits for all updates.
    pub fn finish_updates(&self, pause: Pause<'_>) -> Result<Duration> {
        self.installation()?.installed().finish_updates(pause)
    }

    /// The iteration is over: waits for gradients, gives up copies that have not set off, and ends
    /// kernels that were not left.
    pub fn end(&self, pause: Pause<'_>) -> Result<Duration> {
        self.installation()?.installed().end(pause)
    }

    /// The last iteration that has ended.
    pub fn last(&self) -> Result<Report> {
        let report = self.installation()?.installed().last();
        let (peak_bytes, budget) = (*lock(&self.peak), self.budget);
        Ok(Report { peak_bytes, budget, ..report }.summed())
    }

    /// Ends what is installed and frees the device.
    pub fn close(&self) {
        end(lock(&self.installation).take());
    }

    fn installation(&self) -> Result<Arc<Installation>> {
        let missing = || Error::new(Kind::Closed, "no plan is installed; install one first");
        lock(&self.installation).clone().ok_or_else(missing)
    }
}

fn end(installation: Option<Arc<Installation>>) {
    if let Some(installation) = installation {
        installation.close();
    }
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shadow({:?}, {})", self.device, Size(self.budget))
    }
}
