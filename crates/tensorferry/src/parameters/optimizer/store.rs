//! Optimizer state on SSD.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::layout::{CHUNK_BYTES, Chunk, Layout, Shape};
use super::ledger::{Ledger, Sums, beside};
use super::part::{Changing, Part, Planes, Reading};
use super::state_file::StateFile;
use super::stream::{Done, Stream, Task, Worker};
use crate::codec::adam::Factors;
use crate::codec::checksum::crc32c;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::io::{Engine, File, Mode, Open};
use crate::memory::{Named, Pool, Priority};
use crate::size::Size;
use crate::trace;

/// Chunks in memory at once, over all threads.
const STAGING_CHUNKS: usize = 16;

/// What chunks of all stores take. A store has all of its buffers for certain: a thread that has read some
/// of its share waits for the rest of it.
static STAGING: Named = Named::new("optimizer staging", Priority::Needed);

/// Staging memory of a store.
pub const STAGING_BYTES: usize = STAGING_CHUNKS * CHUNK_BYTES;

/// Moments, and masters of halves, in a file.
pub struct Store {
    engine: Arc<dyn Engine>,
    state_file: StateFile,
    file: File,
    pool: Pool,
    batches: Vec<Vec<Shape>>,
    layout: Layout,
    steps: Vec<f64>,
    sums: Vec<Sums>,
    condition: Condition,
    report: Report,
}

enum Condition {
    Whole,
    /// Whole, but nobody has seen yet that the parameters belong to it.
    Resumed,
    /// Why it is not.
    Broken(String),
}

/// What a store has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Report {
    /// Steps.
    pub steps: u64,
    /// Bytes read by steps.
    pub read_bytes: u64,
    /// Bytes written by steps.
    pub written_bytes: u64,
    /// Time in steps.
    pub seconds: f64,
    /// Of that, waiting for the disk.
    pub waited_seconds: f64,
    /// Bytes in the file now.
    pub file_bytes: u64,
}

/// A tensor that takes a step.
#[derive(Debug)]
pub struct Work<'a> {
    /// Its number in the store.
    pub tensor: usize,
    /// The number of the step, counted from one.
    pub step: f64,
    /// What it is multiplied by.
    pub factors: Factors,
    /// Of the parameter.
    pub dtype: Dtype,
    /// What is trained.
    pub parameter: &'a mut [u8],
    /// Of the gradient.
    pub gradient_dtype: Dtype,
    /// Where to go.
    pub gradient: &'a [u8],
}

/// Memory for, or with, a tensor's state, as `f32`.
#[derive(Debug)]
pub struct Contents<'a> {
    /// Its number in the store.
    pub tensor: usize,
    /// Steps that it has taken.
    pub step: f64,
    /// The mean of gradients.
    pub first: &'a mut [u8],
    /// The mean of their squares.
    pub second: &'a mut [u8],
    /// The parameter; empty for a tensor without a master.
    pub master: &'a mut [u8],
}

impl Store {
    /// A store without tensors, in a file of `directory`; what an earlier process has left there
    /// may be overwritten.
    pub fn create(engine: &Arc<dyn Engine>, directory: &Path) -> Result<Self> {
        let state_file = StateFile::new_in(directory)?;
        Ledger::remove(&beside(&state_file.path))?;
        let empty = Ledger::new(Vec::new(), Vec::new(), Vec::new());
        let store = Self::open(
            engine,
            state_file,
            Mode::Replace,
            empty,
            Layout::default(),
            Condition::Whole,
        )?;
        store.publish()?;
        Ok(store)
    }

    /// The store that an earlier process has left in `directory`, if it was not in the middle of a
    /// step. The first step comes after [`belongs_to`](Self::belongs_to).
    pub fn resume(engine: &Arc<dyn Engine>, directory: &Path) -> Result<Self> {
        let state_file = StateFile::left_in(directory)?;
        let Some((ledger, layout)) = Ledger::read(&beside(&state_file.path))? else {
            let why = "the process that had this state ended in the middle of a step, so old and \
                       new are mixed in it; start without resuming, from a checkpoint";
            return Err(Error::new(Kind::Corrupt, why).with("file", state_file.path.display()));
        };
        let store =
            Self::open(engine, state_file, Mode::Update, ledger, layout, Condition::Resumed)?;
        if store.file.len()? < store.layout.len {
            let why = "the state of the optimizer was cut short";
            return Err(Error::new(Kind::Truncated, why).with("file", store.path().display()));
        }
        Ok(store)
    }

    fn open(
        engine: &Arc<dyn Engine>,
        state_file: StateFile,
        mode: Mode,
        ledger: Ledger,
        layout: Layout,
        condition: Condition,
    ) -> Result<Self> {
        let file = engine.open(&state_file.path, Open::direct(mode))?;
        let report = Report { file_bytes: layout.len, ..Report::default() };
        Ok(Self {
            engine: Arc::clone(engine),
            file,
            state_file,
            pool: Pool::of(&STAGING, STAGING_CHUNKS, (CHUNK_BYTES, STAGING_CHUNKS))?,
            batches: ledger.batches,
            layout,
            steps: ledger.steps,
            sums: ledger.chunks,
            condition,
            report,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.state_file.path
    }

    /// The tensors in the order of their numbers, and the steps that each has taken.
    pub fn tensors(&self) -> impl Iterator<Item = (&Shape, f64)> {
        self.layout.tensors.iter().zip(self.steps.iter().copied())
    }

    /// What it has done.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Whether [`belongs_to`](Self::belongs_to) is due.
    pub fn is_resumed(&self) -> bool {
        matches!(self.condition, Condition::Resumed)
    }

    /// Adds tensors that have taken no step; the number of the first of them. A full disk shows
    /// here, before anything has changed.
    pub fn add(&mut self, tensors: Vec<Shape>) -> Result<usize> {
        self.check_whole()?;
        let before = self.layout.clone();
        self.place(tensors)?;
        if let Err(error) = self.publish() {
            self.take_back(before);
            return Err(error);
        }
        Ok(before.tensors.len())
    }

    /// Forgets the tensors that were placed last.
    fn take_back(&mut self, before: Layout) {
        self.batches.pop();
        self.steps.truncate(before.tensors.len());
        self.sums.truncate(before.chunks.len());
        self.report.file_bytes = before.len;
        self.layout = before;
        // A file that is too long is none the worse.
        let _ = self.file.set_len(self.layout.len);
    }

    /// Replaces all tensors and their state, also after a fault. If it fails, the store has none that
    /// could be used.
    pub fn load(
        &mut self,
        tensors: Vec<Shape>,
        from: Vec<Contents<'_>>,
        threads: usize,
    ) -> Result<()> {
        self.condition = Condition::Broken("another state was being loaded".into());
        Ledger::remove(&beside(self.path()))?;
        self.file.set_len(0)?;
        self.batches.clear();
        self.steps.clear();
        self.sums.clear();
        self.layout = Layout::default();
        self.place(tensors)?;
        let steps: Vec<_> = from.iter().map(|from| (from.tensor, from.step)).collect();
        let tasks = self.tasks(from, |it| it.tensor, Planes::check, Planes::of, Planes::cut)?;
        self.change(tasks, threads, &steps).map(drop)
    }

    /// Whether these are the parameters, of all tensors in the order of their numbers, that a
    /// resumed state was computed with.
    pub fn belongs_to(&mut self, parameters: &[&[u8]]) -> Result<()> {
        if parameters.len() != self.layout.tensors.len() {
            return Err(Error::invalid("every tensor of the state needs its parameter"));
        }
        let mut rest = parameters.to_vec();
        for (chunk, sums) in self.layout.chunks.iter().zip(&self.sums) {
            for (segment, expected) in chunk.segments.iter().zip(&sums.parameters) {
                let shape = &self.layout.tensors[segment.tensor];
                let width = parameters[segment.tensor].len() / shape.elements as usize;
                let here = rest[segment.tensor].split_at_checked(segment.elements * width);
                let Some((here, behind)) = here else { return Err(foreign(shape)) };
                rest[segment.tensor] = behind;
                if expected.is_some_and(|expected| crc32c(here) != expected) {
                    return Err(foreign(shape));
                }
            }
        }
        self.condition = Condition::Whole;
        Ok(())
    }

    /// Takes a step with some of the tensors, on at most so many threads.
    ///
    /// If it fails, parameters and state do not belong together any more: the store takes no more
    /// steps until a state is [loaded](Self::load).
    pub fn step(&mut self, work: Vec<Work<'_>>, threads: usize) -> Result<()> {
        let _span = trace::span("parameters", "step");
        self.check_whole()?;
        if self.is_resumed() {
            let why = "whether the parameters belong to the resumed state was not looked at";
            return Err(Error::new(Kind::Internal, why));
        }
        let steps: Vec<_> = work.iter().map(|work| (work.tensor, work.step)).collect();
        let tasks = self.tasks(work, |work| work.tensor, Part::check, Part::of, Part::cut)?;
        let began = Instant::now();
        let bytes: u64 = tasks.iter().map(|task| self.layout.chunks[task.chunk].len() as u64).sum();
        let waited = self.change(tasks, threads, &steps)?;
        self.report.steps += 1;
        self.report.read_bytes += bytes;
        self.report.written_bytes += bytes;
        self.report.waited_seconds += waited;
        self.report.seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Copies the state of some tensors to memory, with the steps that they have taken.
    pub fn read(&self, into: Vec<Contents<'_>>, threads: usize) -> Result<()> {
        self.check_whole()?;
        let tasks = self.tasks(into, |it| it.tensor, Planes::check, Planes::of, Planes::cut)?;
        self.stream(false).run(tasks, threads, &Reading(&self.layout.chunks))?;
        Ok(())
    }
}

/// How tasks are made and carried out.
impl Store {
    /// Cuts what is given for tensors along the chunks.
    fn tasks<G, P>(
        &self,
        given: Vec<G>,
        number: impl Fn(&G) -> usize,
        check: impl Fn(&G, &Shape) -> Result<()>,
        whole: impl Fn(G) -> P,
        cut: impl Fn(P, usize) -> (P, P),
    ) -> Result<Vec<Task<P>>> {
        let mut rests: Vec<Option<P>> = self.layout.tensors.iter().map(|_| None).collect();
        for given in given {
            let tensor = number(&given);
            let Some(shape) = self.layout.tensors.get(tensor) else {
                return Err(Error::invalid(format!("the state has no tensor number {tensor}")));
            };
            check(&given, shape).map_err(|error| error.with("parameter", &shape.name))?;
            if rests[tensor].replace(whole(given)).is_some() {
                let error = Error::invalid("a parameter can take one step at a time");
                return Err(error.with("parameter", &shape.name));
            }
        }
        let mut tasks = Vec::new();
        for (chunk, Chunk { segments, .. }) in self.layout.chunks.iter().enumerate() {
            let mut parts = Vec::new();
            for (at, segment) in segments.iter().enumerate() {
                if let Some(rest) = rests[segment.tensor].take() {
                    let (here, behind) = cut(rest, segment.elements);
                    rests[segment.tensor] = Some(behind);
                    parts.push((at, here));
                }
            }
            if !parts.is_empty() {
                tasks.push(Task { chunk, parts });
            }
        }
        Ok(tasks)
    }

    /// Makes room for tensors, which is filled with zeros.
    fn place(&mut self, tensors: Vec<Shape>) -> Result<()> {
        let layout = self.layout.with(tensors.clone());
        self.reserve(layout.len).map_err(|error| self.full(layout.len, error))?;
        let mut zeros = Zeros::default();
        for chunk in &layout.chunks[self.layout.chunks.len()..] {
            let parameters = vec![None; chunk.segments.len()];
            self.sums.push(Sums { state: zeros.checksum(chunk.len()), parameters });
        }
        self.steps.resize(layout.tensors.len(), 0.0);
        self.layout = layout;
        self.batches.push(tensors);
        self.report.file_bytes = self.layout.len;
        Ok(())
    }

    /// Carries tasks out that change the state; seconds that the disk was waited for. The store is
    /// whole when this has succeeded, and only then.
    fn change<P: Send>(
        &mut self,
        tasks: Vec<Task<P>>,
        threads: usize,
        steps: &[(usize, f64)],
    ) -> Result<f64>
    where
        for<'a> Changing<'a>: Worker<P>,
    {
        Ledger::remove(&beside(self.path()))?;
        self.condition = Condition::Broken("a step was not ended".into());
        let outcome = self.stream(true).run(tasks, threads, &Changing(&self.layout.chunks));
        let outcome = outcome.and_then(|(done, waited)| {
            self.note(done, steps);
            self.publish().map(|()| waited.as_secs_f64())
        });
        match outcome {
            Ok(waited) => {
                self.condition = Condition::Whole;
                Ok(waited)
            }
            Err(error) => {
                self.condition = Condition::Broken(error.to_string());
                let why = "the state of the optimizer was left half changed: parameters and state \
                           do not belong together any more; load a checkpoint into both";
                Err(Error::new(error.kind(), why).caused_by(error).retryable(false))
            }
        }
    }

    fn note(&mut self, done: Vec<Done>, steps: &[(usize, f64)]) {
        for Done { chunk, state, parameters } in done {
            let sums = &mut self.sums[chunk];
            sums.state = state;
            for (segment, checksum) in parameters {
                sums.parameters[segment] = checksum;
            }
        }
        for (tensor, step) in steps {
            self.steps[*tensor] = *step;
        }
    }

    fn stream(&self, writes: bool) -> Stream<'_> {
        Stream {
            engine: &*self.engine,
            file: &self.file,
            layout: &self.layout,
            sums: &self.sums,
            pool: &self.pool,
            writes,
        }
    }

    fn publish(&self) -> Result<()> {
        let ledger = Ledger::new(self.batches.clone(), self.steps.clone(), self.sums.clone());
        ledger.publish(&beside(self.path()))
    }

    fn check_whole(&self) -> Result<()> {
        let Condition::Broken(why) = &self.condition else { return Ok(()) };
        let message = "an earlier step of this optimizer, or a load, was left half done; load a \
                       checkpoint into the model and the optimizer";
        Err(Error::new(Kind::Corrupt, message).caused_by(why.clone()))
    }

    /// Makes room for a longer file, or leaves it as it was: reserving what the disk does not have
    /// would take all that it has from everybody else.
    fn reserve(&self, len: u64) -> Result<()> {
        let before = self.file.len()?;
        if let Ok(disk) = rustix::fs::statvfs(self.path())
            && disk.f_bavail.saturating_mul(disk.f_frsize) < len.saturating_sub(before)
        {
            return Err(Error::new(Kind::OutOfSpace, "there is less free space than that"));
        }
        let reserved = self.file.reserve(len).inspect_err(|_| {
            let _ = self.file.set_len(before);
        });
        reserved.map(|_| ())
    }

    fn full(&self, needed: u64, error: Error) -> Error {
        let kind = error.kind();
        let message = match kind {
            Kind::OutOfSpace => {
                "the disk has no room for the state of the optimizer; free some \
                                 or give another directory"
            }
            _ => "the file for the state of the optimizer can't grow",
        };
        let error = Error::new(kind, message).caused_by(error);
        error.with("file", self.path().display()).with("needed", Size(needed))
    }
}

fn foreign(shape: &Shape) -> Error {
    let why = "the parameters are not those that the resumed state was computed with; load the \
               checkpoint of the same step into the model, or start without resuming";
    Error::new(Kind::InvalidInput, why).with("parameter", &shape.name)
}

/// Checksums of zeros, mostly of one length.
#[derive(Default)]
struct Zeros(HashMap<usize, u32>);

impl Zeros {
    fn checksum(&mut self, len: usize) -> u32 {
        *self.0.entry(len).or_insert_with(|| crc32c(&vec![0; len]))
    }
}
