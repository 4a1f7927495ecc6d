//! Our side: one thread that keeps a number of operations under way.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorferry::io::{Config, Engine, Facts, File, Mode, Open, Pending, Priority, open};
use tensorferry::memory::{Block, Pool};
use tensorferry::random::SplitMix64;
use tensorferry::{Error, Result};

use super::{CASES, Case, Plan};

/// An engine and a file full of random bytes, which has no name.
pub(super) struct Workbench {
    engine: Arc<dyn Engine>,
    file: File,
    file_bytes: u64,
    large: Pool,
    small: Pool,
    /// Keeps the file reachable for a rival after its name is gone.
    shared: Option<std::fs::File>,
    /// Goes on from sample to sample, so that none repeats another's offsets.
    random: Cell<SplitMix64>,
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
        let path = plan.directory.join(format!(".tensorferry-bench-{}", std::process::id()));
        let file = engine.open(&path, Open::direct(Mode::New))?;
        let shared = std::fs::File::open(&path).ok();
        // Without a name from now on: it vanishes with this process, however that ends. A file in
        // memory never had one.
        let _ = std::fs::remove_file(&path);
        let random = Cell::new(SplitMix64::new(0));
        let bench =
            Self { engine, file, shared, file_bytes: plan.file_bytes, large, small, random };
        bench.fill()?;
        Ok(bench)
    }

    /// A name by which another process can open the file while this one lives.
    pub(super) fn path_for_others(&self) -> PathBuf {
        let descriptor = self.shared.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        format!("/proc/{}/fd/{descriptor}", std::process::id()).into()
    }

    /// Whether transfers go around the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
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

    /// No pattern, and the same on every run.
    fn next_random(&self) -> u64 {
        let mut random = self.random.get();
        let drawn = random.draw();
        self.random.set(random);
        drawn
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
        for _ in 0..case.depth {
            let mut lease = bench.pool(case).take_within(limit)?;
            // Bytes that no device can compress or recognise.
            for word in lease.as_chunks_mut().0 {
                *word = bench.next_random().to_le_bytes();
            }
            free.push(Block::from(lease));
        }
        let under_way = VecDeque::with_capacity(case.depth);
        Ok(Self { bench, case, free, under_way, position: 0, bytes: 0 })
    }

    /// Starts one operation, when all buffers are busy after one has come back.
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

    /// The memory of an operation that is done: any, as a device finishes them in any order;
    /// otherwise that of the oldest, once it is.
    fn land(&mut self) -> Result<Block> {
        let done = self.under_way.iter().position(Pending::is_done).unwrap_or(0);
        let pending = self.under_way.remove(done);
        let pending = pending.ok_or_else(|| Error::invalid("a case needs a depth above zero"))?;
        let block = pending.wait()?;
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
        let block = if self.case.random { self.bench.next_random() } else { self.position };
        self.position += 1;
        block % blocks * self.case.block_bytes as u64
    }
}
