//! Groups of horizontal bars: one thing done by several, side by side.
//!
//! Bars are compared inside a group only, and each group has its own scale: a figure shows a save
//! at the disk's speed and a load at memory's, and a common scale would flatten the first. So there
//! is no axis; each bar's value stands at its end.

use super::canvas::{Anchor, Canvas, Paint, Text};
use super::page::{Heading, MARGIN, WIDTH};

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// Where and when it was measured, and how to read it: a line each.
    pub notes: Vec<String>,
    /// From top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that are compared with one another.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// What was done.
    pub name: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One contestant in one group.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Who.
    pub name: String,
    /// How long the bar is, and from where to where the samples went; `None` if there is no
    /// figure, whatever the reason.
    pub value: Option<Value>,
    /// What stands at the bar's end: the figure with its unit, or why there is none.
    pub label: String,
    /// The role: what the chart is about, or what it is compared with.
    pub paint: Paint,
}

/// A figure and its spread.
#[derive(Debug, Clone, Copy)]
pub struct Value {
    /// The median.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

const GROUP: Text = Text { size: 13.5, bold: true, paint: Paint::Ink, anchor: Anchor::Start };
const NAME: Text = Text { size: 12.5, bold: false, paint: Paint::Ink, anchor: Anchor::End };
const LABEL: Text = Text { size: 12.5, bold: false, paint: Paint::Ink, anchor: Anchor::Start };
const GROUP_STEP: f64 = 40.0;
const BAR_STEP: f64 = 24.0;
const BAR_HEIGHT: f64 = 16.0;
const GAP: f64 = 10.0;
/// What fits beside a bar that is missing.
const LABEL_CHARS_MAX: usize = 80;
/// What a bar gets at least, so that the smallest is still seen.
const BAR_MIN: f64 = 1.5;

impl Bars {
    /// The chart as an SVG document.
    pub fn draw(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let heading = Heading { title: &self.title, notes: &self.notes };
        let head = heading.bottom() + 8.0;
        let height =
            head + self.groups.len() as f64 * GROUP_STEP + bars as f64 * BAR_STEP + MARGIN / 2.0;
        let mut canvas = Canvas::new(WIDTH, height);
        heading.draw(&mut canvas);
        let (left, room) = self.columns();
        let mut y = head;
        for group in &self.groups {
            canvas.line((MARGIN, y + 10.0), (WIDTH - MARGIN, y + 10.0), Paint::Rule);
            y += GROUP_STEP;
            canvas.text(MARGIN, y - 11.0, GROUP, &group.name);
            y = group.draw(&mut canvas, y, (left, room));
        }
        canvas.finish(&self.title)
    }

    /// Where bars begin, and how long the longest may be: what names and labels leave.
    fn columns(&self) -> (f64, f64) {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let names = bars().map(|bar| NAME.width(&bar.name)).fold(0.0, f64::max);
        // The label of a bar that is missing starts where bars begin, and takes their place.
        let labels = bars().filter(|bar| bar.value.is_some());
        let labels = labels.map(|bar| LABEL.width(&bar.label)).fold(0.0, f64::max);
        let left = (MARGIN + names + GAP).min(WIDTH / 2.0);
        (left, (WIDTH - MARGIN - left - labels - GAP).max(WIDTH / 10.0))
    }
}

impl Group {
    /// Draws the bars from `y` on and gives the place below them.
    fn draw(&self, canvas: &mut Canvas, mut y: f64, (left, room): (f64, f64)) -> f64 {
        let largest = self.bars.iter().filter_map(|bar| bar.value).map(|value| value.max);
        let largest = largest.fold(0.0, f64::max);
        let length = |value: f64| if largest > 0.0 { value / largest * room } else { 0.0 };
        for bar in &self.bars {
            let (base, bold) = (y + BAR_HEIGHT - 4.0, bar.paint == Paint::Highlight);
            canvas.text(left - GAP, base, Text { bold, ..NAME }, &bar.name);
            match bar.value {
                Some(value) => {
                    let size = (length(value.median).max(BAR_MIN), BAR_HEIGHT);
                    canvas.rectangle(left, y, size, 2.0, bar.paint);
                    let middle = y + BAR_HEIGHT / 2.0;
                    let (from, to) = (left + length(value.min), left + length(value.max));
                    canvas.line((from, middle), (to, middle), Paint::Faint);
                    canvas.text(
                        to.max(left + size.0) + GAP,
                        base,
                        Text { bold, ..LABEL },
                        &bar.label,
                    );
                }
                None => canvas.text(left, base, Text { paint: Paint::Faint, ..LABEL }, &bar.label),
            }
            y += BAR_STEP;
        }
        y
    }
}

/// A label that fits beside a bar.
pub fn shortened(text: &str) -> String {
    if text.chars().count() <= LABEL_CHARS_MAX {
        return text.into();
    }
    text.chars().take(LABEL_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, median: f64, paint: Paint) -> Bar {
        let value = Some(Value { median, min: median, max: median });
        Bar { name: name.into(), value, label: format!("{median:.2} GB/s"), paint }
    }

    fn chart() -> Bars {
        let absent =
            Bar { value: None, label: "not installed".into(), ..bar("c", 0.0, Paint::Plain) };
        let first = vec![bar("ours", 2.0, Paint::Highlight), bar("a & b", 1.0, Paint::Plain)];
        let groups = vec![
            Group { name: "save".into(), bars: first },
            Group { name: "load".into(), bars: vec![bar("ours", 0.5, Paint::Highlight), absent] },
        ];
        Bars { title: "Speed".into(), notes: vec!["a machine".into()], groups }
    }

    /// The values of an attribute of all elements that contain `part`.
    fn values(drawn: &str, part: &str, attribute: &str) -> Vec<f64> {
        let lines = drawn.lines().filter(|line| line.starts_with("<rect") && line.contains(part));
        let value = |line: &str| {
            line.split_once(&format!(" {attribute}=\"")).map(|(_, rest)| {
                rest.split('"').next().unwrap_or_default().parse().expect("a number")
            })
        };
        lines.filter_map(value).collect()
    }

    #[test]
    fn bars_are_as_long_as_their_share_of_the_groups_largest() {
        let drawn = chart().draw();
        let (ours, rival) =
            (values(&drawn, "highlight", "width"), values(&drawn, "\"plain\"", "width"));
        assert_eq!((ours.len(), rival.len()), (2, 1));
        assert!((ours[0] / rival[0] - 2.0).abs() < 0.01 && (ours[0] - ours[1]).abs() < 0.01);
        let starts = [values(&drawn, "highlight", "x"), values(&drawn, "\"plain\"", "x")].concat();
        assert!(starts.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.01));
    }

    #[test]
    fn everything_said_is_drawn_once_and_inside_the_card() {
        let drawn = chart().draw();
        for text in ["a machine", "save", "load", "a &amp; b", "2.00 GB/s", "not installed"] {
            assert_eq!(drawn.matches(&format!(">{text}</text>")).count(), 1, "{text}");
        }
        let card = values(&drawn, "card", "height")[0];
        assert!(
            values(&drawn, "rect", "y").into_iter().all(|y| y + BAR_HEIGHT <= card || y == 0.0)
        );
    }

    #[test]
    fn the_same_data_gives_the_same_bytes_also_without_any() {
        assert_eq!(chart().draw(), chart().draw());
        let empty = Bars { title: "Nothing".into(), ..Bars::default() }.draw();
        assert!(empty.starts_with("<svg ") && empty.ends_with("</svg>\n"));
    }
}
