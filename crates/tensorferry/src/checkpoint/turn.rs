//! Saves of one path take effect in the order in which they began.
//!
//! Two saves of a path may write their drafts side by side; only publishing waits. Whoever began
//! last is what the path shows in the end, however long the others took.
//!
//! A thread that waited for itself would wait for ever: a save may ask Python for a tensor, Python may
//! call a signal's handler there, and that may save too. So a second turn of one thread is refused,
//! until the first is over or another thread has taken it on.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::memory::process_id;

/// Everybody in line, by path, in the order of beginning. An entry lasts as long as its [`Turn`].
static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);
static MOVED: Condvar = Condvar::new();

#[derive(Default)]
struct Lines {
    begun: u64,
    /// With the thread that is busy with it, as long as that is the one which began.
    waiting: HashMap<Place, BTreeMap<u64, Option<ThreadId>>>,
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
    pub fn begin(path: &Path) -> Result<Self> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.begun += 1;
        let number = lines.begun;
        let place = (process_id(), path.to_owned());
        let busy = Some(thread::current().id());
        let line = lines.waiting.entry(place.clone()).or_default();
        if line.values().any(|thread| *thread == busy) {
            let why = "this thread is in the middle of a save to the same path; in a signal's handler, \
                       save to another one, or note the signal and save after this";
            return Err(Error::invalid(why).with("file", path.display()));
        }
        line.insert(number, busy);
        Ok(Self { place, number })
    }

    /// Another thread goes on with it.
    pub fn hand_over(&self) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.waiting.get_mut(&self.place) {
            line.insert(self.number, None);
        }
    }

    /// Waits until nobody who began earlier is left; an error if the caller is interrupted before.
    pub fn wait(&self) -> Result<()> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = |line: &BTreeMap<u64, _>| line.keys().next() == Some(&self.number);
        while !is_first(&lines.waiting[&self.place]) {
            drop(MOVED.wait_timeout(lines, interrupt::INTERVAL));
            interrupt::check()?;
            lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
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
    use crate::error::Kind;

    /// The second of another thread.
    fn two_turns(path: &str) -> [Turn; 2] {
        let begin = || Turn::begin(path.as_ref()).unwrap();
        [begin(), thread::scope(|scope| scope.spawn(begin).join().unwrap())]
    }

    #[test]
    fn a_later_turn_waits_for_the_earlier_ones_of_its_path_only() {
        let order = Mutex::new(Vec::new());
        let [first, second] = two_turns("/a");
        let other = Turn::begin("/b".as_ref()).unwrap();
        other.wait().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                second.wait().unwrap();
                order.lock().unwrap().push(2);
                drop(second);
            });
            first.wait().unwrap();
            order.lock().unwrap().push(1);
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [1, 2]);
    }

    #[test]
    fn a_caller_who_is_interrupted_waits_for_nobody() {
        let [_first, second] = two_turns("/f");
        let error = interrupt::heard(|| true, || second.wait()).unwrap_err();
        assert_eq!(error.kind(), Kind::Closed);
    }

    #[test]
    fn whoever_gives_up_is_not_waited_for() {
        let [first, second] = two_turns("/c");
        drop(first);
        second.wait().unwrap();
    }

    #[test]
    fn a_thread_is_refused_a_turn_in_which_it_would_wait_for_itself() {
        let first = Turn::begin("/d".as_ref()).unwrap();
        let error = Turn::begin("/d".as_ref()).unwrap_err();
        assert!(error.to_string().contains("signal's handler"), "{error}");
        Turn::begin("/e".as_ref()).unwrap();
        first.hand_over();
        let second = Turn::begin("/d".as_ref()).unwrap();
        drop(first);
        second.wait().unwrap();
    }
}
