//! The interleavings of claims, of what is given back, and of a limit that changes, tried by loom. A
//! wake-up that is lost shows as a deadlock, which loom reports: time stands still, so that nothing is
//! looked at again by itself.

use super::*;
use crate::sync::thread;

/// Numbers of these are claimed; a limit is a few of them.
const UNIT: u64 = LIMIT_MIN;

/// Tries every interleaving of two threads, and those of three threads in which at most two
/// preemptions come on top of the switches where a thread blocks or ends.
fn explore(threads: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if threads > 2 { 2 } else { 3 });
    builder.check(model);
}

fn limited(units: u64) -> (Ledger, Account) {
    let ledger = Ledger::new();
    ledger.set_limit(Some(units * UNIT)).unwrap();
    let account = ledger.open("needed", Priority::Needed);
    (ledger, account)
}

fn used(ledger: &Ledger) -> u64 {
    ledger.0.used.load(SeqCst) / UNIT
}

/// A claim of so many, or of none. An error would read all accounts, which is not what is tried.
fn claim(account: &Account, units: u64) -> Claim {
    let mut claim = account.nothing();
    claim.try_grow(units * UNIT);
    claim
}

fn wait_for(account: &Account, units: u64) -> Claim {
    account.claim_within(units * UNIT, PATIENCE).unwrap()
}

#[test]
fn loom_two_claims_are_never_above_the_limit() {
    explore(2, || {
        let (ledger, account) = limited(2);
        let other = account.clone();
        let there = thread::spawn(move || claim(&other, 2));
        let here = claim(&account, 1);
        let there = there.join().unwrap();
        assert!(here.held() + there.held() <= 2 * UNIT);
        drop((here, there));
        assert_eq!(used(&ledger), 0);
    });
}

#[test]
fn loom_what_is_given_back_wakes_who_waits() {
    explore(2, || {
        let (ledger, account) = limited(2);
        let held = claim(&account, 2);
        let other = account.clone();
        let waiting = thread::spawn(move || drop(wait_for(&other, 1)));
        drop(held);
        waiting.join().unwrap();
        assert_eq!((used(&ledger), ledger.0.turns.awaited()), (0, 0));
    });
}

#[test]
fn loom_all_who_wait_are_served() {
    explore(3, || {
        let (ledger, account) = limited(2);
        let held = claim(&account, 2);
        let waiting = [2, 1].map(|units| {
            let account = account.clone();
            thread::spawn(move || drop(wait_for(&account, units)))
        });
        drop(held);
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
        assert_eq!((used(&ledger), ledger.0.turns.awaited()), (0, 0));
    });
}

#[test]
fn loom_a_limit_that_was_lowered_holds_from_then_on() {
    explore(2, || {
        let (ledger, account) = limited(3);
        let other = account.clone();
        let claiming = thread::spawn(move || claim(&other, 2));
        let was_set = ledger.change_limit(UNIT).is_ok();
        let claimed = claiming.join().unwrap().held() / UNIT;
        // While it was tried, the claim may have seen the lower one.
        assert!(claimed == 0 || (!was_set && claimed == 2));
        assert_eq!(ledger.limit(), Some(if was_set { UNIT } else { 3 * UNIT }));
        assert_eq!(used(&ledger), 0);
    });
}

#[test]
fn loom_a_limit_that_is_raised_wakes_who_waits() {
    explore(2, || {
        let (ledger, account) = limited(1);
        let _held = claim(&account, 1);
        let other = account.clone();
        let waiting = thread::spawn(move || drop(wait_for(&other, 1)));
        ledger.set_limit(Some(2 * UNIT)).unwrap();
        waiting.join().unwrap();
    });
}
