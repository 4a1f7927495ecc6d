//! What is promised of claims, of the limit, and of those who give back.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::interrupt;

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(30);

/// Somebody who keeps memory that others may have.
struct Keeps {
    account: Account,
    kept: Mutex<Vec<Claim>>,
}

impl Keeps {
    fn new(ledger: &Ledger, name: &'static str, priority: Priority) -> StdArc<Self> {
        let (account, kept) = (ledger.open(name, priority), Mutex::default());
        let keeps = StdArc::new(Self { account: account.clone(), kept });
        let keeper = StdArc::downgrade(&keeps);
        account.enlist(priority, keeper);
        keeps
    }

    fn keep(&self, bytes: u64) -> bool {
        let claim = self.account.claim(bytes);
        let is_kept = claim.is_ok();
        self.kept.lock().unwrap().extend(claim);
        is_kept
    }

    fn bytes(&self) -> u64 {
        self.kept.lock().unwrap().iter().map(Claim::held).sum()
    }
}

impl Keeper for Keeps {
    fn give_back(&self, _: Option<Instant>) -> bool {
        self.kept.lock().unwrap().clear();
        false
    }

    fn give_up(&self, bytes: u64) {
        let mut kept = self.kept.lock().unwrap();
        let mut given = 0;
        while given < bytes
            && let Some(claim) = kept.pop()
        {
            given += claim.held();
        }
    }

    fn idle(&self) -> u64 {
        self.bytes()
    }
}

fn limited(limit: u64) -> Ledger {
    let ledger = Ledger::new();
    ledger.set_limit(Some(limit)).unwrap();
    ledger
}

fn held(ledger: &Ledger, name: &str) -> u64 {
    let accounts = ledger.statement().accounts;
    accounts.iter().find(|account| account.name == name).unwrap().bytes
}

#[test]
fn what_is_claimed_is_told_and_given_back() {
    let ledger = Ledger::new();
    let account = ledger.open("batches", Priority::Needed);
    let mut claim = account.claim(7).unwrap();
    claim.grow(5).unwrap();
    assert_eq!((claim.held(), held(&ledger, "batches")), (12, 12));
    claim.shrink(2);
    claim.resize(20).unwrap();
    claim.resize(3).unwrap();
    drop(claim);
    let statement = ledger.statement();
    assert_eq!((statement.bytes, statement.limit), (0, None));
    assert_eq!((statement.accounts[0].bytes, statement.accounts[0].peak_bytes), (0, 20));
}

#[test]
fn bytes_that_are_set_aside_count_before_they_are_held_and_are_there_for_certain() {
    let ledger = limited(LIMIT_MIN);
    let account = ledger.open("activations", Priority::Needed);
    let mut first = account.reserve(LIMIT_MIN - MIB).unwrap();
    let other = account.claim(MIB).unwrap();
    assert!(account.claim(1).is_err());
    first.grow(LIMIT_MIN - MIB).unwrap();
    assert!(!first.try_grow(1));
    drop(other);
    first.grow(MIB).unwrap();
    let told = ledger.statement();
    assert_eq!((told.bytes, told.reserved_bytes), (LIMIT_MIN, 0));
    first.shrink(2 * MIB);
    let told = ledger.statement();
    assert_eq!((told.bytes, told.reserved_bytes), (LIMIT_MIN - 2 * MIB, MIB));
    drop(first);
    assert_eq!((ledger.statement().bytes, ledger.statement().reserved_bytes), (0, 0));
}

#[test]
fn a_claim_that_moves_to_another_account_is_counted_once() {
    let ledger = limited(LIMIT_MIN);
    let (from, to) =
        (ledger.open("batches", Priority::Needed), ledger.open("kept", Priority::Kept));
    let mut claim = from.claim(LIMIT_MIN).unwrap();
    claim.move_into(&to);
    assert_eq!((held(&ledger, "batches"), held(&ledger, "kept")), (0, LIMIT_MIN));
    drop(claim);
    let mut claim = from.reserve(MIB).unwrap();
    claim.grow(5).unwrap();
    claim.move_into(&to);
    assert_eq!((ledger.statement().bytes, ledger.statement().reserved_bytes), (5, 0));
    drop(claim);
    drop(from.claim(LIMIT_MIN).unwrap());
}

#[test]
fn what_is_merely_kept_goes_before_what_is_spare_and_caches_go_last() {
    let ledger = limited(LIMIT_MIN);
    let cache = Keeps::new(&ledger, "data cache", Priority::Fast);
    let spare = Keeps::new(&ledger, "activations spare", Priority::Spare);
    let kept = Keeps::new(&ledger, "kept for the next load", Priority::Kept);
    for keeps in [&cache, &spare, &kept] {
        assert!((0..4).all(|_| keeps.keep(MIB)));
    }
    let batches = ledger.open("batches", Priority::Needed);
    let mut held = Vec::new();
    let mut left = || {
        held.push(batches.claim(4 * MIB).unwrap());
        [&cache, &spare, &kept].map(|keeps| keeps.bytes() / MIB)
    };
    assert_eq!([left(), left(), left(), left()], [[4, 4, 4], [4, 4, 0], [4, 0, 0], [0, 0, 0]]);
    assert!(!cache.keep(1) && batches.claim(1).is_err());
}

#[test]
fn nobody_gives_back_for_a_lower_or_an_equal() {
    let ledger = limited(LIMIT_MIN);
    let cache = Keeps::new(&ledger, "data cache", Priority::Fast);
    let other = Keeps::new(&ledger, "another cache", Priority::Fast);
    let kept = Keeps::new(&ledger, "kept", Priority::Kept);
    assert!(cache.keep(LIMIT_MIN));
    assert!(!other.keep(1) && !kept.keep(1));
    assert_eq!(cache.bytes(), LIMIT_MIN);
}

#[test]
fn a_claim_that_does_not_fit_says_who_holds_what_and_what_to_do() {
    let ledger = limited(32 * MIB);
    let _staging = ledger.open("save staging", Priority::Needed).claim(24 * MIB).unwrap();
    let _aside = ledger.open("activations", Priority::Needed).reserve(4 * MIB).unwrap();
    let error = ledger.open("batches", Priority::Needed).claim(8 * MIB).unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfMemory);
    assert_eq!(
        error.to_string(),
        "the memory limit of 32 MiB leaves no room for 8 MiB of batches: in use are save staging \
         24 MiB, activations 4 MiB; raise the limit, or let go of some of that"
    );
}

#[test]
fn a_limit_below_what_is_needed_is_an_error_and_changes_nothing() {
    let ledger = limited(64 * MIB);
    let staging = ledger.open("save staging", Priority::Needed).claim(40 * MIB).unwrap();
    let error = ledger.set_limit(Some(32 * MIB)).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "a memory limit of 32 MiB is less than the 40 MiB in use (save staging 40 MiB); let go of \
         some of that, or give at least 40 MiB"
    );
    assert_eq!(ledger.limit(), Some(64 * MIB));
    drop(staging);
    ledger.set_limit(Some(32 * MIB)).unwrap();
    let error = ledger.set_limit(Some(MIB)).unwrap_err().to_string();
    assert_eq!(error, "a memory limit of 1 MiB is too low; give at least 16 MiB");
    ledger.set_limit(None).unwrap();
    assert_eq!(ledger.limit(), None);
}

#[test]
fn a_lower_limit_takes_what_is_kept_and_cached() {
    let ledger = Ledger::new();
    let cache = Keeps::new(&ledger, "data cache", Priority::Fast);
    let kept = Keeps::new(&ledger, "kept", Priority::Kept);
    assert!((0..32).all(|_| cache.keep(MIB) && kept.keep(MIB)));
    ledger.set_limit(Some(20 * MIB)).unwrap();
    assert_eq!((kept.bytes(), cache.bytes()), (0, 20 * MIB));
}

#[test]
fn who_waits_is_served_when_others_give_back_and_others_leave_it_alone() {
    let ledger = limited(LIMIT_MIN);
    let account = ledger.open("load windows", Priority::Needed);
    let held = account.claim(LIMIT_MIN).unwrap();
    let small = account.claim(0).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| account.claim_within(LIMIT_MIN / 2, LONG).unwrap().held());
        while ledger.0.turns.awaited() == 0 {
            thread::yield_now();
        }
        assert!(account.claim(1).is_err(), "passed somebody who waits");
        drop(held);
        assert_eq!(waiting.join().unwrap(), LIMIT_MIN / 2);
    });
    drop(small);
    assert_eq!(ledger.0.turns.awaited(), 0);
}

#[test]
fn waiting_ends_with_who_holds_what_and_at_once_where_it_could_never_help() {
    let ledger = limited(LIMIT_MIN);
    let account = ledger.open("load windows", Priority::Needed);
    let _held = account.claim(LIMIT_MIN).unwrap();
    let error = account.claim_within(MIB, Duration::from_millis(5)).unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfMemory);
    assert!(error.to_string().contains("in use are load windows 16 MiB"), "{error}");
    let error = account.claim_within(LIMIT_MIN + MIB, Duration::MAX).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::OutOfMemory, false));
    assert_eq!(
        error.to_string(),
        "the memory limit is 16 MiB, and load windows would take 17 MiB; raise the limit, or make do \
         with less"
    );
}

#[test]
fn who_waits_hears_an_interruption() {
    let ledger = limited(LIMIT_MIN);
    let account = ledger.open("load windows", Priority::Needed);
    let _held = account.claim(LIMIT_MIN).unwrap();
    let error = interrupt::heard(|| true, || account.claim_within(1, LONG)).unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    assert_eq!(ledger.0.turns.awaited(), 0);
}

#[test]
fn who_waits_is_served_when_the_limit_is_raised_or_lifted() {
    for higher in [Some(2 * LIMIT_MIN), None] {
        let ledger = limited(LIMIT_MIN);
        let account = ledger.open("load windows", Priority::Needed);
        let _held = account.claim(LIMIT_MIN).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| account.claim_within(MIB, LONG).unwrap().held());
            while ledger.0.turns.awaited() == 0 {
                thread::yield_now();
            }
            ledger.set_limit(higher).unwrap();
            assert_eq!(waiting.join().unwrap(), MIB);
        });
    }
}

#[derive(Debug, Clone)]
enum Step {
    Claim(u64),
    Reserve(u64),
    Grow(usize, u64),
    Shrink(usize, u64),
    Drop(usize),
    Keep(usize, u64),
    Limit(Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || 0..24 * MIB;
    let index = 0usize..8;
    prop::collection::vec(
        prop_oneof![
            bytes().prop_map(Step::Claim),
            bytes().prop_map(Step::Reserve),
            (index.clone(), bytes()).prop_map(|(i, bytes)| Step::Grow(i, bytes)),
            (index.clone(), bytes()).prop_map(|(i, bytes)| Step::Shrink(i, bytes)),
            index.clone().prop_map(Step::Drop),
            (0usize..3, bytes()).prop_map(|(i, bytes)| Step::Keep(i, bytes)),
            prop::option::of(LIMIT_MIN..96 * MIB).prop_map(Step::Limit),
        ],
        0..80,
    )
}

proptest! {
    #[test]
    fn never_above_the_limit_and_refused_only_where_what_is_needed_does_not_fit(steps in steps()) {
        let ledger = limited(48 * MIB);
        let needed = ledger.open("needed", Priority::Needed);
        let keeps = [("kept", Priority::Kept), ("spare", Priority::Spare), ("cache", Priority::Fast)]
            .map(|(name, priority)| Keeps::new(&ledger, name, priority));
        let mut claims: Vec<Claim> = Vec::new();
        for step in steps {
            let before: u64 = claims.iter().map(Claim::counted).sum();
            let fits = |more: u64| ledger.limit().is_none_or(|limit| before + more <= limit);
            match step {
                Step::Claim(bytes) => {
                    let claim = needed.claim(bytes);
                    prop_assert_eq!(claim.is_ok(), fits(bytes));
                    claims.extend(claim);
                }
                Step::Reserve(bytes) => {
                    let claim = needed.reserve(bytes);
                    prop_assert_eq!(claim.is_ok(), fits(bytes));
                    claims.extend(claim);
                }
                Step::Grow(i, bytes) if i < claims.len() => {
                    let counted = claims[i].counted();
                    let more = (claims[i].held() + bytes).max(counted) - counted;
                    prop_assert_eq!(claims[i].try_grow(bytes), fits(more));
                }
                Step::Shrink(i, bytes) if i < claims.len() => claims[i].shrink(bytes),
                Step::Drop(i) if i < claims.len() => drop(claims.swap_remove(i)),
                Step::Keep(i, bytes) => {
                    keeps[i].keep(bytes);
                }
                Step::Limit(limit) => {
                    let fits = limit.is_none_or(|limit| before <= limit);
                    prop_assert_eq!(ledger.set_limit(limit).is_ok(), fits);
                }
                _ => {}
            }
            let told = ledger.statement();
            let sum = told.bytes + told.reserved_bytes;
            prop_assert!(told.limit.is_none_or(|limit| sum <= limit), "{:?}", told);
            let counted: u64 = claims.iter().map(Claim::counted).sum();
            let kept: u64 = keeps.iter().map(|keeps| keeps.bytes()).sum();
            prop_assert_eq!(sum, counted + kept);
        }
        drop((claims, keeps));
        prop_assert_eq!(ledger.0.used.load(SeqCst), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn threads_stay_below_a_limit_that_changes_and_all_who_hold_nothing_are_served(
        wanted in prop::collection::vec(prop::collection::vec(0..LIMIT_MIN, 0..12), 1..5),
        limits in prop::collection::vec(LIMIT_MIN..4 * LIMIT_MIN, 0..6),
    ) {
        let ledger = limited(LIMIT_MIN);
        let cache = Keeps::new(&ledger, "cache", Priority::Fast);
        let account = ledger.open("needed", Priority::Needed);
        thread::scope(|scope| {
            for list in &wanted {
                let (account, cache, ledger) = (&account, &cache, &ledger);
                scope.spawn(move || {
                    for bytes in list {
                        let claim = account.claim_within(*bytes, LONG).unwrap();
                        cache.keep(bytes / 2);
                        let told = ledger.statement();
                        assert!(told.bytes <= 4 * LIMIT_MIN, "{told:?}");
                        drop(claim);
                    }
                });
            }
            for limit in limits {
                // It may be less than what is needed at the moment.
                let _ = ledger.set_limit(Some(limit));
            }
        });
        prop_assert_eq!((ledger.0.turns.awaited(), held(&ledger, "needed")), (0, 0));
        prop_assert_eq!(ledger.0.used.load(SeqCst), cache.bytes());
    }
}
