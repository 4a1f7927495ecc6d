//! Metrics: what each stage did, as counters, gauges and histograms, readable as plain data and as
//! Prometheus text.
//!
//! A [`Registry`] owns series; a series is a name and labels. Asking for one takes a lock and may
//! allocate, so a stage asks once and keeps the handle. Handles are shared counts of atomics:
//! recording takes no lock, allocates nothing and never fails. A registry belongs to whoever made
//! it, so that two engines or two tests do not mix their numbers; [`Registry::global`] is the one
//! that Python's `metrics()` shows. That, and plain data without an exporter, is why this is not
//! the `metrics` crate, whose recorder is one for the process.
//!
//! **Histograms** have fixed memory: 16 buckets for each power of two, so that a quantile is wrong
//! by at most 1/32 of its value, over the whole range of `u64`, in 8 KiB. Bucket bounds belong to
//! the bucket below, as in Prometheus: 4096 bytes are counted under `le="4096"`. A histogram is of
//! one [`Quantity`]: durations, sizes or plain numbers; it counts in nanoseconds, bytes or ones,
//! and is read in seconds, bytes or ones.
//!
//! **Bounds.** A registry holds at most [`SERIES_MAX`] series and [`NAMES_MAX`] names. Names stand
//! in the code, so one too many is an error. Label values may come from outside, and a metric must
//! not fail the work it counts, so when the registry is full, new label values of a name share one
//! series labelled `overflow="true"`: sums over a name stay right, only the detail is lost.
//!
//! **Consistency.** A snapshot is taken while others record. Each number in it was true at some
//! moment during the snapshot; a histogram's `count` is the sum of its buckets, its `sum` may be
//! of one moment later.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
// Not from `crate::sync`: no lock here is held while another is taken or waited for, so there is
// nothing for loom to explore, and code under loom may record as elsewhere.
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Kind, Result};
use crate::size::Size;

/// The most series that a registry holds, without the overflow series of each name.
pub const SERIES_MAX: usize = 4096;
/// The most names that a registry holds.
pub const NAMES_MAX: usize = 512;
/// The most labels that a series has.
pub const LABELS_MAX: usize = 8;
/// The most bytes of a name, a label or its value.
pub const TEXT_BYTES_MAX: usize = 256;

/// A set of series; see the [module](self). Clones share it.
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
            Cell::Buckets(buckets) => Ok(Histogram(buckets, PhantomData)),
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

/// A number that only grows.
#[derive(Debug, Clone)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down: a queue's length, a share.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        let changed = |bits| (f64::from_bits(bits) + change).to_bits();
        self.0.update(Relaxed, Relaxed, changed);
    }

    /// The value now.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

/// What a histogram is of: [`Duration`], [`Size`] or plain `u64`.
pub trait Quantity: sealed::Raw {
    /// The unit in which it is read.
    const UNIT: Unit;
}

impl Quantity for Duration {
    const UNIT: Unit = Unit::Seconds;
}

impl Quantity for Size {
    const UNIT: Unit = Unit::Bytes;
}

impl Quantity for u64 {
    const UNIT: Unit = Unit::Ones;
}

mod sealed {
    use super::{Duration, Size};

    /// The whole number that is counted.
    pub trait Raw {
        fn raw(self) -> u64;
    }

    impl Raw for Duration {
        fn raw(self) -> u64 {
            // 2^64 nanoseconds are 584 years.
            u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
        }
    }

    impl Raw for Size {
        fn raw(self) -> u64 {
            self.0
        }
    }

    impl Raw for u64 {
        fn raw(self) -> u64 {
            self
        }
    }
}

/// The unit in which a histogram is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Counted in nanoseconds.
    Seconds,
    /// Counted in bytes.
    Bytes,
    /// Plain numbers.
    Ones,
}

impl Unit {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Seconds => "_seconds",
            Self::Bytes => "_bytes",
            Self::Ones => "",
        }
    }

    fn scale(self, raw: u128) -> f64 {
        match self {
            Self::Seconds => raw as f64 / 1e9,
            Self::Bytes | Self::Ones => raw as f64,
        }
    }

    /// The powers of four that Prometheus sees: a microsecond to a minute, 1 KiB to 64 GiB, 1 to
    /// 67 million. Fixed, because the server compares buckets over time and over processes; few,
    /// because each is a series there. Plain data keeps all buckets.
    fn bounds(self) -> impl Iterator<Item = f64> {
        let first = if self == Self::Ones { 0 } else { 5 };
        (first..first + 14).map(move |power| self.scale(1 << (2 * power)))
    }
}

/// How often which quantity occurred.
pub struct Histogram<Q>(Arc<Buckets>, PhantomData<fn(Q)>);

impl<Q: Quantity> Histogram<Q> {
    /// Counts one occurrence.
    pub fn record(&self, quantity: Q) {
        self.0.record(quantity.raw());
    }
}

impl<Q> Clone for Histogram<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

/// Buckets for each power of two, as a power of two.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;
/// The numbers up to `FINE` have a bucket each; then `FINE` for each power of two below 2^64.
const BUCKETS: usize = FINE * (64 - FINE_BITS as usize + 1);

struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Buckets {
    fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }

    fn record(&self, raw: u64) {
        self.min.fetch_min(raw, Relaxed);
        self.max.fetch_max(raw, Relaxed);
        self.sum.fetch_add(raw, Relaxed);
        // Last, and released, so that whoever reads this count also sees it within min and max.
        self.counts[index_of(raw)].fetch_add(1, Release);
    }

    fn read(&self, unit: Unit) -> Summary {
        let load = |count: &AtomicU64| count.load(Acquire);
        let counts: Vec<(usize, u64)> =
            self.counts.iter().map(load).enumerate().filter(|(_, count)| *count > 0).collect();
        let count = counts.iter().map(|(_, count)| count).sum();
        let (min, max) = (self.min.load(Relaxed), self.max.load(Relaxed));
        let some = |raw: u64| (count > 0).then(|| unit.scale(raw.into()));
        let quantile = |q: f64| some(middle_of(rank(&counts, count, q)).clamp(min.min(max), max));
        Summary {
            unit,
            count,
            sum: unit.scale(self.sum.load(Relaxed).into()),
            min: some(min),
            max: some(max),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            buckets: counts
                .iter()
                .map(|(index, count)| Bucket { le: unit.scale(range_of(*index).1), count: *count })
                .collect(),
        }
    }
}

/// The bucket of a number. Bounds belong to the bucket below, hence the number before it decides.
fn index_of(raw: u64) -> usize {
    let before = raw.saturating_sub(1);
    match before.checked_ilog2() {
        Some(power) if power >= FINE_BITS => {
            let shift = power - FINE_BITS;
            (shift as usize + 1) * FINE + ((before >> shift) as usize & (FINE - 1))
        }
        _ => before as usize,
    }
}

/// The bucket holds the numbers above the first and up to the second; the lowest also holds zero.
fn range_of(index: usize) -> (u128, u128) {
    let shift = (index / FINE).saturating_sub(1);
    let first = if index < FINE { index } else { FINE + index % FINE } as u128;
    (first << shift, (first + 1) << shift)
}

fn middle_of(index: usize) -> u64 {
    let (above, up_to) = range_of(index);
    u64::try_from(u128::midpoint(above + 1, up_to)).unwrap_or(u64::MAX)
}

/// The bucket in which the quantile lies: the first with at least `q * count` up to its end.
fn rank(counts: &[(usize, u64)], count: u64, q: f64) -> usize {
    let wanted = ((q * count as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let found = counts.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    found.or(counts.last()).map_or(0, |(index, _)| *index)
}

fn read(cell: &Cell, kind: KindOf) -> Value {
    match (cell, kind) {
        (Cell::Number(number), KindOf::Gauge) => Value::Gauge(f64::from_bits(number.load(Relaxed))),
        (Cell::Number(number), _) => Value::Counter(number.load(Relaxed)),
        (Cell::Buckets(buckets), KindOf::Histogram(unit)) => Value::Histogram(buckets.read(unit)),
        (Cell::Buckets(buckets), _) => Value::Histogram(buckets.read(Unit::Ones)),
    }
}

/// All numbers of a registry, as plain data.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Snapshot {
    /// In the order of names and labels.
    pub series: Vec<Series>,
    /// What names mean, where somebody said so.
    pub help: BTreeMap<String, String>,
}

/// One series of a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What is counted.
    pub name: String,
    /// Of which kind, in which stage.
    pub labels: BTreeMap<String, String>,
    /// As JSON: `"kind": "counter", "value": 7`.
    #[serde(flatten)]
    pub value: Value,
}

/// A series' number or numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum Value {
    /// A number that only grows.
    Counter(u64),
    /// A number that goes up and down.
    Gauge(f64),
    /// A distribution.
    Histogram(Summary),
}

/// A distribution, in its unit. What an empty one does not have is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The unit of all numbers but the counts.
    pub unit: Unit,
    /// Number of occurrences.
    pub count: u64,
    /// Sum of all occurrences.
    pub sum: f64,
    /// The least, exactly.
    pub min: Option<f64>,
    /// The most, exactly.
    pub max: Option<f64>,
    /// Half of all occurrences are at most this, to 1/32 of it.
    pub p50: Option<f64>,
    /// 90% of all occurrences are at most this, to 1/32 of it.
    pub p90: Option<f64>,
    /// 99% of all occurrences are at most this, to 1/32 of it.
    pub p99: Option<f64>,
    /// The buckets that are not empty, from the lowest; their counts are not cumulated.
    pub buckets: Vec<Bucket>,
}

/// Occurrences above the bucket before and up to `le`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// The largest number that falls into this bucket.
    pub le: f64,
    /// Number of occurrences in this bucket alone.
    pub count: u64,
}

impl Snapshot {
    /// The numbers as a JSON document.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::new(Kind::Internal, "can't write metrics as JSON").caused_by(error)
        })
    }

    /// The numbers in Prometheus' text format, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for series in &self.series {
            if last != Some(&series.name) {
                self.write_head(&mut text, series);
                last = Some(&series.name);
            }
            series.write(&mut text);
        }
        text
    }

    fn write_head(&self, text: &mut String, series: &Series) {
        let Series { name, value, .. } = series;
        if let Some(help) = self.help.get(name) {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            push(text, format_args!("# HELP {name} {help}\n"));
        }
        let kind = match value {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_) => "histogram",
        };
        push(text, format_args!("# TYPE {name} {kind}\n"));
    }
}

impl Series {
    fn write(&self, text: &mut String) {
        match &self.value {
            Value::Counter(number) => self.write_line(text, "", None, &number.to_string()),
            Value::Gauge(number) => self.write_line(text, "", None, &float(*number)),
            Value::Histogram(summary) => self.write_histogram(text, summary),
        }
    }

    fn write_histogram(&self, text: &mut String, summary: &Summary) {
        let mut buckets = summary.buckets.iter().peekable();
        let mut count = 0;
        for bound in summary.unit.bounds() {
            while let Some(bucket) = buckets.next_if(|bucket| bucket.le <= bound) {
                count += bucket.count;
            }
            self.write_line(text, "_bucket", Some(&float(bound)), &count.to_string());
        }
        self.write_line(text, "_bucket", Some("+Inf"), &summary.count.to_string());
        self.write_line(text, "_sum", None, &float(summary.sum));
        self.write_line(text, "_count", None, &summary.count.to_string());
    }

    fn write_line(&self, text: &mut String, ending: &str, le: Option<&str>, value: &str) {
        let escaped =
            |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let own = self.labels.iter().map(|(label, value)| (label.as_str(), escaped(value)));
        let labels: Vec<_> = own
            .chain(le.map(|le| ("le", le.to_owned())))
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        text.push_str(&self.name);
        text.push_str(ending);
        if !labels.is_empty() {
            push(text, format_args!("{{{}}}", labels.join(",")));
        }
        push(text, format_args!(" {value}\n"));
    }
}

fn push(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = text.write_fmt(arguments);
}

fn float(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn summary(registry: &Registry) -> Summary {
        match &registry.snapshot().series[..] {
            [Series { value: Value::Histogram(summary), .. }] => summary.clone(),
            other => panic!("not one histogram: {other:?}"),
        }
    }

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
    fn a_gauge_is_set_and_changed() {
        let gauge = Registry::new().gauge("ferry_queue_length", &[]).unwrap();
        gauge.set(2.5);
        gauge.add(-1.0);
        assert_eq!(gauge.get().to_bits(), 1.5f64.to_bits());
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

    #[test]
    fn an_empty_histogram_has_no_extremes() {
        let registry = Registry::new();
        registry.histogram::<Duration>("ferry_wait_seconds", &[]).unwrap();
        let summary = summary(&registry);
        assert_eq!((summary.count, summary.min, summary.p99), (0, None, None));
    }

    #[test]
    fn durations_are_read_in_seconds() {
        let registry = Registry::new();
        let histogram = registry.histogram("ferry_wait_seconds", &[]).unwrap();
        histogram.record(Duration::from_millis(250));
        histogram.record(Duration::from_millis(750));
        let summary = summary(&registry);
        assert_eq!((summary.count, summary.min, summary.max), (2, Some(0.25), Some(0.75)));
        assert!((summary.sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_bucket_continues_the_one_below_and_the_last_reaches_the_largest_number() {
        assert_eq!((index_of(0), index_of(1), index_of(u64::MAX)), (0, 0, BUCKETS - 1));
        assert_eq!(range_of(BUCKETS - 1).1, 1 << 64);
        for index in 1..BUCKETS {
            assert_eq!(range_of(index - 1).1, range_of(index).0);
        }
    }

    proptest! {
        #[test]
        fn a_number_falls_into_the_bucket_whose_range_holds_it(bits in 0u32..64, raw: u64) {
            let raw = raw >> bits;
            let (above, up_to) = range_of(index_of(raw));
            prop_assert!((above < raw.into() || raw == 0) && u128::from(raw) <= up_to);
        }

        #[test]
        fn quantiles_are_right_to_one_part_in_32(
            values in prop::collection::vec((0u32..64, any::<u64>()), 1..200),
        ) {
            let registry = Registry::new();
            let histogram = registry.histogram::<u64>("ferry_values", &[]).unwrap();
            let mut values: Vec<u64> = values.into_iter().map(|(bits, v)| v >> bits).collect();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            let summary = summary(&registry);
            prop_assert_eq!(summary.count, values.len() as u64);
            for (q, estimate) in [(0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)] {
                let exact = values[(q * values.len() as f64).ceil() as usize - 1] as f64;
                let error = (estimate.unwrap() - exact).abs();
                // Zero shares a bucket with one.
                prop_assert!(error <= exact / 32.0 || (exact == 0.0 && error <= 1.0),
                    "{q}: {estimate:?} for {exact}");
            }
        }
    }
}
