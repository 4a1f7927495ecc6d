//! The runtime of shadow models, whose kernels are torch's.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use serde::Serialize;
use tensorferry::device::{self, Direction, Facts};
use tensorferry::parameters::shadow::{self, Layer, Pause, Slice};
use tensorferry::plan::parameters::{self, Plan, Profile};
use tensorferry::{Error, Kind, Result};

use crate::engine::Detached;
use crate::guard::guarded;
use crate::json::json;
use crate::memory::fill;
use crate::optim::{Given, Group, Place, Step};

/// Host memory for parameters or gradients: any buffer consumer uses it without a copy.
///
/// Who has a view of it writes to parameters between iterations only, and reads gradients once they
/// have arrived; torch's own tensors ask for the same care.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Home(Arc<shadow::HostMemory>);

#[pymethods]
impl Home {
    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.len()
    }

    /// Where they start.
    #[getter]
    fn address(&self) -> usize {
        self.0.address()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("Home({} bytes)", self.0.len())
    }

    /// # Safety
    /// Called by the interpreter with a valid or null `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let home = &slf.get().0;
        let start = std::ptr::with_exposed_provenance_mut(home.address());
        // SAFETY: as the interpreter promises; the memory lives as long as `slf`.
        unsafe { fill(slf.as_any(), (start, home.len()), view, flags) }
    }
}

/// A parameter on the device, for kernels: any buffer consumer uses it without a copy. The bytes are
/// there as long as one is, also when another plan is installed; what they are is known while the
/// parameter's layer is entered.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Sight(device::DevicePointer);

#[pymethods]
impl Sight {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("Sight({} bytes)", self.0.len())
    }

    /// # Safety
    /// Called by the interpreter with a valid or null `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let sight = &slf.get().0;
        let start = std::ptr::with_exposed_provenance_mut(sight.address());
        // SAFETY: as the interpreter promises; the memory lives as long as `slf`.
        unsafe { fill(slf.as_any(), (start, sight.len()), view, flags) }
    }
}

/// A part of a home: from where, and how many bytes.
type Part = (Py<Home>, usize, usize);

/// A device with a budget, and the course that is installed on it.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Shadow {
    /// The process whose threads it has.
    process: u32,
    shadow: Mutex<Option<Detached<Arc<shadow::Shadow>>>>,
}

#[pymethods]
impl Shadow {
    #[new]
    fn new(py: Python<'_>, device: &str, budget: Option<u64>) -> PyResult<Self> {
        let shadow = guarded(py, || shadow::Shadow::open(device, budget))?;
        let shadow = Mutex::new(Some(Detached::new(Arc::new(shadow))));
        Ok(Self { process: std::process::id(), shadow })
    }

    /// Device bytes of a layer whose parameters have these sizes.
    #[staticmethod]
    fn room(sizes: Vec<usize>) -> usize {
        shadow::room(sizes)
    }

    /// What crosses the link when parameters are used in place for so many rows of input.
    #[staticmethod]
    fn read_bytes(nbytes: u64, rows: u64) -> u64 {
        parameters::read_bytes(nbytes, rows)
    }

    /// What crosses it when rows of a table are looked up.
    #[staticmethod]
    fn looked_up_bytes(nbytes: u64, row_nbytes: u64, rows: u64) -> u64 {
        parameters::looked_up_bytes(nbytes, row_nbytes, rows)
    }

    /// What is known about the device, as JSON.
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        #[derive(Serialize)]
        struct Told {
            #[serde(flatten)]
            facts: Facts,
            budget: u64,
        }
        self.with(py, |shadow| json(&Told { facts: shadow.facts(), budget: shadow.budget() }))
    }

    /// Memory for parameters or gradients.
    fn home(&self, py: Python<'_>, nbytes: usize) -> PyResult<Home> {
        self.with(py, |shadow| shadow.host_memory(nbytes)).map(|home| Home(Arc::new(home)))
    }

    /// The link, measured, as JSON.
    fn measure_link(&self, py: Python<'_>, nbytes: usize) -> PyResult<String> {
        self.with(py, |shadow| json(&shadow.measure_link(nbytes)?))
    }

    /// Seconds of a kernel that computes for so long, with so many bytes in host memory.
    fn direct_seconds(
        &self,
        py: Python<'_>,
        outwards: bool,
        nbytes: u64,
        compute: f64,
    ) -> PyResult<f64> {
        self.with(py, |shadow| {
            let way = if outwards { Direction::Out } else { Direction::In };
            let compute = Duration::try_from_secs_f64(compute).map_err(|error| {
                Error::invalid(format!("{compute} seconds are no time")).caused_by(error)
            })?;
            Ok(shadow.direct_time(way, nbytes, compute)?.as_secs_f64())
        })
    }

    /// A plan within the budget, as JSON.
    fn plan(
        &self,
        py: Python<'_>,
        profile: &str,
        gradient_reserve: u64,
        planner: &str,
    ) -> PyResult<String> {
        self.with(py, |shadow| {
            let profile = Profile::parse(profile)?;
            shadow.plan(&profile, gradient_reserve, planner.parse()?)?.to_json()
        })
    }

    /// Installs layers, by their parts of homes for parameters and gradients, with a plan.
    fn install(
        &self,
        py: Python<'_>,
        layers: Vec<(Vec<Part>, Vec<Part>)>,
        plan: &str,
        profile: &str,
    ) -> PyResult<()> {
        let slices = |parts: Vec<Part>| {
            let slice =
                |(home, offset, len): Part| Slice { home: Arc::clone(&home.get().0), offset, len };
            parts.into_iter().map(slice).collect()
        };
        let layer = |(parameters, gradients)| Layer {
            parameters: slices(parameters),
            gradients: slices(gradients),
        };
        let layers: Vec<_> = layers.into_iter().map(layer).collect();
        self.with(py, |shadow| {
            let profile = Profile::parse(profile)?;
            shadow.install(layers, &Plan::parse(plan, &profile)?, &profile)
        })
    }

    /// A parameter on the device; `None` if its layer is never copied.
    fn sight(&self, py: Python<'_>, layer: usize, parameter: usize) -> PyResult<Option<Sight>> {
        Ok(self.with(py, |shadow| shadow.device_pointer(layer, parameter))?.map(Sight))
    }

    /// An iteration begins.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting(py, |shadow, pause| shadow.begin(pause))
    }

    /// A layer's kernel begins: whether on the device, and seconds waited.
    fn enter(
        &self,
        py: Python<'_>,
        layer: usize,
        backward: bool,
        direct_bytes: u64,
    ) -> PyResult<(bool, f64)> {
        let entered =
            self.waiting(py, |shadow, pause| shadow.enter(layer, backward, direct_bytes, pause));
        entered.map(|(is_on_device, waited)| (is_on_device, waited.as_secs_f64()))
    }

    /// It ends: seconds waited.
    fn leave(&self, py: Python<'_>, layer: usize, backward: bool) -> PyResult<f64> {
        self.seconds(py, |shadow, pause| shadow.leave(layer, backward, pause))
    }

    /// Takes a gradient to its place, from memory that stays as it is until this returns.
    fn gradient(
        &self,
        py: Python<'_>,
        layer: usize,
        parameter: usize,
        address: usize,
        nbytes: usize,
    ) -> PyResult<()> {
        self.with(py, |shadow| {
            // SAFETY: the caller promises that so many bytes are there, and that nobody changes
            // them until this returns.
            let bytes = unsafe { Place::shared(address, nbytes)?.to_read() };
            shadow.gradient(layer, parameter, bytes)
        })
    }

    /// Waits until a layer's gradients are in their homes: seconds waited.
    fn arrived(&self, py: Python<'_>, layer: usize) -> PyResult<f64> {
        self.seconds(py, |shadow, pause| shadow.arrived(layer, pause))
    }

    /// Takes a step with a layer, as `adam_step` does, once its gradients have arrived.
    #[pyo3(signature = (layer, groups, work, threads=1))]
    fn update(
        &self,
        py: Python<'_>,
        layer: usize,
        groups: Vec<Group>,
        work: Vec<Given>,
        threads: usize,
    ) -> PyResult<()> {
        self.with(py, move |shadow| {
            let step = Step::of(&groups, work, threads)?;
            // SAFETY: the caller keeps the memory until updates are finished, and touches none of
            // it before. Parameters in a home are written when nobody reads them (the core waits
            // for kernels and copies), gradients are read when they have arrived.
            shadow.update(layer, Box::new(move || unsafe { step.take() }))
        })
    }

    /// Waits for all updates: seconds waited.
    fn finish_updates(&self, py: Python<'_>) -> PyResult<f64> {
        self.seconds(py, shadow::Shadow::finish_updates)
    }

    /// The iteration is over: seconds waited.
    fn end(&self, py: Python<'_>) -> PyResult<f64> {
        self.seconds(py, shadow::Shadow::end)
    }

    /// What the last iteration came to, as JSON.
    fn last(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |shadow| json(&shadow.last()?))
    }

    /// Frees the device. Homes stay.
    fn close(&self, py: Python<'_>) {
        let closed = self.taken();
        if let Some(Ok(shadow)) = closed.as_ref().map(Detached::get) {
            py.detach(|| shadow.close());
        }
    }
}

impl Shadow {
    fn get(&self) -> Result<Arc<shadow::Shadow>> {
        if self.process != std::process::id() {
            let message = "this shadow model belongs to the process that made it; make another one \
                           in this process";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let shadow = self.shadow.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || Error::new(Kind::Closed, "the shadow model is closed");
        shadow.as_ref().ok_or_else(closed)?.get().map(Arc::clone)
    }

    fn taken(&self) -> Option<Detached<Arc<shadow::Shadow>>> {
        let shadow = self.shadow.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process != std::process::id() {
            // Its threads did not come along, and their locks may be taken for ever.
            std::mem::forget(shadow);
            return None;
        }
        shadow
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&shadow::Shadow) -> Result<T> + Send,
    ) -> PyResult<T> {
        guarded(py, || work(&*self.get()?))
    }

    /// Runs what may wait, with turns for signal handlers.
    fn waiting<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&shadow::Shadow, Pause<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut raised = None;
        let result = self.with(py, |shadow| {
            work(shadow, &mut || {
                Python::attach(ask_handlers).map_err(|error| {
                    raised = Some(error);
                    Error::new(Kind::Closed, "a signal's handler has raised an exception")
                })
            })
        });
        raised.map_or(result, Err)
    }

    fn seconds(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&shadow::Shadow, Pause<'_>) -> Result<Duration> + Send,
    ) -> PyResult<f64> {
        self.waiting(py, work).map(|waited| waited.as_secs_f64())
    }
}

/// Lets handlers of signals run that have come meanwhile.
fn ask_handlers(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

impl Drop for Shadow {
    fn drop(&mut self) {
        drop(self.taken());
    }
}
