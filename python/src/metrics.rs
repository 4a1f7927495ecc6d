//! Numbers and traces of the whole process.

use std::path::PathBuf;

use pyo3::prelude::*;
use tensorferry::memory::Ledger;
use tensorferry::metrics::Registry;
use tensorferry::{Error, trace};

use crate::guard::guarded;

/// All numbers, as a JSON document or as Prometheus' text.
#[pyfunction]
pub fn metrics_text(py: Python<'_>, format: &str) -> PyResult<String> {
    guarded(py, || {
        Ledger::of_process().publish(Registry::global())?;
        let snapshot = Registry::global().snapshot();
        match format {
            "json" => snapshot.to_json(),
            "prometheus" => Ok(snapshot.to_prometheus()),
            _ => Err(Error::invalid(format!(
                "{format:?} is no format; choose \"json\" or \"prometheus\""
            ))),
        }
    })
}

/// Starts recording a trace of at most `events` events.
#[pyfunction]
#[pyo3(signature = (events=trace::EVENTS_DEFAULT))]
pub fn trace_start(py: Python<'_>, events: usize) -> PyResult<()> {
    guarded(py, || trace::start(events))
}

/// Ends the recording and writes it to a file; gives the number of events.
#[pyfunction]
pub fn trace_finish(py: Python<'_>, path: PathBuf) -> PyResult<usize> {
    guarded(py, move || {
        let trace = trace::finish()?;
        trace.write_to(&path)?;
        Ok(trace.len())
    })
}
