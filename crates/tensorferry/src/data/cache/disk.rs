//! Samples on an SSD: one file without a name, and who lies where in it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::codec::checksum::crc32c;
use crate::data::sample::Raw;
use crate::error::{Error, Result};
use crate::memory::Arena;
use crate::memory::arena::{End, Span};
use crate::plan::eviction::{Policy, Shelf, Use};
use crate::size::Size;

/// Samples start at multiples of this, so that freed places fit others.
const ALIGNMENT: u64 = 4096;

/// The SSD's part of a cache. Its owner has the lock.
pub struct Disk {
    file: Arc<File>,
    shelf: Shelf,
    arena: Arena,
    places: HashMap<u32, Place>,
}

struct Place {
    span: Span,
    bytes: u64,
    checksum: u32,
    ends: Arc<[u64]>,
    /// Threads that read it now: it stays where it is until they are done.
    readers: usize,
    /// Nobody else may find it any more.
    gone: bool,
}

/// A sample that was found and is to be read.
pub struct Reading {
    file: Arc<File>,
    offset: u64,
    bytes: u64,
    checksum: u32,
    ends: Arc<[u64]>,
}

impl Disk {
    pub fn new(directory: &Path, bytes: u64, policy: Policy) -> Result<Self> {
        let file = unnamed(directory)?;
        let arena = Arena::new(Size(bytes.next_multiple_of(ALIGNMENT)), ALIGNMENT)?;
        let shelf = Shelf::new(policy, bytes);
        Ok(Self { file: Arc::new(file), shelf, arena, places: HashMap::new() })
    }

    pub fn has(&self, id: u32) -> bool {
        self.places.get(&id).is_some_and(|place| !place.gone)
    }

    pub fn used(&self) -> u64 {
        self.shelf.used()
    }

    /// Where the sample is; [`found`](Self::found) or [`let_go`](Self::let_go) must follow.
    pub fn find(&mut self, id: u32) -> Option<Reading> {
        let place = self.places.get_mut(&id).filter(|place| !place.gone)?;
        place.readers += 1;
        Some(Reading {
            file: Arc::clone(&self.file),
            offset: place.span.offset(),
            bytes: place.bytes,
            checksum: place.checksum,
            ends: Arc::clone(&place.ends),
        })
    }

    /// A sample that was found has been read and used, or was damaged.
    pub fn found(&mut self, id: u32, whole: bool, use_: &Use) {
        if !whole {
            self.shelf.remove(id);
        }
        if !whole || !self.shelf.touch(id, use_) {
            self.forget(id);
        }
        self.let_go(id);
    }

    /// A sample that was found has been read.
    pub fn let_go(&mut self, id: u32) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.readers -= 1;
        if place.gone {
            self.forget(id);
        }
    }

    /// Writes a sample, if the shelf admits it and there is room in one piece.
    pub fn keep(&mut self, id: u32, raw: &Raw, use_: &Use) {
        let mut evicted = Vec::new();
        if self.places.contains_key(&id) || !self.shelf.admit(id, raw.bytes(), use_, &mut evicted) {
            return;
        }
        for id in evicted {
            self.forget(id);
        }
        if self.write(id, raw).is_none() {
            self.shelf.remove(id);
        }
    }

    fn write(&mut self, id: u32, raw: &Raw) -> Option<()> {
        let raw = raw.in_memory().ok()?;
        let bytes = raw.as_memory()?;
        let span = self.arena.allocate(bytes.len().max(1) as u64, End::Low).ok()?;
        if self.file.write_all_at(bytes, span.offset()).is_err() {
            let _ = self.arena.free(span);
            return None;
        }
        let (checksum, ends) = (crc32c(bytes), raw.ends().into());
        let bytes = raw.bytes();
        let place = Place { span, bytes, checksum, ends, readers: 0, gone: false };
        self.places.insert(id, place);
        Some(())
    }

    fn forget(&mut self, id: u32) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.gone = true;
        if place.readers == 0
            && let Some(place) = self.places.remove(&id)
        {
            // A span that was allocated can be freed.
            let _ = self.arena.free(place.span);
        }
    }
}

impl Reading {
    /// The sample, unless it can't be read or has changed.
    pub fn read(self) -> Option<Raw> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut bytes, self.offset).ok()?;
        if crc32c(&bytes) != self.checksum {
            return None;
        }
        Raw::fields(bytes, self.ends.to_vec()).ok()
    }
}

/// A new file in `directory` that has no name: it is gone when the process is.
fn unnamed(directory: &Path) -> Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let failed = |errno| {
        let message = "can't keep samples in the cache directory; give cache_dir= one that exists \
                       and may be written to";
        Error::from_errno(errno, message).with("directory", directory.display())
    };
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = open(directory, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    Ok(file.into())
}
