//! Work on many things that a few threads do side by side, as when a list is made.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Result;
use crate::threads::on_threads;

/// Does `work` for every number below `count` on up to `threads` threads. Gives the results in
/// order, or the failure with the lowest number among those that happened; after a failure nothing
/// new is begun.
pub(super) fn side_by_side<T: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let take = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            let result = work(at);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((at, result));
        }
        Ok(done)
    };
    let done = on_threads(threads.min(count), take)?;
    let mut all: Vec<_> = done.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn results_come_in_order_whatever_the_threads_do() {
        for threads in [0, 1, 3, 100] {
            let squares = side_by_side(threads, 50, |at| Ok(at * at)).unwrap();
            assert_eq!(squares, (0..50).map(|at| at * at).collect::<Vec<_>>());
        }
        assert!(side_by_side(4, 0, |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn a_failure_is_told_and_stops_the_rest() {
        let done = AtomicUsize::new(0);
        let result = side_by_side(1, 50, |at| {
            done.fetch_add(1, Ordering::Relaxed);
            if at == 3 { Err(Error::invalid("three")) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err().to_string(), "three");
        assert_eq!(done.into_inner(), 4);
    }
}
