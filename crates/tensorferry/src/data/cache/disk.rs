//! Samples on an SSD: one file without a name, and who lies where in it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::fstatvfs;

use crate::codec::checksum::crc32c;
use crate::data::sample::Raw;
use crate::error::{Error, Result};
use crate::memory::Arena;
use crate::memory::arena::Span;
use crate::plan::data::eviction::{Policy, Shelf, Use};
use crate::size::Size;

/// Samples start at multiples of this, so that freed places fit others.
const ALIGNMENT: u64 = 4096;

/// Where the bytes are: a file, or in tests what stands for one.
type Drawer = Arc<dyn FileExt + Send + Sync>;

/// How much is kept on an SSD, and where.
#[derive(Debug, Clone, Default)]
pub struct Config {
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
    file: Drawer,
    shelf: Shelf,
    arena: Arena,
    places: HashMap<u32, Place>,
    room: Arc<Room>,
    /// How far the file has grown: below, nothing is taken of the file system any more.
    grown: u64,
}

/// The file system, of whose free bytes some are left to others.
#[derive(Default)]
struct Room {
    file: Option<File>,
    leave_bytes: u64,
}

impl Room {
    /// Whether so many bytes more may be taken.
    fn has(&self, bytes: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let free = fstatvfs(file).map_or(0, |room| room.f_bavail * room.f_frsize);
        free >= self.leave_bytes.saturating_add(bytes)
    }
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
    file: Drawer,
    offset: u64,
    /// Where there must be room, if the file grows.
    grows: Option<Arc<Room>>,
}

/// A sample that was found and is to be read.
pub struct Reading {
    file: Drawer,
    offset: u64,
    bytes: u64,
    written: Written,
}

impl Disk {
    pub fn new(config: &Config, policy: Policy) -> Result<Self> {
        let file = unnamed(&config.directory)?;
        let limited = config.leave_bytes > 0;
        let again = limited.then(|| file.try_clone()).transpose();
        let again = again.map_err(|error| Error::from_io(error, "can't open the cache again"))?;
        let room = Room { file: again, leave_bytes: config.leave_bytes };
        Ok(Self { room: Arc::new(room), ..Self::over(Arc::new(file), config.bytes, policy)? })
    }

    pub fn over(file: Drawer, bytes: u64, policy: Policy) -> Result<Self> {
        let arena = Arena::new(Size(bytes.next_multiple_of(ALIGNMENT)), ALIGNMENT)?;
        let shelf = Shelf::new(policy, bytes);
        let (places, room) = (HashMap::new(), Arc::default());
        Ok(Self { file, shelf, arena, places, room, grown: 0 })
    }

    pub fn used(&self) -> u64 {
        self.shelf.used()
    }

    /// Where the sample is; [`found`](Self::found) or [`let_go`](Self::let_go) must follow.
    pub fn find(&mut self, id: u32) -> Option<Reading> {
        let place = self.places.get_mut(&id).filter(|place| place.can_be_found())?;
        let written = place.written.clone()?;
        place.users += 1;
        let (file, offset) = (Arc::clone(&self.file), place.span.offset());
        Some(Reading { file, offset, bytes: place.bytes, written })
    }

    /// A sample that was found has been read and used, or was damaged.
    pub fn found(&mut self, id: u32, whole: bool, use_: &Use) {
        if !whole {
            self.remove(id);
        } else if !self.shelf.touch(id, use_) {
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

    /// A place for a sample, if the shelf admits it and there is room in one piece;
    /// [`publish`](Self::publish) must follow.
    pub fn reserve(&mut self, id: u32, bytes: u64, use_: &Use) -> Option<Writing> {
        let mut evicted = Vec::new();
        if self.places.contains_key(&id) || !self.shelf.admit(id, bytes, use_, &mut evicted) {
            return None;
        }
        for id in evicted {
            self.forget(id);
        }
        let Ok(span) = self.arena.allocate(bytes.max(1)) else {
            self.shelf.remove(id);
            return None;
        };
        let (file, offset) = (Arc::clone(&self.file), span.offset());
        let grows = (offset + bytes > self.grown).then(|| Arc::clone(&self.room));
        self.places.insert(id, Place { span, bytes, written: None, users: 1, gone: false });
        Some(Writing { file, offset, grows })
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
        self.shelf.remove(id);
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
        if self.grows.is_some_and(|room| !room.has(raw.bytes())) {
            return None;
        }
        let raw = raw.in_memory().ok()?;
        let bytes = raw.as_memory()?;
        self.file.write_all_at(bytes, self.offset).ok()?;
        Some(Written { checksum: crc32c(bytes), ends: raw.ends().into() })
    }
}

impl Reading {
    /// The sample, unless it can't be read or has changed.
    pub fn read(self) -> Option<Raw> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut bytes, self.offset).ok()?;
        if crc32c(&bytes) != self.written.checksum {
            return None;
        }
        Raw::fields(bytes, self.written.ends.to_vec()).ok()
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
