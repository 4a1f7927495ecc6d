//! A file on its way to its name: written beside it, and put in its place whole or not at all.
//!
//! ```text
//!   create: .model.ferry.1234-0.draft ─ write ─ sync ─► publish: rename to model.ferry ─ sync of the
//!                                   └─ dropped: removed                                 directory
//! ```
//!
//! Until the rename the old content is there, after it the new one; who has the old one open or
//! mapped keeps it. A process that is killed leaves its draft behind. Each draft is locked by its
//! writer, so the first save of the same path in another process knows which ones nobody is writing
//! any more, and removes them.
//!
//! What is saved over keeps its permissions, and its owner as far as the process may give files away.
//! Until it has them, nobody else may open the draft.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, FlockOperation, Gid, Mode as Permissions, OFlags, Uid, access, flock};
use rustix::io::Errno;

use super::turn::Turn;
use crate::error::{Error, Kind, Result};
use crate::interrupt;
use crate::io::{Engine, File, Mode, Open, Priority, promise};
use crate::memory::{is_local, process_id};

/// What a draft's name ends with.
const SUFFIX: &str = ".draft";

/// Bytes of the target's name that a draft's name repeats: both have the same limit of 255.
const NAME_BYTES_MAX: usize = 200;

/// How often a draft is made anew when somebody takes it for an abandoned one.
const ATTEMPTS_MAX: u32 = 100;

/// Links to one another that are followed to a file that does not exist: the kernel's own limit.
const LINKS_MAX: u32 = 40;

/// How long a save waits for the room of files that are gone. A forked child would wait for threads that
/// it does not have.
const FREEING_MAX: Duration = Duration::from_secs(10);

/// Paths of which is remembered that they were swept; beyond, all are swept again.
const SWEPT_MAX: usize = 1024;

/// A file that has not got its name yet.
pub struct Draft {
    engine: Arc<dyn Engine>,
    file: File,
    path: PathBuf,
    target: PathBuf,
    /// Holds the lock that says that somebody is still writing.
    _lock: OwnedFd,
    turn: Turn,
    /// The file system can't say beforehand whether there is room.
    unreserved: bool,
    published: bool,
    /// Of a draft that was not published: goes last of all that has it open.
    doomed: Option<Doomed>,
}

impl Draft {
    /// Makes an empty draft for `path`.
    pub fn create(engine: &Arc<dyn Engine>, path: &Path, direct: bool) -> Result<Self> {
        let target = judge(path)?;
        sweep_once(&target);
        let turn = Turn::begin(&target)?;
        for _ in 0..ATTEMPTS_MAX {
            let path = draft_path(&target);
            let old = fs::metadata(&target).ok();
            let Some(lock) = make(&path, old.is_some())? else { continue };
            let file = engine.open(&path, Open { mode: Mode::Update, direct });
            let file = file.inspect_err(|_| remove(&path))?;
            if let Some(old) = old {
                liken(&lock, &old);
            }
            return Ok(Self {
                engine: Arc::clone(engine),
                file,
                path,
                target,
                _lock: lock,
                turn,
                unreserved: false,
                published: false,
                doomed: None,
            });
        }
        Err(Error::new(Kind::Io, "somebody keeps removing drafts").with("file", path.display()))
    }

    /// Another thread than the one that made it goes on with it.
    pub(super) fn hand_over(&self) {
        self.turn.hand_over();
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reserves room, if need be after the files that earlier saves have replaced are gone.
    pub(super) fn reserve(&mut self, len: u64) -> Result<()> {
        let reserved = match self.file.reserve(len) {
            Err(error) if error.kind() == Kind::OutOfSpace && wait_for_freed_room()? => {
                self.file.reserve(len)
            }
            reserved => reserved,
        };
        self.unreserved = !reserved?;
        Ok(())
    }

    /// Gives the draft its name. With `durable`, it survives a power cut when this returns.
    pub fn publish(mut self, durable: bool, priority: Priority) -> Result<()> {
        // Without its room, what is in the page cache only may still fail to be written.
        if durable || self.unreserved {
            self.engine.sync(&self.file, priority).wait()?;
        }
        self.turn.wait()?;
        // Before the rename: whoever can't be synced is not put in its place.
        let directory =
            if durable { Some(Directory::open(directory_of(&self.target))?) } else { None };
        let _old = Doomed::hold(&self.target);
        fs::rename(&self.path, &self.target).map_err(|error| {
            Error::from_io(error, "can't put a saved file in its place")
                .with("file", self.target.display())
        })?;
        self.published = true;
        directory.map_or(Ok(()), Directory::sync)
    }
}

/// A file that is being replaced or removed, held so that its room is given back after that, and on a
/// thread that nobody waits for: for a large file on a disk that is told what is free, that takes
/// as long as half of the save.
struct Doomed(Option<OwnedFd>);

impl Doomed {
    fn hold(path: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::open(path, flags, Permissions::empty());
        // Over a network, the client first gives a file that is open another name when one takes its
        // place, and for a moment nobody has this one.
        Self(held.ok().filter(|held| is_local(held)))
    }
}

/// Files that are gone and whose room is being given back.
static FREEING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Drop for Doomed {
    fn drop(&mut self) {
        let Some(old) = self.0.take() else { return };
        *FREEING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let free = move || {
            drop(old);
            *FREEING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            FREED.notify_all();
        };
        if thread::Builder::new().name("ferry-free".into()).spawn(free).is_err() {
            // The closure, and with it the file, is gone already.
            *FREEING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        }
    }
}

/// Waits until the room of all replaced files is given back; whether there was any.
fn wait_for_freed_room() -> Result<bool> {
    let mut freeing = FREEING.lock().unwrap_or_else(PoisonError::into_inner);
    let any = *freeing > 0;
    let deadline = Instant::now() + FREEING_MAX;
    while *freeing > 0 && Instant::now() < deadline {
        drop(FREED.wait_timeout(freeing, interrupt::INTERVAL));
        interrupt::check()?;
        freeing = FREEING.lock().unwrap_or_else(PoisonError::into_inner);
    }
    Ok(any)
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            self.doomed = Some(Doomed::hold(&self.path));
            remove(&self.path);
        }
    }
}

/// What can't be removed now is swept by a later process.
fn remove(draft: &Path) {
    let _ = fs::remove_file(draft);
}

/// The file that `path` means, if a save may replace it.
fn judge(path: &Path) -> Result<PathBuf> {
    let refuse = |error: Error| Err(error.with("file", path.display()));
    if path.file_name().is_none() {
        return refuse(Error::invalid("can't save to a path that has no file name"));
    }
    let target = follow(path);
    if target.is_symlink() {
        return refuse(Error::invalid("can't save to this path, its links lead nowhere"));
    }
    if target.is_dir() {
        return refuse(Error::invalid("can't save to this path, it is a directory"));
    }
    if target.exists() && !target.is_file() {
        // The rename would put a file in the place of a device or a pipe.
        return refuse(Error::invalid("can't save to this path, it is no regular file"));
    }
    if target.exists() && access(&target, Access::WRITE_OK).is_err() {
        let why = "can't save over this file, it is not writable";
        return refuse(Error::new(Kind::PermissionDenied, why));
    }
    let directory = directory_of(&target);
    if !directory.is_dir() {
        let why = format!("can't save, {} is no directory; make it first", directory.display());
        return refuse(Error::new(Kind::NotFound, why));
    }
    if let Err(errno) = access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        let why = format!("can't save, no file can be made in {}", directory.display());
        return refuse(Error::from_errno(errno, why));
    }
    // What no file can be called would be told by the rename, when all is written.
    match fs::symlink_metadata(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return refuse(Error::from_io(error, "can't save to this path"));
        }
        _ => {}
    }
    // Two spellings of one path must meet in one line.
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    Ok(directory.join(target.file_name().unwrap_or_default()))
}

/// What a path leads to: a link stays one, and what it leads to is replaced, or made.
fn follow(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(real) = fs::canonicalize(&target) {
            return real;
        }
        let Ok(link) = fs::read_link(&target) else { break };
        target = directory_of(&target).join(link);
    }
    target
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// What the names of all drafts of `target` begin with.
fn prefix(target: &Path) -> OsString {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let mut prefix = OsString::from(".");
    prefix.push(OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_MAX)]));
    prefix.push(".");
    prefix
}

fn draft_path(target: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = prefix(target);
    name.push(format!("{}-{number}{SUFFIX}", process_id()));
    target.with_file_name(name)
}

/// Makes a draft, and holds its lock: nobody sweeps it. If it is `secret`, nobody else may open it yet.
/// `None` when there is one of this name, or a sweep was faster.
fn make(path: &Path, secret: bool) -> Result<Option<OwnedFd>> {
    let named = |error: Error| error.with("file", path.display());
    let mode = if secret { 0o600 } else { 0o666 };
    let mut options = fs::OpenOptions::new();
    let file: OwnedFd = match options.read(true).write(true).create_new(true).mode(mode).open(path)
    {
        Ok(file) => file.into(),
        // Another machine, or another container, has a process of the same number.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(named(Error::from_io(error, "can't make a file to save to"))),
    };
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let stat = rustix::fs::fstat(&file).inspect_err(|_| remove(path));
    let stat = stat.map_err(|errno| named(Error::from_errno(errno, "can't look at a draft")))?;
    // Where there are no locks, nobody sweeps.
    if locked == Err(Errno::WOULDBLOCK) || stat.st_nlink == 0 {
        return Ok(None);
    }
    Ok(Some(file))
}

/// Gives a file the owner and the permissions of another. That it can't is no reason not to save.
fn liken(file: &OwnedFd, old: &fs::Metadata) {
    let (owner, group) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
    if rustix::fs::fchown(file, Some(owner), Some(group)).is_err() {
        // The owner is root's to give, the group that of who belongs to it.
        let _ = rustix::fs::fchown(file, None, Some(group));
    }
    // After the owner, with whom bits may go.
    let _ = rustix::fs::fchmod(file, Permissions::from_raw_mode(old.mode() & 0o7777));
}

/// The file, and whether its lock could be had. Over NFS, only who may write can lock.
fn open_and_lock(path: &Path) -> rustix::io::Result<(OwnedFd, rustix::io::Result<()>)> {
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Permissions::empty())?;
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok((file, locked))
}

/// Removes drafts of `target` that nobody is writing, the first time this process saves to it.
fn sweep_once(target: &Path) {
    static SWEPT: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
    let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if swept.len() >= SWEPT_MAX {
        swept.clear();
    }
    let first = swept.insert(target.to_owned());
    drop(swept);
    if first {
        sweep(target);
    }
}

fn sweep(target: &Path) {
    let prefix = prefix(target);
    let Ok(entries) = fs::read_dir(directory_of(target)) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_draft(entry.file_name().as_bytes(), prefix.as_bytes()) {
            continue;
        }
        // The lock is held until the file is gone: who has just made it would otherwise get it.
        if let Ok((_lock, Ok(()))) = open_and_lock(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Whether a name is `prefix`, the numbers of a process and of a draft, and the suffix: a name that
/// only resembles one may be a file of the user's.
fn is_draft(name: &[u8], prefix: &[u8]) -> bool {
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let mut numbers = numbers.into_iter().flat_map(|numbers| numbers.split(|byte| *byte == b'-'));
    numbers.next().is_some_and(is_number)
        && numbers.next().is_some_and(is_number)
        && numbers.next().is_none()
}

/// A directory in which a rename is to survive a power cut.
struct Directory<'a>(&'a Path, OwnedFd);

impl<'a> Directory<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Permissions::empty());
        opened.map(|opened| Self(path, opened)).map_err(|errno| {
            let why = "can't sync the directory of a file to save durably, it is not readable";
            Error::from_errno(errno, why).with("directory", path.display())
        })
    }

    /// Waits for the disk on another thread: who waits here can be interrupted.
    fn sync(self) -> Result<()> {
        let Self(path, directory) = self;
        let directory = Arc::new(directory);
        let (promise, pending) = promise();
        let there = Arc::clone(&directory);
        let sync = move || promise.fulfil(Ok(rustix::fs::fsync(&*there)));
        let synced = match thread::Builder::new().name("ferry-sync".into()).spawn(sync) {
            Ok(_) => pending.wait()?,
            Err(_) => rustix::fs::fsync(&*directory),
        };
        match synced {
            // Some network file systems keep their directories synced and refuse to be asked.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => {
                let why = "the saved file is in its place, but its directory can't be synced: a \
                           power cut may bring the old one back";
                Err(Error::from_errno(errno, why).with("directory", path.display()))
            }
        }
    }
}
