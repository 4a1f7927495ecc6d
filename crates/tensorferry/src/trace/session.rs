//! A trace in the making: what was kept, what was dropped, and what has begun and not yet ended.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

use super::event::{ARGUMENTS_MAX, Argument, Arguments, Event, What};
use super::file::Trace;
use super::{ON, with_session};

/// A trace in the making. Times are nanoseconds since `epoch`.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
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

impl Session {
    pub(super) fn new(number: u64, limit: usize) -> Self {
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
    pub(super) fn next_id(&mut self) -> u64 {
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

    pub(super) fn push(&mut self, now: u64, event: Event) {
        if self.events.len() < self.limit {
            self.events.push(event);
        } else {
            self.dropped += 1;
            self.first_drop.get_or_insert(now);
        }
    }

    pub(super) fn this_thread(&mut self) -> u64 {
        let id = thread_id();
        // Threads are few; those that come after the limit are not worth their memory.
        if !self.threads.contains_key(&id) && self.events.len() < self.limit {
            let name = thread::current().name().map_or_else(|| format!("thread {id}"), Into::into);
            self.threads.insert(id, name);
        }
        id
    }

    pub(super) fn since_start(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    pub(super) fn into_trace(self) -> Trace {
        let Self { events, threads, dropped, first_drop, .. } = self;
        Trace { events, threads, dropped, first_drop, unfinished: self.begun - self.ended }
    }
}

/// What has begun and not yet ended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) session: u64,
    /// Only operations have one.
    pub(super) id: Option<u64>,
    begin: Instant,
    thread: u64,
    category: &'static str,
    name: &'static str,
    arguments: Arguments,
}

impl Open {
    pub(super) fn begin(category: &'static str, name: &'static str) -> Option<Self> {
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

    pub(super) fn add(open: &mut Option<Self>, name: &'static str, value: impl Into<Argument>) {
        // Converting may allocate, so it waits until it is known to be wanted.
        if let Some(open) = open
            && open.arguments.len() < ARGUMENTS_MAX
        {
            open.arguments.push((name, value.into()));
        }
    }

    pub(super) fn end(self) {
        let now = Instant::now();
        with_session(self.session, |session| session.close(self, now));
    }
}

/// The kernel's number of this thread, as in `/proc` and other tools.
fn thread_id() -> u64 {
    thread_local!(static ID: u64 = rustix::thread::gettid().as_raw_nonzero().get() as u64);
    ID.with(|id| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TEXT_BYTES_MAX;
    use crate::trace::testing::{records, written};
    use serde_json::json;
    use std::time::Duration;

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
}
