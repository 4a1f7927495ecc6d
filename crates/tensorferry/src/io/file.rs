//! An open file: one inode, reached through the page cache and, where the file system allows it,
//! around it.
//!
//! A file on disk has two descriptors. The *buffered* one can do everything. The *direct* one
//! (`O_DIRECT`) is faster and leaves the page cache alone, but takes whole blocks only. Direct
//! transfers carry the middle of a range and the page cache carries its edges: the kernel keeps
//! the two coherent, and because the edges of two neighbouring writes meet in the page cache, under
//! the kernel's own lock, neither can clobber the other.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode as Permissions, OFlags, StatxFlags, fallocate,
};
use rustix::io::{Errno, retry_on_intr};

use super::memory::set_len;

use crate::error::{Error, Kind, Result};
use crate::memory::{ALIGNMENT, process_id};
use crate::sync::{Mutex, lock};

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// What may be there, and what may be done with it.
    pub mode: Mode,
    /// Go around the page cache where the file system allows it.
    pub direct: bool,
}

/// What may be there, and what may be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An existing file, only read.
    Read,
    /// An existing file that is read in a few calls and closed, as one of many small ones: nobody looks
    /// what it is before it is opened, and the driver keeps nothing for it. A pipe is not waited for, and
    /// is empty.
    Once,
    /// An existing file, read and written.
    Update,
    /// Read and written; made when it does not exist, its content kept when it does.
    Create,
    /// Read and written; made, or emptied.
    Replace,
    /// Read and written; must not exist yet.
    New,
    /// Read and written; a new file in the directory that the path is of, without a name: it is gone
    /// when the process is, however that ends.
    Unnamed,
}

impl Open {
    /// Opens in this mode, directly where possible.
    pub const fn direct(mode: Mode) -> Self {
        Self { mode, direct: true }
    }

    /// Opens in this mode, through the page cache.
    pub const fn buffered(mode: Mode) -> Self {
        Self { mode, direct: false }
    }
}

/// An open file; clones share it, and it closes with the last of them.
#[derive(Clone)]
pub struct File(Arc<Inner>);

struct Inner {
    id: u64,
    path: PathBuf,
    mode: Mode,
    storage: Storage,
    /// Set by a failed sync: the kernel has dropped dirty pages and reports it only once, so
    /// nothing that this file says later can be believed.
    poisoned: AtomicBool,
    /// Set once the driver gets work with it: only then it may hold something for it.
    driven: AtomicBool,
    /// The number of the engine that opened it.
    engine: u64,
    /// Told when the file is gone; nobody for one that is read once.
    on_close: Option<OnClose>,
}

/// The engine a file was opened by: it may hold something for the file until the file is gone.
pub(super) struct Home {
    pub engine: u64,
    pub on_close: OnClose,
}

type OnClose = Arc<dyn Fn(u64) + Send + Sync>;

/// The number of every file that is read once.
const ONCE: u64 = 0;

enum Storage {
    Disk { buffered: OwnedFd, direct: Option<Direct> },
    Memory(Arc<Mutex<Vec<u8>>>),
}

struct Direct {
    descriptor: OwnedFd,
    geometry: Geometry,
    /// Some file systems accept the flag and refuse the transfers.
    refused: AtomicBool,
}

/// What direct transfers must be multiples of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Offsets and lengths; at least a page, so that a page is never half direct, half cached:
    /// then the kernel could not keep the two coherent.
    pub block: usize,
    /// Addresses.
    pub memory: usize,
}

impl File {
    pub(super) fn open(path: &Path, how: Open, home: &Home) -> Result<Self> {
        let failed =
            |errno| Error::from_errno(errno, "can't open file").with("file", path.display());
        if !matches!(how.mode, Mode::Once | Mode::Unnamed) {
            refuse_what_is_no_file(path)?;
        }
        let flags = OFlags::CLOEXEC
            | match how.mode {
                Mode::Read => OFlags::RDONLY,
                Mode::Once => OFlags::RDONLY | OFlags::NONBLOCK,
                Mode::Update => OFlags::RDWR,
                Mode::Create => OFlags::RDWR | OFlags::CREATE,
                Mode::Replace => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
                Mode::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                Mode::Unnamed => OFlags::RDWR | OFlags::TMPFILE,
            };
        let permissions = Permissions::from_raw_mode(0o666);
        let buffered = match retry_on_intr(|| rustix::fs::openat(CWD, path, flags, permissions)) {
            Err(Errno::OPNOTSUPP) if how.mode == Mode::Unnamed => made_and_unlinked(path),
            opened => opened,
        };
        let buffered = buffered.map_err(failed)?;
        let direct = if how.direct { Direct::reopen(&buffered, how.mode) } else { None };
        let storage = Storage::Disk { buffered, direct };
        Ok(Self::new(path, how.mode, storage, home))
    }

    /// A file that lives in memory.
    pub(super) fn in_memory(
        path: &Path,
        mode: Mode,
        content: Arc<Mutex<Vec<u8>>>,
        home: &Home,
    ) -> Self {
        Self::new(path, mode, Storage::Memory(content), home)
    }

    fn new(path: &Path, mode: Mode, storage: Storage, home: &Home) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(ONCE + 1);
        let is_kept = mode != Mode::Once;
        // What threads share, they wait for: one of many small files takes no part in it.
        let id = if is_kept { NEXT_ID.fetch_add(1, Ordering::Relaxed) } else { ONCE };
        let on_close = is_kept.then(|| Arc::clone(&home.on_close));
        let engine = home.engine;
        let [poisoned, driven] = [const { AtomicBool::new(false) }; 2];
        let path = path.into();
        Self(Arc::new(Inner { id, path, mode, storage, poisoned, driven, engine, on_close }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether transfers go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.geometry().is_some()
    }

    /// Bytes in the file now.
    pub fn len(&self) -> Result<u64> {
        match &self.0.storage {
            Storage::Memory(content) => Ok(lock(content).len() as u64),
            Storage::Disk { buffered, .. } => {
                len_of(buffered).map_err(|errno| self.error(errno, "can't get the length of file"))
            }
        }
    }

    /// Bytes that its file system has left for others than root; `None` where nobody knows.
    pub fn free_bytes(&self) -> Option<u64> {
        let room = rustix::fs::fstatvfs(self.descriptor(false)?).ok()?;
        Some(room.f_bavail * room.f_frsize)
    }

    /// Whether there is no byte in the file now.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Cuts the file, or extends it with zeros.
    pub fn set_len(&self, len: u64) -> Result<()> {
        match &self.0.storage {
            Storage::Memory(content) => set_len(&mut lock(content), len),
            Storage::Disk { buffered, .. } => {
                retry_on_intr(|| rustix::fs::ftruncate(buffered, len))
            }
        }
        .map_err(|errno| self.error(errno, "can't set the length of file").with("length", len))
    }

    /// Makes the file at least `len` bytes long, with room on the disk: what was not written reads
    /// as zeros. A full disk shows now, extents are contiguous, and direct writes inside the
    /// length run side by side, where a file system lets those that extend a file pass one by
    /// one. Where a file system can't reserve, the file is only given the length, and this is `false`.
    pub fn reserve(&self, len: u64) -> Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        if let Storage::Disk { buffered, .. } = &self.0.storage {
            match retry_on_intr(|| fallocate(buffered, FallocateFlags::empty(), 0, len)) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => {
                    let error = self.error(errno, "can't reserve room for file");
                    return Err(error.with("length", len));
                }
            }
        }
        if self.len()? < len {
            self.set_len(len)?;
        }
        Ok(matches!(self.0.storage, Storage::Memory(_)))
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// The number of the engine that opened it.
    pub(super) fn engine(&self) -> u64 {
        self.0.engine
    }

    pub(super) fn is_writable(&self) -> bool {
        !matches!(self.0.mode, Mode::Read | Mode::Once)
    }

    /// What direct transfers must be multiples of; `None` when there are none.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        match &self.0.storage {
            Storage::Disk { direct: Some(direct), .. }
                if !direct.refused.load(Ordering::Relaxed) =>
            {
                Some(direct.geometry)
            }
            _ => None,
        }
    }

    /// From now on through the page cache only.
    pub(super) fn refuse_direct(&self) {
        if let Storage::Disk { direct: Some(direct), .. } = &self.0.storage {
            direct.refused.store(true, Ordering::Relaxed);
        }
    }

    /// The descriptor for a transfer; `None` for a file in memory.
    pub(super) fn descriptor(&self, direct: bool) -> Option<BorrowedFd<'_>> {
        match &self.0.storage {
            Storage::Disk { direct: Some(way), .. } if direct => Some(way.descriptor.as_fd()),
            Storage::Disk { buffered, .. } => Some(buffered.as_fd()),
            Storage::Memory(_) => None,
        }
    }

    /// The bytes of a file in memory.
    pub(super) fn content(&self) -> Option<&Mutex<Vec<u8>>> {
        match &self.0.storage {
            Storage::Memory(content) => Some(content),
            Storage::Disk { .. } => None,
        }
    }

    /// Whether it is one of many, and the driver keeps nothing for it.
    pub(super) fn is_read_once(&self) -> bool {
        self.0.mode == Mode::Once
    }

    /// The driver gets work with it.
    pub(super) fn drive(&self) {
        self.0.driven.store(true, Ordering::Relaxed);
    }

    pub(super) fn poison(&self) {
        self.0.poisoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn check_not_poisoned(&self) -> Result<()> {
        if self.0.poisoned.load(Ordering::Relaxed) {
            let message = "an earlier sync of this file failed, so what was written may be lost; \
                           write it again to a new file";
            return Err(Error::new(Kind::Io, message).with("file", self.path().display()));
        }
        Ok(())
    }

    fn error(&self, errno: Errno, message: &str) -> Error {
        Error::from_errno(errno, message).with("file", self.path().display())
    }
}

fn len_of(file: &OwnedFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Err(Errno::ISDIR),
        _ => Ok(stat.st_size as u64),
    }
}

/// Opening a pipe would block until somebody opens its other end.
fn refuse_what_is_no_file(path: &Path) -> Result<()> {
    let Ok(stat) = rustix::fs::stat(path) else { return Ok(()) };
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("can't open file, it is {what}")).with("file", path.display()))
}

/// A file without a name where the file system has none, as NFS.
fn made_and_unlinked(directory: &Path) -> rustix::io::Result<OwnedFd> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".ferry-scratch-{}-{number}", process_id()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, &path, flags, Permissions::from_raw_mode(0o600))?;
    rustix::fs::unlink(&path)?;
    Ok(file)
}

impl Direct {
    /// A second, direct descriptor of the same inode: reopened through `/proc`, because a path may
    /// have come to mean another file in between. `None` where any step of it is refused.
    fn reopen(file: &OwnedFd, mode: Mode) -> Option<Self> {
        use std::os::fd::AsRawFd;
        let is_read = matches!(mode, Mode::Read | Mode::Once);
        let access = if is_read { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = access | OFlags::CLOEXEC | OFlags::DIRECT;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let descriptor = rustix::fs::openat(CWD, again, flags, Permissions::empty()).ok()?;
        let geometry = Geometry::of(&descriptor)?;
        Some(Self { descriptor, geometry, refused: AtomicBool::new(false) })
    }
}

impl Geometry {
    fn of(file: &OwnedFd) -> Option<Self> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            // Before Linux 6.1 nobody tells; a page satisfies every device.
            let block = ALIGNMENT.max(rustix::param::page_size());
            return Some(Self { block, memory: ALIGNMENT });
        }
        let (block, memory) = (stat.stx_dio_offset_align as usize, stat.stx_dio_mem_align as usize);
        let possible = block.is_power_of_two() && memory.is_power_of_two();
        let block = block.max(ALIGNMENT).max(rustix::param::page_size());
        possible.then_some(Self { block, memory })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (true, Some(on_close)) = (*self.driven.get_mut(), &self.on_close) {
            on_close(self.id);
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.path().display())
    }
}
