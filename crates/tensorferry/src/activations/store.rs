//! The interface for callers: forward passes begin and end, tensors are admitted and saved.
//!
//! ```text
//!   begin ─► (admit ─► save)… ─► end      Saved::take …, drop      begin ─► …
//!            forward                       backward                 the next step
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::encoding::{self, Compress, Element};
use super::memory::{Held, Permit};
use super::operation::Operation;
use super::report::Report;
use super::saved::Saved;
use super::shared::Shared;
use super::state::State;
use super::worker::{self, THREADS};
use crate::error::{Error, Kind, Result};
use crate::io::Engine;
use crate::memory::Block;
use crate::plan::activations::{self, Place, Plan, Planner, Profile};
use crate::size::Size;
use crate::sync::thread::JoinHandle;
use crate::sync::{MutexGuard, lock, seconds_since};

/// How to keep activations.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where scratch files are made; several are several drives.
    pub directories: Vec<PathBuf>,
    /// Bytes of activations in memory, staging included.
    pub budget: Size,
    /// What may be done to them on their way out.
    pub compress: Compress,
    /// Who decides what is kept.
    pub planner: Planner,
}

/// A tensor that asks for room.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// What it is called in errors and plans.
    pub name: &'a str,
    /// How long it is.
    pub bytes: u64,
    /// What its elements are.
    pub element: Element,
    /// Who saves it: what one operation saves is used at once.
    pub operation: Operation,
}

/// Keeps activations within a budget; clones share it.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

/// Ends the workers when the last who could need them is gone.
pub(super) struct Handle {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// What will become of a tensor.
pub struct Admission {
    saved: Saved,
    /// Nothing in a step that was refused.
    reserved: Option<Reserved>,
}

/// Room for a tensor.
struct Reserved {
    permit: Permit,
    bytes: u64,
    element: Element,
    /// Nothing where no plan says it.
    place: Option<Place>,
}

impl Store {
    /// Opens scratch files and starts workers.
    pub fn open(engine: Arc<dyn Engine>, config: Config) -> Result<Self> {
        Self::with_workers(engine, config, THREADS)
    }

    /// With so many workers; what they stage is counted as if they were all there.
    pub(super) fn with_workers(
        engine: Arc<dyn Engine>,
        config: Config,
        workers: usize,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::open(engine, config)?);
        let workers = worker::start(&shared, workers)?;
        Ok(Self(Arc::new(Handle { shared, workers })))
    }

    /// A forward pass begins.
    pub fn begin(&self) -> Result<()> {
        self.begin_by(activations::plan)
    }

    /// The same, with another planner.
    fn begin_by(&self, plan: impl FnOnce(&Profile, u64, Planner) -> Result<Plan>) -> Result<()> {
        let shared = self.0.shared()?;
        let request = lock(&shared.state).steps.begin_forward(shared.staging());
        shared.answer(request, plan);
        Ok(())
    }

    /// A forward pass is over; `well` if nothing was raised in it. A fault of this step shows.
    pub fn end(&self, well: bool) -> Result<()> {
        let shared = self.0.shared()?;
        let mut state = lock(&shared.state);
        state.steps.end_forward(well);
        shared.check(&state, state.steps.current())
    }

    /// Waits, at most `limit`, until there is room for a tensor; `None` when time is up.
    pub fn admit(&self, tensor: &Tensor<'_>, limit: Option<Duration>) -> Result<Option<Admission>> {
        let shared = self.0.shared()?;
        let mut state = in_step(shared);
        let step = state.steps.current();
        state.steps.check(step)?;
        let Tensor { name, bytes, element, operation } = *tensor;
        // What is larger than all the room is counted with its operation, which refuses the step.
        if !state.steps.is_refused(step) && bytes <= shared.room {
            let granted;
            (state, granted) = shared.make_room(state, bytes, limit, step);
            if !granted.map_err(|error| error.with("activation", name))? {
                return Ok(None);
            }
        }
        let dropped = state.use_together(step, operation, (name, bytes));
        let reserved = (!state.steps.is_refused(step)).then(|| {
            let place = state.reserve(tensor);
            Reserved { permit: Permit::new(shared, bytes), bytes, element, place }
        });
        // The record stands before its memory comes, so that positions in the step are those of
        // the admissions, whatever other threads do in between.
        let key = state.add(tensor);
        drop(state);
        drop(dropped);
        let saved = Saved { handle: Arc::clone(&self.0), key };
        Ok(Some(Admission { saved, reserved }))
    }

    /// Keeps, or begins to write, the tensor that was admitted. `block` makes its memory; nobody wants it in a
    /// step that will end with an error.
    pub fn save(
        &self,
        admission: Admission,
        block: impl FnOnce() -> Result<Block>,
    ) -> Result<Saved> {
        let shared = self.0.shared()?;
        let Admission { saved, reserved } = admission;
        let Some(Reserved { permit, bytes, element, place }) = reserved else { return Ok(saved) };
        let block = block()?;
        if block.len() as u64 != bytes {
            let message = format!("an activation of {bytes} bytes came with {}", block.len());
            return Err(Error::invalid(message));
        }
        let compress = shared.config.compress;
        // What stays tells nothing about how small it would be.
        let estimate =
            if place.is_none() { encoding::estimate(&block, element, compress)? } else { None };
        let held = Arc::new(Held::new(block, Arc::new(permit)));
        let mut state = lock(&shared.state);
        let dropped = state.put(saved.key, held, estimate);
        if let Some(Place::Offload { encoded }) = place {
            let compress = if encoded { compress } else { Compress::None };
            shared.offload(&mut state, saved.key, compress);
        }
        drop(state);
        drop(dropped);
        Ok(saved)
    }

    /// The plan that is followed now.
    pub fn plan(&self) -> Result<Option<Plan>> {
        Ok(self.learned()?.steps.plans().plan().cloned())
    }

    /// The plan in words: what is done with each tensor, and why.
    pub fn explain(&self) -> Result<Option<String>> {
        Ok(self.learned()?.steps.plans().explain())
    }

    /// What was measured last.
    pub fn profile(&self) -> Result<Option<Profile>> {
        Ok(self.learned()?.steps.plans().profile().cloned())
    }

    /// Numbers since the store was opened.
    pub fn report(&self) -> Result<Report> {
        let shared = self.0.shared()?;
        let drive_bytes = drive_bytes(&shared.config.directories);
        let state = self.learned()?;
        let (plans, seconds) = (state.steps.plans(), seconds_since(shared.opened));
        let a_day = state.written_bytes as f64 / seconds.max(1e-9) * SECONDS_A_DAY;
        Ok(Report {
            steps: plans.steps,
            budget: shared.config.budget.0,
            staging_bytes: shared.staging(),
            used_bytes: state.room.used(),
            scratch_bytes: state.scratch.used(),
            written_bytes: state.written_bytes,
            seconds,
            drive_bytes,
            drive_writes_per_day: if drive_bytes > 0 { a_day / drive_bytes as f64 } else { 0.0 },
            unplanned: plans.unplanned(),
            last: plans.last.clone(),
        })
    }

    /// What is known, the step that has just ended included.
    fn learned(&self) -> Result<MutexGuard<'_, State>> {
        let shared = self.0.shared()?;
        let request = lock(&shared.state).steps.learn(shared.staging());
        shared.answer(request, activations::plan);
        Ok(lock(&shared.state))
    }
}

/// The state, in the step that the next tensor is of.
fn in_step(shared: &Arc<Shared>) -> MutexGuard<'_, State> {
    let mut state = lock(&shared.state);
    if state.steps.is_behind() {
        let request = state.steps.next(shared.staging());
        drop(state);
        shared.answer(request, activations::plan);
        state = lock(&shared.state);
    }
    state
}

const SECONDS_A_DAY: f64 = 86_400.0;

/// Bytes of the file systems that these lie on, each counted once.
fn drive_bytes(directories: &[PathBuf]) -> u64 {
    let mut drives = BTreeMap::new();
    for directory in directories {
        let found = rustix::fs::stat(directory).ok().zip(rustix::fs::statvfs(directory).ok());
        if let Some((stat, drive)) = found {
            drives.insert(stat.st_dev, drive.f_blocks * drive.f_frsize);
        }
    }
    drives.values().sum()
}

impl Handle {
    /// What is shared, in the process that has the workers.
    pub(super) fn shared(&self) -> Result<&Arc<Shared>> {
        if !self.shared.is_forked() {
            return Ok(&self.shared);
        }
        let message = "a forked process can't use its parent's activations; make an offload of \
                       its own there";
        Err(Error::new(Kind::Unsupported, message))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        lock(&self.shared.state).is_closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its panics: it can't have any.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::Mode;
    use crate::activations::record::Phase;
    use crate::io::{self, Choice};
    use crate::memory::Buffer;
    use crate::sync::wait;

    const NAMES: [&str; 2] = ["one", "two"];

    fn store() -> Store {
        store_of(Compress::None)
    }

    fn store_of(compress: Compress) -> Store {
        let engine = io::open(&io::Config::of(Choice::Memory)).unwrap();
        let config = Config {
            directories: vec!["/scratch".into()],
            budget: Size(16 << 20),
            compress,
            planner: Planner::Timeline,
        };
        Store::open(engine, config).unwrap()
    }

    fn admit(store: &Store, name: &str) -> Admission {
        admit_bytes(store, name, 4096)
    }

    /// Every tensor is saved by an operation of its own.
    fn admit_bytes(store: &Store, name: &str, bytes: u64) -> Admission {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let operation = Operation { thread: 0, number };
        let tensor = Tensor { name, bytes, element: Element::Float32, operation };
        store.admit(&tensor, None).unwrap().unwrap()
    }

    fn save(store: &Store, name: &str) -> Saved {
        let admission = admit(store, name);
        let buffer = Buffer::zeroed(4096).unwrap();
        store.save(admission, || Ok(buffer.into())).unwrap()
    }

    /// Ends a step that has begun.
    fn finish(store: &Store, saved: Vec<Saved>) {
        store.end(true).unwrap();
        for saved in saved.into_iter().rev() {
            saved.take(None).unwrap().unwrap();
        }
    }

    fn mode_of_last(store: &Store) -> Mode {
        store.report().unwrap().last.unwrap().mode
    }

    /// A step of which nothing was learned yet.
    fn first_step(store: &Store) {
        store.begin().unwrap();
        finish(store, NAMES.map(|name| save(store, name)).into());
    }

    #[test]
    fn a_plan_is_made_without_the_lock_and_followed_at_once() {
        let store = store();
        first_step(&store);
        let mut planned = false;
        let planning = |profile: &Profile, room, planner| {
            planned = true;
            // Workers may have it for a moment.
            let is_free = || store.0.shared.state.try_lock().is_ok();
            let pause = || std::thread::sleep(Duration::from_millis(1));
            assert!(
                (0..1000).any(|_| is_free() || {
                    pause();
                    false
                }),
                "nobody can save meanwhile"
            );
            activations::plan(profile, room, planner)
        };
        store.begin_by(planning).unwrap();
        assert!(planned);
        let saved = NAMES.map(|name| save(&store, name)).into();
        finish(&store, saved);
        assert_eq!(mode_of_last(&store), Mode::Planned);
    }

    #[test]
    fn what_is_saved_while_a_plan_is_made_goes_the_old_way_and_the_next_step_follows_it() {
        let store = store();
        first_step(&store);
        let mut saved = Vec::new();
        let planning = |profile: &Profile, room, planner| {
            saved.push(save(&store, NAMES[0]));
            activations::plan(profile, room, planner)
        };
        store.begin_by(planning).unwrap();
        saved.push(save(&store, NAMES[1]));
        finish(&store, saved);
        assert_eq!(mode_of_last(&store), Mode::Profiled);
        store.begin().unwrap();
        let saved = NAMES.map(|name| save(&store, name)).into();
        finish(&store, saved);
        assert_eq!(mode_of_last(&store), Mode::Planned);
    }

    /// Waits until the tensor is on disk and nowhere else.
    fn until_stored(store: &Store, saved: &Saved) {
        let shared = &store.0.shared;
        shared.offload(&mut lock(&shared.state), saved.key, shared.config.compress);
        let is_stored = || lock(&shared.state).records.is_offloaded(saved.key);
        while !is_stored() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn decoding_is_measured_in_bytes_of_memory() {
        let store = store_of(Compress::Lossless);
        store.begin().unwrap();
        let saved = save(&store, NAMES[0]);
        until_stored(&store, &saved);
        saved.take(None).unwrap().unwrap();
        let state = lock(&store.0.shared.state);
        let step = state.steps.get(state.steps.current()).unwrap();
        assert!(step.reads.bytes() < 4096, "zeros are coded");
        assert_eq!(step.decoding.0, 4096);
    }

    #[test]
    fn a_tensor_that_was_used_is_not_fetched_ahead_again_and_one_that_was_not_is() {
        let store = store();
        store.begin().unwrap();
        let [early, late] = NAMES.map(|name| save(&store, name));
        until_stored(&store, &early);
        until_stored(&store, &late);
        late.take(None).unwrap().unwrap();
        let shared = &store.0.shared;
        let is_back = |state: &State| {
            let early = state.records.get(early.key).unwrap();
            matches!(early.phase, Phase::Fetched { .. })
        };
        let mut state = lock(&shared.state);
        while !is_back(&state) {
            state = wait(&shared.changed, state, None).0;
        }
        let dropped = state.drop_idle(8192);
        assert_eq!(dropped.len(), 2);
        drop(state);
        drop(dropped);
        let state = lock(&shared.state);
        assert!(state.records.is_offloaded(late.key), "used");
        assert!(!state.records.is_offloaded(early.key), "still to come");
    }

    #[test]
    fn who_waits_for_room_is_patient_as_long_as_memory_is_given_back() {
        let store = store();
        store.begin().unwrap();
        let admission = admit(&store, NAMES[0]);
        let look = || lock(&store.0.shared.state).still_for();
        let first = look();
        while look() <= first {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(admission);
        assert_eq!(look(), Duration::ZERO);
    }

    #[test]
    fn an_admission_that_nobody_uses_leaves_nothing() {
        let store = store();
        store.begin().unwrap();
        drop(admit(&store, NAMES[0]));
        let state = lock(&store.0.shared.state);
        assert_eq!((state.records.len(), state.room.used()), (0, 0));
    }

    #[test]
    fn a_plan_for_steps_that_are_no_more_is_dropped() {
        let store = store();
        first_step(&store);
        let planning = |profile: &Profile, room, planner| {
            // Another step, whose tensors are used in another order, is over before the plan is there.
            let saved: Vec<_> = NAMES.map(|name| save(&store, name)).into();
            finish(&store, saved.into_iter().rev().collect());
            store.begin().unwrap();
            activations::plan(profile, room, planner)
        };
        store.begin_by(planning).unwrap();
        assert!(store.plan().unwrap().is_none());
    }
}
