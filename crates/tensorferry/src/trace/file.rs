//! What was recorded, and the file that it becomes: Chrome's JSON, one record a line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::event::{Arguments, Event, What};
use crate::error::{Error, Result};

/// What was recorded between [`start`](super::start) and [`finish`](super::finish).
#[derive(Debug)]
pub struct Trace {
    pub(super) events: Vec<Event>,
    pub(super) threads: BTreeMap<u64, String>,
    pub(super) dropped: u64,
    pub(super) first_drop: Option<u64>,
    pub(super) unfinished: u64,
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
    use crate::trace::session::Session;
    use crate::trace::testing::{turn, written};
    use crate::trace::{counter, finish, operation, span, start};
    use std::thread;

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
