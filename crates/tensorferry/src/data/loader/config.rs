//! What can be set about a loader.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::cache;
use crate::error::{Error, Result};

/// What can be set about a loader.
#[derive(Debug, Clone)]
pub struct Config {
    /// The seed of everything random.
    pub seed: u64,
    /// Batches prepared ahead of the consumer.
    pub prepare_ahead: usize,
    /// Stored bytes of samples that are loaded, or being loaded, and not prepared yet. One sample
    /// may always be, however large.
    pub load_ahead_bytes: u64,
    /// Threads that work for one run at a time, at most.
    pub threads: usize,
    /// What happens with a sample that can't be had.
    pub on_error: OnError,
    /// What is kept near.
    pub cache: cache::Config,
}

/// How the threads of a crew are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By what was measured; the split changes while running.
    Auto,
    /// Evenly, once and for all.
    Static,
}

/// What happens with a sample that can't be loaded or prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Its batch fails.
    Raise,
    /// It is left out; its batch is shorter. Of a batch of nothing but bad samples, each is
    /// substituted.
    Skip,
    /// Another one stands in for it, chosen by seed, epoch and index.
    Substitute,
}

/// How many other samples are tried in place of a bad one. A source with no more than that fails a
/// batch only if all of it is bad.
pub const SUBSTITUTES_MAX: u32 = 16;

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            prepare_ahead: 2,
            load_ahead_bytes: 64 << 20,
            threads: usize::MAX,
            on_error: OnError::Raise,
            cache: cache::Config::default(),
        }
    }
}

impl Config {
    /// Refuses what could never work.
    pub fn check(&self) -> Result<()> {
        if self.prepare_ahead == 0 || self.threads == 0 || self.load_ahead_bytes == 0 {
            let message = "a loader needs at least one thread, one batch and one byte ahead";
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "raise" => Ok(Self::Raise),
            "skip" => Ok(Self::Skip),
            "substitute" => Ok(Self::Substitute),
            _ => Err(Error::invalid(format!(
                "on_error={name:?} is none of \"raise\", \"skip\" and \"substitute\""
            ))),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "static" => Ok(Self::Static),
            _ => {
                Err(Error::invalid(format!("threads={name:?} is neither \"auto\" nor \"static\"")))
            }
        }
    }
}
