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

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::mm::{Advice, madvise};

use super::buffer::ALIGNMENT;

/// Shorter ranges tell nothing about speed.
const MEASURED_BYTES_MIN: usize = 1 << 20;

/// Pages made at this speed are good enough not to look further, in nanoseconds a MiB: 4 GB/s.
const FINE_NS: f64 = 250_000.0;

/// Pages that are found at this speed were there before: 50 GB/s.
const THERE_NS: f64 = 20_000.0;

/// How many ranges use the better size before the other one is tried again.
const LOOK_AGAIN: u32 = 64;

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
    since_look: u32,
}

static COSTS: Mutex<Costs> = Mutex::new(Costs { huge: None, small: None, since_look: 0 });

impl Costs {
    fn choose(&mut self) -> Pages {
        self.since_look += 1;
        let better = match (self.huge, self.small) {
            (None, _) => return Pages::Huge,
            (Some(huge), _) if huge <= FINE_NS => return Pages::Huge,
            (Some(_), None) => return Pages::Small,
            (Some(huge), Some(small)) if huge <= small => Pages::Huge,
            _ => Pages::Small,
        };
        if self.since_look < LOOK_AGAIN {
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

/// Makes the pages of `memory`, which keeps its content. Where the kernel can't, they are made as
/// they are touched.
pub(crate) fn populate(memory: &mut [u8]) {
    let range = memory.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(ALIGNMENT);
    let end = range.end as usize / ALIGNMENT * ALIGNMENT;
    let len = end.saturating_sub(start);
    if len == 0 {
        return;
    }
    let start = memory.as_mut_ptr().wrapping_add(start - range.start as usize);
    let pages = COSTS.lock().unwrap_or_else(PoisonError::into_inner).choose();
    let advice = if pages == Pages::Huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    let began = Instant::now();
    // SAFETY: whole pages of memory that is borrowed for writing. Neither advice changes what it
    // contains; refused advice costs speed only.
    let _ = unsafe { madvise(start.cast(), len, advice) };
    // SAFETY: as above.
    let made = unsafe { madvise(start.cast(), len, Advice::LinuxPopulateWrite) };
    if made.is_ok() && len >= MEASURED_BYTES_MIN {
        let ns = began.elapsed().as_nanos() as f64 / (len as f64 / f64::from(1 << 20));
        COSTS.lock().unwrap_or_else(PoisonError::into_inner).learn(pages, ns);
    }
}

/// Makes the pages of `memory` that are missing, of whatever size: for memory that mostly has them.
pub(crate) fn complete(memory: &mut [u8]) {
    let start = memory.as_mut_ptr();
    if start.addr().is_multiple_of(ALIGNMENT) {
        // SAFETY: memory that is borrowed for writing, of which the kernel rounds the length up to
        // whole pages. The advice does not change what it contains.
        let _ = unsafe { madvise(start.cast(), memory.len(), Advice::LinuxPopulateWrite) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn populating_keeps_the_content() {
        let mut memory = super::super::Buffer::zeroed(5 << 20).unwrap();
        memory[3 << 20] = 7;
        populate(&mut memory);
        populate(&mut memory[100..4 << 20]);
        complete(&mut memory);
        complete(&mut memory[100..]);
        assert_eq!(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7);
    }

    #[test]
    fn the_cheaper_pages_are_used_and_the_others_looked_at_again() {
        let mut costs = Costs { huge: None, small: None, since_look: 0 };
        let cost = |pages| if pages == Pages::Huge { 3e6 } else { 5e5 };
        let mut huge = 0;
        for _ in 0..10 * LOOK_AGAIN {
            let pages = costs.choose();
            costs.learn(pages, cost(pages));
            huge += u32::from(pages == Pages::Huge);
        }
        assert!((2..=11).contains(&huge), "{huge}");
    }

    #[test]
    fn fast_huge_pages_are_never_left() {
        let mut costs = Costs { huge: None, small: None, since_look: 0 };
        for _ in 0..1000 {
            assert_eq!(costs.choose(), Pages::Huge);
            costs.learn(Pages::Huge, 1e5);
        }
    }
}
