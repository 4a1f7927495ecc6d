//! The optimizer: steps over tensors that torch owns.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::prelude::*;
use tensorferry::codec::adam::{Factors, Run, Settings};
use tensorferry::dtype::Dtype;
use tensorferry::memory::Block;
use tensorferry::parameters::optimizer::{self, Contents, Shape, Tensor, Work};
use tensorferry::{Error, Kind, Result};

use crate::engine::{Detached, shared};
use crate::guard::{guarded, interruptible, to_the_end};
use crate::json::json;
use crate::memory::{Buffer, start_of};

/// The settings of a parameter group: lr, both betas, eps, weight decay, decoupled, maximize.
pub type Group = (f64, f64, f64, f64, f64, bool, bool);

/// What takes a step in memory: the group's number, the number of the step, the elements; dtype and
/// address of parameter and gradient; addresses of both moments and of the master, or zero.
pub type Given = (usize, f64, usize, (String, usize), (String, usize), (usize, usize, usize));

/// What takes a step on SSD: the tensor's number, then as above without the state.
type Stored = (usize, usize, f64, usize, (String, usize), (String, usize));

/// A tensor's state in memory: its number, its step, its elements, and where it is or goes.
type Copied = (usize, f64, usize, (usize, usize, usize));

/// Takes a step with every tensor.
///
/// All addresses are of contiguous memory of the dtype and as long as the elements say, alive, and
/// until this returns used by nobody else.
#[pyfunction]
pub fn adam_step(
    py: Python<'_>,
    groups: Vec<Group>,
    tensors: Vec<Given>,
    threads: usize,
) -> PyResult<()> {
    guarded(py, move || {
        let step = Step::of(&groups, tensors, threads)?;
        // SAFETY: the caller promises that the memory is there and nobody else's until this
        // returns.
        unsafe { step.take() }
    })
}

/// A step over tensors of which no two overlap, to be taken.
pub struct Step {
    moving: Vec<Moving>,
    threads: usize,
}

impl Step {
    pub fn of(groups: &[Group], tensors: Vec<Given>, threads: usize) -> Result<Self> {
        let moving = tensors
            .into_iter()
            .map(|(group, step, elements, parameter, gradient, state)| {
                let state = state_at(elements, state)?;
                Moving::of(factors(groups, group, step)?, elements, &parameter, &gradient, state)
            })
            .collect::<Result<Vec<_>>>()?;
        refuse_overlap(moving.iter().flat_map(|moving| moving.places))?;
        Ok(Self { moving, threads })
    }

    /// # Safety
    ///
    /// All memory is there and nobody else's until this returns.
    pub unsafe fn take(self) -> Result<()> {
        let tensor = |moving: Moving| {
            let Moving { factors, dtype, gradient_dtype, places } = moving;
            let [parameter, gradient, first, second, master] = places;
            // SAFETY: as for this function, and no two places overlap.
            let run = unsafe {
                Run {
                    dtype,
                    parameter: parameter.to_write(),
                    gradient_dtype,
                    gradient: gradient.to_read(),
                    first: first.to_write(),
                    second: second.to_write(),
                    master: master.to_write(),
                }
            };
            Tensor { name: "", factors, run }
        };
        optimizer::step(self.moving.into_iter().map(tensor).collect(), self.threads)
    }
}

/// Memory for state: zeros, in huge pages where there are some.
#[pyfunction]
pub fn zeroed(py: Python<'_>, bytes: usize) -> PyResult<Buffer> {
    guarded(py, || optimizer::zeroed(bytes)).map(|memory| Buffer::new(Block::from(memory)))
}

/// The state of an optimizer on SSD.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct OptimizerStore {
    store: Detached<Mutex<Option<optimizer::Store>>>,
    /// The thread that is busy with it: a signal's handler may come back to it in the middle.
    busy: Mutex<Option<ThreadId>>,
}

struct Busy<'a> {
    store: MutexGuard<'a, Option<optimizer::Store>>,
    busy: &'a Mutex<Option<ThreadId>>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(self.busy) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OptimizerStore {
    /// Does something with the store, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut optimizer::Store) -> Result<T> + Send,
    ) -> PyResult<T> {
        guarded(py, || self.work(work))
    }

    fn work<T>(&self, work: impl FnOnce(&mut optimizer::Store) -> Result<T>) -> Result<T> {
        let mut busy = self.take()?;
        let closed = || Error::new(Kind::Closed, "the optimizer's state was closed");
        work(busy.store.as_mut().ok_or_else(closed)?)
    }

    /// The store, for this thread alone.
    fn take(&self) -> Result<Busy<'_>> {
        let here = Some(thread::current().id());
        if *lock(&self.busy) == here {
            let why = "this thread is in the middle of a step of this optimizer; in a signal's \
                       handler, note the signal, and do this after the step";
            return Err(Error::invalid(why));
        }
        let store = lock(self.store.get()?);
        *lock(&self.busy) = here;
        Ok(Busy { store, busy: &self.busy })
    }
}

#[pymethods]
impl OptimizerStore {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf, resume: bool) -> PyResult<Self> {
        let store = guarded(py, move || {
            let open = if resume { optimizer::Store::resume } else { optimizer::Store::create };
            open(&shared()?, &directory)
        })?;
        Ok(Self { store: Detached::new(Mutex::new(Some(store))), busy: Mutex::new(None) })
    }

    /// The file.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.with(py, |store| Ok(store.path().to_owned()))
    }

    /// Name, elements, whether it has a master, and steps of each tensor.
    fn tensors(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, bool, f64)>> {
        self.with(py, |store| {
            let tensors = store.tensors();
            let plain = |(shape, step): (&Shape, f64)| {
                (shape.name.clone(), shape.elements, shape.master, step)
            };
            Ok(tensors.map(plain).collect())
        })
    }

    /// Adds tensors: name, elements, and whether there is a master. The number of the first.
    fn add(&self, py: Python<'_>, tensors: Vec<(String, u64, bool)>) -> PyResult<usize> {
        self.with(py, |store| store.add(tensors.into_iter().map(shape).collect()))
    }

    /// Whether it was resumed, and nobody has looked yet whether parameters belong to it.
    #[getter]
    fn is_resumed(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |store| Ok(store.is_resumed()))
    }

    /// Looks at all parameters, by address and bytes, in the order of the tensors.
    fn belongs_to(&self, py: Python<'_>, parameters: Vec<(usize, usize)>) -> PyResult<()> {
        self.with(py, |store| {
            let lend = |(start, len)| {
                // SAFETY: the caller promises that so many bytes are there, and that nobody
                // changes them until this returns.
                Place::shared(start, len).map(|place| unsafe { place.to_read() })
            };
            let parameters = parameters.into_iter().map(lend).collect::<Result<Vec<_>>>()?;
            store.belongs_to(&parameters)
        })
    }

    /// Takes a step; addresses are as for `adam_step`.
    fn step(
        &self,
        py: Python<'_>,
        groups: Vec<Group>,
        tensors: Vec<Stored>,
        threads: usize,
    ) -> PyResult<()> {
        to_the_end(py, || {
            self.work(move |store| {
                let moving = tensors
                    .into_iter()
                    .map(|(tensor, group, step, elements, parameter, gradient)| {
                        let factors = factors(&groups, group, step)?;
                        let state = [Place::NONE; 3];
                        let moving = Moving::of(factors, elements, &parameter, &gradient, state)?;
                        Ok((tensor, step, moving))
                    })
                    .collect::<Result<Vec<_>>>()?;
                refuse_overlap(moving.iter().flat_map(|(_, _, moving)| moving.places))?;
                let work = |(tensor, step, moving)| {
                    let Moving { factors, dtype, gradient_dtype, places } = moving;
                    // SAFETY: as in `adam_step`.
                    let (parameter, gradient) =
                        unsafe { (places[0].to_write(), places[1].to_read()) };
                    Work { tensor, step, factors, dtype, parameter, gradient_dtype, gradient }
                };
                store.step(moving.into_iter().map(work).collect(), threads)
            })
        })
    }

    /// Copies state to memory.
    fn read(&self, py: Python<'_>, state: Vec<Copied>, threads: usize) -> PyResult<()> {
        interruptible(py, || self.work(|store| store.read(contents(state)?, threads)))
    }

    /// Replaces all tensors, given as for `add`, and their state.
    fn load(
        &self,
        py: Python<'_>,
        tensors: Vec<(String, u64, bool)>,
        state: Vec<Copied>,
        threads: usize,
    ) -> PyResult<()> {
        let tensors = tensors.into_iter().map(shape).collect();
        interruptible(py, || self.work(|store| store.load(tensors, contents(state)?, threads)))
    }

    /// What it has done, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |store| json(&store.report()))
    }

    /// Closes the file, which stays, and frees the staging memory. Once is enough.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            self.take()?.store.take();
            Ok(())
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = self.with(py, |store| Ok(store.path().display().to_string()));
        format!("OptimizerStore({})", path.unwrap_or_else(|_| "closed".into()))
    }
}

fn shape((name, elements, master): (String, u64, bool)) -> Shape {
    Shape { name, elements, master }
}

fn factors(groups: &[Group], group: usize, step: f64) -> Result<Factors> {
    let Some(&(lr, first, second, eps, weight_decay, decoupled, maximize)) = groups.get(group)
    else {
        return Err(Error::invalid(format!("there is no parameter group {group}")));
    };
    let betas = (first, second);
    Ok(Settings { lr, betas, eps, weight_decay, decoupled, maximize }.at(step))
}

fn contents<'a>(given: Vec<Copied>) -> Result<Vec<Contents<'a>>> {
    let given = given.into_iter().map(|(tensor, step, elements, state)| {
        state_at(elements, state).map(|places| (tensor, step, places))
    });
    let given = given.collect::<Result<Vec<_>>>()?;
    refuse_overlap(given.iter().flat_map(|(_, _, places)| *places))?;
    let contents = given.into_iter().map(|(tensor, step, places)| {
        // SAFETY: as in `adam_step`; the core lets go of them before the call returns.
        let [first, second, master] = places.map(|place| unsafe { place.to_write() });
        Contents { tensor, step, first, second, master }
    });
    Ok(contents.collect())
}

/// Moments, and a master where there is one.
fn state_at(elements: usize, (first, second, master): (usize, usize, usize)) -> Result<[Place; 3]> {
    let bytes = elements * 4;
    let master = if master == 0 { Place::NONE } else { Place::exclusive(master, bytes)? };
    Ok([Place::exclusive(first, bytes)?, Place::exclusive(second, bytes)?, master])
}

/// A tensor that takes a step.
struct Moving {
    factors: Factors,
    dtype: Dtype,
    gradient_dtype: Dtype,
    /// Parameter, gradient, moments, master.
    places: [Place; 5],
}

impl Moving {
    fn of(
        factors: Factors,
        elements: usize,
        parameter: &(String, usize),
        gradient: &(String, usize),
        [first, second, master]: [Place; 3],
    ) -> Result<Self> {
        let (dtype, gradient_dtype) = (Dtype::named(&parameter.0)?, Dtype::named(&gradient.0)?);
        let places = [
            Place::exclusive(parameter.1, elements * dtype.bytes() as usize)?,
            Place::shared(gradient.1, elements * gradient_dtype.bytes() as usize)?,
            first,
            second,
            master,
        ];
        Ok(Self { factors, dtype, gradient_dtype, places })
    }
}

/// Memory of torch's.
#[derive(Clone, Copy)]
pub struct Place {
    start: usize,
    len: usize,
    exclusive: bool,
}

impl Place {
    /// Of what is not there.
    const NONE: Self = Self { start: 1, len: 0, exclusive: false };

    pub fn shared(start: usize, len: usize) -> Result<Self> {
        Ok(Self { start: start_of(start, len)?.addr().get(), len, exclusive: false })
    }

    fn exclusive(start: usize, len: usize) -> Result<Self> {
        Ok(Self { exclusive: true, ..Self::shared(start, len)? })
    }

    /// # Safety
    ///
    /// There are so many bytes, alive and unchanged for as long as they are used.
    pub unsafe fn to_read<'a>(self) -> &'a [u8] {
        // SAFETY: as for this function; of no bytes, the address is at least not null.
        unsafe {
            let start = std::ptr::with_exposed_provenance(self.start);
            std::slice::from_raw_parts(start, self.len)
        }
    }

    /// # Safety
    ///
    /// There are so many bytes, alive and nobody else's for as long as they are used.
    unsafe fn to_write<'a>(self) -> &'a mut [u8] {
        // SAFETY: as for this function; of no bytes, the address is at least not null.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut(self.start);
            std::slice::from_raw_parts_mut(start, self.len)
        }
    }
}

/// What is written to is lent once only: two parameters may be views of one storage.
fn refuse_overlap(places: impl Iterator<Item = Place>) -> Result<()> {
    let range =
        |place: Place| (place.start, place.start.saturating_add(place.len), place.exclusive);
    let mut ranges: Vec<_> = places.filter(|place| place.len > 0).map(range).collect();
    ranges.sort_unstable();
    let (mut any_end, mut exclusive_end) = (0, 0);
    for (start, end, exclusive) in ranges {
        if start < exclusive_end || exclusive && start < any_end {
            let why = "two parameters, or a parameter and a gradient, share memory; give each \
                       memory of its own, or tie them as one parameter";
            return Err(Error::invalid(why));
        }
        any_end = any_end.max(end);
        if exclusive {
            exclusive_end = exclusive_end.max(end);
        }
    }
    Ok(())
}
