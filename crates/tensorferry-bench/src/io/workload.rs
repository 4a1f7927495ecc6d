//! Our side: one thread that keeps a number of operations under way.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorferry::io::{Config, Engine, Facts, File, Mode, Open, Pending, Priority, open};
use tensorferry::memory::{Block, Pool};
use tensorferry::{Error, Result};

use super::{CASES, Case, Plan, file_in};

/// An engine and a file full of bytes; the file goes with it.
pub(super) struct Workbench {
    engine: Arc<dyn Engine>,
    file: File,
    file_bytes: u64,
    large: Pool,
    small: Pool,
    path: Temporary,
}

/// A file that is removed in the end, also when the run fails.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A file that can't be removed was never made, or is not ours any more.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Workbench {
    pub(super) fn set_up(plan: &Plan) -> Result<Self> {
        let depth_of = |large: bool| {
            let cases = CASES.iter().filter(|case| (case.block_bytes > 4096) == large);
            cases.map(|case| case.depth).max().unwrap_or(1)
        };
        let (large, small) =
            (Pool::new(1 << 20, depth_of(true))?, Pool::new(4096, depth_of(false))?);
        let pools = vec![large.clone(), small.clone()];
        let engine = open(&Config { pools, ..Config::of(plan.choice) })?;
        let path = Temporary(file_in(&plan.directory));
        let file = engine.open(&path.0, Open::direct(Mode::New))?;
        let bench = Self { engine, file, file_bytes: plan.file_bytes, large, small, path };
        bench.fill()?;
        Ok(bench)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path.0
    }

    pub(super) fn facts(&self) -> Facts {
        self.engine.facts().clone()
    }

    /// Writes the whole file, so that reads meet real extents.
    fn fill(&self) -> Result<()> {
        let case = Case { write: true, random: false, block_bytes: 1 << 20, depth: 16 };
        self.file.reserve(self.file_bytes)?;
        let mut turn = Turn::new(self, case)?;
        for _ in 0..self.file_bytes >> 20 {
            turn.step()?;
        }
        turn.finish()?;
        self.engine.sync(&self.file, Priority::Waiting).wait().map_err(Error::from)
    }

    /// Bytes a second over about `length`.
    pub(super) fn sample(&self, case: Case, length: Duration) -> Result<f64> {
        let mut turn = Turn::new(self, case)?;
        let start = Instant::now();
        while start.elapsed() < length {
            for _ in 0..64 {
                turn.step()?;
            }
        }
        let bytes = turn.finish()?;
        Ok(bytes as f64 / start.elapsed().as_secs_f64())
    }

    fn pool(&self, case: Case) -> &Pool {
        if case.block_bytes > 4096 { &self.large } else { &self.small }
    }
}

/// A case under way.
struct Turn<'a> {
    bench: &'a Workbench,
    case: Case,
    free: Vec<Block>,
    under_way: VecDeque<Pending<Block>>,
    position: u64,
    bytes: u64,
}

impl<'a> Turn<'a> {
    fn new(bench: &'a Workbench, case: Case) -> Result<Self> {
        let limit = Duration::from_secs(10);
        let mut free = Vec::with_capacity(case.depth);
        for number in 0..case.depth {
            let mut lease = bench.pool(case).take_within(limit)?;
            lease.fill(number as u8 ^ 0x5A);
            free.push(Block::from(lease));
        }
        let under_way = VecDeque::with_capacity(case.depth);
        Ok(Self { bench, case, free, under_way, position: 1, bytes: 0 })
    }

    /// Starts one operation, when all buffers are busy after waiting for the oldest.
    fn step(&mut self) -> Result<()> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => self.land()?,
        };
        let Workbench { engine, file, .. } = self.bench;
        let offset = self.next_offset();
        self.under_way.push_back(if self.case.write {
            engine.write(file, offset, block, Priority::Waiting)
        } else {
            engine.read(file, offset, block, Priority::Waiting)
        });
        Ok(())
    }

    fn land(&mut self) -> Result<Block> {
        let oldest = self.under_way.pop_front();
        let oldest = oldest.ok_or_else(|| Error::invalid("a case needs a depth above zero"))?;
        let block = oldest.wait()?;
        self.bytes += block.len() as u64;
        Ok(block)
    }

    fn finish(mut self) -> Result<u64> {
        while !self.under_way.is_empty() {
            self.land()?;
        }
        Ok(self.bytes)
    }

    fn next_offset(&mut self) -> u64 {
        let blocks = self.bench.file_bytes / self.case.block_bytes as u64;
        let block = if self.case.random {
            // Xorshift: every offset, no pattern, the same on every run.
            self.position ^= self.position << 13;
            self.position ^= self.position >> 7;
            self.position ^= self.position << 17;
            self.position % blocks
        } else {
            self.position += 1;
            (self.position - 2) % blocks
        };
        block * self.case.block_bytes as u64
    }
}
