//! Saves of one path take effect in the order in which they began.
//!
//! Two saves of a path may write their drafts side by side; only publishing waits. Whoever began
//! last is what the path shows in the end, however long the others took.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

use crate::memory::process_id;

/// Everybody in line, by path, in the order of beginning. An entry lasts as long as its [`Turn`].
static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);
static MOVED: Condvar = Condvar::new();

#[derive(Default)]
struct Lines {
    begun: u64,
    waiting: HashMap<Place, BTreeSet<u64>>,
}

/// A path in one process: a forked child is in no line of its parent's, which would never move.
type Place = (u32, PathBuf);

/// A place in the line for a path; left when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    place: Place,
    number: u64,
}

impl Turn {
    pub fn begin(path: &Path) -> Self {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.begun += 1;
        let number = lines.begun;
        let place = (process_id(), path.to_owned());
        lines.waiting.entry(place.clone()).or_default().insert(number);
        Self { place, number }
    }

    /// Waits until nobody who began earlier is left.
    pub fn wait(&self) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.waiting[&self.place].first() != Some(&self.number) {
            lines = MOVED.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.waiting.get_mut(&self.place) {
            line.remove(&self.number);
            if line.is_empty() {
                lines.waiting.remove(&self.place);
            }
        }
        MOVED.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_later_turn_waits_for_the_earlier_ones_of_its_path_only() {
        let order = Mutex::new(Vec::new());
        let (first, second) = (Turn::begin("/a".as_ref()), Turn::begin("/a".as_ref()));
        let other = Turn::begin("/b".as_ref());
        other.wait();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                second.wait();
                order.lock().unwrap().push(2);
                drop(second);
            });
            first.wait();
            order.lock().unwrap().push(1);
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [1, 2]);
    }

    #[test]
    fn whoever_gives_up_is_not_waited_for() {
        let (first, second) = (Turn::begin("/c".as_ref()), Turn::begin("/c".as_ref()));
        drop(first);
        second.wait();
    }
}
