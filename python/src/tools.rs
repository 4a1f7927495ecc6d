//! The dictionary that chooses tools.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use tensorferry::plan::checkpoint::{
    self, Load, Observed, Own, Reading, Save, Situation, Tool, Tools, Writing,
};
use tensorferry::{Error, Result};

use crate::guard::guarded;
use crate::json::json;

/// Adds a tool of this name, which writes and reads `format`.
#[pyfunction]
pub fn add_tool(py: Python<'_>, name: &str, format: &str) -> PyResult<()> {
    guarded(py, || Tool::add(name, format).map(|_| ()))
}

/// Chooses tools, and learns from what it is told.
#[pyclass(frozen, module = "tensorferry._lib")]
pub struct Dictionary(Mutex<checkpoint::Dictionary>);

impl Dictionary {
    fn make(
        py: Python<'_>,
        made: impl FnOnce() -> Result<checkpoint::Dictionary> + Send,
    ) -> PyResult<Self> {
        guarded(py, made).map(|dictionary| Self(Mutex::new(dictionary)))
    }

    fn lock(&self) -> MutexGuard<'_, checkpoint::Dictionary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Dictionary {
    /// Always the same tool.
    #[staticmethod]
    fn one(py: Python<'_>, tool: &str) -> PyResult<Self> {
        Self::make(py, || Ok(checkpoint::Dictionary::one(Tool::named(tool)?)))
    }

    /// The user's own choice by size, as JSON.
    #[staticmethod]
    fn own(py: Python<'_>, json: &str, goal: &str) -> PyResult<Self> {
        Self::make(py, || Ok(checkpoint::Dictionary::own(Own::parse(json)?, goal.parse()?)))
    }

    /// What is learned, by `rule` or `paper`; everything anew after `update_every` operations.
    #[staticmethod]
    fn aware(
        py: Python<'_>,
        explore: &str,
        goal: &str,
        update_every: Option<u64>,
    ) -> PyResult<Self> {
        Self::make(py, || {
            checkpoint::Dictionary::aware(explore.parse()?, goal.parse()?)
                .update_every(update_every)
        })
    }

    /// What `to_json` gave.
    #[staticmethod]
    fn from_json(py: Python<'_>, json: &str) -> PyResult<Self> {
        Self::make(py, || checkpoint::Dictionary::from_json(json))
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || self.lock().to_json())
    }

    /// The tool for a save of `size` bytes, which will be read when it is cached (`warm`) or not.
    fn choose_write(
        &self,
        py: Python<'_>,
        size: u64,
        durable: bool,
        warm: bool,
        eligible: Vec<String>,
    ) -> PyResult<&'static str> {
        guarded(py, move || {
            let writing = if durable { Writing::Durable } else { Writing::Relaxed };
            let eligible = named(eligible)?;
            let save = Save { size, writing, reading: reading(warm), eligible };
            self.lock().choose_write(&save).map(Tool::name)
        })
    }

    /// The tool for a load of `size` bytes that `written_with` wrote.
    fn choose_read(
        &self,
        py: Python<'_>,
        size: u64,
        warm: bool,
        written_with: &str,
        eligible: Vec<String>,
    ) -> PyResult<&'static str> {
        guarded(py, move || {
            let (written_with, eligible) = (Tool::named(written_with)?, named(eligible)?);
            let load = Load { size, reading: reading(warm), written_with, eligible };
            self.lock().choose_read(&load).map(Tool::name)
        })
    }

    /// Learns what an operation took; `situation` is durable, relaxed, cold or warm.
    fn record(
        &self,
        py: Python<'_>,
        situation: &str,
        tool: &str,
        size: u64,
        seconds: f64,
        cpu_seconds: f64,
    ) -> PyResult<()> {
        guarded(py, || {
            let known = Situation::ALL.into_iter().find(|known| known.name() == situation);
            let situation = known.ok_or_else(|| Error::invalid("no such situation"))?;
            let tool = Tool::named(tool)?;
            self.lock().record(&Observed { situation, tool, size, seconds, cpu_seconds })
        })
    }

    /// Forgets what was learned.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            self.lock().flush();
            Ok(())
        })
    }

    /// The three dictionaries, as JSON.
    fn tables(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || json(&self.lock().tables()))
    }

    /// What was done, as JSON and as a table for people.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String)> {
        guarded(py, || {
            let report = self.lock().report();
            Ok((json(&report)?, report.to_string()))
        })
    }
}

fn reading(warm: bool) -> Reading {
    if warm { Reading::Warm } else { Reading::Cold }
}

fn named(names: Vec<String>) -> Result<Tools> {
    names.into_iter().map(|name| Tool::named(&name)).collect()
}
