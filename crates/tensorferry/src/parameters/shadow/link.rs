//! The link as the runtime uses it: in pieces, two of them in line.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::host_memory::HostMemory;
use crate::device::link::Speed;
use crate::device::{Device, DeviceMemory, Direction, Event, Facts, Stream, Transfer};
use crate::error::{Error, Result};
use crate::plan::parameters::{self, Link};

/// Bytes of a piece: the link's latency is to be a small part of its time, and a kernel that reads
/// in place is to wait for a short time.
const PIECE_BYTES_MIN: u64 = 256 << 10;
/// As above.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// Where the link's speed is not known.
const PIECE_BYTES_DEFAULT: u64 = 1 << 20;
/// The part of a piece's time that may be latency is one in so many.
const LATENCY_SHARE: u32 = 50;
/// Pieces in line: the next one starts when one ends, and no more stand before a kernel's use.
pub(super) const IN_LINE_MAX: usize = 2;
/// Measurements of each size, of which the middle one counts.
const SAMPLES: usize = 3;
/// Small copies in a row that tell what each transfer costs.
const ROW: usize = 32;
/// Bytes of such a copy.
const SMALL_BYTES: usize = 4 << 10;

/// Bytes of a piece on a link of this speed.
pub(super) fn piece_bytes(facts: &Facts, direction: Direction) -> usize {
    let bytes = speed(facts, direction).map_or(PIECE_BYTES_DEFAULT, |speed| {
        let seconds = (speed.latency * LATENCY_SHARE).as_secs_f64();
        (speed.bytes_per_second as f64 * seconds) as u64
    });
    bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
}

/// How fast a direction is, where it is known.
pub(super) fn speed(facts: &Facts, direction: Direction) -> Option<Speed> {
    facts.link.as_ref().map(|link| match direction {
        Direction::In => link.into,
        Direction::Out => link.out,
    })
}

/// Something under way on the link.
pub(super) enum Crossing {
    Copy(Transfer),
    Use(Event),
}

impl Crossing {
    /// Waits for its end. What was borrowed for it is given back before this returns, also if it failed.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Copy(transfer) => {
                let over = transfer.wait_within(PATIENCE);
                // A transfer that is dropped leaves its block to the device, which may have it a little longer.
                drop(transfer.into_block());
                over
            }
            Self::Use(event) => event.wait_within(PATIENCE),
        }
    }
}

/// Measures both directions of an idle link with copies of up to so many bytes, made as in an
/// iteration.
pub(super) fn measure(device: &dyn Device, bytes: usize) -> Result<Link> {
    if bytes < 2 {
        return Err(Error::invalid("a link is measured with copies of at least two bytes"));
    }
    let host = HostMemory::new(device, bytes)?;
    let trial = Trial { device, stream: device.stream()?, memory: device.allocate(bytes)?, host };
    let slowdown = device.facts().link.map_or(1.0, |link| link.direct_slowdown);
    Ok(Link {
        inwards: trial.fit(Direction::In)?,
        outwards: trial.fit(Direction::Out)?,
        direct_slowdown: slowdown,
        direct_shares: true,
    })
}

struct Trial<'a> {
    device: &'a dyn Device,
    stream: Stream,
    memory: DeviceMemory,
    host: HostMemory,
}

impl Trial<'_> {
    /// A row of small copies tells what each transfer costs, a large copy what its bytes do. Not two
    /// large ones: their difference is small beside what a busy machine adds to either, and layers are
    /// many, each with a latency.
    fn fit(&self, direction: Direction) -> Result<parameters::Direction> {
        let (bytes, piece) = (self.memory.len(), piece_bytes(&self.device.facts(), direction));
        // Pages that nobody has touched yet would be made in the middle of a copy.
        self.seconds(direction, bytes, piece)?;
        let all = self.median(direction, bytes, piece)?;
        let small = bytes.div_ceil(ROW).min(SMALL_BYTES);
        let row = (small * ROW).min(bytes);
        let each = self.median(direction, row, small)? / row.div_ceil(small) as f64;
        let moving = all * small as f64 / bytes as f64;
        let latency_seconds = (each - moving).clamp(0.0, all / 2.0);
        let bytes_per_second = (bytes as f64 / (all - latency_seconds)).clamp(1.0, 1e15);
        Ok(parameters::Direction { bytes_per_second, latency_seconds })
    }

    fn median(&self, direction: Direction, bytes: usize, piece: usize) -> Result<f64> {
        let samples = (0..SAMPLES).map(|_| self.seconds(direction, bytes, piece));
        let mut samples = samples.collect::<Result<Vec<_>>>()?;
        samples.sort_by(f64::total_cmp);
        Ok(samples[SAMPLES / 2])
    }

    /// So many bytes in such pieces.
    fn seconds(&self, direction: Direction, bytes: usize, piece: usize) -> Result<f64> {
        let start = Instant::now();
        let mut line = VecDeque::new();
        for from in (0..bytes).step_by(piece) {
            if line.len() == IN_LINE_MAX
                && let Some(first) = line.pop_front()
            {
                Crossing::finish(first)?;
            }
            line.push_back(self.start(direction, from..(from + piece).min(bytes))?);
        }
        line.into_iter().try_for_each(Crossing::finish)?;
        Ok(start.elapsed().max(Duration::from_nanos(1)).as_secs_f64())
    }

    fn start(&self, direction: Direction, range: Range<usize>) -> Result<Crossing> {
        copy(
            self.device,
            &self.stream,
            direction,
            (&self.host, range.clone()),
            (&self.memory, range.start),
        )
    }
}

/// Starts a copy between host memory and a buffer.
pub(super) fn copy(
    device: &dyn Device,
    stream: &Stream,
    direction: Direction,
    (host, range): (&HostMemory, Range<usize>),
    (memory, offset): (&DeviceMemory, usize),
) -> Result<Crossing> {
    let transfer = match direction {
        Direction::In => device.copy_in(stream, host.mapped().lend(range)?, memory, offset)?,
        Direction::Out => {
            let block = host.mapped().lend_for_writing(range)?;
            device.copy_out(stream, memory, offset, block)?
        }
    };
    Ok(Crossing::Copy(transfer))
}
