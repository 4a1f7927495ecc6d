//! The I/O engine, its files and its operations.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::sync::RwLockExt;
use pyo3::types::PyDict;
use tensorferry::io::{self, Config, Effect, Fault, Faults, Mode, On, Open, Priority};
use tensorferry::memory::{Block, Buffer as Memory};
use tensorferry::{Error, Kind, Result};

use crate::errors::exception;
use crate::guard::{guarded, interruptible};
use crate::memory::{Buffer, end_loan, lend, lend_for_writing};
use crate::per_process::PerProcess;
use crate::release;
use crate::size::SizeArgument;
use crate::wait::wait;

/// Every engine that may have work to finish when the interpreter goes.
static OPEN: Mutex<Vec<Weak<dyn io::Engine>>> = Mutex::new(Vec::new());

/// Finishes what was accepted, and gives back all memory, while there still is an interpreter.
#[pyfunction]
pub fn _leave(py: Python<'_>) -> PyResult<()> {
    guarded(py, || {
        let engines = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
        for engine in engines.iter().filter_map(Weak::upgrade) {
            engine.stop();
        }
        Ok(())
    })?;
    release::finish(py);
    Ok(())
}

/// Opens an engine that is stopped when the interpreter goes.
fn open(mut config: Config) -> Result<Arc<dyn io::Engine>> {
    config.faults.clone_from(&FAULTS.lock().unwrap_or_else(PoisonError::into_inner));
    let engine = io::open(&config)?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|engine| engine.strong_count() > 0);
    open.push(Arc::downgrade(&engine));
    Ok(engine)
}

/// The engine that all paths of this process share; a forked child gets one of its own.
pub fn shared() -> Result<Arc<dyn io::Engine>> {
    static SHARED: PerProcess<Arc<dyn io::Engine>> = PerProcess::new();
    SHARED.get(|_| true, || open(Config::default()))
}

/// The way to it, for what may come along into a forked child.
pub fn way() -> io::Shared {
    io::Shared::new(shared)
}

/// Lets transfers of all engines that are opened from the first call on begin so many seconds late, all but
/// the first few, so that a test can make an operation as long as it likes; with 0, none any more.
#[pyfunction]
pub fn _delay_for_tests(seconds: f64, after: u64) {
    let mut kept = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let faults = kept.get_or_insert_with(Faults::new);
    faults.calm();
    if seconds > 0.0 {
        let delay = Effect::Delay(Duration::from_secs_f64(seconds));
        faults.add(Fault::new(On::Any, delay).after(after).times(u64::MAX));
    }
}

/// What tests do to engines.
static FAULTS: Mutex<Option<Faults>> = Mutex::new(None);

/// Something that must be let go of without the GIL: an engine finishes its work first, and closing
/// a file may have to wait for a disk or a network.
pub struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub fn get(&self) -> Result<&T> {
        self.0.as_ref().ok_or_else(|| Error::new(Kind::Closed, "the engine is closed"))
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            Python::attach(|py| py.detach(|| drop(value)));
        }
    }
}

/// Moves bytes between files and memory.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Engine(RwLock<Detached<Arc<dyn io::Engine>>>);

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (backend="auto", *, in_flight=None, piece=None))]
    fn new(
        py: Python<'_>,
        backend: &str,
        in_flight: Option<SizeArgument>,
        piece: Option<SizeArgument>,
    ) -> PyResult<Self> {
        let engine = guarded(py, || {
            let mut config = Config::of(backend.parse()?);
            if let Some(SizeArgument(size)) = in_flight {
                config.in_flight_bytes = size.0;
            }
            if let Some(SizeArgument(size)) = piece {
                config.piece_bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
            }
            open(config)
        })?;
        Ok(Self(RwLock::new(Detached::new(engine))))
    }

    /// Opens a file.
    #[pyo3(signature = (path, mode="r", *, direct=true))]
    fn open(&self, py: Python<'_>, path: PathBuf, mode: &str, direct: bool) -> PyResult<File> {
        let engine = self.engine(py)?;
        guarded(py, move || {
            let how = Open { mode: mode_of(mode)?, direct };
            let file = engine.get()?.open(&path, how)?;
            Ok(File { file: Detached::new(file), engine })
        })
    }

    /// What this engine is, as plain data.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine(py)?;
        let facts = engine.get().map_err(|error| exception(py, &error))?.facts();
        let dict = PyDict::new(py);
        dict.set_item("backend", facts.backend)?;
        dict.set_item("why", &facts.why)?;
        dict.set_item("depth", facts.depth)?;
        dict.set_item("in_flight_bytes", facts.in_flight_bytes)?;
        dict.set_item("registered_bytes", facts.registered_bytes)?;
        Ok(dict)
    }

    /// Lets the engine go; it stops once its files are gone and what it has accepted is done.
    fn close(&self, py: Python<'_>) {
        let mut handle = self.0.write_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let closed = Detached(handle.0.take());
        drop(handle);
        drop(closed);
    }
}

impl Engine {
    fn engine(&self, py: Python<'_>) -> PyResult<Detached<Arc<dyn io::Engine>>> {
        let handle = self.0.read_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let engine = handle.get().map(Arc::clone).map_err(|error| exception(py, &error))?;
        Ok(Detached::new(engine))
    }
}

fn mode_of(text: &str) -> Result<Mode> {
    Ok(match text {
        "r" => Mode::Read,
        "r+" => Mode::Update,
        "a" => Mode::Create,
        "w" => Mode::Replace,
        "x" => Mode::New,
        _ => {
            return Err(Error::invalid(format!(
                "{text:?} is no mode; choose \"r\" (read), \"r+\" (read and write), \"a\" (and \
                 make it if missing), \"w\" (and empty it) or \"x\" (must not exist yet)"
            )));
        }
    })
}

/// An open file.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct File {
    // Dropped in this order: the engine may forget the file before it ends.
    file: Detached<io::File>,
    engine: Detached<Arc<dyn io::Engine>>,
}

#[pymethods]
impl File {
    /// The path it was opened by.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        guarded(py, || self.file.get().map(|file| file.path().to_owned()))
    }

    /// Whether transfers go around the page cache.
    #[getter]
    fn direct(&self, py: Python<'_>) -> PyResult<bool> {
        guarded(py, || self.file.get().map(io::File::is_direct))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || Ok(format!("{:?}", self.file.get()?)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        guarded(py, || self.file.get()?.len()).map(|len| len as usize)
    }

    /// Starts writing all bytes of `data` at `offset`.
    #[pyo3(signature = (data, offset=0, *, priority="offload"))]
    fn write(
        &self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        offset: u64,
        priority: &str,
    ) -> PyResult<Pending> {
        let block = lend(data)?;
        interruptible(py, || {
            let priority = priority.parse()?;
            Ok(Pending::of(
                self.engine.get()?.write(self.file.get()?, offset, block, priority),
                None,
            ))
        })
    }

    /// Starts reading `length` bytes at `offset` into memory of the operation's own.
    #[pyo3(signature = (length, offset=0, *, priority="waiting"))]
    fn read(
        &self,
        py: Python<'_>,
        length: usize,
        offset: u64,
        priority: &str,
    ) -> PyResult<Pending> {
        interruptible(py, || {
            let priority = priority.parse()?;
            let block = Memory::zeroed(length)?.into();
            Ok(Pending::of(
                self.engine.get()?.read(self.file.get()?, offset, block, priority),
                None,
            ))
        })
    }

    /// Starts filling `into` with the bytes at `offset`.
    #[pyo3(signature = (into, offset=0, *, priority="waiting"))]
    fn read_into(
        &self,
        py: Python<'_>,
        into: Bound<'_, PyAny>,
        offset: u64,
        priority: &str,
    ) -> PyResult<Pending> {
        let block = lend_for_writing(py, PyBuffer::get(&into)?)?;
        let into = Some(into.unbind());
        interruptible(py, || {
            let priority = priority.parse()?;
            Ok(Pending::of(
                self.engine.get()?.read(self.file.get()?, offset, block, priority),
                into,
            ))
        })
    }

    /// Starts making everything written before survive a power cut.
    #[pyo3(signature = (*, priority="waiting"))]
    fn sync(&self, py: Python<'_>, priority: &str) -> PyResult<Pending> {
        interruptible(py, || {
            let priority: Priority = priority.parse()?;
            let pending = self.engine.get()?.sync(self.file.get()?, priority);
            Ok(Pending(RwLock::new(State::Syncing(pending))))
        })
    }

    /// Makes the file at least so long, with room on the disk.
    fn reserve(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        guarded(py, || self.file.get()?.reserve(length)).map(|_| ())
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        guarded(py, || self.file.get()?.set_len(length))
    }
}

/// An operation under way.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Pending(RwLock<State>);

enum State {
    Moving(io::Pending<Block>, Option<Py<PyAny>>),
    Syncing(io::Pending<()>),
    Done(PyResult<Py<PyAny>>),
    /// While a result is being made of what the engine answered.
    Between,
}

impl Pending {
    fn of(pending: io::Pending<Block>, into: Option<Py<PyAny>>) -> Self {
        Self(RwLock::new(State::Moving(pending, into)))
    }

    fn is_done_within(&self, limit: Duration) -> bool {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            State::Moving(pending, _) => pending.wait_within(limit),
            State::Syncing(pending) => pending.wait_within(limit),
            State::Done(_) => true,
            State::Between => false,
        }
    }

    /// The result, if nobody else is making it just now; the operation is done.
    ///
    /// Making it runs Python code, so no lock is held meanwhile: a signal handler may come back to
    /// this very operation.
    fn result(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let result = match self.replace(py, State::Between) {
            State::Between => return None,
            State::Done(result) => result,
            State::Syncing(pending) => settle(py, pending, |()| Ok(py.None())),
            State::Moving(pending, Some(into)) => settle(py, pending, |block| {
                end_loan(py, block);
                Ok(into)
            }),
            State::Moving(pending, None) => settle(py, pending, |block| {
                if block.is_writable() {
                    return Ok(Py::new(py, Buffer::new(block))?.into_any());
                }
                end_loan(py, block);
                Ok(py.None())
            }),
        };
        let again = match &result {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        };
        self.replace(py, State::Done(again));
        Some(result)
    }

    fn replace(&self, py: Python<'_>, state: State) -> State {
        let mut guard = self.0.write_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *guard, state)
    }
}

fn settle<T: Send>(
    py: Python<'_>,
    pending: io::Pending<T>,
    make: impl FnOnce(T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    make(guarded(py, || pending.wait().map_err(Error::from))?)
}

#[pymethods]
impl Pending {
    /// Whether waiting would return at once.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.is_done_within(Duration::ZERO))
    }

    /// Waits, at most `timeout` seconds; gives what was read, or None.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        wait(py, "the operation", timeout, |limit| {
            py.detach(|| self.is_done_within(limit)).then(|| self.result(py)).flatten()
        })?
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        if self.done(py) { "Pending(done)" } else { "Pending(running)" }
    }
}
