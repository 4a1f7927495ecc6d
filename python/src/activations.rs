//! Activations: tensors that torch saved for backward, to disk and back.

use std::path::PathBuf;
use std::ptr::NonNull;

use pyo3::prelude::*;
use tensorferry::activations::{Config, Element, Permit, Saved, Store, Tensor};
use tensorferry::memory::{Block, Foreign};
use tensorferry::{Error, Result};

use crate::engine::shared;
use crate::errors::exception;
use crate::guard::guarded;
use crate::json::json;
use crate::memory::Buffer;
use crate::release::Claim;
use crate::size::SizeArgument;
use crate::wait::wait;

/// Keeps activations within a budget.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Activations(Store);

/// A saved tensor; forgotten when this is.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Activation(Saved);

#[pymethods]
impl Activations {
    #[new]
    fn new(
        py: Python<'_>,
        directories: Vec<PathBuf>,
        budget: SizeArgument,
        compress: &str,
        planner: &str,
    ) -> PyResult<Self> {
        guarded(py, || {
            let (compress, planner) = (compress.parse()?, planner.parse()?);
            let config = Config { directories, budget: budget.0, compress, planner };
            Store::open(shared()?, config)
        })
        .map(Self)
    }

    /// A forward pass begins.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || self.0.begin())
    }

    /// A forward pass is over; `well` if nothing was raised in it.
    fn end(&self, py: Python<'_>, well: bool) -> PyResult<()> {
        guarded(py, || self.0.end(well))
    }

    /// Saves the bytes at an address, once there is room for them.
    ///
    /// `keeper` keeps them where they are, and nobody changes them until it is let go of.
    fn save(
        &self,
        py: Python<'_>,
        address: usize,
        bytes: usize,
        keeper: Py<PyAny>,
        name: &str,
        element: &str,
    ) -> PyResult<Activation> {
        let element = element_of(element).map_err(|error| exception(py, &error))?;
        if address == 0 && bytes > 0 {
            let error = Error::invalid("an activation has bytes and no memory");
            return Err(exception(py, &error.with("activation", name)));
        }
        let tensor = Tensor { name, bytes: bytes as u64, element };
        let admitted = wait(py, "room for an activation", None, |limit| {
            guarded(py, || self.0.admit(&tensor, Some(limit))).transpose()
        })??;
        let lend = |permit| lend(address, bytes, keeper, permit);
        let saved = self.0.save(admitted, lend).map_err(|error| exception(py, &error))?;
        Ok(Activation(saved))
    }

    /// The plan that is followed now, as JSON.
    fn plan(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.0.plan()?.map(|plan| json(&plan)).transpose())
    }

    /// What was measured last, as JSON.
    fn profile(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.0.profile()?.map(|profile| json(&profile)).transpose())
    }

    /// The plan in words.
    fn explain(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guarded(py, || self.0.explain())
    }

    /// Numbers since the beginning, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || json(&self.0.report()?))
    }
}

#[pymethods]
impl Activation {
    /// The tensor's bytes, once they are there.
    fn take(&self, py: Python<'_>) -> PyResult<Buffer> {
        let taken = wait(py, "an activation", None, |limit| {
            guarded(py, || self.0.take(Some(limit))).transpose()
        })??;
        Ok(Buffer::of_activation(taken))
    }
}

fn lend(address: usize, bytes: usize, keeper: Py<PyAny>, permit: Permit) -> Block {
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
    // In this order: the memory goes first, then it is said to be free.
    let claim = Claim::new((keeper, permit));
    // SAFETY: the caller of `save` promises that `bytes` bytes are there until the keeper, which
    // the claim lets go of, is gone. That nobody writes to them is torch's own rule for saved
    // tensors; who breaks it is told in backward, before the bytes are used.
    unsafe { Foreign::shared(start.unwrap_or(NonNull::dangling()), bytes, Box::new(claim)) }.into()
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
