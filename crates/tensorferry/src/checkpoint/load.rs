//! A file that is open for loading: its header, its tensors as they are wanted, or a mapping of it.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checksums::{CHECKSUMS, unseal};
use super::header::{Header, Tensor};
use super::loading::{Loading, WINDOWS};
use super::probe::Probe;
use super::recognise::{FIRST_BYTES as RECOGNISED_BYTES, by_content};
use super::save::WINDOWS_MAX;
use super::structure::{STRUCTURE, Structure};
use super::tool::{Buffered, Direct, Reader, Tool};
use super::whole::{WHOLE_BYTES_MAX, memory_for};
use super::window::{Segment, WINDOW_BYTES, Windows};
use crate::codec::checksum::{Combiner, crc32c};
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::io::{Engine, Priority};
use crate::memory::{Block, Buffer, Mapped};
use crate::trace;

/// The first read of a file: holds the header of most.
const FIRST_BYTES: u64 = 128 << 10;

/// A file that is open for loading; what its header says is consistent and verified.
pub struct Checkpoint {
    path: PathBuf,
    reader: Box<dyn Reader>,
    tool: &'static str,
    header: Header,
    data_start: u64,
    /// The header, and data that came with it, which need not be read again.
    front: Block,
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
    /// and otherwise around it. The header's checksum is verified where the file has one; `verify` says
    /// whether those of tensors are when they are loaded.
    pub fn open(
        engine: &Arc<dyn Engine>,
        path: &Path,
        tool: Option<&'static dyn Tool>,
        verify: bool,
    ) -> Result<Self> {
        let named = |error: Error| error.with("file", path.display());
        let tool = match tool {
            Some(tool) => tool,
            None if Probe::at(path)?.is_some_and(|probe| probe.is_warm) => &Buffered,
            None => &Direct,
        };
        let reader = tool.open(engine, path)?;
        let (front, data_start, file_len) = read_front(&*reader).map_err(named)?;
        let bytes = &front[..data_start as usize];
        let header = Header::decode(&bytes[8..], file_len - data_start).map_err(named)?;
        // What the header says is the object, whatever is wanted of the data.
        let checksums = unseal(&header, bytes).map_err(named)?;
        let structure = header.metadata.get(STRUCTURE);
        let structure = structure.map(|text| Structure::parse(text, &header)).transpose();
        let structure = structure.map_err(named)?;
        // What has a structure is ours, and has a checksum of its header at least.
        let has_own = header.metadata.contains_key(CHECKSUMS);
        if structure.as_ref().is_some_and(|s| !has_own || (checksums.is_none() && s.checksum)) {
            let why = "the file was saved with checksums and has lost them";
            return Err(named(Error::new(Kind::Corrupt, why).with("field", CHECKSUMS)));
        }
        Ok(Self {
            path: path.to_owned(),
            reader,
            tool: tool.name(),
            header,
            data_start,
            header_checksum: crc32c(bytes),
            front,
            checksums: if verify { checksums } else { None },
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

    /// Whether there are checksums of tensors to verify.
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
        // There was no room for it beside those ahead.
        let mut refused = None;
        let mut current = None;
        let combiner = Combiner::usually(WINDOW_BYTES);
        loop {
            while ahead.len() < WINDOWS_MAX
                && let Some(window) = refused.take().or_else(|| windows.next())
            {
                let len = (window.range.end - window.range.start) as usize;
                let memory = match Buffer::recycled_by(&WINDOWS, len) {
                    Err(error) if error.kind() == Kind::OutOfMemory && !ahead.is_empty() => {
                        refused = Some(window);
                        break;
                    }
                    made => made?,
                };
                let offset = self.data_start + window.range.start;
                let read = self.reader.read(offset, memory.into(), Priority::Waiting);
                ahead.push_back((window, read));
            }
            interrupt::check()?;
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

    /// The data that came with the header.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.front[self.data_start as usize..]
    }

    pub(super) fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    /// Whether the checksum of a tensor is the one of the header.
    pub(super) fn judge(&self, tensor: usize, found: u32) -> Result<()> {
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

/// The bytes in front of the data, and maybe some of it; where it starts, and the length of the file.
fn read_front(reader: &dyn Reader) -> Result<(Block, u64, u64)> {
    let file_len = reader.file_len()?;
    let read = |len: u64| -> Result<Block> {
        Ok(reader.read_inline(0, memory_for(&WINDOWS, len)?.into())?)
    };
    let first = if file_len <= WHOLE_BYTES_MAX { file_len } else { FIRST_BYTES };
    let front = read(first)?;
    by_content(&front[..front.len().min(RECOGNISED_BYTES as usize)])?.refuse()?;
    let Some(length) = front.first_chunk::<8>() else {
        let why = format!("a file of {file_len} bytes is no checkpoint");
        return Err(Error::new(Kind::Truncated, why));
    };
    let length = *length;
    let data_start = Header::data_start(length, file_len)?;
    let front = if data_start > first { read(data_start)? } else { front };
    if *front.first_chunk::<8>().unwrap_or(&[0; 8]) != length {
        return Err(Error::new(Kind::Corrupt, "the file was changed while it was opened"));
    }
    Ok((front, data_start, file_len))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::io::Pending;

    /// A file whose header is said to be a byte longer each time it is read.
    struct Changing(AtomicU64);

    impl Reader for Changing {
        fn file_len(&self) -> Result<u64> {
            Ok(4 * WHOLE_BYTES_MAX)
        }

        fn is_direct(&self) -> bool {
            false
        }

        fn read(&self, _: u64, mut into: Block, _: Priority) -> Pending<Block> {
            let length = self.0.fetch_add(1, Ordering::Relaxed);
            into.as_mut().unwrap()[..8].copy_from_slice(&length.to_le_bytes());
            Pending::ready(Ok(into))
        }
    }

    #[test]
    fn a_long_header_that_changes_between_two_reads_is_noticed() {
        let error = read_front(&Changing(AtomicU64::new(2 * FIRST_BYTES))).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("changed while it was opened"), "{error}");
    }

    #[test]
    fn a_short_header_is_read_once() {
        let (front, data_start, _) = read_front(&Changing(AtomicU64::new(1000))).unwrap();
        assert_eq!((front.len() as u64, data_start), (FIRST_BYTES, 1008));
    }
}
