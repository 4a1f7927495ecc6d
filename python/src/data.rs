//! The data path: sources, loaders and their epochs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tensorferry::data::batch::{Batch, Column, Content};
use tensorferry::data::loader::{self, Crew, Fault, Handed, Mode};
use tensorferry::data::recipe::{self, Chain, Custom, Step};
use tensorferry::data::sample::Layout;
use tensorferry::data::source::{self, Label, Spec};
use tensorferry::data::{cache, source as sources};
use tensorferry::dtype::Dtype;
use tensorferry::memory::{Block, Buffer as Memory};
use tensorferry::{Error, Kind, Result};

use crate::engine::way;
use crate::errors::{Raised, exception};
use crate::guard::guarded;
use crate::json::json;
use crate::memory::Buffer;
use crate::per_process::PerProcess;
use crate::wait::within;

/// A list of stored samples.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Source(Arc<dyn source::Source>);

#[pymethods]
impl Source {
    /// Opens what the JSON text describes.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Self> {
        guarded(py, || {
            let spec: Spec = serde_json::from_str(spec).map_err(|error| {
                Error::invalid(format!("the dataset is described wrongly: {error}"))
            })?;
            sources::open(&spec, &way(), &|_| {})
        })
        .map(Self)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Where a sample lies.
    fn name(&self, index: usize) -> String {
        self.0.name(index)
    }

    /// The label of a sample: an int, a float, a bool or None.
    fn label<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.0.label(index) {
            Label::None => py.None().into_bound(py),
            Label::Int(label) => label.into_pyobject(py)?.into_any(),
            Label::Float(label) => label.into_pyobject(py)?.into_any(),
            Label::Bool(label) => label.into_pyobject(py)?.to_owned().into_any(),
        })
    }

    /// A sample, decoded and not transformed, by the calling thread alone: labels and columns of a
    /// batch of one.
    fn alone<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyTuple>> {
        let source = Arc::clone(&self.0);
        let batch = guarded(py, move || {
            let recipes = recipe::for_source(&*source, &Chain::default())?;
            loader::alone(source, recipes, index)
        })?;
        let (columns, labels) = (show_columns(py, batch.columns)?, show_labels(py, &batch.labels)?);
        (labels, columns).into_pyobject(py)
    }

    /// The names of the classes, by label; empty when there are none.
    fn classes(&self) -> Vec<String> {
        self.0.classes().to_vec()
    }

    /// Whether samples come over a network, or as slowly.
    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    /// What was found to be wrong when the list was made.
    fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }
}

/// How to load.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct How {
    seed: u64,
    prepare_ahead: usize,
    load_ahead_bytes: u64,
    workers: usize,
    threads: String,
    on_error: String,
    cache_policy: String,
    cache_bytes: u64,
    /// Directory, bytes in it, and free bytes that are left to others.
    cache_dir: Option<(PathBuf, u64, u64)>,
    decoded: bool,
}

/// A step of a chain: its text, or a function.
#[derive(FromPyObject)]
pub enum Given {
    Text(String),
    Function(Py<PyAny>),
}

/// Where samples lie and how they become batches.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Loader(loader::Loader);

static AUTO: PerProcess<Arc<Crew>> = PerProcess::new();
static STATIC: PerProcess<Arc<Crew>> = PerProcess::new();

/// The crew of this process, with so many threads or more.
fn crew(mode: Mode, threads: usize) -> Result<Arc<Crew>> {
    let kept = if mode == Mode::Auto { &AUTO } else { &STATIC };
    let crew = kept.get(|_| true, || Crew::new(threads, mode))?;
    crew.grow(threads)?;
    Ok(crew)
}

#[pymethods]
impl Loader {
    #[new]
    fn new(py: Python<'_>, source: &Source, chain: Vec<Given>, how: How) -> PyResult<Self> {
        let source = Arc::clone(&source.0);
        guarded(py, move || {
            let chain = Chain::new(chain.into_iter().map(step).collect::<Result<Vec<_>>>()?);
            let recipes = recipe::for_source(&*source, &chain)?;
            let crew = crew(how.threads.parse()?, how.workers)?;
            loader::Loader::new(source, recipes, config(how)?, crew)
        })
        .map(Self)
    }

    /// Begins an epoch.
    fn begin(&self, py: Python<'_>, epoch: u32) -> PyResult<Run> {
        let run = guarded(py, || self.0.begin(epoch))?;
        Ok(Run(Mutex::new(Some(Arc::new(run)))))
    }

    /// Whether anything is kept near.
    fn caches(&self) -> bool {
        !self.0.cache().is_off()
    }

    /// Says what comes: the orders of this epoch and of the next ones, as int64.
    fn foresee(&self, py: Python<'_>, epoch: u32, orders: Vec<PyBuffer<i64>>) -> PyResult<()> {
        let orders =
            orders.into_iter().map(|order| order.to_vec(py)).collect::<PyResult<Vec<_>>>()?;
        guarded(py, move || {
            let index = |index: i64| {
                u32::try_from(index).map_err(|_| Error::invalid(format!("no sample is {index}")))
            };
            let orders = orders.into_iter().map(|order| order.into_iter().map(index).collect());
            self.0.foresee(epoch, &orders.collect::<Result<Vec<_>>>()?)
        })
    }

    /// Numbers since the beginning, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || json(&self.0.stats()))
    }
}

fn config(how: How) -> Result<loader::Config> {
    Ok(loader::Config {
        seed: how.seed,
        prepare_ahead: how.prepare_ahead,
        load_ahead_bytes: how.load_ahead_bytes,
        threads: how.workers,
        on_error: how.on_error.parse()?,
        cache: cache::Config {
            policy: how.cache_policy.parse()?,
            memory_bytes: how.cache_bytes,
            disk: how.cache_dir.map(|(directory, bytes, leave_bytes)| cache::DiskConfig {
                engine: way(),
                directory,
                bytes,
                leave_bytes,
            }),
            decoded: how.decoded,
        },
    })
}

fn step(given: Given) -> Result<Step> {
    match given {
        Given::Text(text) => serde_json::from_str(&text)
            .map_err(|error| Error::invalid(format!("a step of the transform is wrong: {error}"))),
        Given::Function(function) => {
            Ok(Step::Custom(Custom::new(move |layout, bytes| call(&function, &layout, &bytes))))
        }
    }
}

/// Calls a user's function with a tensor; `tensorferry._data.calls` makes it and takes the result.
fn call(function: &Py<PyAny>, layout: &Layout, bytes: &[u8]) -> Result<(Layout, Vec<u8>)> {
    let block = Block::from(Memory::copy_of(bytes)?);
    let call = |py: Python<'_>| -> PyResult<_> {
        let shim = py.import("tensorferry._data.calls")?.getattr("call")?;
        let memory = Bound::new(py, Buffer::new(block))?;
        let arguments = (function, layout.dtype.name(), layout.shape.clone(), memory);
        shim.call1(arguments)?.extract::<(String, Vec<usize>, Vec<u8>)>()
    };
    let called = Python::try_attach(|py| call(py).map_err(|error| Raised::new(py, error)));
    let Some(called) = called else {
        return Err(Error::new(Kind::Closed, "the interpreter is going"));
    };
    let (dtype, shape, bytes) = called
        .map_err(|raised| Error::invalid("a function in the transform failed").caused_by(raised))?;
    Ok((Layout::new(Dtype::named(&dtype)?, shape), bytes))
}

/// One epoch of a loader.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Run(Mutex<Option<Arc<loader::Run>>>);

impl Run {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<loader::Run>> {
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed = || Error::new(Kind::Closed, "this epoch of the loader is over");
        run.ok_or_else(|| exception(py, &closed()))
    }
}

#[pymethods]
impl Run {
    /// Asks for a batch of these samples or, if they stay apart, for a batch of each.
    fn submit(&self, py: Python<'_>, indices: Vec<u32>, apart: bool) -> PyResult<()> {
        let run = self.open(py)?;
        guarded(py, move || if apart { run.submit_apart(&indices) } else { run.submit(&indices) })
    }

    /// What became of the next submission: its batches, each with the number of its samples, labels
    /// and columns; bad samples; and seconds that threads spent on storage, on preparing and in
    /// functions. `None` after `timeout` seconds. What is raised is wrong with the submission, or the
    /// run is closed.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let run = self.open(py)?;
        let asked = within(py, timeout, |limit| py.detach(|| run.next(Some(limit))).transpose())?;
        let Some(handed) = asked else { return Ok(None) };
        let Handed { batches, faults, spent } = handed.map_err(|error| exception(py, &error))?;
        let batches = batches.into_iter().map(|batch| show_batch(py, batch));
        let batches = batches.collect::<PyResult<Vec<_>>>()?;
        let faults = PyList::new(py, faults.into_iter().map(fault))?;
        let spent = (spent.storage, spent.prepare, spent.functions);
        (batches, faults, spent).into_pyobject(py).map(Some)
    }

    /// What the next batch waits for, for people.
    fn held_up_by(&self, py: Python<'_>) -> PyResult<String> {
        let run = self.open(py)?;
        Ok(py.detach(|| run.held_up_by()))
    }

    /// Ends the epoch; whoever waits for a batch of it is told so.
    fn close(&self, py: Python<'_>) {
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            if let Some(run) = run {
                run.close();
            }
        });
    }
}

/// How many samples, their labels and columns.
fn show_batch(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyTuple>> {
    let (columns, labels) = (show_columns(py, batch.columns)?, show_labels(py, &batch.labels)?);
    (batch.indices.len(), labels, columns).into_pyobject(py)
}

fn show_columns(py: Python<'_>, columns: Vec<Column>) -> PyResult<Vec<Bound<'_, PyTuple>>> {
    columns.into_iter().map(|column| show(py, column)).collect()
}

fn fault(fault: Fault) -> (u32, String, String, Option<u32>) {
    (fault.index, fault.name, fault.error, fault.substitute)
}

/// Field, member, dtype, shape and memory of arrays; field, member and a list of bytes of others.
fn show(py: Python<'_>, column: Column) -> PyResult<Bound<'_, PyTuple>> {
    let Column { field, member, content } = column;
    match content {
        Content::Arrays { layout, block } => {
            let memory = Bound::new(py, Buffer::new(block))?;
            (field, member, layout.dtype.name(), layout.shape, memory).into_pyobject(py)
        }
        Content::Blobs(blobs) => {
            let blobs = PyList::new(py, blobs.iter().map(|blob| PyBytes::new(py, blob)))?;
            (field, member, blobs).into_pyobject(py)
        }
    }
}

/// The labels as memory, with their dtype; `None` when there are none.
fn show_labels<'py>(py: Python<'py>, labels: &[Label]) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let dtype = match labels.first() {
        None | Some(Label::None) => return Ok(None),
        Some(Label::Int(_)) => "I64",
        Some(Label::Float(_)) => "F64",
        Some(Label::Bool(_)) => "BOOL",
    };
    let bytes: Vec<u8> = labels.iter().flat_map(|label| bytes_of(*label)).collect();
    let memory = Memory::copy_of(&bytes).map_err(|error| exception(py, &error))?;
    let memory = Bound::new(py, Buffer::new(Block::from(memory)))?;
    Ok(Some((dtype, memory).into_pyobject(py)?))
}

/// As they lie in a tensor.
fn bytes_of(label: Label) -> Vec<u8> {
    match label {
        Label::None => Vec::new(),
        Label::Int(label) => label.to_ne_bytes().into(),
        Label::Float(label) => label.to_ne_bytes().into(),
        Label::Bool(label) => vec![label.into()],
    }
}
