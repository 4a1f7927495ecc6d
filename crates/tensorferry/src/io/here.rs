//! Operations that their callers carry out themselves.
//!
//! An operation that goes through the driver changes threads twice, and on a virtual machine it is the host
//! that wakes a processor which sleeps: for a few pages that takes longer than the disk does. Who wants
//! one small thing, and stands still until it is done, calls the kernel from where it stands.
//!
//! It is the same operation, cut, staged, continued, retried, judged and counted by the same code, with
//! faults from the same script; its pieces go one after another. What it goes past is the schedule: a caller
//! has one piece under way, however busy the disk is. So this is for few bytes. Who has many lets the driver
//! share the disk.

use rustix::io::Errno;

use super::Config;
use super::backend::{Backend, Ended, Patience, Transfer};
use super::config::STAGING;
use super::faulty::{Faults, Faulty};
use super::meter::Meter;
use super::operation::Operation;
use crate::error::Result;
use crate::interrupt;
use crate::memory::Pool;

/// Pieces may be this many times as long as the driver's, if so many bytes may be in flight: nobody waits
/// behind them for a turn.
const PIECES: usize = 4;

/// Buffers for what is not aligned; callers take turns. Memory only once they are used.
const STAGING_BUFFERS: usize = 2;

/// How a thread moves the bytes of a transfer by itself.
pub(super) type CarryOut = fn(&mut Transfer) -> Result<usize, Errno>;

/// What callers need to do without the driver.
pub(super) struct Here {
    carry_out: CarryOut,
    faults: Option<Faults>,
    staging: Pool,
    piece_bytes: usize,
}

impl Here {
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
