//! A source and a recipe made up for the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tensorferry::data::batch::{Batch, Content};
use tensorferry::data::chance::Chance;
use tensorferry::data::loader::{Config, Crew, Fault, Handed, Loader, Mode, Run};
use tensorferry::data::recipe::{Recipe, Scratch};
use tensorferry::data::sample::{Field, Layout, Place, Raw};
use tensorferry::data::source::{Label, Source};
use tensorferry::dtype::Dtype;
use tensorferry::{Error, Kind, Result};

/// Sample `i` is the number `i`; some fail, some stall.
pub struct Numbers {
    pub len: usize,
    /// Stored bytes of each: the number, and zeros behind it.
    pub size: usize,
    pub fields: Vec<String>,
    pub bad: fn(usize) -> bool,
    /// What is wrong with those.
    pub kind: Kind,
    pub delay: fn(usize) -> Duration,
}

pub fn numbers(len: usize) -> Numbers {
    Numbers {
        len,
        size: 8,
        fields: vec!["u64".into()],
        bad: |_| false,
        kind: Kind::Corrupt,
        delay: |_| Duration::ZERO,
    }
}

impl Source for Numbers {
    fn len(&self) -> usize {
        self.len
    }

    fn name(&self, index: usize) -> String {
        format!("number {index}")
    }

    fn bytes(&self, _: usize) -> u64 {
        self.size as u64
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn label(&self, index: usize) -> Label {
        Label::Int(index as i64 * 10)
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        thread::sleep((self.delay)(index));
        if (self.bad)(index) {
            return Err(Error::new(self.kind, "the sample is bad"));
        }
        let mut bytes = (index as u64).to_le_bytes().to_vec();
        bytes.resize(self.size, 0);
        Ok(Raw::single(bytes))
    }
}

/// The number and a random one beside it; takes a while that differs.
pub struct Pair;

impl Recipe for Pair {
    fn prepare(
        &self,
        field: Field<'_>,
        mut chance: Chance,
        _: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let mut slow = chance;
        thread::sleep(Duration::from_micros(slow.below(200)));
        let into = place.array("", &Layout::new(Dtype::U64, [2]))?;
        field.read_at(0, &mut into[..8])?;
        into[8..].copy_from_slice(&chance.draw().to_le_bytes());
        assert_ne!(&into[..8], PANICS.to_le_bytes(), "this number is not to be met");
        Ok(())
    }
}

/// Prepares nothing before it is let.
#[derive(Clone, Default)]
pub struct Held(pub Arc<Gate>);

/// How many stand before it, and whether it is open.
#[derive(Default)]
pub struct Gate {
    pub before: AtomicUsize,
    pub open: AtomicBool,
}

impl Recipe for Held {
    fn prepare(
        &self,
        field: Field<'_>,
        chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        self.0.before.fetch_add(1, Ordering::SeqCst);
        while !self.0.open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        Pair.prepare(field, chance, scratch, place)
    }
}

pub const PANICS: u64 = 777;

pub fn loader(source: Numbers, threads: usize, config: Config) -> Loader {
    let crew = Crew::new(threads, Mode::Auto).unwrap();
    Loader::new(Arc::new(source), vec![Box::new(Pair)], config, crew).unwrap()
}

pub fn values(batch: &Batch) -> Vec<u64> {
    let Content::Arrays { layout, block } = &batch.columns[0].content else { panic!("no arrays") };
    assert_eq!(layout.shape, [2]);
    let words = block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.collect()
}

/// What became of the next submission, however long it takes.
pub fn handed(run: &Run) -> Handed {
    run.next(None).unwrap().unwrap()
}

/// The batch of the next submission.
pub fn taken(run: &Run) -> Batch {
    let [batch] = handed(run).batches.try_into().unwrap();
    batch
}

/// All batches of an epoch over `batches`, submitted a few at a time.
pub fn epoch(loader: &Loader, epoch: u32, batches: &[Vec<u32>]) -> Vec<Vec<u64>> {
    epoch_and_faults(loader, epoch, batches).0
}

/// The same, and what was wrong with samples.
pub fn epoch_and_faults(
    loader: &Loader,
    epoch: u32,
    batches: &[Vec<u32>],
) -> (Vec<Vec<u64>>, Vec<Fault>) {
    let run = loader.begin(epoch).unwrap();
    let ahead = 5.min(batches.len());
    batches[..ahead].iter().for_each(|batch| run.submit(batch).unwrap());
    let (mut out, mut faults) = (Vec::new(), Vec::new());
    for at in 0..batches.len() {
        let handed = handed(&run);
        faults.extend(handed.faults);
        out.extend(handed.batches.iter().map(values));
        if let Some(more) = batches.get(at + ahead) {
            run.submit(more).unwrap();
        }
    }
    (out, faults)
}

pub fn in_order(len: u32, batch: usize) -> Vec<Vec<u32>> {
    let all: Vec<_> = (0..len).collect();
    all.chunks(batch).map(<[u32]>::to_vec).collect()
}
