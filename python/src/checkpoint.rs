//! Checkpoints: tensors that torch owns to a file, and back.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry::checkpoint::{
    self, Dtype, Format, Header, Options, Probe, Report, STAGING_BYTES, STRUCTURE, Tensor, Wanted,
};
use tensorferry::io::Priority;
use tensorferry::memory::{Block, Foreign, Pool};
use tensorferry::{Error, Kind, Result, Size};

use crate::engine::{Detached, shared};
use crate::errors::{Raised, exception};
use crate::guard::{guarded, interruptible};
use crate::memory::{Buffer, start_of};
use crate::per_process::PerProcess;
use crate::size::SizeArgument;
use crate::wait::wait;

/// A tensor to save: name, dtype, shape, and the address of its bytes if it has one.
type Given = (String, String, Vec<u64>, Option<usize>);

/// A tensor in a file: name, dtype, shape and bytes.
type Described = (String, &'static str, Vec<u64>, u64);

/// Where saves that are waited for are staged. Apart from the others, whose pages may be small ones:
/// from huge pages the disk writes faster, and there are few of them.
static WAITED_FOR: Kept = PerProcess::new();

/// Where saves behind their callers are staged; made anew when another size is asked for.
static BEHIND: Kept = PerProcess::new();

/// Staging memory and its size.
type Kept = PerProcess<(Size, Pool)>;

/// How to save.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct How {
    tool: String,
    durable: bool,
    checksum: bool,
    staging: Option<SizeArgument>,
}

/// Saves and waits for it.
///
/// The memory at each address is contiguous, as long as shape and dtype say, and alive and
/// unchanged until this returns; for a tensor without one, `materialize(number)` gives an address and
/// what keeps the memory there.
#[pyfunction]
pub fn save(
    py: Python<'_>,
    path: PathBuf,
    tensors: Vec<Given>,
    materialize: Py<PyAny>,
    structure: String,
    how: How,
) -> PyResult<Bound<'_, PyDict>> {
    let report = interruptible(py, move || {
        let (header, mut source) = lay_out(tensors, materialize, structure)?;
        checkpoint::save(&shared()?, &path, header, &mut source, &options(&how)?)
    })?;
    as_dict(py, &report)
}

/// Saves, and returns as soon as all tensors are in staging memory.
#[pyfunction]
pub fn save_behind(
    py: Python<'_>,
    path: PathBuf,
    tensors: Vec<Given>,
    materialize: Py<PyAny>,
    structure: String,
    how: How,
) -> PyResult<Saving> {
    let saving = interruptible(py, move || {
        let (header, mut source) = lay_out(tensors, materialize, structure)?;
        checkpoint::save_behind(&shared()?, &path, header, &mut source, &options(&how)?)
    })?;
    let staged_seconds = saving.staged_seconds();
    Ok(Saving { state: Mutex::new(State::Running(saving)), staged_seconds })
}

/// A file that another library writes, and that is then put in its place like our own.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Draft(Mutex<Option<checkpoint::Draft>>);

#[pymethods]
impl Draft {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        guarded(py, move || {
            let draft = checkpoint::Draft::create(&shared()?, &path, false)?;
            Ok(Self(Mutex::new(Some(draft))))
        })
    }

    /// Where to write.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        let draft = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = draft.as_ref().map(|draft| draft.file().path().to_owned());
        path.ok_or_else(|| exception(py, &gone()))
    }

    /// Puts the file in its place.
    fn publish(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        interruptible(py, || {
            let draft = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            draft.ok_or_else(gone)?.publish(durable, Priority::Waiting)
        })
    }

    /// Removes what was not published.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }
}

fn gone() -> Error {
    Error::new(Kind::Closed, "the draft was published or discarded")
}

fn lay_out(
    tensors: Vec<Given>,
    materialize: Py<PyAny>,
    structure: String,
) -> Result<(Header, Memory)> {
    let mut places = HashMap::with_capacity(tensors.len());
    let mut named = Vec::with_capacity(tensors.len());
    for (number, (name, dtype, shape, address)) in tensors.into_iter().enumerate() {
        places.insert(name.clone(), (number, address));
        let dtype = Dtype::named(&dtype).map_err(|error| error.with("tensor", &name))?;
        named.push((name, dtype, shape));
    }
    let format = ("format".to_owned(), "pt".to_owned());
    let metadata = BTreeMap::from([format, (STRUCTURE.to_owned(), structure)]);
    Ok((Header::lay_out(named, metadata)?, Memory { places, materialize }))
}

fn options(how: &How) -> Result<Options> {
    let tool = checkpoint::tool(&how.tool)?;
    let staging = match &how.staging {
        Some(SizeArgument(size)) => pool(&BEHIND, *size)?,
        None => pool(&WAITED_FOR, Size(STAGING_BYTES))?,
    };
    Ok(Options { tool, durable: how.durable, checksum: how.checksum, staging })
}

fn pool(kept: &Kept, size: Size) -> Result<Pool> {
    let fits = |(made, _): &(Size, Pool)| *made == size;
    Ok(kept.get(fits, || Ok((size, checkpoint::staging(size.0)?)))?.1)
}

/// The tensors' memory.
struct Memory {
    /// By name: its number, and its address.
    places: HashMap<String, (usize, Option<usize>)>,
    materialize: Py<PyAny>,
}

impl checkpoint::Source for Memory {
    fn bytes(&mut self, tensor: &Tensor) -> Result<Block> {
        let Some((number, address)) = self.places.get(&tensor.name) else {
            return Err(Error::new(Kind::Internal, "a tensor was laid out that was not given"));
        };
        match address {
            Some(address) => at(*address, tensor, None),
            None => self.make(*number, tensor),
        }
    }
}

impl Memory {
    /// Asks Python for a contiguous copy in host memory.
    fn make(&self, number: usize, tensor: &Tensor) -> Result<Block> {
        let made = Python::attach(|py| {
            let made = self.materialize.bind(py).call1((number,));
            let made = made.and_then(|made| made.extract::<(usize, Py<PyAny>)>());
            made.map_err(|error| Raised::new(py, error))
        });
        let (address, keeper) = made.map_err(|raised| {
            Error::new(Kind::InvalidInput, "can't copy a tensor to host memory")
                .with("tensor", &tensor.name)
                .caused_by(raised)
        })?;
        at(address, tensor, Some(keeper))
    }
}

/// The bytes of a tensor at an address that the package has given.
fn at(address: usize, tensor: &Tensor, keeper: Option<Py<PyAny>>) -> Result<Block> {
    let len = tensor.len() as usize;
    let start = start_of(address, len).map_err(|error| error.with("tensor", &tensor.name))?;
    // SAFETY: the package promises that the memory is contiguous, as long as the shape says, and
    // unchanged until `save` returns, when all blocks are gone; it is alive until then by the
    // caller's own reference, or by the keeper.
    Ok(unsafe { Foreign::shared(start, len, Box::new(keeper)) }.into())
}

fn as_dict<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("seconds", report.seconds)?;
    dict.set_item("staged_seconds", report.staged_seconds)?;
    dict.set_item("waited_seconds", report.waited_seconds)?;
    dict.set_item("sync_seconds", report.sync_seconds)?;
    dict.set_item("tool", report.tool)?;
    Ok(dict)
}

/// A save that goes on behind its caller.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Saving {
    state: Mutex<State>,
    staged_seconds: f64,
}

enum State {
    Running(checkpoint::Saving),
    Done(Result<Report, Arc<Error>>),
    Between,
}

impl Saving {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `limit` for the end, and keeps what came out.
    fn settle(&self, limit: Duration) -> bool {
        let mut state = self.state();
        match &*state {
            State::Done(_) => return true,
            State::Running(saving) if !saving.wait_within(limit) => return false,
            State::Running(_) | State::Between => {}
        }
        if let State::Running(saving) = std::mem::replace(&mut *state, State::Between) {
            *state = State::Done(saving.wait().map_err(Arc::new));
        }
        true
    }
}

#[pymethods]
impl Saving {
    /// How long the caller was held.
    #[getter]
    fn staged_seconds(&self) -> f64 {
        self.staged_seconds
    }

    /// Whether waiting would return at once.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.settle(Duration::ZERO))
    }

    /// Waits, at most `timeout` seconds, until the file is in its place.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        let settle = |limit| py.detach(|| self.settle(limit)).then_some(());
        wait(py, "the save", timeout, settle)?;
        match &*self.state() {
            State::Done(Ok(report)) => as_dict(py, report),
            State::Done(Err(error)) => Err(exception(py, error)),
            State::Running(_) | State::Between => {
                let error = Error::new(Kind::Internal, "a save that is done has no result");
                Err(exception(py, &error))
            }
        }
    }
}

/// A checkpoint that is open for loading.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Checkpoint(Detached<checkpoint::Checkpoint>);

#[pymethods]
impl Checkpoint {
    #[new]
    #[pyo3(signature = (path, *, tool=None, verify=true))]
    fn new(py: Python<'_>, path: PathBuf, tool: Option<&str>, verify: bool) -> PyResult<Self> {
        interruptible(py, move || {
            let tool = tool.map(checkpoint::tool).transpose()?;
            let opened = checkpoint::Checkpoint::open(&shared()?, &path, tool, verify)?;
            Ok(Self(Detached::new(opened)))
        })
    }

    /// Name, dtype, shape and bytes of each tensor, in the order of the file.
    fn tensors(&self) -> PyResult<Vec<Described>> {
        let tensors = self.header()?.tensors.iter();
        let described = |tensor: &Tensor| {
            (tensor.name.clone(), tensor.dtype.name(), tensor.shape.clone(), tensor.len())
        };
        Ok(tensors.map(described).collect())
    }

    /// The texts beside the tensors.
    fn metadata(&self) -> PyResult<BTreeMap<String, String>> {
        Ok(self.header()?.metadata.clone())
    }

    /// The tool it is read with.
    #[getter]
    fn tool(&self) -> PyResult<&'static str> {
        Ok(self.opened()?.tool())
    }

    /// Whether there are checksums to verify.
    #[getter]
    fn has_checksums(&self) -> PyResult<bool> {
        Ok(self.opened()?.has_checksums())
    }

    /// Bytes of all tensors.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.header()?.data_len())
    }

    /// The tool that wrote it, where the file says so.
    #[getter]
    fn written_with(&self) -> PyResult<Option<&str>> {
        Ok(self.opened()?.structure().map(|structure| structure.tool.as_str()))
    }

    /// Loads tensors, by number, each into the memory at its address, or into a new buffer where
    /// there is none. The memory is as long as the tensor, alive, and used by nobody else.
    fn load(
        &self,
        py: Python<'_>,
        wanted: Vec<(usize, Option<usize>)>,
    ) -> PyResult<Vec<Option<Buffer>>> {
        let opened = self.opened()?;
        let new: Vec<_> = wanted.iter().map(|(_, address)| address.is_none()).collect();
        let blocks = interruptible(py, || opened.load(destinations(opened.header(), wanted)?))?;
        let buffers = blocks.into_iter().zip(new);
        Ok(buffers.map(|(block, new)| new.then(|| Buffer::new(block))).collect())
    }

    /// Every tensor, in the order of the file, as a part of a private mapping.
    fn map(&self, py: Python<'_>) -> PyResult<Vec<Buffer>> {
        let opened = self.opened()?;
        let blocks = interruptible(py, || opened.map())?;
        Ok(blocks.into_iter().map(Buffer::new).collect())
    }
}

impl Checkpoint {
    fn opened(&self) -> PyResult<&checkpoint::Checkpoint> {
        self.0.get().map_err(|error| Python::attach(|py| exception(py, &error)))
    }

    fn header(&self) -> PyResult<&Header> {
        self.opened().map(checkpoint::Checkpoint::header)
    }
}

fn destinations(header: &Header, wanted: Vec<(usize, Option<usize>)>) -> Result<Vec<Wanted>> {
    let wanted = wanted.into_iter().map(|(tensor, address)| {
        let Some(described) = header.tensors.get(tensor) else {
            return Err(Error::invalid(format!("the file has no tensor number {tensor}")));
        };
        let into = address.map(|address| -> Result<Block> {
            let len = described.len() as usize;
            let start =
                start_of(address, len).map_err(|error| error.with("tensor", &described.name))?;
            // SAFETY: the caller of `load` promises that the memory is as long as the tensor and
            // its own until `load` returns; by then all blocks are gone, because a load waits for
            // its reads also when it fails.
            Ok(unsafe { Foreign::exclusive(start, len, Box::new(())) }.into())
        });
        Ok(Wanted { tensor, into: into.transpose()? })
    });
    wanted.collect()
}

/// Device, number, time of change and length.
type Stamp = (u64, u64, i64, u64);

/// Whether most of a file is in the page cache, and its stamp; `None` if there is no such file.
#[pyfunction]
pub fn probe(py: Python<'_>, path: PathBuf) -> PyResult<Option<(bool, Stamp)>> {
    let probe = guarded(py, move || Probe::at(&path))?;
    Ok(probe.map(|Probe { stamp, is_warm }| {
        (is_warm, (stamp.device, stamp.inode, stamp.modified_nanos, stamp.bytes))
    }))
}

/// The format of a file, by its content: `safetensors`, `index`, `torch` or `numpy`.
#[pyfunction]
pub fn recognise(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
    guarded(py, move || checkpoint::recognise(&path).map(Format::name))
}

/// Judges the bytes of an index; an error says what is wrong with them.
#[pyfunction]
pub fn judge_index(py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
    guarded(py, || checkpoint::Index::parse(bytes).map(drop))
}

/// The bytes of a file for the text of an index, with a checksum.
#[pyfunction]
pub fn seal_index(py: Python<'_>, text: &str) -> PyResult<Vec<u8>> {
    guarded(py, || checkpoint::Index::seal(text))
}
