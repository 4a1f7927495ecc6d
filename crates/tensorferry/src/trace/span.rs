//! Spans and operations: what begins when it is made and ends when it is dropped.

use std::marker::PhantomData;

use super::event::Argument;
use super::session::{Open, Session};
use super::with_session;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{records, time, turn, written};
    use crate::trace::{counter, finish, start};
    use serde_json::{Value, json};
    use std::collections::HashMap;
    use std::thread;
    use std::time::Duration;

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
}
