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

/// Pages that are found at this speed were there before: 50 GB/s.
const THERE_NS: f64 = 20_000.0;

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
    /// The size that is believed to be made faster.
    fn better(&self) -> Pages {
        match (self.huge, self.small) {
            (None, _) => Pages::Huge,
            (Some(huge), _) if huge <= FINE_NS => Pages::Huge,
            (Some(huge), Some(small)) if huge <= small => Pages::Huge,
            _ => Pages::Small,
        }
    }

    /// The size for the next `bytes`: the better one, or a look at the other.
    fn choose(&mut self, bytes: usize) -> Pages {
        let better = self.better();
        self.since_look = self.since_look.saturating_add(bytes);
        let is_settled = self.huge.is_none_or(|huge| huge <= FINE_NS) || self.small.is_none();
        if is_settled || self.since_look < LOOK_AGAIN_BYTES {
            return better;
        }
        self.since_look = 0;
        if better == Pages::Huge { Pages::Small } else { Pages::Huge }
    }

    fn learn(&mut self, pages: Pages, ns: f64) {
        if ns < THERE_NS {
            return;
        }
        let cost = if pages == Pages::Huge { &mut self.huge } else { &mut self.small };
        *cost = Some(cost.map_or(ns, |cost| f64::midpoint(cost, ns)));
    }
}

fn costs() -> MutexGuard<'static, Costs> {
    COSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether memory comes in huge pages here, as far as is known: they are made no slower than small ones.
pub(crate) fn huge_pages_pay() -> bool {
    costs().better() == Pages::Huge
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
    let pages = costs().choose(part.len());
    let began = Instant::now();
    // SAFETY: the caller's promise.
    unsafe { advised.tell(start, len, pages) };
    if complete(part) && part.len() >= MEASURED_BYTES_MIN {
        let ns = began.elapsed().as_nanos() as f64 / (part.len() as f64 / f64::from(1 << 20));
        costs().learn(pages, ns);
    }
}

/// Makes the pages of `memory` that are missing, of whatever size; whether the kernel could.
pub(crate) fn complete(memory: &mut [u8]) -> bool {
    let range = memory.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(ALIGNMENT);
    let end = range.end as usize / ALIGNMENT * ALIGNMENT;
    let len = end.saturating_sub(start);
    if len == 0 {
        return true;
    }
    let start = memory.as_mut_ptr().wrapping_add(start - range.start as usize);
    // SAFETY: whole pages of memory that is borrowed for writing. The advice does not change what it
    // contains.
    unsafe { madvise(start.cast(), len, Advice::LinuxPopulateWrite) }.is_ok()
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
