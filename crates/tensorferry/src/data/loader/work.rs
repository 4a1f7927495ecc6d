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
use crate::memory::{Claim, Named, Priority};
use crate::plan::data::eviction::Moment;
use crate::trace;

/// What samples that are loaded and not prepared yet take, of all loaders.
static AHEAD: Named = Named::new("samples loaded ahead", Priority::Needed);

/// The stored bytes of a sample, from wherever they were nearest.
pub(super) struct Loaded {
    pub raw: Raw,
    pub origin: Origin,
    /// For what of it is in memory for this alone.
    _claim: Claim,
}

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
    pub fn load(&self, index: u32, now: Moment) -> Result<Loaded> {
        let _span = trace::span("data", "load").with("sample", u64::from(index));
        let began = Instant::now();
        let found = guarded(|| self.find_or_fetch(index, now));
        self.tally.loaded(began.elapsed(), found.as_ref().ok());
        found.map_err(|error| self.naming(index, error))
    }

    fn find_or_fetch(&self, index: u32, now: Moment) -> Result<Loaded> {
        let mut claim = AHEAD.nothing();
        if self.cache.is_off() {
            let raw = self.fetch(index, &mut claim)?;
            return Ok(Loaded { raw, origin: Origin::Backend, _claim: claim });
        }
        let found = self.cache.find(index, now);
        let (raw, origin) = match found {
            Some(found) => found,
            None => (self.fetch(index, &mut claim)?, Origin::Backend),
        };
        if origin != Origin::Memory {
            claim.resize(raw.resident())?;
            if !self.cache.decoded {
                self.cache.keep(index, &raw, now);
            }
        }
        Ok(Loaded { raw, origin, _claim: claim })
    }

    /// Has the sample from where it is stored, once there is room for it.
    fn fetch(&self, index: u32, claim: &mut Claim) -> Result<Raw> {
        claim.grow(self.source.bytes(index as usize))?;
        let raw = self.source.fetch(index as usize)?;
        claim.resize(raw.resident())?;
        Ok(raw)
    }

    /// Prepares a sample into its slot, and says what that took.
    pub fn prepare(
        &self,
        (index, now): (u32, Moment),
        loaded: &Loaded,
        (making, at): (&Making, usize),
        scratch: &mut Scratch,
    ) -> (Result<()>, Spent) {
        let _span = trace::span("data", "prepare").with("sample", u64::from(index));
        let began = Instant::now();
        // What was noted before belongs to loading.
        spent::noted();
        let prepared = guarded(|| {
            let decoded = self.decode(index, now, loaded, scratch)?;
            let raw = decoded.as_ref().unwrap_or(&loaded.raw);
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
        Loaded { raw, origin, .. }: &Loaded,
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::data::StoredFile;
    use crate::data::sample::{Field, Place};
    use crate::data::source::Label;

    /// One sample, in a file; loading it reads the file or leaves that to whoever prepares it.
    struct Stored {
        raw: Raw,
        reads: bool,
        fields: Vec<String>,
    }

    impl Source for Stored {
        fn len(&self) -> usize {
            1
        }

        fn name(&self, _: usize) -> String {
            "the sample".into()
        }

        fn bytes(&self, _: usize) -> u64 {
            self.raw.bytes()
        }

        fn fields(&self) -> &[String] {
            &self.fields
        }

        fn label(&self, _: usize) -> Label {
            Label::Int(0)
        }

        fn fetch(&self, _: usize) -> Result<Raw> {
            if self.reads { self.raw.in_memory() } else { Ok(self.raw.clone()) }
        }
    }

    struct Reads;

    impl Recipe for Reads {
        fn prepare(
            &self,
            field: Field<'_>,
            _: Chance,
            _: &mut Scratch,
            place: &mut dyn Place,
        ) -> Result<()> {
            place.bytes("", &field.all()?)
        }
    }

    /// What preparing took when loading read the file, or did not.
    fn spent_on_preparing(reads: bool) -> Spent {
        let raw = Raw::stored(StoredFile::of(b"0123456789"), 0, 10);
        let source = Arc::new(Stored { raw, reads, fields: vec![String::new()] });
        let work = Work::new(source, vec![Box::new(Reads)], Config::default()).unwrap();
        let now = Moment { epoch: 0, position: 0 };
        let loaded = work.load(0, now).unwrap();
        let before = work.tally.stats().storage_seconds;
        let making = Making::new(1);
        let (prepared, spent) =
            work.prepare((0, now), &loaded, (&making, 0), &mut Scratch::default());
        prepared.unwrap();
        let told = work.tally.stats();
        assert_eq!(told.storage_seconds.to_bits(), (before + spent.storage).to_bits());
        assert_eq!(told.prepare_seconds.to_bits(), spent.prepare.to_bits());
        spent
    }

    #[test]
    fn reads_while_preparing_are_charged_to_storage() {
        let spent = spent_on_preparing(false);
        assert!(spent.storage > 0.0 && spent.prepare > 0.0, "{spent:?}");
    }

    #[test]
    fn reads_while_loading_are_not_charged_again_to_who_prepares() {
        assert_eq!(spent_on_preparing(true).storage.to_bits(), 0.0_f64.to_bits());
    }
}
