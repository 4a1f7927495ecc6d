//! A snapshot in the text format of Prometheus, which leaves out most buckets.

use std::fmt::{self, Write as _};

use super::quantity::Unit;
use super::snapshot::{Series, Snapshot, Summary, Value};

impl Snapshot {
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

impl Unit {
    /// The powers of four that Prometheus sees: a microsecond to a minute, 1 KiB to 64 GiB, 1 to
    /// 67 million. Fixed, because the server compares buckets over time and over processes; few,
    /// because each is a series there. Plain data keeps all buckets.
    fn bounds(self) -> impl Iterator<Item = f64> {
        let first = if self == Self::Ones { 0 } else { 5 };
        (first..first + 14).map(move |power| self.scale(1 << (2 * power)))
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
