//! Rounds and turns.

use std::path::Path;

use tensorferry::Result;

use super::Workload;
use super::cache::prepare;
use super::contest::{CONTESTS, Cache, Contest, Entry, Pass, Unit, Way};
use super::report::{Measured, Row, Table};
use super::worker::{Request, Worker};
use crate::io::fio::Fio;

/// fio's blocks; its file is a whole number of them.
const BLOCK: u64 = 1 << 20;

/// Everybody who takes part.
pub(super) struct Contestants<'a> {
    pub(super) owner: Worker,
    pub(super) fio: Result<Fio, String>,
    pub(super) python: &'a Path,
}

/// One contestant of one contest, and what it has shown so far.
pub(super) struct Entrant {
    pub(super) entry: &'static Entry,
    pub(super) samples: Vec<Sample>,
    pub(super) extra_bytes: Option<u64>,
    /// Why it takes no part any more.
    pub(super) absent: Option<String>,
}

/// One turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    /// In the contest's unit.
    pub(super) rate: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: Option<f64>,
    /// Until an asynchronous save was done.
    pub(super) total_seconds: Option<f64>,
    /// Share of the file in the page cache when the clock started.
    pub(super) resident: Option<f64>,
}

impl Contestants<'_> {
    pub(super) fn measure(
        &mut self,
        workload: Workload,
        steps: &mut Steps<'_>,
    ) -> Result<Measured> {
        steps.tell(&format!("{workload}: laying out fio's file"));
        if let Ok(fio) = &self.fio
            && let Err(error) = fio.pass(fio_bytes(workload), true)
        {
            self.fio = Err(error.to_string());
        }
        let mut contests = Vec::new();
        for contest in &CONTESTS {
            contests.push((contest, self.hold(contest, workload, steps)?));
        }
        // The state makes room for the processes that follow.
        self.owner.ask(request("forget", workload))?;
        for (contest, entrants) in &mut contests {
            for entrant in entrants.iter_mut().filter(|_| weighed(contest, workload)) {
                steps.next(&format!("{workload}, memory: {}", entrant.entry.name));
                self.weigh(entrant, workload)?;
            }
        }
        let tables = contests.into_iter().map(|(contest, entrants)| table(contest, entrants));
        Ok(Measured { workload, tables: tables.collect() })
    }

    /// All rounds of a contest.
    fn hold(
        &mut self,
        contest: &Contest,
        workload: Workload,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<Entrant>> {
        let mut entrants: Vec<Entrant> = entries(contest, workload).map(Entrant::new).collect();
        for round in 0..workload.rounds {
            for turn in 0..entrants.len() {
                // Who goes first changes: the first of a round finds the disk rested.
                let turn = (turn + round) % entrants.len();
                let entrant = &mut entrants[turn];
                steps.next(&format!("{workload}, {}: {}", contest.name, entrant.entry.name));
                if entrant.absent.is_some() {
                    continue;
                }
                match self.sample(contest, entrant.entry.way, workload)? {
                    Ok(sample) => entrant.samples.push(sample),
                    Err(reason) => entrant.absent = Some(reason),
                }
            }
        }
        Ok(entrants)
    }

    /// One turn; the inner error says why this contestant can't.
    fn sample(
        &mut self,
        contest: &Contest,
        way: Way,
        workload: Workload,
    ) -> Result<Result<Sample, String>> {
        let case = match way {
            Way::Python(case) => case,
            Way::Fio(pass) => return Ok(self.fio_sample(pass, workload)),
        };
        let file = way.file().and_then(|file| self.owner.hello().files.get(file));
        let resident = match file {
            Some(file) if contest.cache != Cache::Any => prepare(file, contest.cache)?,
            _ => None,
        };
        let answer = self.owner.ask(request(case, workload))?;
        if let Some(reason) = answer.error {
            return Ok(Err(reason));
        }
        let work = match contest.unit {
            Unit::BytesPerSecond => answer.bytes,
            Unit::StepsPerSecond => answer.count.unwrap_or(0),
        };
        if answer.seconds <= 0.0 || work == 0 {
            return Ok(Err("nothing was measured; the state is too small".into()));
        }
        Ok(Ok(Sample {
            rate: work as f64 / answer.seconds,
            seconds: answer.seconds,
            cpu_seconds: answer.cpu_seconds,
            total_seconds: answer.total_seconds,
            resident,
        }))
    }

    fn fio_sample(&self, pass: Pass, workload: Workload) -> Result<Sample, String> {
        let fio = self.fio.as_ref().map_err(Clone::clone)?;
        if pass == Pass::WriteNew {
            fio.forget();
        }
        let bytes = fio_bytes(workload);
        let rate = match pass {
            Pass::WriteNew | Pass::WriteOver => fio.pass(bytes, true),
            Pass::Read => fio.pass(bytes, false),
            Pass::ReadAsItComes => fio.read_as_it_comes(bytes),
            Pass::ReadIntoNew => fio.read_into_new_memory(bytes),
        };
        let rate = rate.map_err(|error| error.to_string())?;
        Ok(Sample { rate, seconds: workload.bytes as f64 / rate, ..Sample::default() })
    }

    /// How much memory a contestant takes, in a process of its own.
    fn weigh(&self, entrant: &mut Entrant, workload: Workload) -> Result<()> {
        if let (Way::Python(case), None) = (entrant.entry.way, &entrant.absent) {
            let mut worker = Worker::beside(self.python, &self.owner)?;
            let answer = worker.ask(Request { memory: true, ..request(case, workload) })?;
            entrant.extra_bytes = answer.extra_bytes;
        }
        Ok(())
    }
}

impl Entrant {
    fn new(entry: &'static Entry) -> Self {
        Self { entry, samples: Vec::new(), extra_bytes: None, absent: None }
    }
}

fn request(case: &'static str, workload: Workload) -> Request {
    Request { case, bytes: workload.bytes, tensors: workload.tensors, memory: false }
}

fn fio_bytes(workload: Workload) -> u64 {
    workload.bytes.next_multiple_of(BLOCK)
}

fn entries(contest: &Contest, workload: Workload) -> impl Iterator<Item = &'static Entry> {
    contest.entries.iter().filter(move |entry| entry.essential || !workload.short)
}

fn weighed(contest: &Contest, workload: Workload) -> bool {
    contest.memory && workload.memory
}

fn table(contest: &Contest, entrants: Vec<Entrant>) -> Table {
    let rows: Vec<Row> = entrants.into_iter().map(Row::of).collect();
    Table::new(contest, rows)
}

/// How far everything is.
pub(super) struct Steps<'a> {
    done: usize,
    all: usize,
    progress: &'a mut dyn FnMut(&str, f64),
}

impl<'a> Steps<'a> {
    pub(super) fn new(workloads: &[Workload], progress: &'a mut dyn FnMut(&str, f64)) -> Self {
        let of = |workload: &Workload| -> usize {
            let turns = |contest: &Contest| {
                let each = workload.rounds + usize::from(weighed(contest, *workload));
                entries(contest, *workload).count() * each
            };
            CONTESTS.iter().map(turns).sum()
        };
        Self { done: 0, all: workloads.iter().map(of).sum(), progress }
    }

    fn tell(&mut self, what: &str) {
        (self.progress)(what, self.done as f64 / self.all as f64);
    }

    fn next(&mut self, what: &str) {
        self.tell(what);
        self.done += 1;
    }
}
