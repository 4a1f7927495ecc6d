//! Mappings that are not in use, kept for the next user.
//!
//! ```text
//!                   5 s, or memory gets short
//!   keep ──► warm ────────────────────────────► free to the kernel ──► unmapped, oldest first,
//!             │                                         │              when there are too many
//!             └──────────────► take ◄───────────────────┘
//! ```
//!
//! Fresh memory is expensive: the kernel clears every page, and a virtual machine may first have to
//! get it back from its host, which has been measured at a tenth of the speed of the disk that was
//! to fill it. So large buffers that nobody uses any more are kept here, still mapped.
//!
//! What is kept is told to the kernel as free (`MADV_FREE`): under pressure it takes the pages back
//! without a word, as if they had been unmapped, and nobody else runs short on our account. They
//! are counted as resident until then. At most [`KEPT_SHARE`] of the memory is kept.
//!
//! It is not told so at once. The first write to a page that was told costs a fault, of the processor's
//! or of the host's, which has been measured to take twice as long as filling the page. Who loads again
//! or makes the next batch at once is spared that: a mapping stays *warm* for a while. A thread, the
//! *caretaker*, is there as long as something is warm; when the machine or a control group is running
//! out of memory, it tells the kernel of everything at its next look.

use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, madvise, munmap};

use super::headroom::Headroom;
use super::process::process_id;

/// One in so many bytes of the memory that this process may have is kept at most.
const KEPT_SHARE: u64 = 4;

/// How much longer than needed a mapping may be: a quarter of what is needed.
const SLACK_SHARE: usize = 4;

/// How long a mapping stays warm.
const WARM: Duration = Duration::from_secs(5);

/// How long to wait for the attic when somebody is in it. Nobody is for long, unless the machine has
/// more threads than processors.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often the caretaker looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Memory is short when less is available than can be taken between two looks: this much, or one in
/// so many bytes of a large machine.
const AMPLE_BYTES: u64 = 1 << 30;
const AMPLE_SHARE: u64 = 8;

static ATTIC: Mutex<Attic> = Mutex::new(Attic { kept: Vec::new(), bytes: 0, caretaker: None });

struct Attic {
    /// Oldest first.
    kept: Vec<Mapping>,
    bytes: usize,
    /// The process whose caretaker this is. A forked child has its parent's number here, but no thread.
    caretaker: Option<u32>,
}

/// A mapping that nobody uses.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// `None`: free to the kernel.
    warm_since: Option<Instant>,
}

// SAFETY: a mapping in the attic is reached by nobody else, and has no affinity to a thread.
unsafe impl Send for Mapping {}

/// The attic, unless somebody stays in it: a child that was forked while its parent was in it is not
/// kept waiting for ever, and does without.
fn attic() -> Option<MutexGuard<'static, Attic>> {
    let mut waiting_since = None;
    loop {
        match ATTIC.try_lock() {
            Ok(attic) => return Some(attic),
            Err(TryLockError::Poisoned(attic)) => return Some(attic.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
        if waiting_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return None;
        }
    }
}

/// A kept mapping of at least `len` bytes and not much more, with its length. What is in it may
/// change to zeros until it is written to.
pub(super) fn take(len: usize) -> Option<(NonNull<u8>, usize)> {
    let mapping = attic()?.take(len)?;
    Some((mapping.start, mapping.len))
}

/// Keeps a mapping, and unmaps the oldest ones when there are too many.
///
/// # Safety
/// `start` is a private anonymous mapping of `len` bytes, whose owner gives it up.
pub(super) unsafe fn keep(start: NonNull<u8>, len: usize) {
    let mut mapping = Mapping { start, len, warm_since: Some(Instant::now()) };
    let leaving = match attic() {
        None => vec![mapping],
        Some(mut attic) => {
            if !attic.has_caretaker() {
                mapping.free();
            }
            attic.put(mapping);
            attic.surplus(*KEPT_BYTES_MAX)
        }
    };
    leaving.into_iter().for_each(Mapping::unmap);
}

/// Bytes that may be kept.
static KEPT_BYTES_MAX: LazyLock<usize> =
    LazyLock::new(|| Headroom::now().map_or(0, |now| (now.usable() / KEPT_SHARE) as usize));

/// What the caretaker does, until nothing is warm.
fn look_after() {
    let attic = || ATTIC.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let oldest_warm = if memory_is_short() { None } else { Instant::now().checked_sub(WARM) };
        // Nobody waits while the kernel is told: it walks over every page.
        let Some(mut due) = attic().take_due(oldest_warm) else { return };
        due.iter_mut().for_each(Mapping::free);
        let leaving = {
            let mut attic = attic();
            attic.put_back(due);
            attic.surplus(*KEPT_BYTES_MAX)
        };
        leaving.into_iter().for_each(Mapping::unmap);
        thread::sleep(LOOK_EVERY);
    }
}

fn memory_is_short() -> bool {
    Headroom::now().is_none_or(|now| is_short(&now))
}

fn is_short(now: &Headroom) -> bool {
    now.available < AMPLE_BYTES.max(now.usable() / AMPLE_SHARE)
}

impl Attic {
    fn take(&mut self, len: usize) -> Option<Mapping> {
        let fits = |mapping: &Mapping| mapping.len >= len && mapping.len - len <= len / SLACK_SHARE;
        // The newest is the most likely to have its pages still.
        let found = self.kept.iter().rposition(fits)?;
        Some(self.remove(found))
    }

    fn put(&mut self, mapping: Mapping) {
        self.bytes += mapping.len;
        self.kept.push(mapping);
    }

    fn remove(&mut self, index: usize) -> Mapping {
        let mapping = self.kept.remove(index);
        self.bytes -= mapping.len;
        mapping
    }

    /// Takes out the oldest ones that make up more than `bytes_max`.
    fn surplus(&mut self, bytes_max: usize) -> Vec<Mapping> {
        let mut leaving = Vec::new();
        while self.bytes > bytes_max {
            leaving.push(self.remove(0));
        }
        leaving
    }

    /// Whether somebody looks after what is warm; who finds nobody sends somebody.
    fn has_caretaker(&mut self) -> bool {
        let here = Some(process_id());
        if self.caretaker != here {
            let caretaker = thread::Builder::new().name("ferry-attic".into()).spawn(look_after);
            self.caretaker = caretaker.ok().and(here);
        }
        self.caretaker.is_some()
    }

    /// Takes out what has been warm since before `oldest`, or all that is warm; `None` when nothing is,
    /// and then the caretaker is gone.
    fn take_due(&mut self, oldest: Option<Instant>) -> Option<Vec<Mapping>> {
        if self.kept.iter().all(|mapping| mapping.warm_since.is_none()) {
            self.caretaker = None;
            return None;
        }
        let is_due = |mapping: &mut Mapping| {
            mapping.warm_since.is_some_and(|since| oldest.is_none_or(|oldest| since < oldest))
        };
        let due: Vec<_> = self.kept.extract_if(.., is_due).collect();
        self.bytes -= due.iter().map(|mapping| mapping.len).sum::<usize>();
        Some(due)
    }

    /// Puts back what is older than all that is warm.
    fn put_back(&mut self, due: Vec<Mapping>) {
        self.bytes += due.iter().map(|mapping| mapping.len).sum::<usize>();
        let warm = self.kept.iter().position(|mapping| mapping.warm_since.is_some());
        let place = warm.unwrap_or(self.kept.len());
        self.kept.splice(place..place, due);
    }
}

impl Mapping {
    /// Tells the kernel that it may take the pages.
    fn free(&mut self) {
        // SAFETY: nobody uses the mapping; its content is of no use to anybody. A kernel that does not
        // know the advice keeps the pages, which is safe too.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxFree) };
        self.warm_since = None;
    }

    fn unmap(self) {
        // SAFETY: nobody uses it, and it is forgotten with this. Unmapping a whole mapping can't
        // fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn mapping(pages: usize, warm_since: Option<Instant>) -> Mapping {
        Mapping { start: NonNull::dangling(), len: pages << 12, warm_since }
    }

    fn lengths(attic: &Attic) -> Vec<usize> {
        let pages: Vec<_> = attic.kept.iter().map(|mapping| mapping.len >> 12).collect();
        assert_eq!(attic.bytes, pages.iter().sum::<usize>() << 12);
        pages
    }

    fn attic_of(kept: impl IntoIterator<Item = Mapping>) -> Attic {
        let mut attic = Attic { kept: Vec::new(), bytes: 0, caretaker: None };
        kept.into_iter().for_each(|mapping| attic.put(mapping));
        attic
    }

    #[test]
    fn the_newest_that_fits_is_taken_and_the_oldest_leaves() {
        let mut attic = attic_of([8, 9, 30, 10, 11].map(|pages| mapping(pages, None)));
        assert_eq!(attic.take(8 << 12).unwrap().len >> 12, 10);
        assert!(attic.take(31 << 12).is_none());
        assert_eq!(lengths(&attic), [8, 9, 30, 11]);
        assert_eq!(attic.surplus(42 << 12).len(), 2);
        assert_eq!(lengths(&attic), [30, 11]);
    }

    #[test]
    fn what_was_warm_for_long_is_due_and_all_of_it_when_memory_is_short() {
        let now = Instant::now();
        let kept = || {
            let ages = [None, Some(6), Some(5), Some(1)].into_iter().zip(1..);
            ages.map(|(age, pages)| {
                mapping(pages, age.and_then(|age: u32| now.checked_sub(age * SECOND)))
            })
        };
        for (oldest, due, stay) in
            [(now.checked_sub(4 * SECOND), vec![2, 3], vec![1, 4]), (None, vec![2, 3, 4], vec![1])]
        {
            let mut attic = attic_of(kept());
            let mut taken = attic.take_due(oldest).unwrap();
            assert_eq!(taken.iter().map(|mapping| mapping.len >> 12).collect::<Vec<_>>(), due);
            assert_eq!(lengths(&attic), stay);
            for mapping in &mut taken {
                mapping.warm_since = None;
            }
            attic.put_back(taken);
            assert_eq!(lengths(&attic), [1, 2, 3, 4]);
        }
    }

    #[test]
    fn the_caretaker_leaves_when_nothing_is_warm() {
        let mut attic = attic_of([mapping(1, None)]);
        attic.caretaker = Some(process_id());
        assert!(attic.has_caretaker());
        assert!(attic.take_due(None).is_none());
        assert_eq!(attic.caretaker, None);
    }

    #[test]
    fn what_is_left_to_the_process_says_whether_memory_is_short() {
        let short = |total: u64, limit: Option<u64>, available: u64| {
            is_short(&Headroom { total: total << 30, limit, available: available << 20 })
        };
        assert!(short(64, None, 8191) && !short(64, None, 8192), "an eighth of the machine");
        assert!(short(64, Some(4 << 30), 1023), "too little for a small container");
        assert!(!short(64, Some(4 << 30), 1024), "enough for it");
    }

    #[test]
    fn memory_is_told_as_free_once_it_was_warm_and_not_before() {
        use crate::memory::Buffer;
        // A length that no other test uses.
        let mut buffer = Buffer::recycled(83 << 20).unwrap();
        buffer.fill(1);
        let start = format!("{:x}-", buffer.as_ptr().addr());
        let free = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let inside = maps.split_once(&start).unwrap().1;
            let line = inside.lines().find_map(|line| line.strip_prefix("LazyFree:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        };
        drop(buffer);
        assert!(memory_is_short() || free() == 0);
        let kept = Instant::now();
        while free() < 83 << 20 {
            assert!(kept.elapsed() < 10 * WARM, "the caretaker does not come");
            thread::sleep(LOOK_EVERY);
        }
        assert!(kept.elapsed() > WARM / 2 || memory_is_short());
    }
}
