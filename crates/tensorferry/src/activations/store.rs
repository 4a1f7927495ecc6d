//! The door: what callers do with activations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::form::{self, Compress, Element, room_beside};
use super::knowledge::Question;
use super::memory::{Held, Memory, Permit};
use super::report::Report;
use super::scratch::Scratch;
use super::state::{Dropped, Record, State};
use super::step::{Operation, Together};
use super::work::{self, THREADS};
use crate::error::{Error, Kind, Result};
use crate::io::Engine;
use crate::memory::{ALIGNMENT, Block, Shelf, process_id};
use crate::plan::activations::{self, Place, Plan, Planner, Profile};
use crate::size::Size;
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, now, seconds_since, wait};

/// The largest chunk: enough for the disk to be at its best.
const CHUNK_BYTES_MAX: u64 = 4 << 20;

/// The smallest chunk: below, a small budget is not worth the transfers.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// The share of the budget that staging buffers may take, as a divisor.
const STAGING_SHARE: u64 = 16;

/// What is kept of blocks that come free, as a divisor of the budget and within bounds: what a layer
/// takes and gives back while it computes. It is at least what the largest tensor takes, within them.
const SPARE_SHARE: u64 = 2;
const SPARE_BYTES_MIN: u64 = 32 << 20;
const SPARE_BYTES_MAX: u64 = 1 << 30;

/// How long a caller waits for others to give memory back when nothing moves any more: another thread may be
/// in the middle of an operation.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often that is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The share of the room, as a divisor, that leaves beyond what is missing where no plan says what leaves: who
/// saves next finds it free.
const AHEAD_SHARE: u64 = 4;

/// The least budgets that are told are multiples of this.
const MINIMUM_UNIT: u64 = 1 << 20;

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
struct Handle {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// What callers and workers share.
pub(super) struct Shared {
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub chunk_bytes: usize,
    /// Bytes of tensors that the budget has room for.
    pub room: u64,
    pub state: Mutex<State>,
    /// Room came free, a tensor came back, or a step failed.
    pub changed: Condvar,
    /// There is something to do.
    pub work: Condvar,
    /// A forked child has the lock but not the threads that would give it back.
    pub process: u32,
    opened: Instant,
}

/// What will become of a tensor.
pub struct Admission {
    saved: Saved,
    room: Option<Room>,
}

/// Room for a tensor.
struct Room {
    permit: Permit,
    bytes: u64,
    element: Element,
    /// Nothing where no plan says it.
    place: Option<Place>,
}

/// A saved tensor; it is forgotten when this is dropped.
pub struct Saved {
    handle: Arc<Handle>,
    key: u64,
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
        let (chunk, staging) = staging(config.budget.0, config.compress);
        let Some(room) = config.budget.0.checked_sub(staging).filter(|room| *room > 0) else {
            return Err(Error::invalid(format!(
                "a budget of {} is too small: staging alone takes {}; give at least {} more than \
                 what one operation saves",
                config.budget,
                Size(staging),
                Size(staging),
            )));
        };
        let scratch = Scratch::open(&*engine, &config.directories)?;
        let share = Shelf::of_process().map(|shelf| shelf.share(spare(config.budget.0)));
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(scratch, share)),
            changed: Condvar::new(),
            work: Condvar::new(),
            chunk_bytes: chunk,
            room,
            engine,
            config,
            process: process_id(),
            opened: now(),
        });
        let workers = work::start(&shared, workers)?;
        Ok(Self(Arc::new(Handle { shared, workers })))
    }

    /// A forward pass begins.
    pub fn begin(&self) -> Result<()> {
        self.begin_by(activations::plan)
    }

    /// The same, with another planner.
    fn begin_by(&self, plan: impl FnOnce(&Profile, u64, Planner) -> Result<Plan>) -> Result<()> {
        let shared = self.0.shared()?;
        let question = lock(&shared.state).begin(shared.staging());
        shared.answer(question, plan);
        Ok(())
    }

    /// A forward pass is over; `well` if nothing was raised in it. A fault of this step shows.
    pub fn end(&self, well: bool) -> Result<()> {
        let shared = self.0.shared()?;
        let mut state = lock(&shared.state);
        state.end(well);
        shared.check(&state, state.current())
    }

    /// Waits, at most `limit`, until there is room for a tensor; `None` when time is up.
    pub fn admit(&self, tensor: &Tensor<'_>, limit: Option<Duration>) -> Result<Option<Admission>> {
        let shared = self.0.shared()?;
        let mut state = lock(&shared.state);
        if state.is_behind() {
            let question = state.next_step(shared.staging());
            drop(state);
            shared.answer(question, activations::plan);
            state = lock(&shared.state);
        }
        let step = state.current();
        state.check_step(step)?;
        let Tensor { name, bytes, element, operation } = *tensor;
        // What is larger than all the room is counted with its operation, which refuses the step.
        if !state.is_refused(step) && bytes <= shared.room {
            let granted;
            (state, granted) = shared.make_room(state, bytes, limit, step);
            if !granted.map_err(|error| error.with("activation", name))? {
                return Ok(None);
            }
        }
        let dropped = state.use_together(step, operation, (name, bytes), shared.room);
        let (index, key) = (state.next_index(), state.next_key());
        let room = (!state.is_refused(step)).then(|| {
            state.count(bytes);
            state.keep_spare(bytes.min(SPARE_BYTES_MAX));
            let place = state.choose(tensor);
            Room { permit: Permit::new(shared, bytes), bytes, element, place }
        });
        state.step_mut(step).save(key, name, bytes, operation);
        // The record stands before its memory comes, so that positions in the step are those of
        // the admissions, whatever other threads do in between.
        state.records.insert(key, Record::new(step, index, tensor));
        drop(state);
        drop(dropped);
        let saved = Saved { handle: Arc::clone(&self.0), key };
        Ok(Some(Admission { saved, room }))
    }

    /// Keeps, or begins to write, the tensor that was admitted. `block` makes its memory; nobody wants it in a
    /// step that will end with an error.
    pub fn save(
        &self,
        admission: Admission,
        block: impl FnOnce() -> Result<Block>,
    ) -> Result<Saved> {
        let shared = self.0.shared()?;
        let Admission { saved, room } = admission;
        let Some(Room { permit, bytes, element, place }) = room else { return Ok(saved) };
        let block = block()?;
        if block.len() as u64 != bytes {
            let message = format!("an activation of {bytes} bytes came with {}", block.len());
            return Err(Error::invalid(message));
        }
        let compress = shared.config.compress;
        // What stays tells nothing about how small it would be.
        let estimate =
            if place.is_none() { form::estimate(&block, element, compress)? } else { None };
        let held = Arc::new(Held::new(block, Arc::new(permit)));
        let mut state = lock(&shared.state);
        let dropped = state.put(saved.key, held, estimate);
        if let Some(Place::Offload { encoded }) = place {
            let compress = if encoded { compress } else { Compress::None };
            shared.leave(&mut state, saved.key, compress);
        }
        drop(state);
        drop(dropped);
        Ok(saved)
    }

    /// The plan that is followed now.
    pub fn plan(&self) -> Result<Option<Plan>> {
        Ok(self.learned()?.plan().cloned())
    }

    /// The plan in words: what is done with each tensor, and why.
    pub fn explain(&self) -> Result<Option<String>> {
        Ok(self.learned()?.explain())
    }

    /// What was measured last.
    pub fn profile(&self) -> Result<Option<Profile>> {
        Ok(self.learned()?.profile().cloned())
    }

    /// Numbers since the store was opened.
    pub fn report(&self) -> Result<Report> {
        let shared = self.0.shared()?;
        let drive_bytes = drive_bytes(&shared.config.directories);
        Ok(self.learned()?.report(shared, seconds_since(shared.opened), drive_bytes))
    }

    /// What is known, the step that has just ended included.
    fn learned(&self) -> Result<MutexGuard<'_, State>> {
        let shared = self.0.shared()?;
        let question = lock(&shared.state).learn(shared.staging());
        shared.answer(question, activations::plan);
        Ok(lock(&shared.state))
    }
}

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

impl Saved {
    /// The tensor's bytes, waited for at most `limit`; `None` when time is up.
    pub fn take(&self, limit: Option<Duration>) -> Result<Option<Memory>> {
        let shared = self.handle.shared()?;
        let deadline = limit.and_then(|limit| now().checked_add(limit));
        let mut state = lock(&shared.state);
        state.begin_backward(self.key)?;
        loop {
            let step = state.step_of(self.key)?;
            shared.check(&state, step)?;
            if let Some(memory) = state.hand_out(self.key) {
                shared.fetch_ahead(&mut state);
                return Ok(Some(memory));
            }
            let began = now();
            if state.is_stored(self.key) {
                // What others need later takes no room before this has some.
                state.hunger(self.key);
                let granted;
                let left = deadline.map(|at| at.saturating_duration_since(began));
                let bytes = state.bytes_of(self.key);
                (state, granted) = shared.make_room(state, bytes, left, step);
                if !granted.map_err(|error| error.with("activation", state.name_of(self.key)))? {
                    return Ok(None);
                }
                // While there was no room, it may have been fetched ahead.
                if state.is_stored(self.key) {
                    let fetched = shared.fetch(&mut state, self.key);
                    fetched.map_err(|error| error.with("activation", state.name_of(self.key)))?;
                }
                state.satisfied(self.key);
                continue;
            }
            state.hurry(self.key);
            shared.fetch_ahead(&mut state);
            state.step_mut(step).wait_begins();
            let in_time;
            (state, in_time) = wait(&shared.changed, state, deadline);
            state.step_mut(step).wait_ends();
            if !in_time {
                return Ok(None);
            }
        }
    }
}

impl Saved {
    /// Another operation has saved the same tensor, and uses it at once with what else it saves. `false` if it
    /// is of a step that has failed: then it has to be saved anew.
    pub fn share(&self, operation: Operation) -> Result<bool> {
        let shared = self.handle.shared()?;
        let dropped = lock(&shared.state).share(self.key, operation, shared.room);
        Ok(dropped.is_some())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // In a forked child the lock may be taken for ever, and nothing there is ours to free.
        let shared = &self.handle.shared;
        if shared.is_forked() {
            return;
        }
        let mut state = lock(&shared.state);
        let dropped = state.forget(self.key);
        shared.fetch_ahead(&mut state);
        drop(state);
        drop(dropped);
        shared.changed.notify_all();
    }
}

impl Handle {
    fn shared(&self) -> Result<&Arc<Shared>> {
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
        lock(&self.shared.state).closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its panics: it can't have any.
            let _ = worker.join();
        }
    }
}

/// The bytes of a chunk within a budget, and of all that is staged.
pub(super) fn staging(budget: u64, compress: Compress) -> (usize, u64) {
    let share = budget / STAGING_SHARE / THREADS as u64;
    let chunk = share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) as usize / ALIGNMENT * ALIGNMENT;
    (chunk, (THREADS * (chunk + room_beside(chunk, compress))) as u64)
}

/// Bytes of freed blocks that are kept beside a budget.
fn spare(budget: u64) -> usize {
    (budget / SPARE_SHARE).clamp(SPARE_BYTES_MIN, SPARE_BYTES_MAX) as usize
}

impl Shared {
    /// Whether this is a child of the process that has the workers.
    pub fn is_forked(&self) -> bool {
        self.process != process_id()
    }

    /// Bytes of the budget that workers have for themselves.
    fn staging(&self) -> u64 {
        self.config.budget.0 - self.room
    }

    /// Makes the plan that is asked for, without the lock: others go on as before meanwhile.
    fn answer(
        &self,
        question: Option<Question>,
        plan: impl FnOnce(&Profile, u64, Planner) -> Result<Plan>,
    ) {
        let Some(question) = question else { return };
        let profile = &question.profile;
        let minimum = activations::minimum_budget(profile);
        // What is told is the user's budget, of which the planner has what staging leaves.
        let plan = if minimum > self.room {
            let (room, minimum) = (Size(self.room), Size(self.budget_for(minimum)));
            Err(Error::invalid(format!(
                "backward keeps more of what it used than the {room} that a plan has; give at least \
                 {minimum} for one"
            )))
        } else {
            plan(profile, self.room, self.config.planner)
        };
        lock(&self.state).answer(question, plan);
    }

    /// Waits until `bytes` more fit; `false` when `limit` has passed before.
    fn make_room<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        bytes: u64,
        limit: Option<Duration>,
        step: u64,
    ) -> (MutexGuard<'a, State>, Result<bool>) {
        let began = now();
        let deadline = limit.and_then(|limit| began.checked_add(limit));
        state.wanted += bytes;
        if let Some(step) = state.steps.get_mut(&step) {
            step.wait_begins();
        }
        self.work.notify_all();
        let outcome = loop {
            if state.used + bytes <= self.room {
                break Ok(true);
            }
            if let Err(error) = self.check(&state, step) {
                break Err(error);
            }
            let dropped = self.let_go(&mut state, bytes, step);
            if !dropped.is_empty() {
                drop(state);
                drop(dropped);
                state = lock(&self.state);
                continue;
            }
            if state.still_for() > PATIENCE {
                break Err(self.held_too_much(&state, bytes));
            }
            if deadline.is_some_and(|deadline| now() >= deadline) {
                break Ok(false);
            }
            let soon = now() + LOOK_EVERY;
            let until = deadline.map_or(soon, |deadline| deadline.min(soon));
            state = wait(&self.changed, state, Some(until)).0;
        };
        state.wanted -= bytes;
        if let Some(step) = state.steps.get_mut(&step) {
            step.wait_ends();
        }
        (state, outcome)
    }

    /// Takes out of memory what nobody uses, or sends what was kept on its way, what was saved first before
    /// the rest: that is used last.
    fn let_go(self: &Arc<Self>, state: &mut State, bytes: u64, step: u64) -> Vec<Dropped> {
        let missing = (state.used + bytes).saturating_sub(self.room);
        let dropped = state.drop_restored(missing);
        let leaving = state.leaving();
        if dropped.is_empty() && leaving < missing {
            let ahead = if state.is_guided(step) { 0 } else { self.room / AHEAD_SHARE };
            for key in state.kept_oldest_first(missing + ahead - leaving) {
                self.leave(state, key, self.config.compress);
            }
        }
        dropped
    }

    /// Whether a step went well so far.
    fn check(&self, state: &State, step: u64) -> Result<()> {
        state.check_step(step)?;
        state.refused(step).map_or(Ok(()), |together| Err(self.too_small(together)))
    }

    /// The least budget that has room for so many bytes.
    fn budget_for(&self, bytes: u64) -> u64 {
        let mut budget = bytes.next_multiple_of(MINIMUM_UNIT);
        while budget - staging(budget, self.config.compress).1 < bytes {
            budget += MINIMUM_UNIT;
        }
        budget
    }

    fn too_small(&self, together: &Together) -> Error {
        let Together { bytes, tensors, name, .. } = together;
        let what = if *tensors > 1 {
            format!(
                "{tensors} tensors of {} that one operation saves and uses at once",
                Size(*bytes)
            )
        } else {
            format!("one tensor of {}", Size(*bytes))
        };
        let (budget, minimum) = (self.config.budget, Size(self.budget_for(*bytes)));
        let message = format!(
            "the budget of {budget} is too small for {what}: give at least {minimum} (a model that is \
             compiled as a whole is one operation: compile its parts)"
        );
        Error::new(Kind::OutOfMemory, message).with("activation", name)
    }

    /// Nobody gives memory back: threads have stopped one another, or somebody keeps what backward was given.
    fn held_too_much(&self, state: &State, bytes: u64) -> Error {
        let minimum = self.budget_for(state.all_bytes() + bytes);
        let message = format!(
            "the budget of {} is too small for {} that is in use and not given back: let go of saved \
             tensors that you keep, or give {}, with which all that was saved by now would stay",
            self.config.budget,
            Size(state.used),
            Size(minimum)
        );
        Error::new(Kind::OutOfMemory, message)
    }

    /// Fetches what backward will want next, as far as there is room.
    pub fn fetch_ahead(self: &Arc<Self>, state: &mut State) {
        state.is_full = false;
        while let Some(key) = state.next_to_fetch() {
            let bytes = state.bytes_of(key);
            state.is_full = !state.has_spare(bytes, self.room) || self.fetch(state, key).is_err();
            if state.is_full {
                self.work.notify_all();
                break;
            }
        }
    }

    /// Begins to read a stored tensor, for which there is room.
    fn fetch(self: &Arc<Self>, state: &mut State, key: u64) -> Result<()> {
        let block = Shelf::block(state.bytes_of(key) as usize)?;
        state.come(key, block, self);
        self.work.notify_all();
        Ok(())
    }

    /// Begins to write a tensor that is here.
    pub fn leave(&self, state: &mut State, key: u64, compress: Compress) {
        state.leave(key, self.chunk_bytes, compress);
        self.work.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::Mode;
    use crate::activations::state::Phase;
    use crate::io::{self, Choice};
    use crate::memory::Buffer;

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
        shared.leave(&mut lock(&shared.state), saved.key, shared.config.compress);
        let is_stored = || lock(&shared.state).is_stored(saved.key);
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
        let step = &state.steps[&state.current()];
        assert!(step.reads.bytes() < 4096, "zeros are coded");
        assert_eq!(step.decoded.0, 4096);
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
        let is_back = |state: &State| matches!(state.records[&early.key].phase, Phase::Back { .. });
        let mut state = lock(&shared.state);
        while !is_back(&state) {
            state = wait(&shared.changed, state, None).0;
        }
        let dropped = state.drop_restored(8192);
        assert_eq!(dropped.len(), 2);
        drop(state);
        drop(dropped);
        let state = lock(&shared.state);
        assert!(state.is_stored(late.key), "used");
        assert!(!state.is_stored(early.key), "still to come");
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
    fn a_process_that_was_stopped_has_waited_for_no_longer_than_between_two_looks() {
        let store = store();
        let mut state = lock(&store.0.shared.state);
        state.look_late(PATIENCE * 2);
        assert!(state.still_for() <= LOOK_EVERY);
    }

    #[test]
    fn an_admission_that_nobody_uses_leaves_nothing() {
        let store = store();
        store.begin().unwrap();
        drop(admit(&store, NAMES[0]));
        let state = lock(&store.0.shared.state);
        assert_eq!((state.records.len(), state.used), (0, 0));
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
