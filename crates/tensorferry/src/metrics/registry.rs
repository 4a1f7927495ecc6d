//! The registry: who owns the series, which names they may have, and how many there can be.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::histogram::{Buckets, Histogram};
use super::number::{Counter, Gauge};
use super::quantity::{Quantity, Unit};
use super::snapshot::{Series, Snapshot, Value};
use crate::error::{Error, Result};

/// The most series that a registry holds, without the overflow series of each name.
pub const SERIES_MAX: usize = 4096;
/// The most names that a registry holds.
pub const NAMES_MAX: usize = 512;
/// The most labels that a series has.
pub const LABELS_MAX: usize = 8;
/// The most bytes of a name, a label or its value.
pub const TEXT_BYTES_MAX: usize = 256;

/// A set of series; see the [module](super). Clones share it.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    series_max: usize,
    names: Mutex<BTreeMap<String, Family>>,
}

/// All series of one name.
struct Family {
    kind: KindOf,
    help: Option<String>,
    series: BTreeMap<Labels, Cell>,
}

/// Label names and values, sorted by name.
type Labels = Vec<(String, String)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindOf {
    Counter,
    Gauge,
    Histogram(Unit),
}

#[derive(Clone)]
enum Cell {
    /// A counter's value, or the bits of a gauge's.
    Number(Arc<AtomicU64>),
    Buckets(Arc<Buckets>),
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::with_limit(SERIES_MAX)
    }

    /// An empty registry for at most so many series.
    pub fn with_limit(series_max: usize) -> Self {
        Self(Arc::new(Inner { series_max, names: Mutex::default() }))
    }

    /// The registry of this process, for those who have no better one.
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(Self::new)
    }

    /// The counter of this name and these labels; the same one each time.
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Result<Counter> {
        self.number(name, labels, KindOf::Counter).map(Counter)
    }

    /// The gauge of this name and these labels; the same one each time.
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Result<Gauge> {
        self.number(name, labels, KindOf::Gauge).map(Gauge)
    }

    /// The histogram of this name and these labels; the same one each time. A histogram of
    /// durations is named `…_seconds`, one of sizes `…_bytes`.
    pub fn histogram<Q: Quantity>(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Histogram<Q>> {
        match self.cell(name, labels, KindOf::Histogram(Q::UNIT))? {
            Cell::Buckets(buckets) => Ok(Histogram::new(buckets)),
            Cell::Number(_) => Err(other_kind(name)),
        }
    }

    /// Says what a name means, in one sentence; shown as `# HELP`.
    pub fn describe(&self, name: &str, help: &str) -> Result<()> {
        let mut names = self.lock();
        let family = names.get_mut(name).ok_or_else(|| {
            Error::invalid("describe a metric after it has been made").with("metric", name)
        })?;
        family.help = Some(help.to_owned());
        Ok(())
    }

    /// All numbers, in the order of names and labels.
    pub fn snapshot(&self) -> Snapshot {
        let names = self.lock();
        let mut snapshot = Snapshot::default();
        for (name, family) in names.iter() {
            let help = family.help.iter().map(|help| (name.clone(), help.clone()));
            snapshot.help.extend(help);
            snapshot.series.extend(family.series.iter().map(|(labels, cell)| Series {
                name: name.clone(),
                labels: labels.iter().cloned().collect(),
                value: read(cell, family.kind),
            }));
        }
        snapshot
    }

    fn number(&self, name: &str, labels: &[(&str, &str)], kind: KindOf) -> Result<Arc<AtomicU64>> {
        match self.cell(name, labels, kind)? {
            Cell::Number(number) => Ok(number),
            Cell::Buckets(_) => Err(other_kind(name)),
        }
    }

    fn cell(&self, name: &str, labels: &[(&str, &str)], kind: KindOf) -> Result<Cell> {
        check_name(name, kind)?;
        let labels = check_labels(name, labels)?;
        let mut names = self.lock();
        let known = names.values().map(|family| family.series.len()).sum::<usize>();
        if !names.contains_key(name) {
            if names.len() >= NAMES_MAX {
                return Err(Error::invalid("too many metric names")
                    .with("metric", name)
                    .with("limit", NAMES_MAX));
            }
            let family = Family { kind, help: None, series: BTreeMap::new() };
            names.insert(name.to_owned(), family);
        }
        let family = names.get_mut(name).filter(|family| family.kind == kind);
        let family = family.ok_or_else(|| other_kind(name))?;
        let full = known >= self.0.series_max && !family.series.contains_key(&labels);
        let labels = if full { overflow() } else { labels };
        Ok(family.series.entry(labels).or_insert_with(|| Cell::new(kind)).clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({} names)", self.lock().len())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Cell {
    fn new(kind: KindOf) -> Self {
        match kind {
            // Zero is also the bits of 0.0.
            KindOf::Counter | KindOf::Gauge => Self::Number(Arc::default()),
            KindOf::Histogram(_) => Self::Buckets(Arc::new(Buckets::new())),
        }
    }
}

fn read(cell: &Cell, kind: KindOf) -> Value {
    match (cell, kind) {
        (Cell::Number(number), KindOf::Gauge) => Value::Gauge(f64::from_bits(number.load(Relaxed))),
        (Cell::Number(number), _) => Value::Counter(number.load(Relaxed)),
        (Cell::Buckets(buckets), KindOf::Histogram(unit)) => Value::Histogram(buckets.read(unit)),
        (Cell::Buckets(buckets), _) => Value::Histogram(buckets.read(Unit::Ones)),
    }
}

fn overflow() -> Labels {
    vec![("overflow".to_owned(), "true".to_owned())]
}

#[cold]
fn other_kind(name: &str) -> Error {
    Error::invalid("a metric of this name exists and is of another kind").with("metric", name)
}

fn check_name(name: &str, kind: KindOf) -> Result<()> {
    let invalid = |why: &str| Err(Error::invalid(why).with("metric", format_args!("{name:?}")));
    if !is_identifier(name) {
        return invalid("a metric's name is made of a-z, A-Z, 0-9 and _, and starts with a letter");
    }
    let unit = match kind {
        KindOf::Histogram(unit) => unit.suffix(),
        KindOf::Counter => "_total",
        KindOf::Gauge => "",
    };
    if !name.ends_with(unit) {
        return invalid("a counter is named ..._total, a histogram ..._seconds or ..._bytes");
    }
    // A histogram `x` is written as `x_bucket`, `x_sum` and `x_count`.
    if ["_bucket", "_sum", "_count"].iter().any(|ending| name.ends_with(ending)) {
        return invalid("the endings _bucket, _sum and _count belong to histograms");
    }
    Ok(())
}

fn check_labels(name: &str, labels: &[(&str, &str)]) -> Result<Labels> {
    let invalid = |why: &str, label: &str| {
        let label = format!("{label:?}");
        Err(Error::invalid(why).with("metric", name).with("label", label))
    };
    if labels.len() > LABELS_MAX {
        return Err(Error::invalid("too many labels").with("metric", name).with("max", LABELS_MAX));
    }
    let mut sorted: Labels = Vec::with_capacity(labels.len());
    for (label, value) in labels {
        if !is_identifier(label) || ["le", "quantile", "overflow"].contains(label) {
            return invalid("not a label's name, or one with a meaning of its own", label);
        }
        if value.len() > TEXT_BYTES_MAX {
            return invalid("a label's value is too long", label);
        }
        if sorted.iter().any(|(other, _)| other == label) {
            return invalid("a label stands twice", label);
        }
        sorted.push(((*label).to_owned(), (*value).to_owned()));
    }
    sorted.sort_unstable();
    Ok(sorted)
}

fn is_identifier(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::size::Size;
    use std::time::Duration;

    #[test]
    fn the_same_name_and_labels_are_the_same_series_in_any_order() {
        let registry = Registry::new();
        let one = registry.counter("ferry_ops_total", &[("op", "read"), ("disk", "a")]).unwrap();
        let two = registry.counter("ferry_ops_total", &[("disk", "a"), ("op", "read")]).unwrap();
        one.add(1);
        two.add(2);
        assert_eq!(one.get(), 3);
        assert_eq!(registry.snapshot().series.len(), 1);
        assert_eq!(Registry::new().snapshot(), Snapshot::default());
    }

    #[test]
    fn bad_names_and_labels_are_errors_that_show_them() {
        let registry = Registry::new();
        for name in ["", "1_total", "a-b_total", "ü_total", "x", "a b_total", "__x_total"] {
            let error = registry.counter(name, &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidInput);
            assert!(error.to_string().contains(&format!("metric: {name:?}")), "{error}");
        }
        assert!(registry.gauge("ferry_wait_count", &[]).is_err());
        assert!(registry.histogram::<Duration>("ferry_wait_bytes", &[]).is_err());
        assert!(registry.histogram::<Size>("ferry_wait_seconds", &[]).is_err());
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for labels in [
            &[("le", "1")][..],
            &[("overflow", "true")],
            &[("a", "1"), ("a", "2")],
            &[("a b", "1")],
            &[("a", &long)],
            &[("l", ""); LABELS_MAX + 1],
        ] {
            let error = registry.counter("ferry_x_total", labels).unwrap_err();
            assert!(error.to_string().contains("ferry_x_total"), "{error}");
        }
        assert!(registry.snapshot().series.is_empty());
    }

    #[test]
    fn one_name_has_one_kind() {
        let registry = Registry::new();
        registry.gauge("ferry_x_seconds", &[]).unwrap();
        let error = registry.histogram::<Duration>("ferry_x_seconds", &[]).err().unwrap();
        assert!(error.to_string().contains("another kind"), "{error}");
        registry.histogram::<u64>("ferry_y_bytes", &[]).unwrap();
        assert!(registry.histogram::<Size>("ferry_y_bytes", &[]).is_err());
    }

    #[test]
    fn a_full_registry_keeps_sums_right_in_an_overflow_series() {
        let registry = Registry::with_limit(2);
        for file in ["a", "b", "c", "d", "a"] {
            registry.counter("ferry_reads_total", &[("file", file)]).unwrap().add(1);
        }
        registry.gauge("ferry_late", &[("file", "e")]).unwrap().set(1.0);
        let read: Vec<_> = (registry.snapshot().series.iter())
            .map(|s| (s.labels.values().next().unwrap().clone(), s.value.clone()))
            .collect();
        assert_eq!(
            read,
            [
                ("true".to_owned(), Value::Gauge(1.0)),
                ("a".to_owned(), Value::Counter(2)),
                ("b".to_owned(), Value::Counter(1)),
                ("true".to_owned(), Value::Counter(2)),
            ]
        );
    }

    #[test]
    fn one_name_too_many_is_an_error_that_states_the_limit() {
        let registry = Registry::new();
        for number in 0..NAMES_MAX {
            registry.gauge(&format!("ferry_{number}"), &[]).unwrap();
        }
        let error = registry.gauge("ferry_last", &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("limit: {NAMES_MAX}")), "{error}");
        registry.gauge("ferry_0", &[]).unwrap();
    }
}
