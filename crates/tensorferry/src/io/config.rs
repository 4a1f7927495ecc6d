//! How an engine is set up.

use std::str::FromStr;

use super::faulty::Faults;
use crate::error::{Error, Result};
use crate::memory::{ALIGNMENT, Named, Pool, Priority};
use crate::metrics::Registry;

/// What buffers for unaligned bytes take, of all engines.
pub(super) static STAGING: Named = Named::new("disk staging", Priority::Needed);

/// Which backend moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The ring where the kernel allows it, otherwise threads.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    Ring,
    /// `pread` and `pwrite` on threads.
    Threads,
    /// Files in memory, for tests.
    Memory,
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "ring" => Self::Ring,
            "threads" => Self::Threads,
            "memory" => Self::Memory,
            _ => {
                let choices = "auto, ring, threads or memory";
                return Err(Error::invalid(format!("{text:?} is no backend; choose {choices}")));
            }
        })
    }
}

/// How an engine is set up; the defaults suit a fast local disk.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which backend.
    pub choice: Choice,
    /// Transfers under way at once, on the ring.
    pub ring_depth: u32,
    /// Transfers under way at once, on threads.
    pub threads: usize,
    /// Bytes under way at once; exceeded by less than one piece.
    pub in_flight_bytes: u64,
    /// Bytes in one transfer: larger operations are cut. A power of two.
    pub piece_bytes: usize,
    /// Buffers of that size for what is not aligned; together never more than `in_flight_bytes`,
    /// and memory only once they are used.
    pub staging_buffers: usize,
    /// Operations of one priority accepted and not yet done; a caller with one more waits.
    pub operations_max: usize,
    /// Memory that the ring registers with the kernel, if the memlock limit allows it.
    pub pools: Vec<Pool>,
    /// Where the engine counts what it does; by default where the whole process does.
    pub metrics: Registry,
    /// Faults to inject, in tests.
    pub faults: Option<Faults>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            choice: Choice::Auto,
            ring_depth: 128,
            threads: 16,
            in_flight_bytes: 32 << 20,
            piece_bytes: 1 << 20,
            staging_buffers: 32,
            operations_max: 4096,
            pools: Vec::new(),
            metrics: Registry::global().clone(),
            faults: None,
        }
    }
}

impl Config {
    /// The default, with this backend.
    pub fn of(choice: Choice) -> Self {
        Self { choice, ..Self::default() }
    }

    /// How many staging buffers there will be.
    pub(super) fn staging_slots(&self) -> usize {
        let fitting = self.in_flight_bytes / self.piece_bytes as u64;
        self.staging_buffers.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1)
    }

    pub(super) fn check(&self) -> Result<()> {
        let piece = self.piece_bytes;
        let complaint = if !(1..=4096).contains(&self.ring_depth) {
            format!("ring_depth is {}, it must be between 1 and 4096", self.ring_depth)
        } else if !(1..=1024).contains(&self.threads) {
            format!("threads is {}, it must be between 1 and 1024", self.threads)
        } else if !piece.is_power_of_two() || !(ALIGNMENT..=1 << 30).contains(&piece) {
            format!("piece_bytes is {piece}, it must be a power of two from {ALIGNMENT} to 2^30")
        } else if self.in_flight_bytes == 0 || self.in_flight_bytes > 1 << 40 {
            format!("in_flight_bytes is {}, it must be from 1 to 2^40", self.in_flight_bytes)
        } else if piece as u64 > self.in_flight_bytes {
            let limit = self.in_flight_bytes;
            format!("piece_bytes is {piece}, it must not exceed in_flight_bytes, {limit}")
        } else if !(1..=4096).contains(&self.staging_buffers) {
            format!("staging_buffers is {}, it must be from 1 to 4096", self.staging_buffers)
        } else if self.operations_max == 0 {
            "operations_max is 0, nothing could be done".into()
        } else {
            return Ok(());
        };
        Err(Error::invalid(complaint))
    }
}
