//! Tensors to a file.
//!
//! ```text
//!   Source ─► Feed ─► stage: copy, checksum ─► write ─►┐
//!             one     pool, a few threads      engine  ├─► header ─► sync ─► rename ─► sync
//!             lock    bounded by its windows           ┘   checksums         Draft
//! ```
//!
//! [`save`] stages, checksums and writes side by side, on the caller's thread and a few beside it, with
//! at most [`WINDOWS_MAX`] windows in memory; a small file, header and all, is one write.
//! [`save_behind`](super::save_behind) only stages while the caller waits. All end in
//! [`Output::publish`].

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::checksums::seal;
use super::draft::Draft;
use super::feed::{Feed, Shared, Source, Staged, Writes};
use super::header::{DATA_ALIGNMENT, Header};
use super::tool::{Direct, Tool};
use super::whole::{WHOLE_BYTES_MAX, memory_for};
use super::window::{WINDOW_BYTES, Window};
use crate::codec::checksum::Combiner;
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::io::{Engine, Pending, Priority};
use crate::memory::{Block, Buffer, Named, Pool, Priority as Rank};
use crate::sync::{Mutex, lock};
use crate::threads::{on_threads, threads_for};
use crate::trace;

/// Windows in memory during a [`save`]: 36 MiB, a little more than an engine has under way.
pub const WINDOWS_MAX: usize = 36;

/// Staging memory that a [`save`] can make use of.
pub const STAGING_BYTES: u64 = WINDOWS_MAX as u64 * WINDOW_BYTES;

/// What windows of saves take.
static STAGING: Named = Named::new("save staging", Rank::Needed);

/// Windows that a save has for certain: one is filled while the other is written.
const WINDOWS_LEAST: usize = 2;

/// How to save.
#[derive(Clone)]
pub struct Options {
    /// How the bytes reach the disk.
    pub tool: &'static dyn Tool,
    /// Whether the file must survive a power cut once it is saved. If not, a power cut may also take
    /// the file that it has replaced.
    pub durable: bool,
    /// Whether to keep checksums.
    pub checksum: bool,
    /// Where windows are staged, see [`staging`].
    pub staging: Pool,
}

impl Options {
    /// Directly, durably and with checksums, through this staging memory.
    pub fn new(staging: Pool) -> Self {
        Self { tool: &Direct, durable: true, checksum: true, staging }
    }
}

/// Staging memory for saves of up to `bytes` at once; only what is used becomes resident. A
/// [`save`] uses [`STAGING_BYTES`] of it at most.
pub fn staging(bytes: u64) -> Result<Pool> {
    let windows = usize::try_from(bytes / WINDOW_BYTES).unwrap_or(usize::MAX);
    Pool::of(&STAGING, WINDOWS_LEAST, (WINDOW_BYTES as usize, windows.max(4)))
}

/// What a save did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Bytes in the file.
    pub bytes: u64,
    /// From the call to the file in its place.
    pub seconds: f64,
    /// From the call until all tensors were in staging memory or further.
    pub staged_seconds: f64,
    /// Of those, waiting for the disk.
    pub waited_seconds: f64,
    /// Making it durable.
    pub sync_seconds: f64,
    /// The tool used.
    pub tool: &'static str,
}

/// Saves the tensors of `header`, whose bytes `source` gives, as the file `path`, which is
/// replaced whole or not at all.
pub fn save(
    engine: &Arc<dyn Engine>,
    path: &Path,
    header: Header,
    source: &mut dyn Source,
    options: &Options,
) -> Result<Report> {
    let _span = trace::span("checkpoint", "save");
    let output = Output::begin(engine, path, header, options, Priority::Waiting)?;
    if output.len() <= WHOLE_BYTES_MAX {
        return output.save_whole(source);
    }
    let waited = output.stage_and_write(source)?;
    let staged = output.began.elapsed();
    output.finish(staged, waited)
}

fn windows_in(header: &Header) -> usize {
    header.data_len().div_ceil(WINDOW_BYTES) as usize
}

/// A file that is being written.
pub(super) struct Output {
    pub began: Instant,
    pub header: Header,
    pub staging: Pool,
    pub checksum: bool,
    engine: Arc<dyn Engine>,
    pub draft: Draft,
    header_len: u64,
    durable: bool,
    priority: Priority,
    tool: &'static str,
    /// For each window, the checksums of its segments.
    checksums: Mutex<Vec<Vec<(usize, u32, u64)>>>,
}

impl Output {
    /// Makes the draft and reserves its room: what can't work fails here, before a byte is copied.
    pub fn begin(
        engine: &Arc<dyn Engine>,
        path: &Path,
        mut header: Header,
        options: &Options,
        priority: Priority,
    ) -> Result<Self> {
        let began = Instant::now();
        header.check()?;
        let direct = options.tool.writes_directly()?;
        if (options.staging.slot_len() as u64) < WINDOW_BYTES {
            let why = "the staging memory's buffers are too small; make it with `staging`";
            return Err(Error::invalid(why).with("bytes", options.staging.slot_len()));
        }
        let placeholder = if options.checksum { vec![0; header.tensors.len()] } else { vec![] };
        let header_len = seal(&mut header, &placeholder)?.len() as u64;
        let mut draft = Draft::create(engine, path, direct)?;
        draft.reserve(header_len + header.data_len())?;
        let windows = windows_in(&header);
        Ok(Self {
            began,
            staging: options.staging.clone(),
            checksum: options.checksum,
            engine: Arc::clone(engine),
            draft,
            header_len,
            durable: options.durable,
            priority,
            tool: options.tool.name(),
            checksums: Mutex::new(vec![Vec::new(); windows]),
            header,
        })
    }

    /// Bytes of the file.
    fn len(&self) -> u64 {
        self.header_len + self.header.data_len()
    }

    /// How many threads are worth their start.
    pub fn threads(&self) -> usize {
        threads_for(windows_in(&self.header))
    }

    /// Stages and writes all windows, on this thread and on others beside it; how long the disk was
    /// waited for.
    fn stage_and_write(&self, source: &mut dyn Source) -> Result<Duration> {
        let threads = self.threads();
        // Each thread stages one more while its others are being written.
        let in_flight = WINDOWS_MAX / threads - 1;
        let feed = Shared::new(Feed::new(&self.header.tensors, source));
        let waited = on_threads(threads, || {
            let written = self.write_all(&feed, Writes::new(in_flight));
            written.inspect_err(|_| feed.fail())
        })?;
        Ok(waited.into_iter().max().unwrap_or_default())
    }

    /// Stages and writes windows until there are none; how long the disk was waited for.
    fn write_all(&self, feed: &Shared<'_>, mut writes: Writes) -> Result<Duration> {
        loop {
            interrupt::check()?;
            let load = feed.next()?;
            let Some(load) = load else { return writes.finish() };
            let memory = writes.take(&self.staging)?;
            let staged = load.stage(memory, self.checksum);
            writes.add(self.write(staged))?;
        }
    }

    /// Notes a window's checksums and starts writing it.
    pub fn write(&self, staged: Staged) -> Pending<Block> {
        let Staged { window, memory, checksums } = staged;
        self.note(&window, checksums);
        let offset = self.header_len + window.range.start;
        self.engine.write(self.draft.file(), offset, memory.into(), self.priority)
    }

    /// Notes the checksums of a window's segments.
    fn note(&self, window: &Window, checksums: Vec<u32>) {
        let segments = window.segments.iter().zip(checksums);
        let segments = segments
            .map(|(segment, checksum)| (segment.tensor, checksum, segment.range.len() as u64));
        let number = (window.range.start / WINDOW_BYTES) as usize;
        lock(&self.checksums)[number] = segments.collect();
    }

    /// Saves a small file with one write.
    fn save_whole(mut self, source: &mut dyn Source) -> Result<Report> {
        let header_len = self.header_len as usize;
        let mut memory = memory_for(&STAGING, self.len())?;
        let mut feed = Feed::new(&self.header.tensors, source);
        while let Some(load) = feed.next()? {
            let [start, end] = [load.window.range.start, load.window.range.end]
                .map(|offset| header_len + offset as usize);
            let checksums = load.fill(&mut memory[start..end], self.checksum);
            self.note(&load.window, checksums);
        }
        let staged = self.began.elapsed();
        let header = self.seal()?;
        memory[..header_len].copy_from_slice(&header);
        self.engine.write_inline(self.draft.file(), 0, memory.into())?;
        let waited = self.began.elapsed().saturating_sub(staged);
        self.publish(staged, waited)
    }

    /// Writes the header and puts the file in its place; all windows are written.
    pub fn finish(mut self, staged: Duration, waited: Duration) -> Result<Report> {
        let header = Buffer::copy_of(&self.seal()?)?.into();
        self.engine.write(self.draft.file(), 0, header, self.priority).wait()?;
        self.publish(staged, waited)
    }

    /// The bytes of the header, once the checksums of all windows are noted.
    fn seal(&mut self) -> Result<Vec<u8>> {
        let checksums = if self.checksum { self.tensor_checksums() } else { vec![] };
        let bytes = seal(&mut self.header, &checksums)?;
        if bytes.len() as u64 != self.header_len || !self.header_len.is_multiple_of(DATA_ALIGNMENT)
        {
            return Err(Error::new(Kind::Internal, "a header changed its length while saving"));
        }
        Ok(bytes)
    }

    /// Puts the file in its place; everything is written.
    fn publish(self, staged: Duration, waited: Duration) -> Result<Report> {
        let (bytes, sync_began) = (self.len(), Instant::now());
        self.draft.publish(self.durable, self.priority)?;
        Ok(Report {
            bytes,
            seconds: self.began.elapsed().as_secs_f64(),
            staged_seconds: staged.as_secs_f64(),
            waited_seconds: waited.as_secs_f64(),
            sync_seconds: sync_began.elapsed().as_secs_f64(),
            tool: self.tool,
        })
    }

    fn tensor_checksums(&self) -> Vec<u32> {
        let mut tensors = vec![0; self.header.tensors.len()];
        let combiner = Combiner::usually(WINDOW_BYTES);
        let windows = lock(&self.checksums);
        for (tensor, checksum, len) in windows.iter().flatten() {
            let sum: &mut u32 = &mut tensors[*tensor];
            *sum = combiner.combine(*sum, *checksum, *len);
        }
        tensors
    }
}
