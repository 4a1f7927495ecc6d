//! What a monitoring system reads from a registry: many threads record, and the Prometheus text is
//! parsed by a reader that knows the format and nothing of the writer.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use tensorferry::Size;
use tensorferry::metrics::{Registry, Value};

type Labels = BTreeMap<String, String>;

#[derive(Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

#[derive(Debug, Default)]
struct Exposition {
    kinds: BTreeMap<String, String>,
    help: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

impl Exposition {
    fn parse(text: &str) -> Self {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line must end");
        let mut parsed = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(parsed.help.insert(name.into(), unescape(help)).is_none());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(parsed.kinds.insert(name.into(), kind.into()).is_none(), "{name} twice");
            } else {
                parsed.samples.push(parse_sample(line));
            }
        }
        parsed
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Labels = labels.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let mut found = self.samples.iter().filter(|s| s.name == name && s.labels == labels);
        let value = found.next().unwrap_or_else(|| panic!("no {name} {labels:?}")).value;
        assert!(found.next().is_none(), "{name} {labels:?} stands twice");
        value
    }
}

fn parse_sample(line: &str) -> Sample {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(inside, &mut labels);
    }
    let value = rest.strip_prefix(' ').unwrap();
    let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
    Sample { name: name.into(), labels, value }
}

/// Reads `a="b",c="d"}` and returns what follows.
fn parse_labels<'a>(mut rest: &'a str, labels: &mut Labels) -> &'a str {
    loop {
        let (label, value) = rest.split_once("=\"").unwrap();
        let mut escaped = false;
        let end = value
            .find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })
            .unwrap();
        assert!(labels.insert(label.into(), unescape(&value[..end])).is_none());
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.strip_prefix('}').unwrap(),
        }
    }
}

fn unescape(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::new();
    while let Some(c) = characters.next() {
        plain.push(match c {
            '\\' => match characters.next().unwrap() {
                'n' => '\n',
                other => other,
            },
            other => other,
        });
    }
    plain
}

#[test]
fn counts_of_many_threads_are_all_there() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 20_000;
    let registry = Registry::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let counter = registry.counter("ferry_ops_total", &[("op", "read")]).unwrap();
                let gauge = registry.gauge("ferry_in_flight", &[]).unwrap();
                let sizes = registry.histogram("ferry_op_bytes", &[]).unwrap();
                for round in 0..ROUNDS {
                    gauge.add(1.0);
                    counter.add(2);
                    sizes.record(Size(round));
                    gauge.add(-1.0);
                }
            });
        }
        for _ in 0..50 {
            check_histograms(&Exposition::parse(&registry.snapshot().to_prometheus()));
        }
    });
    let parsed = Exposition::parse(&registry.snapshot().to_prometheus());
    let close = |a: f64, b: u64| (a - b as f64).abs() < 0.5;
    assert!(close(parsed.value("ferry_ops_total", &[("op", "read")]), 2 * THREADS * ROUNDS));
    assert!(close(parsed.value("ferry_in_flight", &[]), 0));
    assert!(close(parsed.value("ferry_op_bytes_count", &[]), THREADS * ROUNDS));
    assert!(close(parsed.value("ferry_op_bytes_sum", &[]), THREADS * ROUNDS * (ROUNDS - 1) / 2));
}

/// Buckets are cumulative, in order, and end in `+Inf`, which is the count.
fn check_histograms(parsed: &Exposition) {
    for (name, _) in parsed.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        let bucket = format!("{name}_bucket");
        let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in parsed.samples.iter().filter(|sample| sample.name == bucket) {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le").unwrap();
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
            series.entry(labels).or_default().push((le, sample.value));
        }
        for (labels, buckets) in series {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
            let last = buckets.last().unwrap();
            let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let count = parsed.value(&format!("{name}_count"), &labels);
            assert!(last.0.is_infinite() && (last.1 - count).abs() < 0.5);
        }
    }
}

#[test]
fn the_prometheus_text_says_what_was_recorded() {
    let registry = Registry::new();
    let strange = "a \"b\" \\ c\nd, é}";
    registry.counter("ferry_io_bytes_total", &[("file", strange), ("op", "read")]).unwrap().add(7);
    registry.describe("ferry_io_bytes_total", "Bytes moved,\nby \\ kind.").unwrap();
    registry.gauge("ferry_ratio", &[]).unwrap().set(f64::INFINITY);
    let waits = registry.histogram("ferry_wait_seconds", &[("stage", "load")]).unwrap();
    for micros in [1, 900, 1000, 5000] {
        waits.record(Duration::from_micros(micros));
    }
    let sizes = registry.histogram("ferry_op_bytes", &[]).unwrap();
    for bytes in [4096, 4096, 4097, u64::MAX] {
        sizes.record(Size(bytes));
    }
    let parsed = Exposition::parse(&registry.snapshot().to_prometheus());
    check_histograms(&parsed);
    let is = |name: &str, labels: &[(&str, &str)], expected: f64| {
        let value = parsed.value(name, labels);
        assert!(
            value.total_cmp(&expected).is_eq() || (value - expected).abs() < 1e-9,
            "{name}: {value}"
        );
    };
    is("ferry_io_bytes_total", &[("file", strange), ("op", "read")], 7.0);
    is("ferry_ratio", &[], f64::INFINITY);
    is("ferry_wait_seconds_sum", &[("stage", "load")], 0.006_901);
    is("ferry_wait_seconds_bucket", &[("stage", "load"), ("le", "0.001048576")], 3.0);
    // A bound belongs to its bucket.
    is("ferry_op_bytes_bucket", &[("le", "4096")], 2.0);
    is("ferry_op_bytes_bucket", &[("le", "16384")], 3.0);
    is("ferry_op_bytes_bucket", &[("le", "+Inf")], 4.0);
    assert_eq!(parsed.help["ferry_io_bytes_total"], "Bytes moved,\nby \\ kind.");
    let kinds: BTreeSet<_> = parsed.kinds.values().map(String::as_str).collect();
    assert_eq!(kinds, ["counter", "gauge", "histogram"].into());
}

#[test]
fn the_order_of_series_does_not_depend_on_the_order_of_their_making() {
    let names = ["ferry_b_total", "ferry_a_total", "ferry_c_total"];
    let text = |order: [usize; 3]| {
        let registry = Registry::new();
        for index in order {
            registry.counter(names[index], &[("x", "2")]).unwrap().add(1);
            registry.counter(names[index], &[("x", "1")]).unwrap().add(1);
        }
        registry.snapshot().to_prometheus()
    };
    assert_eq!(text([0, 1, 2]), text([2, 0, 1]));
}

#[test]
fn a_snapshot_is_plain_data() {
    let registry = Registry::new();
    registry.counter("ferry_ops_total", &[("op", "read")]).unwrap().add(3);
    registry.histogram("ferry_wait_seconds", &[]).unwrap().record(Duration::from_secs(1));
    let snapshot = registry.snapshot();
    assert_eq!(snapshot.series[0].value, Value::Counter(3));
    let json = serde_json::to_value(&snapshot).unwrap();
    let first = serde_json::json!(
        {"name": "ferry_ops_total", "labels": {"op": "read"}, "kind": "counter", "value": 3}
    );
    assert_eq!(json["series"][0], first);
    let second = &json["series"][1]["value"];
    assert_eq!((&second["unit"], &second["p50"]), (&"seconds".into(), &1.0.into()));
    assert_eq!(second["buckets"].as_array().unwrap().len(), 1);
}
