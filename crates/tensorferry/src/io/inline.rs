//! Small blocking operations, run on the calling thread and past the schedule.
//!
//! An operation that goes through the driver changes threads twice, and on a virtual machine the host has to
//! wake a sleeping processor each time: for a few pages that takes longer than the disk does. A caller that
//! wants one small thing and has nothing else to do calls the kernel itself.
//!
//! The operation is cut, staged, continued, retried, judged and counted by the driver's code, with faults from
//! the same script; its pieces go one after another. It passes the schedule: a caller has one piece under way,
//! however busy the disk is. So this is for few bytes; larger amounts go through the driver, which shares the
//! disk.
//!
//! Memory may also be only [borrowed](super::borrowed): then a call reads straight into it, by the same rules
//! of continuing, retrying and counting, and with the same faults.

use rustix::io::Errno;

use super::Config;
use super::backend::{Backend, Ended, Patience, Transfer};
use super::borrowed::Borrowed;
use super::config::STAGING;
use super::faulty::{Faults, Faulty};
use super::file::File;
use super::meter::Meter;
use super::operation::{Operation, Outcome, RETRIES_MAX, describe, is_passing};
use super::piece::Flow;
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::memory::Pool;

/// Pieces may be this many times as long as the driver's, if so many bytes may be in flight: nobody waits
/// behind them for a turn.
const PIECES: usize = 4;

/// Buffers for what is not aligned; callers take turns. Memory only once they are used.
const STAGING_BUFFERS: usize = 2;

/// Bytes that a caller moves between a file and memory that it keeps.
pub(super) struct Call<'a, 'b> {
    pub file: &'a File,
    pub offset: u64,
    pub memory: Borrowed<'a, 'b>,
}

/// How a thread moves the bytes of a transfer by itself.
pub(super) type CarryOut = fn(&mut Transfer) -> Result<usize, Errno>;

/// What callers need to do without the driver.
pub(super) struct Inline {
    carry_out: CarryOut,
    faults: Option<Faults>,
    staging: Pool,
    piece_bytes: usize,
}

impl Inline {
    pub(super) fn new(config: &Config, carry_out: CarryOut) -> Result<Self> {
        let longer = PIECES * config.piece_bytes;
        let fits = longer as u64 <= config.in_flight_bytes;
        let piece_bytes = if fits { longer } else { config.piece_bytes };
        let staging = Pool::of(&STAGING, 1, (piece_bytes, STAGING_BUFFERS))?;
        Ok(Self { carry_out, faults: config.faults.clone(), staging, piece_bytes })
    }

    /// Carries an operation out, and answers it.
    pub(super) fn run(&self, mut operation: Operation, meter: &Meter) {
        let caller = Caller { carry_out: self.carry_out, ended: None };
        let mut backend = Faulty::around(caller, self.faults.as_ref());
        let mut ended = Vec::new();
        while operation.has_more() {
            if let Err(error) = interrupt::check() {
                operation.fail(error);
                break;
            }
            let Some((flight, transfer)) =
                operation.lift_off(0, self.piece_bytes, &self.staging, meter)
            else {
                // Until another caller gives one back.
                if let Err(error) = self.staging.take() {
                    operation.fail(error);
                }
                continue;
            };
            backend.start(transfer);
            while ended.is_empty() {
                let patience = Patience::AtMost(interrupt::INTERVAL);
                let reaped = interrupt::check().and_then(|()| backend.reap(patience, &mut ended));
                if let Err(error) = reaped {
                    operation.fail(error);
                    return operation.finish(meter);
                }
            }
            if let Some(ended) = ended.pop() {
                meter.landed(operation.settle(flight, ended));
            }
        }
        operation.finish(meter);
    }

    /// Moves bytes of borrowed memory, and says how many: fewer than are wanted only where the file ends.
    pub(super) fn carry_out(&self, mut call: Call<'_, '_>, meter: &Meter) -> Result<usize> {
        let (flow, wanted) = (call.memory.flow(), call.memory.wanted());
        let (mut moved, mut retries) = (0, 0);
        while call.memory.wanted() > 0 {
            interrupt::check()?;
            meter.buffered.add(1);
            let result = self.attempt(&mut call, moved)?;
            let may_pass = result.map_or_else(is_passing, |_| true);
            match result {
                Ok(0) if flow == Flow::Read => break,
                Ok(some) if some > 0 => {
                    (moved, retries) = (moved + some, 0);
                    let is_short = call.memory.wanted() > 0;
                    meter.landed(if is_short { Outcome::Short } else { Outcome::Whole });
                }
                _ if may_pass && retries < RETRIES_MAX => {
                    retries += 1;
                    meter.landed(Outcome::Hindered);
                }
                Ok(_) => {
                    let what = describe(flow, call.offset, wanted);
                    return Err(Error::new(Kind::Io, format!("{what}: the device moves no bytes")));
                }
                Err(errno) => {
                    let error = Error::from_errno(errno, describe(flow, call.offset, wanted));
                    return Err(if may_pass { error.retryable(true) } else { error });
                }
            }
        }
        Ok(moved)
    }

    /// One call of the kernel's. An error means that the caller was interrupted.
    fn attempt(&self, call: &mut Call<'_, '_>, moved: usize) -> Result<Result<usize, Errno>> {
        let (offset, memory) = (call.offset + moved as u64, &mut call.memory);
        let Some(faults) = &self.faults else {
            return Ok(memory.carry_out(call.file, offset, None));
        };
        faults.around_call(memory.flow(), offset, memory.wanted(), |most| {
            memory.carry_out(call.file, offset, most)
        })
    }
}

/// The calling thread as a backend, for one transfer at a time.
struct Caller {
    carry_out: CarryOut,
    ended: Option<Ended>,
}

impl Backend for Caller {
    fn depth(&self) -> usize {
        1
    }

    fn start(&mut self, mut transfer: Transfer) {
        let result = (self.carry_out)(&mut transfer);
        self.ended = Some(Ended { transfer, result });
    }

    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()> {
        // Nobody else could end this wait.
        if let (None, Patience::AtMost(limit)) = (&self.ended, patience) {
            std::thread::sleep(limit);
        }
        ended.extend(self.ended.take());
        Ok(())
    }
}
