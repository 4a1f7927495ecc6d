//! Tensors on their way from a file to memory.
//!
//! ```text
//!   wanted tensors ─► extents ─► read, several ahead ─► verify, copy ─► memory
//!                     pure       engine                 a few threads, each with its own extents
//! ```
//!
//! Each thread takes the next extent, starts its read, and works on the oldest of its own that is
//! done. What reaches the caller was verified, or the caller asked for it not to be. A large tensor is
//! one allocation, at an address that is congruent to its place in the file.
//!
//! A disk writes into *windows*, a few for each thread, used again and again, and what is verified there
//! is copied on. It could write straight into a tensor's memory. But a device is told of each page by
//! itself, and in a virtual machine the host first has to find each page that no device has written to
//! before: that has been measured to take two to four times as long as the read, and the copy hides
//! behind it. What comes from the page cache, which the kernel copies, goes straight.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::PoisonError;

use super::extent::{EXTENT_BYTES, Extent, extents};
use super::load::{Checkpoint, Wanted};
use crate::codec::checksum::{Combiner, copy_and_crc32c, crc32c};
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::io::{Pending, Priority};
use crate::memory::ledger::PATIENCE;
use crate::memory::{ALIGNMENT, Block, Buffer, Named, Part, Parts, Pool, Priority as Rank};
use crate::sync::{Mutex, lock};
use crate::threads::{on_threads, threads_for};

/// What windows of loads take. What is loaded belongs to the caller.
pub(super) static WINDOWS: Named = Named::new("load windows", Rank::Needed);

/// Extents of one thread that are read ahead: 8 MiB.
const AHEAD_MAX: usize = 4;

/// Fewer bytes are not worth the call.
const POPULATED_MIN: usize = 256 << 10;

/// A load that is under way.
pub(super) struct Loading<'a> {
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
    is_borrowed: bool,
    /// Checksums of its chunks, by where they start.
    checksums: Vec<(u64, u32, u64)>,
}

/// What one thread has under way.
#[derive(Default)]
struct Ahead(VecDeque<PendingExtent>);

/// A read, and the part of a large tensor that its bytes are copied to, unless they are there.
struct PendingExtent {
    extent: Extent,
    read: Pending<Block>,
    part: Option<Part>,
    /// It ends in memory of the caller's, who may let go of that when a load has returned.
    is_borrowed: bool,
}

impl PendingExtent {
    /// A read into the caller's memory is waited for, also when another one has failed or the caller was
    /// interrupted; all others own their memory.
    fn return_borrowed(&self) {
        if self.is_borrowed {
            self.read.see_out();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.iter().for_each(PendingExtent::return_borrowed);
    }
}

impl<'a> Loading<'a> {
    pub(super) fn begin(checkpoint: &'a Checkpoint, wanted: Vec<Wanted>) -> Result<Self> {
        let all = &checkpoint.header().tensors;
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
            let is_borrowed = into.is_some();
            let memory = Parts::new(memory_for(checkpoint, tensor, into)?);
            let place = Place { memory, is_borrowed, checksums: Vec::new() };
            loading.places.push(Mutex::new(place));
        }
        let tensors: Vec<_> = loading.tensors.iter().map(|index| &all[*index]).collect();
        let extents = extents(&tensors, checkpoint.data_start());
        loading.extents = Mutex::new(extents.into());
        Ok(loading)
    }

    pub(super) fn run(self) -> Result<Vec<Block>> {
        self.take_in_at_hand()?;
        let extents = lock(&self.extents).len();
        if extents > 0 {
            let threads = threads_for(extents);
            let wanted = extents.min(threads * AHEAD_MAX);
            let windows = Pool::recycled(&WINDOWS, PATIENCE, (EXTENT_BYTES as usize, wanted))?;
            // Where there are fewer, threads wait for one another, but never all of them: all together hold
            // fewer than there are while each lacks one.
            let share = windows.slots().div_ceil(threads);
            let ahead_max = if windows.slots() < wanted { share } else { AHEAD_MAX };
            on_threads(threads, || {
                self.read_all(&windows, ahead_max).inspect_err(|_| lock(&self.extents).clear())
            })?;
        }
        self.finish()
    }

    /// Takes in what came with the header: small tensors at the front of the file, all of a small file.
    fn take_in_at_hand(&self) -> Result<()> {
        let mut extents = lock(&self.extents);
        while let Some(extent) = extents.pop_front() {
            let range = self.in_data(&extent);
            let at_hand = self.checkpoint.at_hand();
            let Some(bytes) = at_hand.get(range.start as usize..range.end as usize) else {
                extents.push_front(extent);
                break;
            };
            let part = self.cut(&extent);
            self.take_in(&extent, bytes, part)?;
        }
        Ok(())
    }

    /// Where an extent lies, from the start of the data.
    fn in_data(&self, extent: &Extent) -> Range<u64> {
        match extent {
            Extent::Chunk { wanted, range } => {
                let start = self.checkpoint.header().tensors[self.tensors[*wanted]].range.start;
                start + range.start..start + range.end
            }
            Extent::Packed { range, .. } => range.clone(),
        }
    }

    /// The place of a chunk. Chunks of a tensor are cut in order, so nobody may come in between.
    fn cut(&self, extent: &Extent) -> Option<Part> {
        let Extent::Chunk { wanted, range } = extent else { return None };
        Some(lock(&self.places[*wanted]).memory.cut((range.end - range.start) as usize))
    }

    /// Reads extents until there are none, several ahead, and works on the oldest.
    fn read_all(&self, windows: &Pool, ahead_max: usize) -> Result<()> {
        let mut ahead = Ahead::default();
        loop {
            while ahead.0.len() < ahead_max {
                let Some(next) = self.start_next(windows)? else { break };
                ahead.0.push_back(next);
            }
            interrupt::check()?;
            let Some(next) = ahead.0.pop_front() else { return Ok(()) };
            next.return_borrowed();
            let PendingExtent { extent, read, part, .. } = next;
            self.take_in(&extent, &read.wait()?, part)?;
        }
    }

    fn start_next(&self, windows: &Pool) -> Result<Option<PendingExtent>> {
        let mut extents = lock(&self.extents);
        let Some(extent) = extents.pop_front() else { return Ok(None) };
        let part = self.cut(&extent);
        drop(extents);
        let range = self.in_data(&extent);
        let (offset, len) =
            (self.checkpoint.data_start() + range.start, (range.end - range.start) as usize);
        let reader = self.checkpoint.reader();
        let (memory, part, is_borrowed) = match part {
            Some(part) if !reader.is_direct() => {
                let mut memory = Block::from(part);
                memory.populate();
                (memory, None, self.is_borrowed(&extent))
            }
            part => (window(windows, offset, len)?, part, false),
        };
        let read = reader.read(offset, memory, Priority::Waiting);
        Ok(Some(PendingExtent { extent, read, part, is_borrowed }))
    }

    /// Whether the place of a chunk is the caller's memory.
    fn is_borrowed(&self, extent: &Extent) -> bool {
        matches!(extent, Extent::Chunk { wanted, .. } if lock(&self.places[*wanted]).is_borrowed)
    }

    /// Verifies what was read and puts it where it belongs: into `part`, if it is not there.
    fn take_in(&self, extent: &Extent, read: &[u8], part: Option<Part>) -> Result<()> {
        let verify = self.checkpoint.has_checksums();
        match extent {
            Extent::Chunk { wanted, range } => {
                let found = match part {
                    Some(part) => move_into(part.into(), read, verify)?,
                    None if verify => crc32c(read),
                    None => 0,
                };
                if verify {
                    let checksum = (range.start, found, range.end - range.start);
                    lock(&self.places[*wanted]).checksums.push(checksum);
                }
            }
            Extent::Packed { range, wanted } => {
                for index in wanted {
                    let tensor = &self.checkpoint.header().tensors[self.tensors[*index]];
                    let within = |offset: u64| (offset - range.start) as usize;
                    let bytes = &read[within(tensor.range.start)..within(tensor.range.end)];
                    let part = lock(&self.places[*index]).memory.cut(bytes.len());
                    let found = move_into(part.into(), bytes, verify)?;
                    self.checkpoint.judge(self.tensors[*index], found)?;
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

/// A window for bytes that start at `offset` of the file, at an address that suits it.
fn window(windows: &Pool, offset: u64, len: usize) -> Result<Block> {
    let lead = offset as usize % ALIGNMENT;
    let lead = if lead + len <= windows.slot_len() { lead } else { 0 };
    Block::from(windows.take()?).narrow(lead..lead + len)
}

/// Copies to where the bytes belong, and gives their checksum if it is asked for. Many pages are made at
/// once rather than as they are met.
fn move_into(mut place: Block, bytes: &[u8], checksum: bool) -> Result<u32> {
    if bytes.len() >= POPULATED_MIN {
        place.populate();
    }
    let only_read = || Error::invalid("can't load into memory that is only read");
    let memory = place.as_mut().ok_or_else(only_read)?;
    if checksum {
        return Ok(copy_and_crc32c(memory, bytes));
    }
    memory.copy_from_slice(bytes);
    Ok(0)
}

/// Memory for a tensor: the caller's, or new, at an address that suits its place in the file.
fn memory_for(checkpoint: &Checkpoint, index: usize, into: Option<Block>) -> Result<Block> {
    let Some(tensor) = checkpoint.header().tensors.get(index) else {
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
            let lead = (checkpoint.data_start() + tensor.range.start) as usize % ALIGNMENT;
            // Others' files may not align their elements.
            let aligned = (lead as u64).is_multiple_of(tensor.dtype.bytes());
            let lead = if aligned { lead } else { 0 };
            Block::from(Buffer::recycled(lead + len)?).narrow(lead..lead + len)
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::checkpoint::{
        Buffered, Direct, Dtype, Header, Mapped, Options, Tensor, Tool, save, staging,
    };
    use crate::io::{Config, Engine, open};

    const LENGTHS: [u64; 6] = [(9 << 20) + 4096, 2 << 20, (1 << 20) + 12, 600_000, 8192, 3];

    fn bytes_of(tensor: &Tensor) -> Vec<u8> {
        let seed = tensor.range.start;
        (0..tensor.len()).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ seed) as u8).collect()
    }

    /// A file of ours.
    fn saved(path: &Path) -> Arc<dyn Engine> {
        let engine = open(&Config::default()).unwrap();
        let mut source = |tensor: &Tensor| Ok(Buffer::copy_of(&bytes_of(tensor))?.into());
        let options = Options::new(staging(8 << 20).unwrap());
        save(&engine, path, header(), &mut source, &options).unwrap();
        engine
    }

    fn header() -> Header {
        let tensor = |(index, len): (usize, u64)| (format!("t{index}"), Dtype::U8, vec![len]);
        let tensors = LENGTHS.into_iter().enumerate().map(tensor);
        Header::lay_out(tensors, BTreeMap::new()).unwrap()
    }

    /// Through windows, and straight.
    const WAYS: [&dyn Tool; 3] = [&Direct, &Buffered, &Mapped];

    fn loaded(checkpoint: &Checkpoint) -> Result<Vec<Block>> {
        let all = 0..checkpoint.header().tensors.len();
        checkpoint.load(all.map(|tensor| Wanted { tensor, into: None }).collect())
    }

    fn assert_all_come(engine: &Arc<dyn Engine>, path: &Path) {
        for tool in WAYS {
            let checkpoint = Checkpoint::open(engine, path, Some(tool), true).unwrap();
            let blocks = loaded(&checkpoint).unwrap();
            for (tensor, block) in checkpoint.header().tensors.iter().zip(blocks) {
                assert!(*block == *bytes_of(tensor), "{}: {}", tool.name(), tensor.name);
            }
        }
    }

    #[test]
    fn every_way_leads_to_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ours");
        let engine = saved(&path);
        assert_all_come(&engine, &path);
    }

    #[test]
    fn so_they_do_where_nothing_in_the_file_is_aligned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("others");
        let header = header();
        let padded = header.encode().unwrap();
        let json = padded[8..].trim_ascii_end();
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(json);
        assert_ne!(file.len() % 512, 0, "add a character to a name");
        header.tensors.iter().for_each(|tensor| file.extend(bytes_of(tensor)));
        std::fs::write(&path, file).unwrap();
        assert_all_come(&open(&Config::default()).unwrap(), &path);
    }

    #[test]
    fn every_way_notices_a_wrong_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("damaged");
        let engine = saved(&path);
        let mut file = std::fs::read(&path).unwrap();
        file[5 << 20] ^= 1;
        std::fs::write(&path, file).unwrap();
        for tool in WAYS {
            let checkpoint = Checkpoint::open(&engine, &path, Some(tool), true).unwrap();
            let error = loaded(&checkpoint).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().contains("tensor: t0"), "{error}");
        }
    }
}
