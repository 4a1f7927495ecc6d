//! Batches, in order, by threads.
//!
//! ```text
//!   submit(indices) ─► Line: to load ─► load ─► to prepare ─► prepare ─► slot ─► next() ─► Batch
//!                       one for each     │        ordered       recipe    of a    in order
//!                       consumer         ▼        by need                 Making
//!                                      cache, source
//! ```
//!
//! A [`Loader`] knows where samples lie and how they are prepared. A [`Run`] is one epoch of one
//! consumer: batches are submitted as lists of indices and come out in that order. All runs of a
//! process share one [`Crew`] of threads; each of its threads takes, again and again, the most urgent
//! task of any line: loading or preparing one sample. How many may load at once, and for
//! whom, is planned (`plan::data::threads`).
//!
//! **A sample's states**: *waiting* (in `to_load`), *loading*, *loaded* (in `to_prepare`, its bytes in
//! memory), *preparing*, *done* or *left out*. Only the line, under the crew's lock, moves it from one
//! to the next; the work itself is done without the lock.
//!
//! **Bounds.** Loading runs ahead of the consumer by at most [`Config::load_ahead_bytes`], preparing by
//! at most [`Config::prepare_ahead`] batches: those are the buffers in use. Who submits decides how
//! many indices are known.
//!
//! **Little memory.** Where memory has a limit and no room is left, a sample that would be loaded or prepared
//! is put back, and so are those behind it (`crowd.rs`): the first batch goes on alone.
//!
//! **Bad samples** are dealt with by [`OnError`], by rules that do not depend on timing: which sample
//! stands in for another follows from seed, epoch and index. Whatever is bad, each submission comes
//! back as a batch with samples or as an error: consumers that wait for one another, as ranks of one
//! training do, get as many of them.

mod alone;
mod config;
mod crew;
mod crowd;
mod line;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod open;
mod roles;
mod roster;
mod run;
mod tally;
mod work;

pub use super::spent::Spent;
pub use alone::alone;
pub use config::{Config, Mode, OnError};
pub use crew::Crew;
pub use open::{Fault, Handed};
pub use run::Run;
pub use tally::Stats;
use work::Work;

use std::sync::Arc;

use super::cache::Cache;
use super::recipe::Recipe;
use super::source::Source;
use crate::error::{Error, Result};

/// Where samples lie and how they become batches.
pub struct Loader {
    work: Arc<Work>,
    crew: Arc<Crew>,
}

impl Loader {
    /// A loader of `source`; `recipes` has one for each of its fields.
    pub fn new(
        source: Arc<dyn Source>,
        recipes: Vec<Box<dyn Recipe>>,
        config: Config,
        crew: Arc<Crew>,
    ) -> Result<Self> {
        config.check()?;
        let (fields, given) = (source.fields().len(), recipes.len());
        if fields != given {
            let message =
                format!("the samples have {fields} fields, and there are {given} recipes");
            return Err(Error::invalid(message));
        }
        if u32::try_from(source.len()).is_err() {
            return Err(Error::invalid("a source can have at most 2^32 - 1 samples"));
        }
        Ok(Self { work: Arc::new(Work::new(source, recipes, config)?), crew })
    }

    /// Begins an epoch.
    pub fn begin(&self, epoch: u32) -> Result<Run> {
        Run::new(Arc::clone(&self.crew), Arc::clone(&self.work), epoch)
    }

    /// Says what comes: the orders of `epoch` and of those after it, so far as they are known.
    pub fn foresee(&self, epoch: u32, orders: &[Vec<u32>]) -> Result<()> {
        self.work.cache.foresee(epoch, orders)
    }

    /// What is kept near, for other loaders to read from.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.work.cache
    }

    /// Numbers since the beginning.
    pub fn stats(&self) -> Stats {
        self.work.tally.stats()
    }
}
