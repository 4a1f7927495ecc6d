//! What is done for one sample, without any lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::config::Config;
use super::tally::Tally;
use crate::data::batch::Making;
use crate::data::cache::{Cache, Origin};
use crate::data::chance::Chance;
use crate::data::recipe::{Recipe, Scratch};
use crate::data::sample::Raw;
use crate::data::source::Source;
use crate::data::spent::{self, Spent};
use crate::error::{Error, Kind, Result, panic_text};
use crate::plan::eviction::Moment;
use crate::trace;

/// What a loader does for one sample.
pub(super) struct Work {
    pub source: Arc<dyn Source>,
    recipes: Vec<Box<dyn Recipe>>,
    pub config: Config,
    pub tally: Tally,
    pub cache: Arc<Cache>,
}

impl Work {
    pub fn new(
        source: Arc<dyn Source>,
        recipes: Vec<Box<dyn Recipe>>,
        config: Config,
    ) -> Result<Self> {
        let cache = Arc::new(Cache::new(source.len() as u64, &config.cache)?);
        Ok(Self { source, recipes, config, tally: Tally::default(), cache })
    }

    /// Has the stored bytes of a sample, from wherever they are nearest.
    pub fn load(&self, index: u32, now: Moment) -> Result<(Raw, Origin)> {
        let _span = trace::span("data", "load").with("sample", u64::from(index));
        let began = Instant::now();
        let found = guarded(|| self.find_or_fetch(index, now));
        self.tally.loaded(began.elapsed(), found.as_ref().ok());
        found.map_err(|error| self.naming(index, error))
    }

    fn find_or_fetch(&self, index: u32, now: Moment) -> Result<(Raw, Origin)> {
        if self.cache.is_off() {
            return Ok((self.source.fetch(index as usize)?, Origin::Backend));
        }
        let found = self.cache.find(index, now);
        let (raw, origin) = match found {
            Some(found) => found,
            None => (self.source.fetch(index as usize)?, Origin::Backend),
        };
        if !self.cache.decoded && origin != Origin::Memory {
            self.cache.keep(index, &raw, now);
        }
        Ok((raw, origin))
    }

    /// Prepares a sample into its slot, and says what that took.
    pub fn prepare(
        &self,
        (index, now): (u32, Moment),
        loaded: &(Raw, Origin),
        (making, at): (&Making, usize),
        scratch: &mut Scratch,
    ) -> (Result<()>, Spent) {
        let _span = trace::span("data", "prepare").with("sample", u64::from(index));
        let began = Instant::now();
        // What was noted before belongs to loading.
        spent::noted();
        let prepared = guarded(|| {
            let decoded = self.decode(index, now, loaded, scratch)?;
            let raw = decoded.as_ref().unwrap_or(&loaded.0);
            let chance = Chance::of(self.config.seed, u64::from(now.epoch), u64::from(index));
            let mut slot = making.slot(at);
            self.recipes.iter().enumerate().try_for_each(|(field, recipe)| {
                slot.enter(field);
                recipe.prepare(raw.field(field), chance, scratch, &mut slot)
            })
        });
        let mut spent = spent::noted();
        spent.prepare = began.elapsed().as_secs_f64() - spent.storage - spent.functions;
        self.tally.prepared(spent);
        (prepared.map_err(|error| self.naming(index, error)), spent)
    }

    /// Decodes a sample that comes from the backend and is to be kept as decoded.
    fn decode(
        &self,
        index: u32,
        now: Moment,
        (raw, origin): &(Raw, Origin),
        scratch: &mut Scratch,
    ) -> Result<Option<Raw>> {
        if !self.cache.decoded || *origin != Origin::Backend || self.cache.is_off() {
            return Ok(None);
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for (field, recipe) in self.recipes.iter().enumerate() {
            let stored = raw.field(field);
            match recipe.decode(stored, scratch)? {
                Some(decoded) => bytes.extend_from_slice(&decoded.field(0).all()?),
                None => bytes.extend_from_slice(&stored.all()?),
            }
            ends.push(bytes.len() as u64);
        }
        let decoded = Raw::fields(bytes, ends)?;
        self.cache.keep(index, &decoded, now);
        Ok(Some(decoded))
    }

    fn naming(&self, index: u32, error: Error) -> Error {
        error.with("sample", index).with("name", self.source.name(index as usize))
    }
}

/// A panic in a decoder becomes an error of its sample.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Error::new(Kind::Internal, format!("preparing a sample panicked: {text}")))
    })
}
