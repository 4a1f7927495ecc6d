//! Activations: tensors that torch saved for backward, to disk and back.

use std::path::PathBuf;
use std::ptr::NonNull;

use pyo3::prelude::*;
use tensorferry::activations::{Config, Element, Operation, Saved, Store, Tensor};
use tensorferry::memory::{Block, Foreign, SpareBlocks};
use tensorferry::{Error, Result};

use crate::allocator::{LOANS, Redirection};
use crate::engine::shared;
use crate::errors::exception;
use crate::guard::guarded;
use crate::json::json;
use crate::memory::Buffer;
use crate::size::SizeArgument;
use crate::wait::wait;

/// Keeps activations within a budget.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Activations {
    store: Store,
    /// Let go of after the store.
    redirection: Redirection,
}

/// A saved tensor; forgotten when this is.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Activation {
    saved: Saved,
    /// What is saved may be needed after the offload is gone.
    _redirection: Redirection,
}

#[pymethods]
impl Activations {
    #[new]
    fn new(
        py: Python<'_>,
        directories: Vec<PathBuf>,
        budget: SizeArgument,
        compress: &str,
        planner: &str,
        recycle: bool,
    ) -> PyResult<Self> {
        guarded(py, || {
            let (compress, planner) = (compress.parse()?, planner.parse()?);
            let config = Config { directories, budget: budget.0, compress, planner };
            let store = Store::open(shared()?, config)?;
            Ok(Self { store, redirection: Redirection::begin(recycle) })
        })
    }

    /// Why freed memory is not used again, though it should be.
    #[getter]
    fn unrecycled(&self) -> Option<String> {
        self.redirection.refusal()
    }

    /// A forward pass begins.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || self.store.begin())
    }

    /// A forward pass is over; `well` if nothing was raised in it.
    fn end(&self, py: Python<'_>, well: bool) -> PyResult<()> {
        guarded(py, || self.store.end(well))
    }

    /// Saves so many bytes at an address, once there is room for them. `operation` is a thread, and a number of
    /// its operation.
    ///
    /// They begin a block of torch's that is `lent` until they are on disk or forgotten, or are copied at
    /// once. Nobody frees or changes them before this returns, nor changes those of a block that is lent.
    fn save(
        &self,
        py: Python<'_>,
        memory: (usize, usize),
        lent: bool,
        name: &str,
        element: &str,
        operation: (u64, u64),
    ) -> PyResult<Activation> {
        let (address, bytes) = memory;
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let Some(start) = start else {
            let error = Error::invalid("an activation has bytes and no memory");
            return Err(exception(py, &error.with("activation", name)));
        };
        let element = element_of(element).map_err(|error| exception(py, &error))?;
        let operation = operation_of(operation);
        let tensor = Tensor { name, bytes: bytes as u64, element, operation };
        let admitted = wait(py, "room for an activation", None, |limit| {
            guarded(py, || self.store.admit(&tensor, Some(limit))).transpose()
        })??;
        let block = Start(start);
        let saved = guarded(py, || {
            let make = || if lent { Ok(block.lend(bytes)) } else { block.copy(bytes) };
            self.store.save(admitted, make)
        })?;
        Ok(Activation { saved, _redirection: self.redirection.clone() })
    }

    /// The plan that is followed now, as JSON.
    fn plan(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.store.plan()?.map(|plan| plan.to_json()).transpose())
    }

    /// What was measured last, as JSON.
    fn profile(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.store.profile()?.map(|profile| profile.to_json()).transpose())
    }

    /// The plan in words.
    fn explain(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.store.explain())
    }

    /// Numbers since the beginning, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || json(&self.store.report()?))
    }
}

#[pymethods]
impl Activation {
    /// The tensor's bytes, once they are there.
    fn take(&self, py: Python<'_>) -> PyResult<Buffer> {
        let taken = wait(py, "an activation", None, |limit| {
            guarded(py, || self.saved.take(Some(limit))).transpose()
        })??;
        Ok(Buffer::of_activation(taken))
    }

    /// Another operation has saved the same tensor; false if it has to be saved anew.
    fn share(&self, py: Python<'_>, operation: (u64, u64)) -> PyResult<bool> {
        guarded(py, || self.saved.share(operation_of(operation)))
    }
}

/// Where a block of torch's begins.
struct Start(NonNull<u8>);

// SAFETY: who has the address reaches the block through `lend` and `copy` alone, which say why they may.
unsafe impl Send for Start {}

impl Start {
    fn lend(self, bytes: usize) -> Block {
        // Let go of one after the other.
        let loan = (LOANS.lend(self.0), Redirection::begin(false));
        // SAFETY: the caller of `save` promises that a block of torch's begins here. It is not freed before
        // the loan ends, whatever becomes of its storage. That nobody writes to it is torch's own rule for
        // saved tensors; who breaks it is told in backward, before the bytes are used.
        unsafe { Foreign::shared(self.0, bytes, Box::new(loan)) }.into()
    }

    fn copy(self, bytes: usize) -> Result<Block> {
        let mut block = SpareBlocks::block(bytes)?;
        if let Some(into) = block.as_mut() {
            // SAFETY: the caller of `save` promises that the bytes are there, and stay as they are, until
            // it returns.
            into.copy_from_slice(unsafe { std::slice::from_raw_parts(self.0.as_ptr(), bytes) });
        }
        Ok(block)
    }
}

fn operation_of((thread, number): (u64, u64)) -> Operation {
    Operation { thread, number }
}

fn element_of(name: &str) -> Result<Element> {
    match name {
        "float32" => Ok(Element::Float32),
        "four" => Ok(Element::Four),
        "two" => Ok(Element::Two),
        "other" => Ok(Element::Other),
        _ => Err(Error::invalid(format!("{name:?} is no kind of element"))),
    }
}
