//! What callers and workers share: the engine, the configuration, and the state under its lock.
//!
//! Nothing that frees memory is dropped under the lock, because what keeps a caller's memory alive may come
//! back to it. Nothing that takes long is done under it.

use std::sync::Arc;
use std::time::Instant;

use super::encoding::Compress;
use super::memory::Counted;
use super::plans::PlanRequest;
use super::scratch::Scratch;
use super::sizes::{budget_for, spare, staging};
use super::state::State;
use super::store::Config;
use crate::error::{Error, Result};
use crate::io::Engine;
use crate::memory::{SpareBlocks, process_id};
use crate::plan::activations::{self, Plan, Planner, Profile};
use crate::size::Size;
use crate::sync::{Condvar, Mutex, lock, now};

/// See the [module](self).
pub(super) struct Shared {
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub chunk_bytes: usize,
    /// Bytes of tensors that the budget has room for.
    pub room: u64,
    pub counted: Counted,
    pub state: Mutex<State>,
    /// Room came free, a tensor came back, or a step failed.
    pub changed: Condvar,
    /// There is something to do.
    pub work: Condvar,
    /// A forked child has the lock but not the threads that would give it back.
    process: u32,
    pub opened: Instant,
}

impl Shared {
    /// Divides the budget and opens scratch files.
    pub fn open(engine: Arc<dyn Engine>, config: Config) -> Result<Self> {
        let (chunk_bytes, staging) = staging(config.budget.0, config.compress);
        let Some(room) = config.budget.0.checked_sub(staging).filter(|room| *room > 0) else {
            return Err(Error::invalid(format!(
                "a budget of {} is too small: staging alone takes {}; give at least {} more than \
                 what one operation saves",
                config.budget,
                Size(staging),
                Size(staging),
            )));
        };
        let counted = Counted::open(config.budget.0, staging)?;
        let scratch = Scratch::open(&*engine, &config.directories)?;
        let spare = SpareBlocks::of_process()
            .map(|spare_blocks| spare_blocks.share(spare(config.budget.0)));
        Ok(Self {
            state: Mutex::new(State::new(scratch, room, spare)),
            changed: Condvar::new(),
            work: Condvar::new(),
            chunk_bytes,
            room,
            counted,
            engine,
            config,
            process: process_id(),
            opened: now(),
        })
    }

    /// Whether this is a child of the process that has the workers.
    pub fn is_forked(&self) -> bool {
        self.process != process_id()
    }

    /// Bytes of the budget that workers have for themselves.
    pub fn staging(&self) -> u64 {
        self.config.budget.0 - self.room
    }

    /// The least budget that has room for so many bytes.
    pub fn budget_for(&self, bytes: u64) -> u64 {
        budget_for(bytes, self.config.compress)
    }

    /// Whether a step went well so far.
    pub fn check(&self, state: &State, step: u64) -> Result<()> {
        state.steps.check(step)?;
        let refused = state.steps.refused_for(step);
        refused.map_or(Ok(()), |together| Err(self.too_small(together)))
    }

    /// Begins to write a resident tensor.
    pub fn offload(&self, state: &mut State, key: u64, compress: Compress) {
        state.begin_offload(key, self.chunk_bytes, compress);
        self.work.notify_all();
    }

    /// Makes the plan that is requested, without the lock: others go on as before meanwhile.
    pub fn answer(
        &self,
        request: Option<PlanRequest>,
        plan: impl FnOnce(&Profile, u64, Planner) -> Result<Plan>,
    ) {
        let Some(request) = request else { return };
        let profile = &request.profile;
        let minimum = activations::minimum_budget(profile);
        // Errors state the user's budget, of which the planner has what staging leaves.
        let plan = if minimum > self.room {
            let (room, minimum) = (Size(self.room), Size(self.budget_for(minimum)));
            Err(Error::invalid(format!(
                "backward keeps more of what it used than the {room} that a plan has; give at least \
                 {minimum} for one"
            )))
        } else {
            plan(profile, self.room, self.config.planner)
        };
        lock(&self.state).steps.answer(request, plan);
    }
}
