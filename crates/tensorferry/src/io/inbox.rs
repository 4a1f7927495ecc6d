//! A bounded queue from many callers to one driver that sleeps while there is nothing to do.
//!
//! The driver takes everything out at once. Before it sleeps it says so, under the same lock under
//! which it last looked: a caller that comes later sees it and rings. So a busy driver costs its
//! callers no system call, an idle one costs the machine nothing, and no item is left lying beside
//! a driver that sleeps.
//!
//! The inbox is *open* until it is closed with a reason; what comes later is given back with it.
//! Each of the four lanes has its own bound on items put in and not yet finished, so that no crowd
//! keeps a consumer outside.

use crate::interrupt;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

const INTERRUPTED: &str = "the caller was interrupted while it waited for room";

pub(super) struct Inbox<T> {
    /// Items of one lane put in and not yet finished.
    open_max: usize,
    state: Mutex<State<T>>,
    room: Condvar,
}

struct State<T> {
    items: Vec<T>,
    /// Items put in and not yet finished, by lane.
    open: [usize; 4],
    asleep: bool,
    closed: Option<&'static str>,
}

/// What the driver took out.
pub(super) struct Delivery<T> {
    pub items: Vec<T>,
    /// Nothing is open and nothing more will come.
    pub is_last: bool,
}

impl<T> Inbox<T> {
    pub(super) fn new(open_max: usize) -> Self {
        let state = State { items: Vec::new(), open: [0; 4], asleep: false, closed: None };
        Self { open_max, state: Mutex::new(state), room: Condvar::new() }
    }

    /// Puts an item in; waits while too many of its lane are open, unless it `may_wait` not. Gives
    /// it back with the reason when the inbox is closed or the caller interrupted. `ring` wakes the driver.
    pub(super) fn put(
        &self,
        lane: usize,
        item: T,
        may_wait: bool,
        ring: impl FnOnce(),
    ) -> Result<(), (T, &'static str)> {
        let mut state = match self.let_in(lane, may_wait) {
            Ok(state) => state,
            Err(why) => return Err((item, why)),
        };
        state.items.push(item);
        ring_if_asleep(state, ring);
        Ok(())
    }

    /// Counts something as put in that never comes to the driver, until it has [left](Self::leave); waits
    /// as [`put`](Self::put) does.
    pub(super) fn enter(&self, lane: usize, may_wait: bool) -> Result<(), &'static str> {
        self.let_in(lane, may_wait).map(drop)
    }

    /// What had entered is done.
    pub(super) fn leave(&self, lane: usize, ring: impl FnOnce()) {
        let mut state = lock(&self.state);
        let was_full = state.open[lane] >= self.open_max;
        state.open[lane] -= 1;
        if state.is_over() {
            // The driver waits for nothing else.
            ring_if_asleep(state, ring);
        } else {
            drop(state);
        }
        if was_full {
            self.room.notify_all();
        }
    }

    /// Waits for room, and takes it.
    fn let_in(
        &self,
        lane: usize,
        may_wait: bool,
    ) -> Result<MutexGuard<'_, State<T>>, &'static str> {
        let mut state = lock(&self.state);
        while state.open[lane] >= self.open_max && state.closed.is_none() && may_wait {
            state = interrupt::wait(&self.state, &self.room, state).map_err(|_| INTERRUPTED)?;
        }
        if let Some(why) = state.closed {
            return Err(why);
        }
        state.open[lane] += 1;
        Ok(state)
    }

    /// Puts in something that counts as nobody's work and is never refused.
    pub(super) fn note(&self, item: T, ring: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.items.push(item);
        ring_if_asleep(state, ring);
    }

    /// Lets nothing more in.
    pub(super) fn close(&self, why: &'static str, ring: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.closed.get_or_insert(why);
        ring_if_asleep(state, ring);
        self.room.notify_all();
    }

    /// Takes everything out, and lets in as many as were `finished`, which becomes zero.
    pub(super) fn take(&self, finished: &mut [usize; 4]) -> Delivery<T> {
        let mut state = lock(&self.state);
        state.asleep = false;
        let made_room = *finished != [0; 4];
        for (open, finished) in state.open.iter_mut().zip(finished) {
            *open -= std::mem::take(finished);
        }
        let items = std::mem::take(&mut state.items);
        let is_last = state.is_over();
        drop(state);
        if made_room {
            self.room.notify_all();
        }
        Delivery { items, is_last }
    }

    /// Whether the driver may sleep: nothing has come in since it looked. From now on callers ring.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut state = lock(&self.state);
        // A closed inbox with nothing open is left by taking the last delivery, not by sleeping.
        state.asleep = state.items.is_empty() && !state.is_over();
        state.asleep
    }
}

impl<T> State<T> {
    /// Nothing is open and nothing more will come.
    fn is_over(&self) -> bool {
        self.closed.is_some() && self.open == [0; 4]
    }
}

fn ring_if_asleep<T>(mut state: MutexGuard<'_, State<T>>, ring: impl FnOnce()) {
    let asleep = std::mem::take(&mut state.asleep);
    drop(state);
    if asleep {
        ring();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_driver_is_rung_for_and_only_once() {
        let inbox = Inbox::new(9);
        let mut rung = 0;
        inbox.put(0, 'a', true, || rung += 1).unwrap();
        assert!(!inbox.fall_asleep(), "something lies in the inbox");
        assert_eq!(inbox.take(&mut [0; 4]).items, ['a']);
        assert!(inbox.fall_asleep());
        inbox.put(1, 'b', true, || rung += 1).unwrap();
        inbox.put(2, 'c', true, || rung += 1).unwrap();
        assert_eq!(rung, 1);
    }

    #[test]
    fn the_last_delivery_comes_when_all_is_finished() {
        let inbox = Inbox::new(9);
        inbox.put(3, 'a', true, || ()).unwrap();
        inbox.close("over", || ());
        assert_eq!(inbox.put(3, 'b', true, || ()), Err(('b', "over")));
        assert!(!inbox.take(&mut [0; 4]).is_last);
        assert!(inbox.take(&mut [0, 0, 0, 1]).is_last);
    }

    #[test]
    fn who_has_entered_takes_room_and_keeps_the_inbox_from_being_over() {
        let inbox = Inbox::new(1);
        inbox.enter(0, true).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| inbox.put(0, 'a', true, || ()));
            inbox.leave(0, || unreachable!("nobody sleeps"));
            waiter.join().unwrap().unwrap();
        });
        inbox.take(&mut [1, 0, 0, 0]);
        inbox.enter(0, true).unwrap();
        inbox.close("over", || ());
        assert_eq!(inbox.enter(1, true), Err("over"));
        assert!(!inbox.take(&mut [0; 4]).is_last && inbox.fall_asleep());
        let mut rung = false;
        inbox.leave(0, || rung = true);
        assert!(rung && inbox.take(&mut [0; 4]).is_last);
    }

    #[test]
    fn a_full_lane_keeps_no_other_lane_outside() {
        let inbox = Inbox::new(1);
        inbox.put(3, 'a', true, || ()).unwrap();
        inbox.put(0, 'b', true, || ()).unwrap();
        inbox.put(3, 'c', false, || ()).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| inbox.put(0, 'd', true, || ()));
            inbox.take(&mut [1, 0, 0, 0]);
            waiter.join().unwrap().unwrap();
        });
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, wait};
    use loom::thread;

    /// What a backend's waker is: a bell that remembers being rung.
    #[derive(Default)]
    struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        fn ring(&self) {
            *lock(&self.rung) = true;
            self.changed.notify_one();
        }

        fn sleep(&self) {
            let mut rung = lock(&self.rung);
            while !*rung {
                rung = wait(&self.changed, rung, None).0;
            }
            *rung = false;
        }
    }

    /// A driver as in `Driver::run`, whose work is done as soon as it is taken out.
    fn drive(inbox: &Inbox<usize>, bell: &Bell) -> usize {
        let (mut finished, mut sum) = ([0; 4], 0);
        loop {
            let delivery = inbox.take(&mut finished);
            for item in delivery.items {
                finished[0] += 1;
                sum += item;
            }
            if delivery.is_last {
                return sum;
            }
            if finished == [0; 4] && inbox.fall_asleep() {
                bell.sleep();
            }
        }
    }

    #[test]
    fn loom_no_item_is_left_beside_a_sleeping_driver() {
        loom::model(|| {
            let (inbox, bell) = (Arc::new(Inbox::new(1)), Arc::new(Bell::default()));
            let caller = {
                let (inbox, bell) = (Arc::clone(&inbox), Arc::clone(&bell));
                thread::spawn(move || {
                    // The second waits for room: the bound is one.
                    inbox.put(0, 1, true, || bell.ring()).unwrap();
                    inbox.put(0, 2, true, || bell.ring()).unwrap();
                    inbox.close("over", || bell.ring());
                })
            };
            assert_eq!(drive(&inbox, &bell), 3);
            caller.join().unwrap();
        });
    }

    #[test]
    fn loom_a_driver_leaves_after_whoever_had_entered_and_does_not_sleep_on() {
        loom::model(|| {
            let (inbox, bell) = (Arc::new(Inbox::<usize>::new(1)), Arc::new(Bell::default()));
            let left = Arc::new(Mutex::new(false));
            inbox.enter(0, true).unwrap();
            let caller = {
                let (inbox, bell) = (Arc::clone(&inbox), Arc::clone(&bell));
                let left = Arc::clone(&left);
                thread::spawn(move || {
                    *lock(&left) = true;
                    inbox.leave(0, || bell.ring());
                })
            };
            let closer = {
                let (inbox, bell) = (Arc::clone(&inbox), Arc::clone(&bell));
                thread::spawn(move || inbox.close("over", || bell.ring()))
            };
            drive(&inbox, &bell);
            assert!(*lock(&left));
            caller.join().unwrap();
            closer.join().unwrap();
        });
    }
}
