//! Batches come out in order, whole and the same, whatever threads and storage do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tensorferry::Kind;
use tensorferry::data::loader::{Config, Crew, Loader, Mode, OnError, alone};
use tensorferry::data::recipe::Recipe;
use tensorferry::data::source::{Fault as Broken, Faulty, Label};

use super::made_up::{
    Held, Numbers, PANICS, Pair, epoch, epoch_and_faults, handed, in_order, loader, numbers, taken,
    values,
};

#[test]
fn batches_come_in_the_order_of_submission_with_every_sample_in_its_slot() {
    let loader = loader(numbers(200), 4, Config::default());
    let batches = in_order(200, 7);
    let out = epoch(&loader, 0, &batches);
    assert_eq!(out.len(), batches.len());
    for (batch, values) in batches.iter().zip(&out) {
        let first: Vec<_> = values.iter().step_by(2).map(|value| *value as u32).collect();
        assert_eq!(&first, batch);
    }
    let stats = loader.stats();
    assert_eq!((stats.batches, stats.samples, stats.backend_loads), (29, 200, 200));
}

#[test]
fn the_same_seed_gives_the_same_batches_on_any_number_of_threads() {
    let batches = in_order(100, 9);
    let with = |threads, seed| {
        let config = Config { seed, ..Config::default() };
        epoch(&loader(numbers(100), threads, config), 3, &batches)
    };
    let one = with(1, 5);
    assert_eq!(one, with(3, 5));
    assert_eq!(one, with(8, 5));
    assert_ne!(one, with(1, 6));
}

#[test]
fn labels_follow_their_samples() {
    let loader = loader(numbers(10), 2, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit(&[4, 2]).unwrap();
    let batch = taken(&run);
    assert_eq!(batch.labels, [Label::Int(40), Label::Int(20)]);
    assert_eq!(batch.indices, [4, 2]);
}

#[test]
fn a_bad_sample_fails_its_batch_by_name_and_the_next_ones_come() {
    let source = Numbers { bad: |index| index == 5 || index == 4, ..numbers(20) };
    let loader = loader(source, 3, Config::default());
    let run = loader.begin(0).unwrap();
    for batch in in_order(20, 4) {
        run.submit(&batch).unwrap();
    }
    taken(&run);
    let error = run.next(None).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("number 4"), "{error}");
    assert_eq!(taken(&run).indices, [8, 9, 10, 11]);
}

#[test]
fn skipped_samples_are_left_out_and_named() {
    let source = Numbers { bad: |index| index % 4 == 1, ..numbers(16) };
    let config = Config { on_error: OnError::Skip, ..Config::default() };
    let loader = loader(source, 3, config);
    let (out, faults) = epoch_and_faults(&loader, 0, &in_order(16, 4));
    assert_eq!(out.len(), 4);
    for (at, values) in out.iter().enumerate() {
        let first: Vec<_> = values.iter().step_by(2).copied().collect();
        let at = at as u64 * 4;
        assert_eq!(first, [at, at + 2, at + 3]);
    }
    assert_eq!(faults.len(), 4);
    assert_eq!((faults[0].index, &*faults[0].name), (1, "number 1"));
    assert_eq!(faults[0].substitute, None);
    assert_eq!(loader.stats().bad_samples, 4);
}

/// A batch of nothing but bad samples was left out: this rank came to the end before the others.
#[test]
fn a_batch_of_nothing_but_bad_samples_is_made_of_others() {
    let with = |threads| {
        let source = Numbers { bad: |index| index < 12, ..numbers(40) };
        let config = Config { on_error: OnError::Skip, ..Config::default() };
        let loader = loader(source, threads, config);
        let run = loader.begin(2).unwrap();
        run.submit(&[4, 5, 6, 7]).unwrap();
        let handed = handed(&run);
        let taken: Vec<_> = handed.faults.iter().map(|fault| fault.substitute).collect();
        let asked: Vec<_> = handed.faults.iter().map(|fault| fault.index).collect();
        let batch = &handed.batches[0];
        assert_eq!(asked, [4, 5, 6, 7]);
        assert_eq!(taken, batch.indices.iter().copied().map(Some).collect::<Vec<_>>());
        let first: Vec<_> =
            values(batch).into_iter().step_by(2).map(|value| value as u32).collect();
        assert_eq!(first, batch.indices);
        assert_eq!(batch.labels[0], Label::Int(i64::from(first[0]) * 10));
        first
    };
    let one = with(1);
    assert!(one.len() == 4 && one.iter().all(|index| *index >= 12), "{one:?}");
    assert_eq!(one, with(4));
}

/// Every set of bad samples, every way to cut six samples into batches of one size: as many batches
/// come as were asked for, as long as one sample can be read, and of that only good ones.
#[test]
fn whatever_is_bad_each_submission_comes_back_as_a_batch_or_as_an_error() {
    const LEN: u32 = 6;
    let crew = Crew::new(2, Mode::Auto).unwrap();
    let all = 0..1_u32 << LEN;
    let sizes = [1, 2, 3, 4, 6];
    for (bad, size) in all.flat_map(|bad| sizes.map(|size| (bad, size))) {
        for (on_error, apart) in [
            (OnError::Skip, false),
            (OnError::Skip, true),
            (OnError::Substitute, false),
            (OnError::Substitute, true),
        ] {
            let source = Faulty::new(Arc::new(numbers(LEN as usize)));
            let is_bad = |index: u32| bad >> index & 1 == 1;
            for index in (0..LEN).filter(|index| is_bad(*index)) {
                source.fault(index as usize, Broken::Fail(Kind::Corrupt));
            }
            let (recipes, config) =
                (vec![Box::new(Pair) as Box<_>], Config { on_error, ..Config::default() });
            let loader = Loader::new(Arc::new(source), recipes, config, Arc::clone(&crew)).unwrap();
            let run = loader.begin(1).unwrap();
            let submissions = in_order(LEN, size);
            for batch in &submissions {
                if apart { run.submit_apart(batch).unwrap() } else { run.submit(batch).unwrap() }
            }
            for asked in &submissions {
                if bad + 1 == 1 << LEN {
                    assert_eq!(run.next(None).unwrap_err().kind(), Kind::Corrupt);
                    continue;
                }
                let indices: Vec<_> =
                    handed(&run).batches.iter().flat_map(|batch| batch.indices.clone()).collect();
                let good: Vec<_> = asked.iter().copied().filter(|index| !is_bad(*index)).collect();
                assert!(!indices.iter().any(|index| is_bad(*index)), "{bad:b} {indices:?}");
                if on_error == OnError::Skip && !good.is_empty() {
                    assert_eq!(indices, good);
                } else {
                    assert_eq!(indices.len(), asked.len());
                }
            }
        }
    }
}

#[test]
fn samples_apart_may_differ_and_come_each_in_a_batch_of_its_own() {
    let loader = loader(numbers(10), 2, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit_apart(&[3, 1]).unwrap();
    let handed = handed(&run);
    let indices: Vec<_> = handed.batches.iter().map(|batch| batch.indices.clone()).collect();
    assert_eq!(indices, [[3], [1]]);
    assert_eq!(values(&handed.batches[1])[0], 1);
}

#[test]
fn substitutes_are_the_same_whatever_the_threads_do() {
    let with = |threads| {
        let source = Numbers { bad: |index| index % 3 == 0, ..numbers(60) };
        let config = Config { on_error: OnError::Substitute, ..Config::default() };
        epoch(&loader(source, threads, config), 1, &in_order(60, 8))
    };
    let one = with(1);
    assert_eq!(one, with(4));
    let first: Vec<_> = one.iter().flatten().step_by(2).copied().collect();
    assert_eq!(first.len(), 60);
    assert!(first.iter().all(|value| value % 3 != 0));
}

#[test]
fn a_bad_sample_is_told_once_with_what_took_its_place_at_last() {
    let source = Numbers { bad: |index| index < 30, ..numbers(60) };
    let config = Config { on_error: OnError::Substitute, ..Config::default() };
    let loader = loader(source, 3, config);
    let (out, faults) = epoch_and_faults(&loader, 0, &[vec![7, 55], vec![8]]);
    let told: Vec<_> = faults.iter().map(|fault| (fault.index, &*fault.name)).collect();
    assert_eq!(told, [(7, "number 7"), (8, "number 8")]);
    let instead: Vec<_> = faults.iter().map(|fault| fault.substitute.map(u64::from)).collect();
    assert_eq!(instead, [Some(out[0][0]), Some(out[1][0])]);
    assert!(faults[0].error.contains("number 7"), "{}", faults[0].error);
    assert_eq!(loader.stats().bad_samples, 2);
}

#[test]
fn when_every_substitute_is_bad_too_the_batch_fails() {
    let config = || Config { on_error: OnError::Substitute, ..Config::default() };
    let loader = loader(Numbers { bad: |_| true, ..numbers(10) }, 2, config());
    let run = loader.begin(0).unwrap();
    run.submit(&[1]).unwrap();
    let error = run.next(None).unwrap_err();
    assert!(error.to_string().contains("9 substitutes"), "there are no more: {error}");
    let source = Numbers { bad: |_| true, ..numbers(100) };
    let loader = self::loader(source, 2, config());
    let run = loader.begin(0).unwrap();
    run.submit(&[1]).unwrap();
    let error = run.next(None).unwrap_err();
    assert!(error.to_string().contains("16 substitutes"), "{error}");
}

#[test]
fn a_source_that_stalls_is_a_timeout_that_says_where_and_nothing_hangs() {
    let delay = |index| if index == 2 { Duration::from_hours(1) } else { Duration::ZERO };
    let loader = loader(Numbers { delay, ..numbers(10) }, 2, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit(&[2, 3]).unwrap();
    assert!(run.next(Some(Duration::from_millis(50))).unwrap().is_none());
    let held = run.held_up_by();
    assert!(held.contains("number 2"), "{held}");
    drop((run, loader));
}

#[test]
fn a_sample_whose_own_store_timed_out_fails_its_batch_and_loses_no_other() {
    let source = Numbers { bad: |index| index == 1, kind: Kind::Timeout, ..numbers(10) };
    let loader = loader(source, 2, Config::default());
    let run = loader.begin(0).unwrap();
    (0..3).for_each(|index| run.submit(&[index]).unwrap());
    assert_eq!(taken(&run).indices, [0]);
    let error = run.next(Some(Duration::from_mins(1))).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.to_string().contains("number 1"), "{error}");
    assert_eq!(taken(&run).indices, [2]);
}

#[test]
fn closing_a_run_wakes_whoever_waits_for_it() {
    let delay = |_| Duration::from_hours(1);
    let loader = loader(Numbers { delay, ..numbers(10) }, 1, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit(&[0]).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| run.next(None).unwrap_err().kind());
        // Whether it waits already or comes later: it is told.
        run.close();
        assert_eq!(waiting.join().unwrap(), Kind::Closed);
    });
    assert_eq!(run.submit(&[1]).unwrap_err().kind(), Kind::Closed);
}

#[test]
fn asking_what_holds_a_batch_up_changes_nothing() {
    let delay = |_| Duration::from_hours(1);
    let loader = loader(Numbers { delay, ..numbers(10) }, 1, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit(&[3]).unwrap();
    for _ in 0..20 {
        assert!(run.held_up_by().contains("number 3"));
    }
    assert_eq!(loader.stats().batches, 0);
    run.close();
    assert_eq!(run.held_up_by(), "");
}

#[test]
fn a_panic_in_a_recipe_is_an_error_of_its_sample() {
    let loader = loader(numbers(1000), 2, Config::default());
    let run = loader.begin(0).unwrap();
    run.submit(&[PANICS as u32]).unwrap();
    run.submit(&[1]).unwrap();
    let error = run.next(None).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(error.to_string().contains("number 777"), "{error}");
    taken(&run);
}

#[test]
fn a_run_can_be_dropped_at_any_moment_and_another_begun() {
    let loader = loader(numbers(100), 4, Config::default());
    for taken in 0..10 {
        let run = loader.begin(taken).unwrap();
        for batch in in_order(100, 10) {
            run.submit(&batch).unwrap();
        }
        (0..taken).for_each(|_| drop(run.next(None).unwrap()));
    }
    assert_eq!(epoch(&loader, 0, &in_order(100, 10)).len(), 10);
}

#[test]
fn several_loaders_share_one_crew() {
    for mode in [Mode::Auto, Mode::Static] {
        let crew = Crew::new(3, mode).unwrap();
        let make = |len| {
            let (source, recipes) = (Arc::new(numbers(len)), vec![Box::new(Pair) as Box<_>]);
            Loader::new(source, recipes, Config::default(), Arc::clone(&crew)).unwrap()
        };
        let loaders = [make(64), make(128), make(32)];
        thread::scope(|scope| {
            for loader in &loaders {
                scope.spawn(move || assert_eq!(epoch(loader, 0, &in_order(32, 4)).len(), 8));
            }
        });
    }
}

#[test]
fn a_crew_grows_while_its_threads_are_held_up() {
    let crew = Crew::new(1, Mode::Auto).unwrap();
    let make = |source| {
        let recipes = vec![Box::new(Pair) as Box<_>];
        Loader::new(Arc::new(source), recipes, Config::default(), Arc::clone(&crew)).unwrap()
    };
    let stalled = make(Numbers { delay: |_| Duration::from_hours(1), ..numbers(1) });
    let run = stalled.begin(0).unwrap();
    run.submit(&[0]).unwrap();
    crew.grow(2).unwrap();
    assert_eq!(epoch(&make(numbers(8)), 0, &in_order(8, 4)).len(), 2);
}

#[test]
fn threads_that_come_back_from_a_run_that_is_gone_leave_the_work_to_others() {
    for mode in [Mode::Auto, Mode::Static] {
        let crew = Crew::new(2, mode).unwrap();
        let make = |recipe: Box<dyn Recipe>| {
            let (source, config) = (Arc::new(numbers(8)), Config::default());
            Loader::new(source, vec![recipe], config, Arc::clone(&crew)).unwrap()
        };
        let held = Held::default();
        let slow = make(Box::new(held.clone()));
        let run = slow.begin(0).unwrap();
        for batch in in_order(8, 1) {
            run.submit(&batch).unwrap();
        }
        let hands = if mode == Mode::Auto { 2 } else { 1 };
        while held.0.before.load(Ordering::SeqCst) < hands {
            thread::sleep(Duration::from_millis(1));
        }
        drop(run);
        let quick = make(Box::new(Pair));
        let run = quick.begin(0).unwrap();
        for batch in in_order(8, 1) {
            run.submit(&batch).unwrap();
        }
        // By now the new threads have loaded what they may, and wait for the old ones to prepare.
        thread::sleep(Duration::from_millis(50));
        held.0.open.store(true, Ordering::SeqCst);
        for batch in 0..8 {
            let taken = run.next(Some(Duration::from_mins(1))).unwrap();
            assert!(taken.is_some(), "batch {batch} never comes, {mode:?}");
        }
    }
}

#[test]
fn one_sample_needs_no_thread_but_the_callers() {
    let source = Arc::new(numbers(10));
    let batch = alone(source.clone(), vec![Box::new(Pair)], 7).unwrap();
    assert_eq!((&*batch.indices, &*batch.labels), (&[7][..], &[Label::Int(70)][..]));
    assert_eq!(values(&batch)[0], 7);
    let error = alone(source, vec![Box::new(Pair)], 10).unwrap_err();
    assert_eq!(error.to_string(), "sample 10 is asked for, and there are 10");
}

#[test]
fn what_can_not_be_asked_for_is_an_error() {
    let loader = loader(numbers(10), 1, Config::default());
    let run = loader.begin(0).unwrap();
    assert_eq!(run.submit(&[10]).unwrap_err().kind(), Kind::InvalidInput);
    assert_eq!(run.submit(&[]).unwrap_err().to_string(), "a batch without samples is asked for");
    assert_eq!(run.next(None).unwrap_err().kind(), Kind::InvalidInput);
    assert!(Crew::new(0, Mode::Auto).is_err());
    let crew = Crew::new(1, Mode::Auto).unwrap();
    assert!(Loader::new(Arc::new(numbers(1)), Vec::new(), Config::default(), crew).is_err());
}
