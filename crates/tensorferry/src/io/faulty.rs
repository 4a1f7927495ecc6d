//! A backend that fails on demand: errors, short transfers, delays, and writes torn at a byte.
//!
//! It wraps any other backend and sits below the driver, so that what it exercises is the code that
//! runs in production: continuing, retrying, reporting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::backend::{Backend, Ended, Patience, Transfer, Work};
use super::piece::Flow;
use crate::error::Result;
use crate::interrupt;
use crate::memory::ALIGNMENT;
use crate::sync::{Mutex, lock};

/// How soon what was delayed hears that all is calm.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Faults to inject, shared between a test and an engine.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    faults: Vec<Fault>,
    chaos: Option<u64>,
    injected: u64,
    /// How often all was calmed.
    calmed: u64,
    /// Something was torn: the power is gone.
    dead: bool,
}

/// One fault: on which transfers, and what happens to them.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    on: On,
    effect: Effect,
    skip: u64,
    times: u64,
    touching: Option<u64>,
}

/// Which transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs.
    Sync,
    /// All of them.
    Any,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The kernel answers with this error code (`libc::ENOSPC` and so on); nothing is moved.
    Fail(i32),
    /// At most this many bytes are moved.
    Short(usize),
    /// The transfer starts this much later.
    Delay(Duration),
    /// A write stops in front of this byte of the file, and from then on everything fails: what a
    /// power cut in the middle of a write leaves.
    Tear(u64),
}

impl Fault {
    /// Happens to every such transfer, once.
    pub const fn new(on: On, effect: Effect) -> Self {
        Self { on, effect, skip: 0, times: 1, touching: None }
    }

    /// Lets this many transfers pass first.
    #[must_use]
    pub const fn after(mut self, transfers: u64) -> Self {
        self.skip = transfers;
        self
    }

    /// Happens this many times.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Happens only to transfers that cover this byte of a file.
    #[must_use]
    pub const fn touching(mut self, byte: u64) -> Self {
        self.touching = Some(byte);
        self
    }

    fn concerns(&self, request: Request) -> bool {
        let covered = request.offset..request.offset + request.len as u64;
        let torn = matches!(self.effect, Effect::Tear(byte) if !covered.contains(&byte));
        (self.on == On::Any || self.on == request.on)
            && self.touching.is_none_or(|byte| covered.contains(&byte))
            && !torn
    }
}

/// What a fault may happen to.
#[derive(Clone, Copy)]
struct Request {
    on: On,
    offset: u64,
    len: usize,
}

impl Request {
    fn of(transfer: &Transfer) -> Self {
        let on = match transfer.work {
            Work::Read(_) => On::Read,
            Work::Write(_) => On::Write,
            Work::Sync => On::Sync,
        };
        Self { on, offset: transfer.offset, len: transfer.len }
    }
}

impl Faults {
    /// No faults yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Short transfers and passing errors everywhere, from this seed on.
    pub fn chaos(seed: u64) -> Self {
        let faults = Self::default();
        lock(&faults.0).chaos = Some(seed | 1);
        faults
    }

    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        lock(&self.0).faults.push(fault);
    }

    /// From now on nothing happens but what is added later, and what was delayed starts.
    pub fn calm(&self) {
        let script = &mut *lock(&self.0);
        script.faults.clear();
        script.calmed += 1;
    }

    /// How many faults were injected until now.
    pub fn injected(&self) -> u64 {
        lock(&self.0).injected
    }

    /// Does a call of the kernel's on the calling thread, with the faults that happen to it: `carry_out` is
    /// told how many bytes may be moved at most. An error means that the caller was interrupted.
    pub(super) fn around_call(
        &self,
        flow: Flow,
        offset: u64,
        len: usize,
        carry_out: impl FnOnce(Option<usize>) -> Result<usize, Errno>,
    ) -> Result<Result<usize, Errno>> {
        let on = if flow == Flow::Read { On::Read } else { On::Write };
        Ok(match self.decide(Request { on, offset, len }) {
            None => carry_out(None),
            Some(Effect::Fail(code)) => Err(Errno::from_raw_os_error(code)),
            Some(Effect::Short(len)) => carry_out(Some(len)),
            Some(Effect::Delay(time)) => {
                self.delay(time)?;
                carry_out(None)
            }
            Some(Effect::Tear(byte)) => {
                let len = (byte - offset) as usize;
                if len > 0 {
                    let _ = carry_out(Some(len));
                }
                Err(Errno::IO)
            }
        })
    }

    /// Waits so long, or until all is calm.
    fn delay(&self, time: Duration) -> Result<()> {
        let (due, since) = (Instant::now() + time, lock(&self.0).calmed);
        while Instant::now() < due && lock(&self.0).calmed == since {
            interrupt::check()?;
            std::thread::sleep(LOOK_EVERY.min(due.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn decide(&self, request: Request) -> Option<Effect> {
        let script = &mut *lock(&self.0);
        if script.dead {
            return Some(Effect::Fail(libc::EIO));
        }
        let effect = script.scripted(request).or_else(|| script.chaotic(request));
        script.injected += u64::from(effect.is_some());
        script.dead = matches!(effect, Some(Effect::Tear(_)));
        effect
    }
}

impl Script {
    fn scripted(&mut self, request: Request) -> Option<Effect> {
        for fault in self.faults.iter_mut().filter(|fault| fault.concerns(request)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                return Some(fault.effect);
            }
        }
        None
    }

    fn chaotic(&mut self, request: Request) -> Option<Effect> {
        let state = self.chaos.as_mut()?;
        // Xorshift: the faults of a seed are the same on every run.
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let random = *state >> 8;
        match random % 8 {
            0 => Some(Effect::Fail(libc::EINTR)),
            1 => Some(Effect::Fail(libc::EAGAIN)),
            2..=4 if request.len > 1 => {
                Some(Effect::Short(1 + (random >> 8) as usize % (request.len - 1)))
            }
            _ => None,
        }
    }
}

pub(super) struct Faulty {
    inner: Box<dyn Backend>,
    faults: Faults,
    failed: Vec<Ended>,
    /// What was delayed: until when, and since how often all was calmed.
    delayed: Vec<(Instant, u64, Transfer)>,
    /// The transfer that was torn, until it has ended.
    torn: Option<usize>,
}

impl Faulty {
    fn new(inner: Box<dyn Backend>, faults: Faults) -> Self {
        Self { inner, faults, failed: Vec::new(), delayed: Vec::new(), torn: None }
    }

    /// A backend with these faults, or as it is without any.
    pub(super) fn around(
        backend: impl Backend + 'static,
        faults: Option<&Faults>,
    ) -> Box<dyn Backend> {
        match faults {
            Some(faults) => Box::new(Self::new(Box::new(backend), faults.clone())),
            None => Box::new(backend),
        }
    }

    fn fail(&mut self, transfer: Transfer, errno: Errno) {
        self.failed.push(Ended { transfer, result: Err(errno) });
    }

    fn start_shortened(&mut self, mut transfer: Transfer, len: usize) {
        transfer.len = transfer.len.min(len);
        // A device takes whole blocks only; the page cache takes any length.
        transfer.direct &= transfer.len.is_multiple_of(ALIGNMENT);
        self.inner.start(transfer);
    }

    fn start_due(&mut self) -> Option<Duration> {
        let (now, calmed) = (Instant::now(), lock(&self.faults.0).calmed);
        let is_due = |(due, since, _): &mut (Instant, u64, _)| *due <= now || *since < calmed;
        for (_, _, transfer) in self.delayed.extract_if(.., is_due) {
            self.inner.start(transfer);
        }
        self.delayed.iter().map(|(due, _, _)| (*due - now).min(LOOK_EVERY)).min()
    }
}

impl Backend for Faulty {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn start(&mut self, transfer: Transfer) {
        match self.faults.decide(Request::of(&transfer)) {
            None => self.inner.start(transfer),
            Some(Effect::Fail(code)) => self.fail(transfer, Errno::from_raw_os_error(code)),
            Some(Effect::Short(len)) => self.start_shortened(transfer, len),
            Some(Effect::Delay(delay)) => {
                let since = lock(&self.faults.0).calmed;
                self.delayed.push((Instant::now() + delay, since, transfer));
            }
            Some(Effect::Tear(byte)) => match (byte - transfer.offset) as usize {
                0 => self.fail(transfer, Errno::IO),
                len => {
                    self.torn = Some(transfer.token);
                    self.start_shortened(transfer, len);
                }
            },
        }
    }

    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()> {
        let patience = match (self.start_due(), patience) {
            _ if !self.failed.is_empty() => Patience::None,
            (Some(due), Patience::Unlimited) => Patience::AtMost(due),
            (Some(due), Patience::AtMost(limit)) => Patience::AtMost(due.min(limit)),
            (_, patience) => patience,
        };
        let known = ended.len();
        self.inner.reap(patience, ended)?;
        for ended in &mut ended[known..] {
            if self.torn == Some(ended.transfer.token) {
                self.torn = None;
                ended.result = Err(Errno::IO);
            }
        }
        ended.append(&mut self.failed);
        Ok(())
    }

    fn forget(&mut self, file: u64) {
        self.inner.forget(file);
    }
}
