//! What an engine counts.
//!
//! | series | labels | counts |
//! |---|---|---|
//! | `ferry_io_operations_total` | `op`, `priority` | operations done, failed ones too |
//! | `ferry_io_failures_total` | `op`, `priority` | operations that failed |
//! | `ferry_io_bytes_total` | `op`, `priority` | bytes of operations that succeeded |
//! | `ferry_io_operation_seconds` | `op`, `priority` | from accepting to answering |
//! | `ferry_io_transfers_total` | `way` | requests to the kernel, by the way they took |
//! | `ferry_io_again_total` | `why` | pieces that went out again: `short`, `hindered` |

use std::time::Duration;

use super::operation::Outcome;
use super::piece::Flow;
use super::priority::Priority;
use crate::error::Result;
use crate::metrics::{Counter, Histogram, Registry};

/// Handles to an engine's series.
pub(super) struct Meter {
    /// By priority, then by verb.
    cells: [[Cell; 3]; 4],
    pub direct: Counter,
    pub staged: Counter,
    pub buffered: Counter,
    short: Counter,
    hindered: Counter,
}

struct Cell {
    operations: Counter,
    failures: Counter,
    bytes: Counter,
    seconds: Histogram<Duration>,
}

/// What an operation does, as a label.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Read,
    Write,
    Sync,
}

impl Verb {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Sync];

    pub(super) const fn of(flow: Flow) -> Self {
        match flow {
            Flow::Read => Self::Read,
            Flow::Write => Self::Write,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
        }
    }
}

impl Meter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let mut cells = Vec::new();
        for priority in Priority::ALL {
            let [read, write, sync] = Verb::ALL.map(|verb| Cell::new(registry, verb, priority));
            cells.push([read?, write?, sync?]);
        }
        let way = |name| registry.counter("ferry_io_transfers_total", &[("way", name)]);
        let again = |why| registry.counter("ferry_io_again_total", &[("why", why)]);
        let meter = Self {
            cells: cells.try_into().unwrap_or_else(|_| unreachable!("one row a priority")),
            direct: way("direct")?,
            staged: way("staged")?,
            buffered: way("buffered")?,
            short: again("short")?,
            hindered: again("hindered")?,
        };
        describe(registry)?;
        Ok(meter)
    }

    /// A piece came back.
    pub(super) fn landed(&self, outcome: Outcome) {
        match outcome {
            Outcome::Whole => {}
            Outcome::Short => self.short.add(1),
            Outcome::Hindered => self.hindered.add(1),
        }
    }

    /// An operation is done; `bytes` when it succeeded.
    pub(super) fn done(&self, verb: Verb, priority: Priority, took: Duration, bytes: Option<u64>) {
        let cell = &self.cells[priority as usize][verb as usize];
        cell.operations.add(1);
        cell.seconds.record(took);
        match bytes {
            Some(bytes) => cell.bytes.add(bytes),
            None => cell.failures.add(1),
        }
    }
}

impl Cell {
    fn new(registry: &Registry, verb: Verb, priority: Priority) -> Result<Self> {
        let labels = [("op", verb.name()), ("priority", priority.name())];
        Ok(Self {
            operations: registry.counter("ferry_io_operations_total", &labels)?,
            failures: registry.counter("ferry_io_failures_total", &labels)?,
            bytes: registry.counter("ferry_io_bytes_total", &labels)?,
            seconds: registry.histogram("ferry_io_operation_seconds", &labels)?,
        })
    }
}

fn describe(registry: &Registry) -> Result<()> {
    for (name, help) in [
        ("ferry_io_operations_total", "Operations done, failed ones too."),
        ("ferry_io_failures_total", "Operations that failed."),
        ("ferry_io_bytes_total", "Bytes of operations that succeeded."),
        ("ferry_io_operation_seconds", "From accepting an operation to answering it."),
        ("ferry_io_transfers_total", "Requests to the kernel, by the way they took."),
        ("ferry_io_again_total", "Pieces that went out again."),
    ] {
        registry.describe(name, help)?;
    }
    Ok(())
}
