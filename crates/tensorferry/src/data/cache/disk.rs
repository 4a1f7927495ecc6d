//! Samples on an SSD: one file without a name, and who lies where in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::codec::checksum::crc32c;
use crate::data::StoredFile;
use crate::data::sample::Raw;
use crate::error::{Error, Result};
use crate::io::Shared;
use crate::memory::Arena;
use crate::memory::arena::Span;
use crate::plan::data::eviction::{Policy, Tier, Use};
use crate::size::Size;

/// Samples start at multiples of this, so that freed places fit others.
const ALIGNMENT: u64 = 4096;

/// How much is kept on an SSD, and where.
#[derive(Debug, Clone)]
pub struct Config {
    /// What reads and writes there.
    pub engine: Shared,
    /// A directory there.
    pub directory: PathBuf,
    /// Bytes in it.
    pub bytes: u64,
    /// Free bytes of the file system that are left to others. Caches of several processes in one
    /// place take no more than that together, whatever each may take.
    pub leave_bytes: u64,
}

/// The SSD's part of a cache. Its owner has the lock.
pub struct Disk {
    file: StoredFile,
    tier: Tier,
    arena: Arena,
    places: HashMap<u32, Place>,
    /// Free bytes of the file system that are left to others.
    leave_bytes: u64,
    /// How far the file has grown: below, nothing is taken of the file system any more.
    grown: u64,
}

struct Place {
    span: Span,
    bytes: u64,
    /// What was written there; none as long as it is being written, and nobody finds it.
    written: Option<Written>,
    /// Threads that read or write it now: it stays where it is until they are done.
    users: usize,
    /// Nobody else may find it any more.
    gone: bool,
}

/// What is known of a sample that was written.
#[derive(Clone)]
pub struct Written {
    checksum: u32,
    ends: Arc<[u64]>,
}

/// A place for a sample that is to be written.
pub struct Writing {
    file: StoredFile,
    offset: u64,
    /// What must be free then, if the file grows.
    leave_bytes: Option<u64>,
}

/// A sample that was found and is to be read.
pub struct Reading {
    file: StoredFile,
    offset: u64,
    bytes: u64,
    written: Written,
}

impl Disk {
    pub fn new(config: &Config, policy: Policy) -> Result<Self> {
        let Config { engine, directory, bytes, leave_bytes } = config;
        let file = StoredFile::unnamed(engine.engine()?, directory).map_err(|error| {
            let Some(errno) = error.errno() else { return error };
            let message = "can't keep samples in the cache directory; give cache_dir= one that \
                           exists and may be written to";
            Error::from_errno(errno, message).with("directory", directory.display())
        })?;
        let arena = Arena::new(Size(bytes.next_multiple_of(ALIGNMENT)), ALIGNMENT)?;
        let (tier, places) = (Tier::new(policy, *bytes), HashMap::new());
        Ok(Self { file, tier, arena, places, leave_bytes: *leave_bytes, grown: 0 })
    }

    pub fn used(&self) -> u64 {
        self.tier.used()
    }

    /// Where the sample is; [`found`](Self::found) or [`let_go`](Self::let_go) must follow.
    pub fn find(&mut self, id: u32) -> Option<Reading> {
        let place = self.places.get_mut(&id).filter(|place| place.can_be_found())?;
        let written = place.written.clone()?;
        place.users += 1;
        let (file, offset) = (self.file.clone(), place.span.offset());
        Some(Reading { file, offset, bytes: place.bytes, written })
    }

    /// A sample that was found has been read and used, or was damaged.
    pub fn found(&mut self, id: u32, whole: bool, use_: &Use) {
        if !whole {
            self.remove(id);
        } else if !self.tier.touch(id, use_) {
            self.forget(id);
        }
        self.let_go(id);
    }

    /// A sample that was found has been read.
    pub fn let_go(&mut self, id: u32) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.users -= 1;
        if place.gone {
            self.forget(id);
        }
    }

    /// A place for a sample, if the tier admits it and there is room in one piece;
    /// [`publish`](Self::publish) must follow.
    pub fn reserve(&mut self, id: u32, bytes: u64, use_: &Use) -> Option<Writing> {
        let mut evicted = Vec::new();
        if self.places.contains_key(&id) || !self.tier.admit(id, bytes, use_, &mut evicted) {
            return None;
        }
        for id in evicted {
            self.forget(id);
        }
        let Ok(span) = self.arena.allocate(bytes.max(1)) else {
            self.tier.remove(id);
            return None;
        };
        let (file, offset) = (self.file.clone(), span.offset());
        let grows = offset + bytes > self.grown && self.leave_bytes > 0;
        let leave_bytes = grows.then_some(self.leave_bytes);
        self.places.insert(id, Place { span, bytes, written: None, users: 1, gone: false });
        Some(Writing { file, offset, leave_bytes })
    }

    /// A sample that a place was reserved for has been written, or could not be.
    pub fn publish(&mut self, id: u32, written: Option<Written>) {
        if written.is_none() {
            self.remove(id);
        }
        if let Some(place) = self.places.get_mut(&id) {
            if written.is_some() {
                self.grown = self.grown.max(place.span.offset() + place.bytes);
            }
            place.written = written;
        }
        self.let_go(id);
    }

    /// Lets go of a sample, if it is here.
    pub fn remove(&mut self, id: u32) {
        self.tier.remove(id);
        self.forget(id);
    }

    fn forget(&mut self, id: u32) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.gone = true;
        if place.users == 0
            && let Some(place) = self.places.remove(&id)
        {
            // A span that was allocated can be freed.
            let _ = self.arena.free(place.span);
        }
    }
}

impl Place {
    fn can_be_found(&self) -> bool {
        !self.gone && self.written.is_some()
    }
}

impl Writing {
    /// Writes the sample, without any lock.
    pub fn write(self, raw: &Raw) -> Option<Written> {
        if !self.has_room(raw.bytes()) {
            return None;
        }
        let raw = raw.in_memory().ok()?;
        let bytes = raw.as_memory()?;
        self.file.write(self.offset, bytes).ok()?;
        Some(Written { checksum: crc32c(bytes), ends: raw.ends().into() })
    }

    fn has_room(&self, bytes: u64) -> bool {
        let Some(leave_bytes) = self.leave_bytes else { return true };
        self.file.free_bytes().unwrap_or(0) >= leave_bytes.saturating_add(bytes)
    }
}

impl Reading {
    /// The sample, unless it can't be read or has changed.
    pub fn read(self) -> Option<Raw> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.fill(self.offset, &mut bytes).ok()?;
        if crc32c(&bytes) != self.written.checksum {
            return None;
        }
        Raw::fields(bytes, self.written.ends.to_vec()).ok()
    }
}
