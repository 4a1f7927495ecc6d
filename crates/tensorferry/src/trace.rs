//! Traces: what happened when, on which thread, as a file that Perfetto and Chrome open.
//!
//! There is one trace for the process, and it is off until [`start`]. While it is off, a span costs
//! one relaxed load. While it is on, whatever ends is kept in memory until [`finish`] hands it out:
//!
//! ```text
//!   off --start(limit)--> on --finish--> off, and a Trace --write_to--> file
//!         on: an error         off: an error
//! ```
//!
//! Three things are recorded. A [`Span`] begins and ends on one thread and lies on that thread's
//! track (`"ph": "X"`); spans of a thread nest. An [`Operation`] may end on another thread than it
//! began on, and overlaps with others as I/O does; each has an id and a track of its own (`"b"` and
//! `"e"`), because overlapping spans on one track would be drawn as if nested. A [`counter`] is a
//! number over time (`"C"`). Spans that cross threads, and a small dependency tree, are why this is
//! not `tracing-chrome`.
//!
//! **Bounds.** A trace keeps at most `limit` events, each with at most [`ARGUMENTS_MAX`] arguments
//! of at most [`TEXT_BYTES_MAX`] bytes. Later events are dropped and counted: the count, and the
//! moment of the first loss, stand in the file. An operation is kept as one event when it ends, so
//! a begin without its end can't occur; those still open at the end are counted.
//!
//! **Ownership.** What began in one trace and ends after its `finish` belongs to no trace and is
//! forgotten, also when another trace has started meanwhile.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
// Not from `crate::sync`: statics can't be made under loom, and this lock is held only to push.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The most events that a trace can be asked to keep: some GiB of memory.
pub const EVENTS_MAX: usize = 1 << 24;
/// How many events to keep when nobody knows better: some 100 MiB.
pub const EVENTS_DEFAULT: usize = 1 << 20;
/// The most arguments of one event; more are left out.
pub const ARGUMENTS_MAX: usize = 8;
/// The most bytes of a text argument; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 256;

/// The number of the trace that is on; zero while it is off.
static ON: AtomicU64 = AtomicU64::new(0);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Starts recording, of at most `limit` events.
pub fn start(limit: usize) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Error::invalid("a trace keeps at least one event and at most so many")
            .with("limit", limit)
            .with("max", EVENTS_MAX));
    }
    let mut session = lock();
    if session.is_some() {
        return Err(Error::invalid("a trace is being recorded already"));
    }
    let number = NEXT.fetch_add(1, Relaxed);
    *session = Some(Session::new(number, limit));
    ON.store(number, Relaxed);
    Ok(())
}

/// Stops recording and hands out what was recorded.
pub fn finish() -> Result<Trace> {
    let mut session = lock();
    ON.store(0, Relaxed);
    session
        .take()
        .map(Session::into_trace)
        .ok_or_else(|| Error::invalid("no trace is being recorded: start one before you finish it"))
}

/// Whether a trace is being recorded; asks for no lock.
pub fn is_on() -> bool {
    ON.load(Relaxed) != 0
}

/// Something that begins now and ends on this thread, when the span is dropped.
pub fn span(category: &'static str, name: &'static str) -> Span {
    Span { open: Open::begin(category, name), on_this_thread: PhantomData }
}

/// Something that begins now and ends on any thread, when the operation is dropped.
pub fn operation(category: &'static str, name: &'static str) -> Operation {
    let mut open = Open::begin(category, name);
    if let Some(begun) = &mut open {
        begun.id = with_session(begun.session, Session::next_id);
    }
    Operation { open }
}

/// The value of a number from now on. What is not a finite number is not drawn.
pub fn counter(name: &'static str, value: f64) {
    let number = ON.load(Relaxed);
    if number != 0 && value.is_finite() {
        let now = Instant::now();
        with_session(number, |session| {
            let at = session.since_start(now);
            let thread = session.this_thread();
            session.push(at, Event { at, thread, name, what: What::Counter(value) });
        });
    }
}

/// A part of one thread's time; see [`span`].
#[must_use = "a span that is dropped at once measures nothing"]
#[derive(Debug)]
pub struct Span {
    open: Option<Open>,
    /// Keeps the span from being sent: it must end on the thread whose track it lies on.
    on_this_thread: PhantomData<*const ()>,
}

/// An operation that may end on another thread; see [`operation`].
#[must_use = "an operation that is dropped at once measures nothing"]
#[derive(Debug)]
pub struct Operation {
    open: Option<Open>,
}

impl Span {
    /// Adds a named fact.
    pub fn with(mut self, name: &'static str, value: impl Into<Argument>) -> Self {
        Open::add(&mut self.open, name, value);
        self
    }

    /// Adds a named fact that became known on the way.
    pub fn add(&mut self, name: &'static str, value: impl Into<Argument>) {
        Open::add(&mut self.open, name, value);
    }
}

impl Operation {
    /// Adds a named fact.
    pub fn with(mut self, name: &'static str, value: impl Into<Argument>) -> Self {
        Open::add(&mut self.open, name, value);
        self
    }

    /// Adds a named fact that became known on the way.
    pub fn add(&mut self, name: &'static str, value: impl Into<Argument>) {
        Open::add(&mut self.open, name, value);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.end();
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.end();
        }
    }
}

/// A fact about an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// A whole number.
    Whole(u64),
    /// A number; one that is not finite is written as `null`.
    Real(f64),
    /// A text of at most [`TEXT_BYTES_MAX`] bytes.
    Text(String),
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Argument {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
    }
}

/// What has begun and not yet ended.
#[derive(Debug)]
struct Open {
    session: u64,
    /// Only operations have one.
    id: Option<u64>,
    begin: Instant,
    thread: u64,
    category: &'static str,
    name: &'static str,
    arguments: Arguments,
}

type Arguments = Vec<(&'static str, Argument)>;

impl Open {
    fn begin(category: &'static str, name: &'static str) -> Option<Self> {
        let session = ON.load(Relaxed);
        (session != 0).then(|| Self {
            session,
            id: None,
            begin: Instant::now(),
            thread: thread_id(),
            category,
            name,
            arguments: Vec::new(),
        })
    }

    fn add(open: &mut Option<Self>, name: &'static str, value: impl Into<Argument>) {
        // Converting may allocate, so it waits until it is known to be wanted.
        if let Some(open) = open
            && open.arguments.len() < ARGUMENTS_MAX
        {
            open.arguments.push((name, value.into()));
        }
    }

    fn end(self) {
        let now = Instant::now();
        with_session(self.session, |session| session.close(self, now));
    }
}

/// Runs `f` on the session of this number, if it is still the one that records.
fn with_session<T>(number: u64, f: impl FnOnce(&mut Session) -> T) -> Option<T> {
    lock().as_mut().filter(|session| session.number == number).map(f)
}

fn lock() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's number of this thread, as in `/proc` and other tools.
fn thread_id() -> u64 {
    thread_local!(static ID: u64 = rustix::thread::gettid().as_raw_nonzero().get() as u64);
    ID.with(|id| *id)
}

/// A trace in the making. Times are nanoseconds since `epoch`.
#[derive(Debug)]
struct Session {
    number: u64,
    epoch: Instant,
    limit: usize,
    events: Vec<Event>,
    /// At most one for each event that was kept or is open.
    threads: BTreeMap<u64, String>,
    dropped: u64,
    first_drop: Option<u64>,
    begun: u64,
    ended: u64,
}

#[derive(Debug)]
struct Event {
    at: u64,
    thread: u64,
    name: &'static str,
    what: What,
}

#[derive(Debug)]
enum What {
    Span { category: &'static str, nanos: u64, arguments: Arguments },
    Operation { category: &'static str, nanos: u64, arguments: Arguments, id: u64, ended_on: u64 },
    Counter(f64),
}

impl Session {
    fn new(number: u64, limit: usize) -> Self {
        Self {
            number,
            epoch: Instant::now(),
            limit,
            events: Vec::new(),
            threads: BTreeMap::new(),
            dropped: 0,
            first_drop: None,
            begun: 0,
            ended: 0,
        }
    }

    /// The id of an operation that begins; called on the thread on which it does.
    fn next_id(&mut self) -> u64 {
        self.this_thread();
        self.begun += 1;
        self.begun
    }

    fn close(&mut self, open: Open, now: Instant) {
        let (at, end) = (self.since_start(open.begin), self.since_start(now));
        let (thread, category, arguments) = (open.thread, open.category, open.arguments);
        let (nanos, ended_on) = (end.saturating_sub(at), self.this_thread());
        let what = match open.id {
            None => What::Span { category, nanos, arguments },
            Some(id) => {
                self.ended += 1;
                What::Operation { category, nanos, arguments, id, ended_on }
            }
        };
        self.push(end, Event { at, thread, name: open.name, what });
    }

    fn push(&mut self, now: u64, event: Event) {
        if self.events.len() < self.limit {
            self.events.push(event);
        } else {
            self.dropped += 1;
            self.first_drop.get_or_insert(now);
        }
    }

    fn this_thread(&mut self) -> u64 {
        let id = thread_id();
        // Threads are few; those that come after the limit are not worth their memory.
        if !self.threads.contains_key(&id) && self.events.len() < self.limit {
            let name = thread::current().name().map_or_else(|| format!("thread {id}"), Into::into);
            self.threads.insert(id, name);
        }
        id
    }

    fn since_start(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    fn into_trace(self) -> Trace {
        let Self { events, threads, dropped, first_drop, .. } = self;
        Trace { events, threads, dropped, first_drop, unfinished: self.begun - self.ended }
    }
}

/// What was recorded between [`start`] and [`finish`].
#[derive(Debug)]
pub struct Trace {
    events: Vec<Event>,
    threads: BTreeMap<u64, String>,
    dropped: u64,
    first_drop: Option<u64>,
    unfinished: u64,
}

impl Trace {
    /// Number of events that were kept; an operation is one.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Number of events that came after the limit was reached.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of operations that had begun but not ended.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// Writes the trace as JSON. A failed write leaves what was there before, never half a file.
    pub fn write_to(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |error: io::Error| {
            Error::from_io(error, "can't write the trace").with("file", path.display())
        };
        let temporary = temporary_beside(path).map_err(failed)?;
        let written = self.write_file(&temporary).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| {
            // The first error is the one to report; the file may never have come to be.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    fn write_file(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create_new(path)?);
        self.write_json(&mut file)?;
        file.into_inner()?.sync_all()
    }

    /// One record a line, in the order of time.
    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let process = std::process::id();
        let mut separator = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
        let mut write = |record: Value| {
            out.write_all(separator.as_bytes())?;
            separator = ",\n";
            serde_json::to_writer(&mut *out, &record).map_err(io::Error::from)
        };
        write(json!({"ph": "M", "name": "process_name", "pid": process,
            "args": {"name": "tensorferry"}}))?;
        for (thread, name) in &self.threads {
            write(json!({"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
                "args": {"name": name}}))?;
        }
        let mut points = self.points();
        points.sort_by_key(|point| (point.at, point.order));
        for point in points {
            write(self.record(&point, process))?;
        }
        let about = json!({"dropped_events": self.dropped,
            "unfinished_operations": self.unfinished, "version": env!("CARGO_PKG_VERSION")});
        write!(out, "\n],\"otherData\":{about}}}\n")
    }

    /// The moments at which a record stands: one for each event, two for an operation.
    fn points(&self) -> Vec<Point> {
        let mut points = Vec::with_capacity(2 * self.events.len() + 1);
        for (index, event) in self.events.iter().enumerate() {
            let Event { at, what, .. } = event;
            let mut point = |at, order| points.push(Point { at, order, event: Some(index) });
            match what {
                What::Operation { nanos, .. } => {
                    point(*at, Order::Begin);
                    point(at + nanos, Order::End);
                }
                What::Span { nanos, .. } => point(*at, Order::Longest(u64::MAX - nanos)),
                What::Counter(_) => point(*at, Order::Longest(u64::MAX)),
            }
        }
        let loss = self.first_drop.map(|at| Point { at, order: Order::End, event: None });
        points.extend(loss);
        points
    }

    fn record(&self, point: &Point, process: u32) -> Value {
        let at = micros(point.at);
        let Some(event) = point.event.map(|index| &self.events[index]) else {
            let name = format!("limit reached: {} events dropped from here on", self.dropped);
            return json!({"ph": "i", "s": "g", "name": name, "ts": at, "pid": process,
                "args": {"dropped_events": self.dropped}});
        };
        let Event { thread, name, .. } = event;
        match &event.what {
            What::Counter(value) => json!({"ph": "C", "name": name, "ts": at, "pid": process,
                "tid": thread, "args": {"value": value}}),
            What::Span { category, nanos, arguments } => json!({"ph": "X", "name": name,
                "cat": category, "ts": at, "dur": micros(*nanos), "pid": process, "tid": thread,
                "args": object(arguments)}),
            What::Operation { category, arguments, id, ended_on, .. } => {
                let (phase, thread) = match point.order {
                    Order::End => ("e", ended_on),
                    _ => ("b", thread),
                };
                let arguments = if phase == "b" { object(arguments) } else { json!({}) };
                json!({"ph": phase, "id": id, "name": name, "cat": category, "ts": at,
                    "pid": process, "tid": thread, "args": arguments})
            }
        }
    }
}

struct Point {
    at: u64,
    order: Order,
    event: Option<usize>,
}

/// The order of records at the same nanosecond: begins before ends, and of spans the longer one
/// first, since it contains the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Begin,
    Longest(u64),
    End,
}

fn object(arguments: &Arguments) -> Value {
    arguments.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

/// Microseconds, the format's unit, with the nanoseconds as a fraction.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// A name in the same directory that nobody else uses, so that a rename can replace the file.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let count = COUNT.fetch_add(1, Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}-{count}-{}.part", std::process::id(), now.as_nanos()));
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::collections::HashMap;
    use std::time::Duration;

    /// The trace is one for the process, and so is this lock: tests that turn it on take turns.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(trace: &Trace) -> Value {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.json");
        trace.write_to(&path).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the trace is left");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// The records of a category of ours: tests beside this one may be traced too.
    fn records<'a>(json: &'a Value, category: &'a str) -> impl Iterator<Item = &'a Value> {
        let all = json["traceEvents"].as_array().unwrap().iter();
        all.filter(move |record| record["cat"] == category)
    }

    fn time(record: &Value) -> f64 {
        record["ts"].as_f64().unwrap()
    }

    #[test]
    fn starting_twice_and_finishing_what_never_started_are_errors() {
        let _turn = turn();
        assert_eq!(finish().unwrap_err().kind(), Kind::InvalidInput);
        for limit in [0, EVENTS_MAX + 1] {
            assert_eq!(start(limit).unwrap_err().kind(), Kind::InvalidInput);
        }
        assert!(!is_on());
        start(10).unwrap();
        assert!(is_on());
        assert_eq!(start(10).unwrap_err().kind(), Kind::InvalidInput);
        finish().unwrap();
        assert!(!is_on());
        assert_eq!(finish().unwrap_err().kind(), Kind::InvalidInput);
    }

    #[test]
    fn nothing_is_recorded_while_the_trace_is_off() {
        let _turn = turn();
        let before = span("off", "before").with("bytes", 1);
        let operation = operation("off", "before");
        start(1000).unwrap();
        drop((before, operation));
        let across = span("off", "across");
        let first = finish().unwrap();
        start(1000).unwrap();
        drop(across);
        let second = finish().unwrap();
        for trace in [first, second] {
            assert_eq!(records(&written(&trace), "off").count(), 0);
        }
    }

    #[test]
    fn operations_that_overlap_and_change_threads_are_pairs_in_order_of_time() {
        let _turn = turn();
        start(10_000).unwrap();
        let mut open = Vec::new();
        for number in 0..20 {
            open.push(operation("pairs", "read").with("number", number).with("file", "a\"\n"));
        }
        let worker = thread::Builder::new().name("worker \"1\"".into());
        worker.spawn(move || drop(open)).unwrap().join().unwrap();
        let json = written(&finish().unwrap());
        let mut begun = HashMap::new();
        let mut pairs = 0;
        for record in records(&json, "pairs") {
            let id = record["id"].as_u64().unwrap();
            if record["ph"] == "b" {
                assert!(begun.insert(id, record).is_none(), "an id stands twice");
                assert_eq!(record["args"]["file"], "a\"\n");
            } else {
                let first = begun.remove(&id).expect("an end without a begin");
                assert!(record["ph"] == "e" && time(first) <= time(record));
                assert_ne!(first["tid"], record["tid"]);
                pairs += 1;
            }
        }
        assert_eq!((pairs, begun.len()), (20, 0));
        let names: Vec<_> = (json["traceEvents"].as_array().unwrap().iter())
            .filter(|record| record["name"] == "thread_name")
            .map(|record| record["args"]["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"worker \"1\""), "{names:?}");
    }

    #[test]
    fn spans_nest_and_counters_stand_between_them() {
        let _turn = turn();
        start(10_000).unwrap();
        {
            let mut outer = span("nest", "outer");
            counter("queue \"length\"", 3.5);
            counter("queue \"length\"", f64::NAN);
            thread::sleep(Duration::from_millis(2));
            drop(span("nest", "inner").with("share", f64::NAN));
            outer.add("bytes", 4096);
        }
        let json = written(&finish().unwrap());
        let [outer, inner] = records(&json, "nest").collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((&outer["name"], &inner["name"]), (&json!("outer"), &json!("inner")));
        assert_eq!(outer["args"], json!({"bytes": 4096}));
        assert_eq!(inner["args"], json!({"share": null}));
        let end = |record: &Value| time(record) + record["dur"].as_f64().unwrap();
        assert!(time(outer) + 2000.0 <= time(inner) && end(inner) <= end(outer));
        let counters: Vec<_> = (json["traceEvents"].as_array().unwrap().iter())
            .filter(|record| record["name"] == "queue \"length\"")
            .map(|record| record["args"]["value"].as_f64().unwrap())
            .collect();
        assert_eq!(counters, [3.5]);
    }

    #[test]
    fn records_are_in_order_of_time() {
        let _turn = turn();
        start(10_000).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _operation = operation("order", "write");
                        let _span = span("order", "submit");
                        counter("in flight", 1.0);
                    }
                });
            }
        });
        let json = written(&finish().unwrap());
        let records = json["traceEvents"].as_array().unwrap();
        let times: Vec<_> = records.iter().filter_map(|record| record["ts"].as_f64()).collect();
        assert!(times.len() >= 1600 && times.is_sorted());
    }

    /// A session of its own, so that the count is exact whatever other tests do.
    #[test]
    fn events_beyond_the_limit_are_counted_and_the_count_is_written() {
        let mut session = Session::new(1, 3);
        for _ in 0..5 {
            let now = session.epoch + Duration::from_micros(7);
            let id = session.next_id();
            let open = Open {
                session: 1,
                id: Some(id),
                begin: session.epoch,
                thread: thread_id(),
                category: "limit",
                name: "read",
                arguments: Vec::new(),
            };
            session.close(open, now);
        }
        session.next_id();
        let trace = session.into_trace();
        assert_eq!((trace.len(), trace.dropped(), trace.unfinished()), (3, 2, 1));
        let json = written(&trace);
        assert_eq!(json["otherData"]["dropped_events"], 2);
        assert_eq!(json["otherData"]["unfinished_operations"], 1);
        assert_eq!(records(&json, "limit").count(), 6, "three whole pairs");
        let last = json["traceEvents"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["ph"], &last["args"]["dropped_events"]), (&json!("i"), &json!(2)));
    }

    #[test]
    fn long_texts_and_many_arguments_are_cut() {
        let mut open = Some(Open {
            session: 0,
            id: None,
            begin: Instant::now(),
            thread: 0,
            category: "",
            name: "",
            arguments: Vec::new(),
        });
        for _ in 0..2 * ARGUMENTS_MAX {
            Open::add(&mut open, "text", "é".repeat(TEXT_BYTES_MAX).as_str());
        }
        let arguments = open.unwrap().arguments;
        assert_eq!(arguments.len(), ARGUMENTS_MAX);
        assert_eq!(arguments[0].1, Argument::Text("é".repeat(TEXT_BYTES_MAX / 2)));
    }

    #[test]
    fn an_empty_trace_is_valid_json() {
        let trace = Session::new(1, 1).into_trace();
        assert!(trace.is_empty());
        assert_eq!(written(&trace)["otherData"]["dropped_events"], 0);
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_what_was_there() {
        let trace = Session::new(1, 1).into_trace();
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing/trace.json");
        let error = trace.write_to(&missing).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains("missing/trace.json"), "{error}");
        // A directory can't be replaced by a file: the rename fails after the write succeeded.
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(trace.write_to(&taken).is_err());
        assert!(taken.is_dir());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary is left");
        assert_eq!(trace.write_to("..").unwrap_err().kind(), Kind::InvalidInput);
    }
}
