//! The crew itself under loom, with made-up samples: every way in which threads can follow one
//! another, so far as at most one or two switches come on top of those where a thread waits or
//! ends. A wake-up that is missed shows as a deadlock, which loom reports.

use super::*;
use crate::data::chance::Chance;
use crate::data::recipe::Scratch;
use crate::data::sample::{Field, Place, Raw};
use crate::data::source::Label;
use crate::error::Kind;
use crate::plan::data::threads::Machine;
use crate::sync::{Condvar, Mutex, lock, thread, wait};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_within(2, model);
}

fn explore_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Where a sample may be held up.
#[derive(Default)]
struct Gate {
    /// How many stand before it, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = lock(&self.state);
        state.0 += 1;
        self.changed.notify_all();
        while !state.1 {
            state = wait(&self.changed, state, None).0;
        }
    }

    /// Waits until somebody stands before it.
    fn is_reached(&self) {
        let mut state = lock(&self.state);
        while state.0 == 0 {
            state = wait(&self.changed, state, None).0;
        }
    }

    fn open(&self) {
        lock(&self.state).1 = true;
        self.changed.notify_all();
    }
}

/// Four samples of one byte; some are bad, and one may be held up while it is loaded or prepared.
#[derive(Clone, Default)]
struct Made {
    bad: Option<usize>,
    load_held: Option<(usize, Arc<Gate>)>,
    prepare_held: Option<Arc<Gate>>,
    fields: Vec<String>,
}

impl Source for Made {
    fn len(&self) -> usize {
        4
    }

    fn name(&self, index: usize) -> String {
        index.to_string()
    }

    fn bytes(&self, _: usize) -> u64 {
        1
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn label(&self, index: usize) -> Label {
        Label::Int(index as i64)
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        if let Some((_, gate)) = self.load_held.as_ref().filter(|(held, _)| *held == index) {
            gate.pass();
        }
        if self.bad == Some(index) {
            return Err(Error::new(Kind::Corrupt, "the sample is bad"));
        }
        Ok(Raw::single(vec![index as u8]))
    }
}

impl Recipe for Made {
    fn prepare(&self, _: Field<'_>, _: Chance, _: &mut Scratch, _: &mut dyn Place) -> Result<()> {
        if let Some(gate) = &self.prepare_held {
            gate.pass();
        }
        Ok(())
    }
}

fn crew(threads: usize, mode: Mode) -> Arc<Crew> {
    Crew::on(Machine { threads, cores: 1 }, mode).unwrap()
}

fn loader(crew: &Arc<Crew>, made: Made, config: Config) -> Loader {
    let source = Made { fields: vec![String::new()], ..made.clone() };
    Loader::new(Arc::new(source), vec![Box::new(made)], config, Arc::clone(crew)).unwrap()
}

fn begun(crew: &Arc<Crew>, made: Made, samples: &[u32]) -> Run {
    let run = loader(crew, made, Config::default()).begin(0).unwrap();
    samples.iter().for_each(|sample| run.submit(&[*sample]).unwrap());
    run
}

fn take(run: &Run) -> u32 {
    run.next(None).unwrap().unwrap().batches[0].indices[0]
}

#[test]
fn loom_batches_come_in_the_order_in_which_they_were_asked_for() {
    for mode in [Mode::Auto, Mode::Static] {
        explore(move || {
            let run = begun(&crew(2, mode), Made::default(), &[2, 1]);
            assert_eq!([take(&run), take(&run)], [2, 1]);
        });
    }
}

#[test]
fn loom_two_consumers_are_served_by_one_crew() {
    explore(|| {
        let crew = crew(1, Mode::Auto);
        let other = thread::spawn({
            let crew = Arc::clone(&crew);
            move || assert_eq!(take(&begun(&crew, Made::default(), &[3])), 3)
        });
        assert_eq!(take(&begun(&crew, Made::default(), &[0])), 0);
        drop(crew);
        other.join().unwrap();
    });
}

/// The threads that stayed behind were counted among those who prepare. When they came back and
/// ended, nobody was told, and the others waited for ever.
#[test]
fn loom_a_run_left_while_a_sample_is_prepared_holds_up_no_other() {
    for mode in [Mode::Auto, Mode::Static] {
        // Four threads: two switches more would take a minute.
        explore_within(1, move || {
            let (crew, gate) = (crew(2, mode), Arc::new(Gate::default()));
            let held = Made { prepare_held: Some(Arc::clone(&gate)), ..Made::default() };
            let left = begun(&crew, held, &[0]);
            gate.is_reached();
            drop(left);
            let run = begun(&crew, Made::default(), &[1]);
            gate.open();
            assert_eq!(take(&run), 1);
        });
    }
}

#[test]
fn loom_a_loop_can_be_left_at_any_moment_and_begun_anew() {
    explore(|| {
        let crew = crew(2, Mode::Static);
        drop(begun(&crew, Made::default(), &[0]));
        assert_eq!(take(&begun(&crew, Made::default(), &[2])), 2);
    });
}

#[test]
fn loom_a_thread_that_a_store_holds_up_for_a_run_that_is_gone_is_replaced() {
    explore(|| {
        let (crew, gate) = (crew(1, Mode::Auto), Arc::new(Gate::default()));
        let held = Made { load_held: Some((0, Arc::clone(&gate))), ..Made::default() };
        let left = begun(&crew, held, &[0]);
        gate.is_reached();
        drop(left);
        assert_eq!(take(&begun(&crew, Made::default(), &[1])), 1);
        // It comes back when there is another in its place.
        gate.open();
        assert_eq!(take(&begun(&crew, Made::default(), &[2])), 2);
    });
}

#[test]
fn loom_a_crew_grows_while_its_thread_is_held_up() {
    explore(|| {
        let (crew, gate) = (crew(1, Mode::Auto), Arc::new(Gate::default()));
        let held = Made { load_held: Some((0, Arc::clone(&gate))), ..Made::default() };
        let stalled = begun(&crew, held, &[0]);
        gate.is_reached();
        crew.grow(2).unwrap();
        assert_eq!(take(&begun(&crew, Made::default(), &[1])), 1);
        gate.open();
        assert_eq!(take(&stalled), 0);
    });
}

/// Who came back from preparing took the next sample to load and woke nobody: what was loaded
/// meanwhile lay there as long as the store stalled, while another thread rested.
#[test]
fn loom_no_thread_rests_beside_a_sample_that_can_be_prepared() {
    explore(|| {
        let gate = Arc::new(Gate::default());
        let held = Made { load_held: Some((2, Arc::clone(&gate))), ..Made::default() };
        let config = Config { load_ahead_bytes: 2, ..Config::default() };
        let run = loader(&crew(2, Mode::Static), held, config).begin(0).unwrap();
        run.submit(&[0, 1]).unwrap();
        run.submit(&[2]).unwrap();
        assert_eq!(take(&run), 0);
        gate.open();
        assert_eq!(take(&run), 2);
    });
}

#[test]
fn loom_closing_a_run_wakes_whoever_waits_for_it() {
    explore(|| {
        let (crew, gate) = (crew(1, Mode::Auto), Arc::new(Gate::default()));
        let held = Made { load_held: Some((0, Arc::clone(&gate))), ..Made::default() };
        let run = Arc::new(begun(&crew, held, &[0]));
        let waiting = thread::spawn({
            let run = Arc::clone(&run);
            move || assert_eq!(run.next(None).unwrap_err().kind(), Kind::Closed)
        });
        run.close();
        waiting.join().unwrap();
        gate.open();
    });
}

#[test]
fn loom_a_bad_sample_is_dealt_with_and_the_next_batch_comes() {
    for on_error in [OnError::Raise, OnError::Skip, OnError::Substitute] {
        explore(move || {
            let made = Made { bad: Some(0), ..Made::default() };
            let config = Config { on_error, ..Config::default() };
            let run = loader(&crew(2, Mode::Static), made, config).begin(0).unwrap();
            (0..2).for_each(|sample| run.submit(&[sample]).unwrap());
            let first = run.next(None);
            match on_error {
                OnError::Raise => assert_eq!(first.unwrap_err().kind(), Kind::Corrupt),
                OnError::Skip | OnError::Substitute => {
                    assert_eq!(first.unwrap().unwrap().faults.len(), 1);
                }
            }
            assert_eq!(take(&run), 1);
        });
    }
}
