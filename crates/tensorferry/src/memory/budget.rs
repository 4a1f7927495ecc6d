//! A budget: so many bytes, handed out as permits, given back when a permit is dropped.
//!
//! A budget owns no memory. It is the promise that all who allocate under one name stay, together,
//! below its limit: whoever wants bytes gets a [`Permit`] first and keeps it for as long as the
//! bytes live. `used` is the sum of all live permits and never exceeds `limit`.
//!
//! A request goes one of these ways:
//!
//! ```text
//!              above the limit: InvalidInput      the budget is closed: Closed
//!                        ^                                   ^
//!   acquire -------------+--- fits, nobody waits --> granted |
//!                        |                              ^    |
//!                        +--- otherwise --> queued -----+----+--> deadline passed: Timeout
//! ```
//!
//! **Order.** The queue is first come, first served, and nobody passes it: as long as one request
//! waits, a later one waits behind it even if it would fit, and [`Budget::try_acquire`] fails. So
//! a large request is served as soon as the permits that were out when it came are back; small
//! ones cannot starve it. The price is that bytes may lie idle while a large request is at the
//! head. Requests of zero bytes take nothing from anyone and never wait.
//!
//! **Wake-ups.** Whoever gives bytes back serves the queue under the same lock: it adds the head's
//! bytes to `used`, takes the head out, and rings that waiter's own condition variable. A waiter
//! that finds itself outside the queue has therefore been granted; one that leaves by itself
//! (timeout, close) takes itself out under the lock, and serves those whom it held up. Nobody is
//! woken to find that there is nothing for it.
//!
//! **Bounds.** The queue holds at most one entry for each blocked thread. How long one may block is
//! the caller's to limit, with [`Budget::acquire_within`] or [`Budget::close`]. A thread that waits
//! for a second permit while it holds a first can wait for itself: acquire once and
//! [split](Permit::split).

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::size::Size;
use crate::sync::{self, Arc, Condvar, Mutex, MutexGuard};

/// So many bytes for all who share this handle; see the [module](self).
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

/// Some bytes of a [`Budget`], given back on drop.
#[must_use = "a permit that is dropped at once permits nothing"]
pub struct Permit {
    budget: Budget,
    bytes: u64,
}

struct Shared {
    name: String,
    limit: u64,
    state: Mutex<State>,
}

/// `used` is the sum of all permits; `queue` is sorted by ticket.
struct State {
    used: u64,
    peak: u64,
    closed: bool,
    next_ticket: u64,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    bytes: u64,
    bell: Arc<Condvar>,
}

impl Budget {
    /// A budget of `limit` bytes; `name` stands in its errors.
    pub fn new(name: impl Into<String>, limit: Size) -> Self {
        let state =
            State { used: 0, peak: 0, closed: false, next_ticket: 0, queue: VecDeque::new() };
        let state = Mutex::new(state);
        Self(Arc::new(Shared { name: name.into(), limit: limit.0, state }))
    }

    /// Waits for `bytes`, for as long as it takes.
    pub fn acquire(&self, bytes: u64) -> Result<Permit> {
        self.acquire_before(bytes, None)
    }

    /// Waits for `bytes` at most so long, then fails with [`Kind::Timeout`].
    pub fn acquire_within(&self, bytes: u64, limit: Duration) -> Result<Permit> {
        // A deadline beyond the clock's range is no deadline.
        self.acquire_before(bytes, Instant::now().checked_add(limit))
    }

    /// Takes `bytes` now or fails with [`Kind::OutOfMemory`].
    ///
    /// A `Result` and not an `Option`, because "not now", "never" (above the limit) and "no more"
    /// (closed) want different answers from the caller; only the first is worth another try.
    pub fn try_acquire(&self, bytes: u64) -> Result<Permit> {
        let mut state = self.admit(bytes)?;
        if state.take_if_free(bytes, self.0.limit) {
            Ok(self.permit(bytes))
        } else {
            let error = self.error(Kind::OutOfMemory, "the budget is exhausted", bytes);
            Err(error
                .with("available", Size(self.0.limit - state.used))
                .with("waiting", state.queue.len()))
        }
    }

    /// Fails all waiters, and all requests from now on, with [`Kind::Closed`]. Permits that are
    /// out stay valid.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        // Each waiter takes itself out, so that "not in the queue" keeps its one meaning: granted.
        for waiter in &state.queue {
            waiter.bell.notify_one();
        }
    }

    /// The bytes of all permits that are out.
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// The most that [`used`](Self::used) has ever been.
    pub fn peak(&self) -> u64 {
        self.lock().peak
    }

    /// The bytes that all permits together never exceed.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The number of requests in the queue.
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    fn acquire_before(&self, bytes: u64, deadline: Option<Instant>) -> Result<Permit> {
        let mut state = self.admit(bytes)?;
        if state.take_if_free(bytes, self.0.limit) {
            return Ok(self.permit(bytes));
        }
        let (ticket, bell) = state.enqueue(bytes);
        let mut in_time = true;
        loop {
            let Some(position) = state.position(ticket) else {
                return Ok(self.permit(bytes));
            };
            if state.closed || !in_time {
                state.queue.remove(position);
                state.serve(self.0.limit);
                return Err(self.gave_up(bytes, &state));
            }
            (state, in_time) = sync::wait(&bell, state, deadline);
        }
    }

    /// Refuses what can never be granted.
    fn admit(&self, bytes: u64) -> Result<MutexGuard<'_, State>> {
        if bytes > self.0.limit {
            let message = "the request is larger than the whole budget";
            return Err(self.error(Kind::InvalidInput, message, bytes));
        }
        let state = self.lock();
        if state.closed {
            return Err(self.error(Kind::Closed, "the budget is closed", bytes));
        }
        Ok(state)
    }

    #[cold]
    fn gave_up(&self, bytes: u64, state: &State) -> Error {
        if state.closed {
            return self.error(Kind::Closed, "the budget was closed while waiting for it", bytes);
        }
        self.error(Kind::Timeout, "waited too long for the budget", bytes)
            .with("available", Size(self.0.limit - state.used))
            .with("waiting", state.queue.len())
    }

    #[cold]
    fn error(&self, kind: Kind, message: &str, bytes: u64) -> Error {
        Error::new(kind, message)
            .with("budget", &self.0.name)
            .with("requested", Size(bytes))
            .with("limit", Size(self.0.limit))
    }

    fn permit(&self, bytes: u64) -> Permit {
        Permit { budget: self.clone(), bytes }
    }

    fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.used -= bytes;
        state.serve(self.0.limit);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.0.state)
    }
}

impl State {
    fn take_if_free(&mut self, bytes: u64, limit: u64) -> bool {
        let free = bytes == 0 || (self.queue.is_empty() && bytes <= limit - self.used);
        if free {
            self.take(bytes);
        }
        free
    }

    /// Grants from the head of the queue, as far as the bytes reach.
    fn serve(&mut self, limit: u64) {
        // After close nobody is granted: the waiters are on their way out.
        while !self.closed
            && let Some(head) = self.queue.pop_front_if(|head| head.bytes <= limit - self.used)
        {
            self.take(head.bytes);
            head.bell.notify_one();
        }
    }

    fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    fn enqueue(&mut self, bytes: u64) -> (u64, Arc<Condvar>) {
        let (ticket, bell) = (self.next_ticket, Arc::new(Condvar::new()));
        self.next_ticket += 1;
        self.queue.push_back(Waiter { ticket, bytes, bell: bell.clone() });
        (ticket, bell)
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}

impl Permit {
    /// The bytes that this permit stands for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but `bytes`: the size turned out smaller than feared.
    pub fn shrink_to(&mut self, bytes: u64) -> Result<()> {
        drop(self.split(self.checked_rest(bytes)?)?);
        Ok(())
    }

    /// Moves `bytes` of this permit into one of their own.
    pub fn split(&mut self, bytes: u64) -> Result<Permit> {
        self.bytes = self.checked_rest(bytes)?;
        Ok(self.budget.permit(bytes))
    }

    /// Moves all bytes of `other` into this permit and leaves it empty. Permits of two budgets do
    /// not mix: then it is an error, and both stay as they are.
    pub fn merge(&mut self, other: &mut Permit) -> Result<()> {
        if !Arc::ptr_eq(&self.budget.0, &other.budget.0) {
            return Err(Error::invalid("permits of two budgets do not merge")
                .with("budget", &self.budget.0.name)
                .with("other", &other.budget.0.name));
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// What is left when `bytes` go.
    fn checked_rest(&self, bytes: u64) -> Result<u64> {
        self.bytes.checked_sub(bytes).ok_or_else(|| {
            Error::invalid("a permit holds fewer bytes than were asked of it")
                .with("budget", &self.budget.0.name)
                .with("requested", Size(bytes))
                .with("permit", Size(self.bytes))
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // An empty permit gives nothing back, so nobody can be served by it.
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = (Size(self.used()), Size(self.0.limit));
        write!(f, "Budget({:?}: {used} of {limit})", self.0.name)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({} of {:?})", Size(self.bytes), self.budget.0.name)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(30);

    fn wait_until_queued(budget: &Budget, requests: usize) {
        let start = Instant::now();
        while budget.waiting() != requests {
            assert!(start.elapsed() < LONG, "{} wait, not {requests}", budget.waiting());
            thread::yield_now();
        }
    }

    #[test]
    fn a_dropped_permit_gives_its_bytes_back() {
        let budget = Budget::new("staging", Size(10));
        let permit = budget.acquire(7).unwrap();
        assert_eq!((budget.used(), permit.bytes()), (7, 7));
        drop(permit);
        assert_eq!((budget.used(), budget.peak(), budget.limit()), (0, 7, 10));
    }

    #[test]
    fn a_request_above_the_limit_fails_at_once_and_states_the_limit() {
        let budget = Budget::new("staging", Size(8 << 20));
        for result in [
            budget.acquire((8 << 20) + 1),
            budget.try_acquire(u64::MAX),
            budget.acquire_within(u64::MAX, LONG),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidInput);
            assert!(!error.is_retryable());
            assert!(error.to_string().contains("budget: staging"), "{error}");
            assert!(error.to_string().contains("limit: 8 MiB"), "{error}");
        }
    }

    #[test]
    fn a_try_on_an_exhausted_budget_says_what_is_available() {
        let budget = Budget::new("staging", Size(3072));
        let _held = budget.acquire(2048).unwrap();
        let error = budget.try_acquire(2048).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfMemory);
        assert!(error.is_retryable());
        assert_eq!(
            error.to_string(),
            "the budget is exhausted (budget: staging, requested: 2 KiB, limit: 3 KiB, \
             available: 1 KiB, waiting: 0)"
        );
        assert_eq!(budget.try_acquire(1024).unwrap().bytes(), 1024);
    }

    #[test]
    fn a_wait_that_takes_too_long_ends_in_a_timeout() {
        let budget = Budget::new("staging", Size(10));
        let held = budget.acquire(10).unwrap();
        let start = Instant::now();
        let error = budget.acquire_within(1, SHORT).unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(start.elapsed() >= SHORT);
        assert_eq!(budget.waiting(), 0);
        drop(held);
        assert_eq!(budget.acquire_within(10, Duration::ZERO).unwrap().bytes(), 10);
        assert_eq!(budget.acquire_within(10, Duration::MAX).unwrap().bytes(), 10);
    }

    #[test]
    fn a_waiter_that_times_out_at_the_head_lets_those_behind_it_go() {
        let budget = Budget::new("staging", Size(10));
        let _held = budget.acquire(5).unwrap();
        thread::scope(|scope| {
            let large = scope.spawn(|| budget.acquire_within(10, 5 * SHORT));
            wait_until_queued(&budget, 1);
            let small = scope.spawn(|| budget.acquire_within(5, LONG));
            assert_eq!(large.join().unwrap().unwrap_err().kind(), Kind::Timeout);
            assert_eq!(small.join().unwrap().unwrap().bytes(), 5);
        });
    }

    #[test]
    fn small_requests_do_not_starve_a_large_one() {
        let budget = Budget::new("staging", Size(10));
        let held = budget.acquire(5).unwrap();
        thread::scope(|scope| {
            let large = scope.spawn(|| budget.acquire_within(10, LONG).map(|p| p.bytes()));
            wait_until_queued(&budget, 1);
            assert_eq!(budget.try_acquire(1).unwrap_err().kind(), Kind::OutOfMemory);
            let small = scope.spawn(|| budget.acquire_within(1, LONG).map(|p| p.bytes()));
            wait_until_queued(&budget, 2);
            drop(held);
            assert_eq!(large.join().unwrap().unwrap(), 10);
            assert_eq!(small.join().unwrap().unwrap(), 1);
        });
    }

    #[test]
    fn waiters_are_served_in_the_order_in_which_they_came() {
        let budget = Budget::new("staging", Size(4));
        let held = budget.acquire(4).unwrap();
        let (served, order) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..8 {
                let (budget, served) = (&budget, served.clone());
                scope.spawn(move || {
                    // The whole budget, so that the next is served only after this one sent.
                    let _permit = budget.acquire(4).unwrap();
                    served.send(number).unwrap();
                });
                wait_until_queued(budget, number + 1);
            }
            drop(held);
        });
        drop(served);
        assert_eq!(order.iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn closing_fails_waiters_and_newcomers_but_not_permits() {
        let budget = Budget::new("staging", Size(4));
        let held = budget.acquire(4).unwrap();
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| budget.acquire(1))).collect();
            wait_until_queued(&budget, 3);
            budget.close();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap().unwrap_err().kind(), Kind::Closed);
            }
        });
        assert_eq!(budget.acquire(0).unwrap_err().kind(), Kind::Closed);
        assert_eq!(budget.used(), 4);
        drop(held);
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
    }

    #[test]
    fn a_permit_of_zero_bytes_never_waits() {
        let budget = Budget::new("staging", Size(1));
        let held = budget.acquire(1).unwrap();
        assert_eq!(budget.acquire(0).unwrap().bytes(), 0);
        assert_eq!(Budget::new("nothing", Size(0)).acquire(0).unwrap().bytes(), 0);
        assert_eq!(held.bytes(), 1);
    }

    #[test]
    fn splitting_and_merging_move_bytes_and_shrinking_frees_them() {
        let budget = Budget::new("staging", Size(10));
        let mut whole = budget.acquire(10).unwrap();
        let mut part = whole.split(4).unwrap();
        assert_eq!((whole.bytes(), part.bytes(), budget.used()), (6, 4, 10));
        part.shrink_to(1).unwrap();
        assert_eq!((part.bytes(), budget.used()), (1, 7));
        whole.merge(&mut part).unwrap();
        drop(part);
        assert_eq!((whole.bytes(), budget.used()), (7, 7));
        for error in [whole.split(8).unwrap_err(), whole.shrink_to(8).unwrap_err()] {
            assert_eq!(error.kind(), Kind::InvalidInput);
        }
        assert_eq!((whole.bytes(), budget.used()), (7, 7));
    }

    #[test]
    fn permits_of_two_budgets_do_not_merge() {
        let (one, two) = (Budget::new("one", Size(1)), Budget::new("two", Size(1)));
        let (mut a, mut b) = (one.acquire(1).unwrap(), two.acquire(1).unwrap());
        assert_eq!(a.merge(&mut b).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!((a.bytes(), b.bytes(), one.used(), two.used()), (1, 1, 1, 1));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Try(u64),
        Drop(usize),
        Shrink(usize, u64),
        Split(usize, u64),
        Merge(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (index, bytes) = (0usize..8, 0u64..40);
        prop::collection::vec(
            prop_oneof![
                bytes.clone().prop_map(Step::Try),
                index.clone().prop_map(Step::Drop),
                (index.clone(), bytes.clone()).prop_map(|(i, b)| Step::Shrink(i, b)),
                (index.clone(), bytes).prop_map(|(i, b)| Step::Split(i, b)),
                (index.clone(), index).prop_map(|(i, j)| Step::Merge(i, j)),
            ],
            0..64,
        )
    }

    proptest! {
        #[test]
        fn used_is_always_the_sum_of_the_permits_that_are_out(steps in steps()) {
            let budget = Budget::new("staging", Size(100));
            let mut permits: Vec<Permit> = Vec::new();
            for step in steps {
                match step {
                    Step::Try(bytes) => permits.extend(budget.try_acquire(bytes)),
                    Step::Drop(i) if i < permits.len() => drop(permits.swap_remove(i)),
                    Step::Shrink(i, bytes) if i < permits.len() => {
                        let fits = bytes <= permits[i].bytes();
                        prop_assert_eq!(permits[i].shrink_to(bytes).is_ok(), fits);
                    }
                    Step::Split(i, bytes) if i < permits.len() => {
                        let part = permits[i].split(bytes);
                        permits.extend(part);
                    }
                    Step::Merge(i, j) if i < permits.len() && j < permits.len() && i != j => {
                        let mut other = permits.swap_remove(i.max(j));
                        permits[i.min(j)].merge(&mut other).unwrap();
                    }
                    _ => {}
                }
                prop_assert_eq!(budget.used(), permits.iter().map(Permit::bytes).sum::<u64>());
                prop_assert!(budget.used() <= budget.peak() && budget.peak() <= budget.limit());
            }
            drop(permits);
            prop_assert_eq!(budget.used(), 0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn threads_never_hold_more_than_the_limit_and_all_are_served(
            limit in 1u64..64,
            requests in prop::collection::vec(prop::collection::vec(0u64..64, 0..24), 1..6),
        ) {
            let budget = Budget::new("staging", Size(limit));
            let held = AtomicU64::new(0);
            thread::scope(|scope| {
                for list in &requests {
                    let (budget, held) = (&budget, &held);
                    scope.spawn(move || {
                        for bytes in list {
                            let bytes = bytes % (limit + 1);
                            let permit = budget.acquire_within(bytes, LONG).unwrap();
                            let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                            assert!(now <= limit, "{now} of {limit}");
                            thread::yield_now();
                            held.fetch_sub(bytes, Ordering::SeqCst);
                            drop(permit);
                        }
                    });
                }
            });
            prop_assert_eq!((budget.used(), budget.waiting()), (0, 0));
            prop_assert!(budget.peak() <= limit);
        }
    }
}

/// The interleavings of two and three threads, tried by loom. A lost wake-up shows as a deadlock,
/// which loom reports; a leaked permit as an `Arc` that is never freed.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::thread;

    /// Each thread asks for its number of bytes, of three.
    fn compete(requests: [u64; 2], here: u64) {
        let budget = Budget::new("staging", Size(3));
        let held = Arc::new(AtomicU64::new(0));
        let work = |bytes: u64| {
            let (budget, held) = (budget.clone(), held.clone());
            move || {
                let permit = budget.acquire(bytes).unwrap();
                // Only the sums matter, not what else the threads see: relaxed is enough.
                let now = held.fetch_add(bytes, Ordering::Relaxed) + bytes;
                assert!(now <= 3, "{now} of 3");
                held.fetch_sub(bytes, Ordering::Relaxed);
                drop(permit);
            }
        };
        let others = requests.map(|bytes| thread::spawn(work(bytes)));
        work(here)();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
        assert!(budget.peak() <= 3);
    }

    /// Tries every interleaving of two threads, and those of three threads in which at most three
    /// preemptions come on top of the switches where a thread blocks or ends. Without that bound
    /// three threads take hours; with it, seconds.
    fn explore(threads: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = (threads > 2).then_some(3);
        builder.check(model);
    }

    #[test]
    fn loom_threads_never_hold_more_than_the_limit_and_all_are_served() {
        explore(3, || compete([3, 2], 1));
    }

    #[test]
    fn loom_a_dropped_permit_wakes_the_waiter_at_the_head() {
        explore(3, || {
            let budget = Budget::new("staging", Size(2));
            let held = budget.acquire(2).unwrap();
            let served = Arc::new(AtomicBool::new(false));
            let first = thread::spawn({
                let (budget, served) = (budget.clone(), served.clone());
                move || {
                    let _permit = budget.acquire(2).unwrap();
                    served.store(true, Ordering::SeqCst);
                }
            });
            let second = thread::spawn({
                let budget = budget.clone();
                move || {
                    let behind = budget.waiting() == 1;
                    let _permit = budget.acquire(1).unwrap();
                    assert!(!behind || served.load(Ordering::SeqCst), "passed the queue");
                }
            });
            drop(held);
            first.join().unwrap();
            second.join().unwrap();
            assert_eq!((budget.used(), budget.waiting()), (0, 0));
        });
    }

    #[test]
    fn loom_nobody_passes_a_request_that_waits() {
        explore(2, || {
            let budget = Budget::new("staging", Size(2));
            let held = budget.acquire(1).unwrap();
            let large = thread::spawn({
                let budget = budget.clone();
                move || drop(budget.acquire(2).unwrap())
            });
            let behind = budget.waiting() == 1;
            let small = budget.try_acquire(1);
            assert!(!behind || small.is_err(), "passed the queue");
            drop(small);
            drop(held);
            large.join().unwrap();
        });
    }

    #[test]
    fn loom_shrinking_one_permit_serves_two_waiters() {
        explore(3, || {
            let budget = Budget::new("staging", Size(2));
            let mut held = budget.acquire(2).unwrap();
            let waiters = [(); 2].map(|()| {
                let budget = budget.clone();
                thread::spawn(move || budget.acquire(1).unwrap())
            });
            held.shrink_to(0).unwrap();
            // Neither gives its permit back before both have one, so each must be served by the shrink.
            let permits = waiters.map(|waiter| waiter.join().unwrap());
            assert_eq!((held.bytes(), budget.used()), (0, 2));
            drop(permits);
        });
    }

    #[test]
    fn loom_closing_fails_every_waiter_that_was_not_served() {
        explore(3, || {
            let budget = Budget::new("staging", Size(1));
            let held = budget.acquire(1).unwrap();
            let waiters = [(); 2].map(|()| {
                let budget = budget.clone();
                thread::spawn(move || match budget.acquire(1) {
                    Ok(permit) => drop(permit),
                    Err(error) => assert_eq!(error.kind(), Kind::Closed),
                })
            });
            drop(held);
            budget.close();
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
            assert_eq!((budget.used(), budget.waiting()), (0, 0));
        });
    }
}
