//! What is done for one sample, without any lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::config::Config;
use super::tally::Tally;
use crate::data::batch::Making;
use crate::data::chance::Chance;
use crate::data::recipe::{Recipe, Scratch};
use crate::data::sample::Raw;
use crate::data::source::Source;
use crate::error::{Error, Kind, Result};
use crate::trace;

/// What a loader does for one sample.
pub(super) struct Work {
    pub source: Arc<dyn Source>,
    recipes: Vec<Box<dyn Recipe>>,
    pub config: Config,
    pub tally: Tally,
}

impl Work {
    pub fn new(source: Arc<dyn Source>, recipes: Vec<Box<dyn Recipe>>, config: Config) -> Self {
        Self { source, recipes, config, tally: Tally::default() }
    }

    /// Has the stored bytes of a sample, from wherever they are nearest.
    pub fn load(&self, index: u32) -> Result<Raw> {
        let _span = trace::span("data", "load").with("sample", u64::from(index));
        let began = Instant::now();
        let raw = guarded(|| self.source.fetch(index as usize));
        self.tally.loaded(began.elapsed(), raw.as_ref().map_or(0, Raw::bytes));
        raw.map_err(|error| self.naming(index, error))
    }

    /// Prepares a sample into its slot.
    pub fn prepare(
        &self,
        index: u32,
        epoch: u64,
        raw: &Raw,
        (making, at): (&Making, usize),
        scratch: &mut Scratch,
    ) -> Result<()> {
        let _span = trace::span("data", "prepare").with("sample", u64::from(index));
        let began = Instant::now();
        let chance = Chance::of(self.config.seed, epoch, u64::from(index));
        let mut slot = making.slot(at);
        let prepared = guarded(|| {
            self.recipes.iter().enumerate().try_for_each(|(field, recipe)| {
                slot.enter(field);
                recipe.prepare(raw.field(field), chance, scratch, &mut slot)
            })
        });
        self.tally.prepared(began.elapsed());
        prepared.map_err(|error| self.naming(index, error))
    }

    fn naming(&self, index: u32, error: Error) -> Error {
        error.with("sample", index).with("name", self.source.name(index as usize))
    }
}

/// A panic in a decoder becomes an error of its sample.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(Kind::Internal, format!("preparing a sample panicked: {text}")))
    })
}
