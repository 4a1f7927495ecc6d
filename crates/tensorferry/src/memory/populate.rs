//! Memory made ready before it is needed, in pages of the size that is cheaper here.
//!
//! A page that a transfer meets for the first time is made by the kernel in the middle of the
//! transfer, by the one thread that starts it. Whoever is about to use a range makes its pages
//! first, on its own thread.
//!
//! Huge pages are made twice as fast as small ones or better, as a rule. In a virtual machine it can be
//! the other way round: a page that its host has yet to find takes ten times as long, and it is the
//! large free ranges that nobody has used. Pages of either kind lie together. So huge pages are made
//! as long as that is fast. Behind one that was slow small ones are made for a while, and then there is
//! one look. If huge ones are soon slow again, the next while is twice as long.
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

/// How many bytes are made in small pages behind huge ones that were slow, at first and at most.
const WHILE_BYTES_MIN: usize = 16 << 20;
const WHILE_BYTES_MAX: usize = 1 << 30;

/// How many fast ones in a row are worth a slow one.
const WORTH: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    Huge,
    Small,
}

/// Which pages are made.
#[derive(Debug)]
struct Choice {
    state: State,
    /// What small ones have cost lately, in nanoseconds a MiB.
    small_ns: Option<f64>,
    /// How long the next while is.
    while_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Huge ones: so many in a row were fast.
    Huge { fast: u32 },
    /// Small ones, for so many bytes.
    Small { left: usize },
    /// Somebody makes huge ones to see, all others small ones.
    Look,
}

static CHOICE: Mutex<Choice> = Mutex::new(Choice::new());

impl Choice {
    const fn new() -> Self {
        Self { state: State::Huge { fast: 0 }, small_ns: None, while_bytes: WHILE_BYTES_MIN }
    }

    /// The pages for the next `bytes`, whose cost will be told if they are enough to tell something.
    fn next(&mut self, bytes: usize) -> Pages {
        match &mut self.state {
            State::Huge { .. } => Pages::Huge,
            State::Small { left: 0 } if bytes >= MEASURED_BYTES_MIN => {
                self.state = State::Look;
                Pages::Huge
            }
            State::Small { left } => {
                *left = left.saturating_sub(bytes);
                Pages::Small
            }
            State::Look => Pages::Small,
        }
    }

    /// Takes in what pages have cost, in nanoseconds a MiB.
    fn learn(&mut self, pages: Pages, ns: f64) {
        let fast = ns <= FINE_NS || self.small_ns.is_some_and(|small| ns <= small);
        let before = match self.state {
            State::Huge { fast } => fast,
            State::Small { .. } | State::Look => 0,
        };
        match (pages, self.state) {
            (Pages::Small, _) => {
                self.small_ns = Some(self.small_ns.map_or(ns, |small| f64::midpoint(small, ns)));
            }
            (Pages::Huge, _) if fast => {
                self.state = State::Huge { fast: before.saturating_add(1) };
                if before >= WORTH {
                    self.while_bytes = WHILE_BYTES_MIN;
                }
            }
            (Pages::Huge, State::Huge { .. } | State::Look) => {
                self.state = State::Small { left: self.while_bytes };
                self.while_bytes = (2 * self.while_bytes).min(WHILE_BYTES_MAX);
            }
            // Begun before it was known.
            (Pages::Huge, State::Small { .. }) => {}
        }
    }
}

fn choice() -> MutexGuard<'static, Choice> {
    CHOICE.lock().unwrap_or_else(PoisonError::into_inner)
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
    let pages = choice().next(bytes);
    let began = Instant::now();
    // SAFETY: the caller's promise.
    unsafe { advised.tell(start, len, pages) };
    if missing.make() && bytes >= MEASURED_BYTES_MIN {
        let ns = began.elapsed().as_nanos() as f64 / (bytes as f64 / f64::from(1 << 20));
        choice().learn(pages, ns);
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

    /// How many of so many chunks of 2 MiB are made in huge pages, of which `is_slow` says which are slow.
    fn huge_of(chunks: u32, mut is_slow: impl FnMut(u32) -> bool) -> u32 {
        let mut choice = Choice::new();
        let mut huge = 0;
        for chunk in 0..chunks {
            let pages = choice.next(2 << 20);
            huge += u32::from(pages == Pages::Huge);
            let ns = match pages {
                Pages::Small => 3e5,
                Pages::Huge if is_slow(chunk) => 2e6,
                Pages::Huge => 1.2e5,
            };
            choice.learn(pages, ns);
        }
        huge
    }

    #[test]
    fn fast_huge_pages_are_never_left() {
        assert_eq!(huge_of(1000, |_| false), 1000);
    }

    #[test]
    fn slow_ones_are_looked_at_ever_more_rarely() {
        assert_eq!(huge_of(512, |_| true), 7);
        assert!((12..=15).contains(&huge_of(512 * 8, |_| true)), "a look for each GiB");
    }

    #[test]
    fn a_slow_one_among_fast_ones_costs_one_while() {
        assert_eq!(huge_of(1000, |chunk| chunk == 100), 1000 - 8);
        assert_eq!(huge_of(1000, |chunk| chunk % 100 == 0), 1000 - 10 * 8);
        assert!(huge_of(512, |chunk| chunk % 8 == 0) < 60, "too many are slow to be worth it");
    }

    #[test]
    fn huge_ones_are_left_only_for_something_better() {
        let mut choice = Choice::new();
        let mut huge = 0;
        for _ in 0..100 {
            let pages = choice.next(2 << 20);
            huge += u32::from(pages == Pages::Huge);
            choice.learn(pages, if pages == Pages::Huge { 1.9e6 } else { 2e6 });
        }
        assert_eq!(huge, 100 - 8);
    }

    #[test]
    fn there_is_one_look_at_a_time_and_never_with_a_range_that_tells_nothing() {
        let mut choice = Choice::new();
        let first = [choice.next(2 << 20), choice.next(2 << 20)];
        assert_eq!(first, [Pages::Huge; 2]);
        choice.learn(Pages::Huge, 2e6);
        choice.learn(Pages::Huge, 2e6);
        assert_eq!(choice.state, State::Small { left: WHILE_BYTES_MIN });
        assert_eq!(choice.next(WHILE_BYTES_MIN), Pages::Small);
        assert_eq!(choice.next(MEASURED_BYTES_MIN - 1), Pages::Small);
        assert_eq!([choice.next(2 << 20), choice.next(2 << 20)], [Pages::Huge, Pages::Small]);
    }
}
