//! Waiting for the core from Python: without the GIL, and with turns for signal handlers.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tensorferry::{Error, Kind, Result};

use crate::errors::exception;

/// How long something is waited for before Python's signal handlers get their turn.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits, at most `timeout` seconds, for what `attempt` gives; `what` names it when time is up.
///
/// An attempt may take as long as it is told and detaches by itself: making a result of what the
/// core answered may need Python.
pub fn wait<T>(
    py: Python<'_>,
    what: &str,
    timeout: Option<f64>,
    attempt: impl FnMut(Duration) -> Option<T>,
) -> PyResult<T> {
    let start = Instant::now();
    within(py, timeout, attempt)?.ok_or_else(|| {
        let message = format!("{what} was not done within {:?}", start.elapsed());
        exception(py, &Error::new(Kind::Timeout, message))
    })
}

/// Waits in the same way; `None` when time is up.
pub fn within<T>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> Option<T>,
) -> PyResult<Option<T>> {
    let limit = timeout.map(seconds).transpose().map_err(|error| exception(py, &error))?;
    let start = Instant::now();
    loop {
        let left = limit.map_or(SIGNAL_INTERVAL, |limit| limit.saturating_sub(start.elapsed()));
        if let Some(result) = attempt(left.min(SIGNAL_INTERVAL)) {
            return Ok(Some(result));
        }
        py.check_signals()?;
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            return Ok(None);
        }
    }
}

fn seconds(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::invalid(format!("a timeout can't be {seconds} seconds")))
}
