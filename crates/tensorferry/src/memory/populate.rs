//! Memory made ready before it is needed, in pages of the size that is cheaper here.
//!
//! A page that a transfer meets for the first time is made by the kernel in the middle of the
//! transfer, by the one thread that starts it. Whoever is about to use a range makes its pages
//! first, on its own thread.
//!
//! Huge pages are made some ten times faster than small ones, as a rule. In a virtual machine that
//! gives its free memory back to the host it can be the other way round, because it is the large
//! free ranges that were given back. So both are timed, and the better one is used until it is time
//! to look again.
//!
//! The kernel is told about a mapping as a whole, and only when the choice has changed: advice waits
//! until nobody makes pages in the process any more, and makes others wait behind it. Told range by
//! range, threads that make pages side by side would take turns.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::mm::{Advice, madvise};

use super::buffer::ALIGNMENT;

/// Shorter ranges tell nothing about speed.
const MEASURED_BYTES_MIN: usize = 1 << 20;

/// Pages made at this speed are good enough not to look further, in nanoseconds a MiB: 4 GB/s.
const FINE_NS: f64 = 250_000.0;

/// How many bytes use the better size before the other one is tried again.
const LOOK_AGAIN_BYTES: usize = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    Huge,
    Small,
}

/// What making pages has cost lately, in nanoseconds a MiB.
#[derive(Debug)]
struct Costs {
    huge: Option<f64>,
    small: Option<f64>,
    /// Bytes since the other size was tried.
    since_look: usize,
}

static COSTS: Mutex<Costs> = Mutex::new(Costs { huge: None, small: None, since_look: 0 });

impl Costs {
    /// The size for the next `bytes`: the one that is believed to be made faster, or a look at the other.
    fn choose(&mut self, bytes: usize) -> Pages {
        self.since_look = self.since_look.saturating_add(bytes);
        let better = match (self.huge, self.small) {
            (None, _) => return Pages::Huge,
            (Some(huge), _) if huge <= FINE_NS => return Pages::Huge,
            (Some(_), None) => return Pages::Small,
            (Some(huge), Some(small)) if huge <= small => Pages::Huge,
            _ => Pages::Small,
        };
        if self.since_look < LOOK_AGAIN_BYTES {
            return better;
        }
        self.since_look = 0;
        if better == Pages::Huge { Pages::Small } else { Pages::Huge }
    }

    fn learn(&mut self, pages: Pages, ns: f64) {
        let cost = if pages == Pages::Huge { &mut self.huge } else { &mut self.small };
        *cost = Some(cost.map_or(ns, |cost| f64::midpoint(cost, ns)));
    }
}

fn costs() -> MutexGuard<'static, Costs> {
    COSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the kernel was told about the pages of a mapping.
#[derive(Debug, Default)]
pub(super) struct Advised(AtomicU8);

impl Advised {
    /// Tells the kernel, unless it was told so last. Two threads that disagree may leave the advice of
    /// either: that costs speed only.
    ///
    /// # Safety
    /// `start` is a mapping of `len` bytes.
    unsafe fn tell(&self, start: NonNull<u8>, len: usize, pages: Pages) {
        let (number, advice) = match pages {
            Pages::Huge => (1, Advice::LinuxHugepage),
            Pages::Small => (2, Advice::LinuxNoHugepage),
        };
        if self.0.swap(number, Ordering::Relaxed) != number {
            // SAFETY: a mapping, as the caller promises. Neither advice changes what it contains;
            // refused advice costs speed only.
            let _ = unsafe { madvise(start.as_ptr().cast(), len, advice) };
        }
    }
}

/// Makes the pages of `part` of a mapping, which keeps its content. Where the kernel can't, they are
/// made as they are touched.
///
/// # Safety
/// `start` is a mapping of `len` bytes, of which `part` is one.
pub(super) unsafe fn populate(
    part: &mut [u8],
    (start, len): (NonNull<u8>, usize),
    advised: &Advised,
) {
    let bytes = part.len();
    let Some(missing) = Missing::of(part) else { return };
    let pages = costs().choose(bytes);
    let began = Instant::now();
    // SAFETY: the caller's promise.
    unsafe { advised.tell(start, len, pages) };
    if missing.make() && bytes >= MEASURED_BYTES_MIN {
        let ns = began.elapsed().as_nanos() as f64 / (bytes as f64 / f64::from(1 << 20));
        costs().learn(pages, ns);
    }
}

/// Makes the pages of `memory` that are missing, of whatever size.
pub(crate) fn complete(memory: &mut [u8]) {
    if let Some(missing) = Missing::of(memory) {
        missing.make();
    }
}

/// Whole pages of memory, not all of which are there.
struct Missing<'a>(&'a mut [u8]);

impl<'a> Missing<'a> {
    /// `None` if all are there. To ask takes microseconds, to make pages that are there takes as long as
    /// copying them.
    fn of(memory: &'a mut [u8]) -> Option<Self> {
        let start = memory.as_ptr().addr();
        let front = (start.next_multiple_of(ALIGNMENT) - start).min(memory.len());
        let len = (memory.len() - front) / ALIGNMENT * ALIGNMENT;
        let pages = &mut memory[front..front + len];
        (!pages.chunks(ASKED_BYTES).all(is_there)).then_some(Self(pages))
    }

    /// Whether the kernel could.
    fn make(self) -> bool {
        let Self(pages) = self;
        // SAFETY: whole pages of memory that is borrowed for writing. The advice does not change what it
        // contains.
        let made =
            unsafe { madvise(pages.as_mut_ptr().cast(), pages.len(), Advice::LinuxPopulateWrite) };
        made.is_ok()
    }
}

/// Bytes about which the kernel is asked at once: two MiB.
const ASKED_BYTES: usize = ASKED_PAGES * ALIGNMENT;
const ASKED_PAGES: usize = 512;

/// Whether every page of at most [`ASKED_BYTES`] is there, which start at a page's border.
fn is_there(memory: &[u8]) -> bool {
    let mut found = [0u8; ASKED_PAGES];
    let start = memory.as_ptr().cast_mut().cast();
    // SAFETY: the kernel looks at its tables of these pages only, and writes a byte for each: pages are
    // no smaller than `ALIGNMENT`, so there is room for them.
    let failed = unsafe { libc::mincore(start, memory.len(), found.as_mut_ptr()) };
    let pages = memory.len().div_ceil(rustix::param::page_size());
    // Only the lowest bit is defined.
    failed == 0 && found[..pages].iter().all(|page| page & 1 == 1)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::memory::{Block, Buffer, Parts};

    #[test]
    fn populating_keeps_the_content() {
        let mut memory = Block::from(Buffer::zeroed(5 << 20).unwrap());
        memory.as_mut().unwrap()[3 << 20] = 7;
        memory.populate();
        let mut parts = Parts::new(memory);
        let [mut front, mut back] = [100, 4 << 20].map(|len| Block::from(parts.cut(len)));
        front.populate();
        back.populate();
        drop((front, back));
        let mut memory = parts.join().unwrap();
        complete(memory.as_mut().unwrap());
        complete(&mut memory.as_mut().unwrap()[100..]);
        assert_eq!(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7);
    }

    #[test]
    fn only_pages_that_are_missing_are_made() {
        let mut memory = Buffer::zeroed(5 << 20).unwrap();
        assert!(Missing::of(&mut memory).is_some_and(Missing::make));
        assert!(Missing::of(&mut memory).is_none());
        assert!(Missing::of(&mut memory[100..4000]).is_none(), "less than a page");
        let last = memory.last_chunk_mut::<ALIGNMENT>().unwrap();
        // SAFETY: a page of the buffer, which is zeros again when it is touched next.
        let taken = unsafe { madvise(last.as_mut_ptr().cast(), ALIGNMENT, Advice::LinuxDontNeed) };
        taken.unwrap();
        assert!(Missing::of(&mut memory).is_some());
    }

    #[test]
    fn the_kernel_is_told_only_what_is_new_to_it() {
        let buffer = Buffer::zeroed(4 << 20).unwrap();
        let advised = Advised::default();
        let flags = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let inside = maps.split_once(&format!("{:x}-", buffer.start().as_ptr() as usize));
            let flags = inside.unwrap().1.lines().find(|line| line.starts_with("VmFlags")).unwrap();
            (flags.contains(" hg"), flags.contains(" nh"))
        };
        for (pages, told) in [(Pages::Small, (false, true)), (Pages::Huge, (true, false))] {
            // SAFETY: the buffer is a mapping of this length.
            unsafe { advised.tell(buffer.start(), 4 << 20, pages) };
            assert_eq!(flags(), told);
        }
        // SAFETY: as above.
        let _ =
            unsafe { madvise(buffer.start().as_ptr().cast(), 4 << 20, Advice::LinuxNoHugepage) };
        // SAFETY: as above.
        unsafe { advised.tell(buffer.start(), 4 << 20, Pages::Huge) };
        assert_eq!(flags(), (false, true), "it was told so before, for all we know");
    }

    #[test]
    fn the_cheaper_pages_are_used_and_the_others_looked_at_again() {
        let mut costs = Costs { huge: None, small: None, since_look: 0 };
        let cost = |pages| if pages == Pages::Huge { 3e6 } else { 5e5 };
        let mut huge = 0;
        for _ in 0..1000 {
            let pages = costs.choose(LOOK_AGAIN_BYTES / 100);
            costs.learn(pages, cost(pages));
            huge += u32::from(pages == Pages::Huge);
        }
        assert!((2..=11).contains(&huge), "{huge}");
    }

    #[test]
    fn fast_huge_pages_are_never_left() {
        let mut costs = Costs { huge: None, small: None, since_look: 0 };
        for _ in 0..1000 {
            assert_eq!(costs.choose(LOOK_AGAIN_BYTES / 10), Pages::Huge);
            costs.learn(Pages::Huge, 1e5);
        }
    }
}
