//! A file to tensors.
//!
//! ```text
//!   wanted tensors ─► extents ─► read, several ahead ─► verify, copy small ones apart ─► memory
//!                     pure       engine                 a few threads, each with its own extents
//! ```
//!
//! Each thread takes the next extent, starts its read, and works on the oldest of its own that is
//! done. A large tensor is one allocation, at an address that is congruent to its place in the
//! file, so that the disk writes straight into it. What reaches the caller was verified, or the
//! caller asked for it not to be.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::checksums::{CHECKSUMS, unseal};
use super::extent::{EXTENT_BYTES, Extent, extents};
use super::glance::Glance;
use super::header::{Header, Tensor};
use super::save::WINDOWS_MAX;
use super::structure::{STRUCTURE, Structure};
use super::tool::{Buffered, Direct, Reader, Tool};
use super::window::{Segment, WINDOW_BYTES, Windows};
use crate::codec::checksum::{Combiner, crc32c};
use crate::error::{Error, Kind, Result};
use crate::io::{Engine, Pending, Priority};
use crate::memory::{ALIGNMENT, Block, Buffer, Mapped, Parts};
use crate::sync::{Mutex, lock};
use crate::threads::{on_threads, threads_for};
use crate::trace;

/// The first read of a file: holds the header of most.
const FIRST_BYTES: u64 = 64 << 10;

/// Extents of one thread that are read ahead: 32 MiB.
const AHEAD_MAX: usize = 8;

/// A file that is open for loading; what its header says is consistent and, if asked, verified.
pub struct Checkpoint {
    path: PathBuf,
    reader: Box<dyn Reader>,
    tool: &'static str,
    header: Header,
    data_start: u64,
    /// Of all bytes in front of the data, to know the file again.
    header_checksum: u32,
    checksums: Option<Vec<u32>>,
    structure: Option<Structure>,
}

/// A tensor to load.
pub struct Wanted {
    /// Its place in [`Header::tensors`].
    pub tensor: usize,
    /// Memory of its length to put it, with undefined content if the load fails; new memory if none.
    pub into: Option<Block>,
}

impl Checkpoint {
    /// Opens a file with this tool; with none, through the page cache if most of the file is there,
    /// and otherwise around it. With `verify`, checksums are, where the file has them.
    pub fn open(
        engine: &Arc<dyn Engine>,
        path: &Path,
        tool: Option<&'static dyn Tool>,
        verify: bool,
    ) -> Result<Self> {
        let named = |error: Error| error.with("file", path.display());
        let tool = match tool {
            Some(tool) => tool,
            None if Glance::at(path)?.is_some_and(|glance| glance.is_warm) => &Buffered,
            None => &Direct,
        };
        let reader = tool.open(engine, path)?;
        let (bytes, file_len) = read_header(&*reader).map_err(named)?;
        let data_start = bytes.len() as u64;
        let header = Header::decode(&bytes[8..], file_len - data_start).map_err(named)?;
        let checksums = if verify { unseal(&header, &bytes).map_err(named)? } else { None };
        let structure = header.metadata.get(STRUCTURE);
        let structure = structure.map(|text| Structure::parse(text, &header)).transpose();
        let structure = structure.map_err(named)?;
        if verify && checksums.is_none() && structure.as_ref().is_some_and(|s| s.checksum) {
            let why = "the file was saved with checksums and has lost them";
            return Err(named(Error::new(Kind::Corrupt, why).with("field", CHECKSUMS)));
        }
        Ok(Self {
            path: path.to_owned(),
            reader,
            tool: tool.name(),
            header,
            data_start,
            header_checksum: crc32c(&bytes),
            checksums,
            structure,
        })
    }

    /// What is in the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where its data starts.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The object that the tensors belong to, in files that were saved with one.
    pub fn structure(&self) -> Option<&Structure> {
        self.structure.as_ref()
    }

    /// Whether there are checksums to verify.
    pub fn has_checksums(&self) -> bool {
        self.checksums.is_some()
    }

    /// The tool it is read with.
    pub fn tool(&self) -> &'static str {
        self.tool
    }

    /// Loads tensors into memory of their own, in the order wanted.
    pub fn load(&self, wanted: Vec<Wanted>) -> Result<Vec<Block>> {
        let _span = trace::span("checkpoint", "load");
        let loading = Loading::begin(self, wanted)?;
        loading.run().map_err(|error| error.with("file", self.path.display()))
    }

    /// The tensors as ranges of a private mapping: nothing is read, and nothing verified, before it
    /// is touched. In the order of the header.
    pub fn map(&self) -> Result<Vec<Block>> {
        let named = |error: Error| error.with("file", self.path.display());
        let mapped = Mapped::open(&self.path, Some(self.data_start + self.header.data_len()))?;
        // The name may mean another file by now, in which these tensors lie elsewhere.
        if crc32c(&mapped[..self.data_start as usize]) != self.header_checksum {
            let why = "the file was replaced after it was opened; open it again";
            return Err(named(Error::new(Kind::Corrupt, why)));
        }
        let ranges: Vec<_> =
            self.header.tensors.iter().map(|tensor| self.in_file(tensor)).collect();
        mapped.into_blocks(&ranges).map_err(named)
    }

    /// Reads every tensor and verifies its checksum, if there are any, with little memory; tells
    /// `progress` how many bytes are done.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_all(progress).map_err(|error| error.with("file", self.path.display()))
    }

    fn verify_all(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut windows = Windows::over(&self.header.tensors);
        let mut ahead = VecDeque::new();
        let mut current = None;
        let combiner = Combiner::usually(WINDOW_BYTES);
        loop {
            while ahead.len() < WINDOWS_MAX
                && let Some(window) = windows.next()
            {
                let memory = Buffer::recycled((window.range.end - window.range.start) as usize)?;
                let offset = self.data_start + window.range.start;
                let read = self.reader.read(offset, memory.into(), Priority::Waiting);
                ahead.push_back((window, read));
            }
            let Some((window, read)) = ahead.pop_front() else { break };
            let block = read.wait()?;
            let mut rest = &*block;
            for Segment { tensor, range } in window.segments {
                let (bytes, behind) = rest.split_at(range.len());
                rest = behind;
                current = Some(match current {
                    Some((same, found)) if same == tensor => {
                        (tensor, combiner.combine(found, crc32c(bytes), range.len() as u64))
                    }
                    done => {
                        self.judge_any(done)?;
                        (tensor, crc32c(bytes))
                    }
                });
            }
            progress(window.range.end);
        }
        self.judge_any(current)
    }

    fn in_file(&self, tensor: &Tensor) -> Range<usize> {
        let place = |offset: u64| (self.data_start + offset) as usize;
        place(tensor.range.start)..place(tensor.range.end)
    }

    fn judge_any(&self, done: Option<(usize, u32)>) -> Result<()> {
        done.map_or(Ok(()), |(tensor, found)| self.judge(tensor, found))
    }

    /// Whether the checksum of a tensor is the one of the header.
    fn judge(&self, tensor: usize, found: u32) -> Result<()> {
        let Some(expected) = self.checksums.as_ref().map(|all| all[tensor]) else { return Ok(()) };
        if found == expected {
            return Ok(());
        }
        let Tensor { name, range, .. } = &self.header.tensors[tensor];
        let why = "the checksum of a tensor is wrong: the file was damaged after it was saved";
        Err(Error::new(Kind::Corrupt, why)
            .with("tensor", name)
            .with("offset", self.data_start + range.start)
            .with("expected", format!("{expected:08x}"))
            .with("found", format!("{found:08x}")))
    }
}

/// The bytes in front of the data, and the length of the file.
fn read_header(reader: &dyn Reader) -> Result<(Vec<u8>, u64)> {
    let file_len = reader.file_len()?;
    let read = |range: Range<u64>| -> Result<Block> {
        let memory = Buffer::zeroed((range.end - range.start) as usize)?;
        Ok(reader.read(range.start, memory.into(), Priority::Waiting).wait()?)
    };
    let first = read(0..file_len.min(FIRST_BYTES))?;
    let Some(length) = first.first_chunk::<8>() else {
        let why = format!("a file of {file_len} bytes is no checkpoint");
        return Err(Error::new(Kind::Truncated, why));
    };
    let data_start = Header::data_start(*length, file_len)?;
    let mut bytes = first[..first.len().min(data_start as usize)].to_vec();
    if data_start > bytes.len() as u64 {
        let rest = read(bytes.len() as u64..data_start)?;
        bytes.extend_from_slice(&rest);
    }
    Ok((bytes, file_len))
}

/// Tensors on their way from a file to memory.
struct Loading<'a> {
    checkpoint: &'a Checkpoint,
    /// What is wanted, in the order of the file.
    tensors: Vec<usize>,
    /// Where each was in the caller's order.
    order: Vec<usize>,
    places: Vec<Mutex<Place>>,
    extents: Mutex<VecDeque<Extent>>,
}

/// Where a tensor goes.
struct Place {
    /// Its memory; parts of it are with the engine.
    memory: Parts,
    /// Checksums of its chunks, by where they start.
    checksums: Vec<(u64, u32, u64)>,
}

/// Reads under way. They are waited for, also when one of them has failed: they end in memory of the
/// caller's, who may let go of it when a load has returned.
#[derive(Default)]
struct Ahead(VecDeque<(Extent, Pending<Block>)>);

impl Drop for Ahead {
    fn drop(&mut self) {
        for (_, read) in self.0.drain(..) {
            let _ = read.wait();
        }
    }
}

impl<'a> Loading<'a> {
    fn begin(checkpoint: &'a Checkpoint, wanted: Vec<Wanted>) -> Result<Self> {
        let all = &checkpoint.header.tensors;
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|index| all.get(wanted[*index].tensor).map(|tensor| tensor.range.start));
        let mut wanted: Vec<_> = wanted.into_iter().map(Some).collect();
        let mut loading = Self {
            checkpoint,
            tensors: Vec::new(),
            order: order.clone(),
            places: Vec::new(),
            extents: Mutex::default(),
        };
        for index in order {
            let Some(Wanted { tensor, into }) = wanted[index].take() else { continue };
            loading.tensors.push(tensor);
            let memory = Parts::new(checkpoint.memory_for(tensor, into)?);
            loading.places.push(Mutex::new(Place { memory, checksums: Vec::new() }));
        }
        let tensors: Vec<_> = loading.tensors.iter().map(|index| &all[*index]).collect();
        let extents = extents(&tensors, checkpoint.data_start);
        loading.extents = Mutex::new(extents.into());
        Ok(loading)
    }

    fn run(self) -> Result<Vec<Block>> {
        let threads = threads_for(lock(&self.extents).len());
        on_threads(threads, || self.read_all().inspect_err(|_| lock(&self.extents).clear()))?;
        self.finish()
    }

    /// Reads extents until there are none, several ahead, and works on the oldest.
    fn read_all(&self) -> Result<()> {
        let mut ahead = Ahead::default();
        loop {
            while ahead.0.len() < AHEAD_MAX {
                let Some((extent, read)) = self.start_next()? else { break };
                ahead.0.push_back((extent, read));
            }
            let Some((extent, read)) = ahead.0.pop_front() else { return Ok(()) };
            self.take_in(extent, &read.wait()?)?;
        }
    }

    fn start_next(&self) -> Result<Option<(Extent, Pending<Block>)>> {
        let mut extents = lock(&self.extents);
        let Some(extent) = extents.pop_front() else { return Ok(None) };
        let (offset, mut memory) = match &extent {
            // Chunks of a tensor are cut in order, so nobody may come in between.
            Extent::Chunk { wanted, range } => {
                let tensor = &self.checkpoint.header.tensors[self.tensors[*wanted]];
                let len = (range.end - range.start) as usize;
                let part = lock(&self.places[*wanted]).memory.cut(len);
                (tensor.range.start + range.start, Block::from(part))
            }
            Extent::Packed { range, .. } => {
                let memory = Buffer::recycled((range.end - range.start) as usize)?;
                (range.start, memory.into())
            }
        };
        drop(extents);
        memory.populate();
        let offset = self.checkpoint.data_start + offset;
        let read = self.checkpoint.reader.read(offset, memory, Priority::Waiting);
        Ok(Some((extent, read)))
    }

    /// Verifies what was read and puts it where it belongs.
    fn take_in(&self, extent: Extent, read: &Block) -> Result<()> {
        let verify = self.checkpoint.has_checksums();
        match extent {
            Extent::Chunk { wanted, range } if verify => {
                let checksum = (range.start, crc32c(read), range.end - range.start);
                lock(&self.places[wanted]).checksums.push(checksum);
            }
            Extent::Chunk { .. } => {}
            Extent::Packed { range, wanted } => {
                for index in wanted {
                    let tensor = &self.checkpoint.header.tensors[self.tensors[index]];
                    let within = |offset: u64| (offset - range.start) as usize;
                    let bytes = &read[within(tensor.range.start)..within(tensor.range.end)];
                    if verify {
                        self.checkpoint.judge(self.tensors[index], crc32c(bytes))?;
                    }
                    let mut memory = lock(&self.places[index]).memory.cut(bytes.len());
                    let only_read = || Error::invalid("can't load into memory that is only read");
                    memory.as_mut().ok_or_else(only_read)?.copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// Judges the large tensors and gives all memory back in the caller's order.
    fn finish(self) -> Result<Vec<Block>> {
        let mut blocks: Vec<_> = self.order.iter().map(|_| None).collect();
        let combiner = Combiner::usually(EXTENT_BYTES);
        let all = self.places.into_iter().zip(self.tensors).zip(self.order);
        for ((place, tensor), index) in all {
            let mut place = place.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !place.checksums.is_empty() {
                place.checksums.sort_unstable();
                let found = place
                    .checksums
                    .iter()
                    .fold(0, |found, (_, next, len)| combiner.combine(found, *next, *len));
                self.checkpoint.judge(tensor, found)?;
            }
            let whole = place.memory.join();
            let in_use = |_| Error::new(Kind::Internal, "a tensor's memory is still in use");
            blocks[index] = Some(whole.map_err(in_use)?);
        }
        Ok(blocks.into_iter().flatten().collect())
    }
}

impl Checkpoint {
    /// Memory for a tensor: the caller's, or new, at an address that suits its place in the file.
    fn memory_for(&self, index: usize, into: Option<Block>) -> Result<Block> {
        let Some(tensor) = self.header.tensors.get(index) else {
            return Err(Error::invalid(format!("the file has no tensor number {index}")));
        };
        let len = tensor.len() as usize;
        match into {
            Some(block) if block.len() == len => Ok(block),
            Some(block) => {
                let message = format!("a tensor of {len} bytes can't be put into {}", block.len());
                Err(Error::invalid(message).with("tensor", &tensor.name))
            }
            None => {
                let lead = (self.data_start + tensor.range.start) as usize % ALIGNMENT;
                // Others' files may not align their elements.
                let aligned = (lead as u64).is_multiple_of(tensor.dtype.bytes());
                let lead = if aligned { lead } else { 0 };
                Block::from(Buffer::recycled(lead + len)?).narrow(lead..lead + len)
            }
        }
    }
}
