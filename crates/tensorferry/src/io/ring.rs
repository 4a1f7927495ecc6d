//! Transfers through `io_uring`.
//!
//! One thread owns the ring: it fills the submission queue, enters the kernel once for a batch, and
//! sleeps there until a transfer ends or another thread rings the eventfd that the ring polls.
//!
//! Ownership: a transfer given to the kernel lives in `transfers`, under the number that the kernel
//! gives back on completion. It leaves the slab only when its completion is seen; the ring's drop
//! waits for all of them, so that the kernel never holds a pointer to memory that was freed.
//!
//! Registered files and buffers save the kernel a look-up and a page walk on every transfer. Both
//! are optional: a table that is full, a kernel that is old or a memlock limit that is low costs
//! speed and nothing else.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use slab::Slab;

use super::backend::{Backend, Ended, Patience, Transfer, Waker, Work};
use crate::error::{Error, Kind, Result};
use crate::memory::Pool;

/// Files that can be registered at once; more are used unregistered.
const REGISTERED_FILES_MAX: u32 = 256;

/// The kernel takes at most this much in one registered buffer.
const REGISTERED_BUFFER_LEN_MAX: usize = 1 << 30;

/// Calls in a row that may be refused for no known reason.
const FAILURES_MAX: u32 = 1000;

/// Between a refused call and the next.
const PAUSE: Duration = Duration::from_millis(1);

/// The completion that says that the eventfd was rung.
const WAKE: u64 = u64::MAX;

pub(super) struct Ring {
    kernel: IoUring,
    depth: u32,
    bell: Arc<Bell>,
    bell_is_polled: bool,
    /// Calls in a row that the kernel refused.
    failures: u32,
    transfers: Slab<Transfer>,
    /// Transfers of files that this ring can't know, given back at the next look.
    refused: Vec<Ended>,
    files: FileTable,
    buffers: BufferTable,
}

/// An eventfd.
struct Bell(OwnedFd);

impl Ring {
    /// A ring for `depth` transfers; the memory of `pools` is registered if the kernel lets it.
    ///
    /// The calling thread becomes the ring's only user.
    pub(super) fn open(depth: u32, pools: &[Pool]) -> Result<(Self, Arc<dyn Waker>)> {
        let kernel = set_up(depth)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::from_errno(errno, "can't make an eventfd"))?;
        let bell = Arc::new(Bell(bell));
        let ring = Self {
            depth,
            bell: Arc::clone(&bell),
            bell_is_polled: false,
            failures: 0,
            transfers: Slab::with_capacity(depth as usize),
            refused: Vec::new(),
            files: FileTable::register(&kernel),
            buffers: BufferTable::register(&kernel, pools),
            kernel,
        };
        Ok((ring, bell))
    }

    /// Bytes of memory that the kernel has pinned.
    pub(super) fn registered_bytes(&self) -> u64 {
        self.buffers.ranges.iter().map(|range| range.len() as u64).sum()
    }

    /// There is room: the queue has a place for each transfer of the depth, and one for the bell.
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to is owned by `self.transfers` until its completion is
        // seen, or, for the bell, is nothing but a descriptor that `self` keeps open.
        let pushed = unsafe { self.kernel.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "more transfers were started than the depth allows");
    }

    fn entry_of(&mut self, transfer: &Transfer) -> Result<squeue::Entry, Errno> {
        let fd = transfer.file.descriptor(transfer.direct).ok_or(Errno::BADF)?.as_raw_fd();
        let key = (transfer.file.id(), transfer.direct);
        let kept = !transfer.file.is_read_once();
        let slot = kept.then(|| self.files.slot(&self.kernel, key, fd)).flatten();
        /// Builds the same request for a registered file and for any other.
        macro_rules! request {
            ($opcode:ident($($argument:expr),*) $(.$setter:ident($value:expr))*) => {
                match slot {
                    Some(slot) => {
                        opcode::$opcode::new(Fixed(slot), $($argument),*)$(.$setter($value))*.build()
                    }
                    None => opcode::$opcode::new(Fd(fd), $($argument),*)$(.$setter($value))*.build(),
                }
            };
        }
        Ok(match &transfer.work {
            Work::Sync => request!(Fsync().flags(FsyncFlags::DATASYNC)),
            Work::Read(part) => {
                let (start, len) = (part.start().as_ptr(), transfer.len.min(part.len()) as u32);
                match self.buffers.index_of(start as usize, part.len()) {
                    Some(index) => request!(ReadFixed(start, len, index).offset(transfer.offset)),
                    None => request!(Read(start, len).offset(transfer.offset)),
                }
            }
            Work::Write(part) => {
                let (start, len) =
                    (part.start().as_ptr().cast_const(), transfer.len.min(part.len()) as u32);
                match self.buffers.index_of(start as usize, part.len()) {
                    Some(index) => request!(WriteFixed(start, len, index).offset(transfer.offset)),
                    None => request!(Write(start, len).offset(transfer.offset)),
                }
            }
        })
    }

    /// Submits and waits.
    fn enter(&mut self, patience: Patience) -> Result<()> {
        let entered = match patience {
            Patience::None => self.kernel.submit(),
            Patience::Unlimited if self.transfers.is_empty() => self.idle(),
            Patience::Unlimited => self.kernel.submit_and_wait(1),
            Patience::AtMost(limit) => {
                let limit = Timespec::from(limit);
                self.kernel.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        let Err(error) = entered else {
            self.failures = 0;
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => Ok(()),
            // Short of memory, or completions have to be taken out first: both pass.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                std::thread::sleep(PAUSE);
                Ok(())
            }
            _ if self.failures < FAILURES_MAX => {
                self.failures += 1;
                std::thread::sleep(PAUSE);
                Ok(())
            }
            _ => Err(Error::from_io(error, "the kernel takes no more requests")),
        }
    }

    /// Waits for the bell with nothing in flight. Where the kernel can be told so (Linux 6.15), this
    /// is not shown as waiting for I/O, which would look like a busy disk.
    fn idle(&mut self) -> std::io::Result<usize> {
        const NO_IOWAIT: u32 = 1 << 7;
        const GETEVENTS: u32 = 1;
        if !self.kernel.params().is_feature_no_iowait() {
            return self.kernel.submit_and_wait(1);
        }
        let entries = self.kernel.submission().len() as u32;
        // SAFETY: no argument is passed along, and the entries are those of `push`.
        unsafe {
            let submitter = self.kernel.submitter();
            submitter.enter::<libc::sigset_t>(entries, 1, GETEVENTS | NO_IOWAIT, None)
        }
    }

    fn poll_bell(&mut self) {
        let events = rustix::event::PollFlags::IN.bits();
        let entry = opcode::PollAdd::new(Fd(self.bell.0.as_raw_fd()), u32::from(events));
        self.push(&entry.multi(true).build().user_data(WAKE));
        self.bell_is_polled = true;
    }

    fn collect(&mut self, ended: &mut Vec<Ended>) {
        for completion in self.kernel.completion() {
            if completion.user_data() == WAKE {
                self.bell_is_polled = cqueue::more(completion.flags());
            } else if let Some(transfer) = self.transfers.try_remove(completion.user_data() as _) {
                let code = completion.result();
                let result = usize::try_from(code).map_err(|_| Errno::from_raw_os_error(-code));
                ended.push(Ended { transfer, result });
            }
        }
    }
}

/// The most efficient ring that this kernel offers.
fn set_up(depth: u32) -> Result<IoUring> {
    let refused = |error| {
        let message = "the kernel refuses io_uring (too old, or forbidden by seccomp, a container \
                       or kernel.io_uring_disabled)";
        let error = Error::from_io(error, message);
        if error.kind() == Kind::OutOfMemory { error } else { error.of_kind(Kind::Unsupported) }
    };
    let mut lean = IoUring::builder();
    lean.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut cooperative = IoUring::builder();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let build = |mut builder: io_uring::Builder| {
        builder.setup_cqsize(2 * (depth + 1)).dontfork().build(depth + 1)
    };
    let ring = build(lean)
        .or_else(|_| build(cooperative))
        .or_else(|_| build(IoUring::builder()))
        .map_err(refused)?;
    // Multishot polls came with it, in Linux 5.13.
    if !ring.params().is_feature_resource_tagging() || !ring.params().is_feature_ext_arg() {
        return Err(refused(std::io::Error::from_raw_os_error(libc::ENOSYS)));
    }
    Ok(ring)
}

impl Backend for Ring {
    fn depth(&self) -> usize {
        self.depth as usize
    }

    fn start(&mut self, transfer: Transfer) {
        match self.entry_of(&transfer) {
            Ok(entry) => {
                let number = self.transfers.insert(transfer);
                self.push(&entry.user_data(number as u64));
            }
            Err(errno) => self.refused.push(Ended { transfer, result: Err(errno) }),
        }
    }

    fn reap(&mut self, patience: Patience, ended: &mut Vec<Ended>) -> Result<()> {
        if !self.bell_is_polled {
            self.poll_bell();
        }
        self.enter(if self.refused.is_empty() { patience } else { Patience::None })?;
        self.collect(ended);
        ended.append(&mut self.refused);
        Ok(())
    }

    fn forget(&mut self, file: u64) {
        self.files.forget(&self.kernel, file);
    }
}

impl Waker for Bell {
    fn wake(&self) {
        // It can only fail by overflowing after 2^64 - 2 rings.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Only a panic of the driver leaves transfers behind. A device that never answers must not
        // hang the process for ever: then the memory is leaked, which is safe.
        let mut ended = Vec::new();
        for _ in 0..600 {
            if self.transfers.is_empty() {
                return;
            }
            let _ = self.enter(Patience::AtMost(Duration::from_millis(100)));
            self.collect(&mut ended);
        }
        std::mem::forget(std::mem::take(&mut self.transfers));
    }
}

/// Which registered slot a descriptor has.
struct FileTable {
    slots: HashMap<(u64, bool), u32>,
    free: Vec<u32>,
}

impl FileTable {
    fn register(ring: &IoUring) -> Self {
        let registered = ring.submitter().register_files_sparse(REGISTERED_FILES_MAX).is_ok();
        let free = if registered { (0..REGISTERED_FILES_MAX).rev().collect() } else { Vec::new() };
        Self { slots: HashMap::new(), free }
    }

    fn slot(&mut self, ring: &IoUring, key: (u64, bool), fd: RawFd) -> Option<u32> {
        if let Some(slot) = self.slots.get(&key) {
            return Some(*slot);
        }
        let slot = self.free.pop()?;
        if ring.submitter().register_files_update(slot, &[fd]).is_err() {
            self.free.push(slot);
            return None;
        }
        self.slots.insert(key, slot);
        Some(slot)
    }

    /// A registered file stays open in the kernel, so its slot is emptied when the file closes.
    fn forget(&mut self, ring: &IoUring, file: u64) {
        for direct in [false, true] {
            if let Some(slot) = self.slots.remove(&(file, direct)) {
                let _ = ring.submitter().register_files_update(slot, &[-1]);
                self.free.push(slot);
            }
        }
    }
}

/// Which addresses the kernel has pinned, by index.
struct BufferTable {
    ranges: Vec<Range<usize>>,
    /// Kept so that registered memory is not returned and mapped again under the kernel's eyes.
    _pools: Vec<Pool>,
}

impl BufferTable {
    fn register(ring: &IoUring, pools: &[Pool]) -> Self {
        let pinned = pools.iter().filter_map(Pool::pin);
        let ranges: Vec<_> = pinned.flat_map(split).collect();
        let vectors: Vec<_> = ranges
            .iter()
            .map(|range| libc::iovec { iov_base: range.start as _, iov_len: range.len() })
            .collect();
        // SAFETY: the addresses belong to slabs that `_pools` keeps mapped as long as the ring; the
        // kernel accesses them only through transfers, each of which owns its part.
        let registered =
            !ranges.is_empty() && unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        Self { ranges: if registered { ranges } else { Vec::new() }, _pools: pools.to_vec() }
    }

    fn index_of(&self, start: usize, len: usize) -> Option<u16> {
        let inside = |range: &Range<usize>| range.start <= start && start + len <= range.end;
        self.ranges.iter().position(inside).map(|index| index as u16)
    }
}

fn split(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(REGISTERED_BUFFER_LEN_MAX)
        .map(move |start| start..end.min(start + REGISTERED_BUFFER_LEN_MAX))
}
