//! Lines over a common axis: how something went on, with several side by side.
//!
//! The line that the figure is about is drawn last, thin and over the others: where it hides them,
//! they are the same.

use super::canvas::{Anchor, Canvas, Paint, Text};
use super::page::{Heading, MARGIN, WIDTH};

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// Where and when it was measured, and how to read it: a line each.
    pub notes: Vec<String>,
    /// What goes from left to right.
    pub across: String,
    /// What goes up.
    pub up: String,
    /// From the back to the front.
    pub lines: Vec<Line>,
}

/// One of the lines.
#[derive(Debug, Clone)]
pub struct Line {
    /// Whose.
    pub name: String,
    /// At equal distances.
    pub values: Vec<f64>,
    /// The role: what the chart is about, or what it is compared with.
    pub paint: Paint,
}

const FIELD_HEIGHT: f64 = 320.0;
/// What labels of the axis take to the left of the field.
const LABELS_WIDTH: f64 = 52.0;
const NAME_STEP: f64 = 20.0;
/// Lines that guide the eye, from bottom to top.
const RULES: u32 = 5;
const AXIS: Text = Text { size: 12.0, bold: false, paint: Paint::Faint, anchor: Anchor::End };
const NAME: Text = Text { size: 12.5, bold: false, paint: Paint::Ink, anchor: Anchor::End };

/// Where values lie on the canvas.
struct Field {
    top: f64,
    most: f64,
    count: usize,
}

impl Field {
    const LEFT: f64 = MARGIN + LABELS_WIDTH;
    const RIGHT: f64 = WIDTH - MARGIN;

    fn x(&self, place: usize) -> f64 {
        let last = self.count.saturating_sub(1).max(1) as f64;
        Self::LEFT + place as f64 / last * (Self::RIGHT - Self::LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.most > 0.0 { (value / self.most).min(1.0) } else { 0.0 };
        self.top + FIELD_HEIGHT * (1.0 - share)
    }
}

impl Lines {
    /// The chart as an SVG document.
    pub fn draw(&self) -> String {
        let heading = Heading { title: &self.title, notes: &self.notes };
        let top = heading.bottom() + 30.0;
        let mut canvas = Canvas::new(WIDTH, top + FIELD_HEIGHT + MARGIN + 22.0);
        heading.draw(&mut canvas);
        let values = || self.lines.iter().flat_map(|line| &line.values).filter(|v| v.is_finite());
        let most = values().copied().fold(0.0, f64::max);
        let count = self.lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
        let field = Field { top, most, count };
        self.axes(&mut canvas, &field);
        for line in &self.lines {
            let point = |(place, value): (usize, &f64)| (field.x(place), field.y(*value));
            let points: Vec<_> = line.values.iter().enumerate().map(point).collect();
            canvas.path(&points, line.paint);
        }
        self.names(&mut canvas, top);
        canvas.finish(&self.title)
    }

    fn axes(&self, canvas: &mut Canvas, field: &Field) {
        for rule in 0..=RULES {
            let value = field.most * f64::from(rule) / f64::from(RULES);
            let y = field.y(value);
            canvas.line((Field::LEFT, y), (Field::RIGHT, y), Paint::Rule);
            canvas.text(Field::LEFT - 8.0, y + 4.0, AXIS, &format!("{value:.2}"));
        }
        let (start, below) = (Text { anchor: Anchor::Start, ..AXIS }, field.top + FIELD_HEIGHT);
        canvas.text(MARGIN, field.top - 12.0, start, &self.up);
        canvas.text(Field::LEFT, below + 20.0, start, "1");
        let end = format!("{}: {}", self.across, field.count);
        canvas.text(Field::RIGHT, below + 20.0, AXIS, &end);
    }

    /// Names stand in the upper right corner, each with a piece of its line.
    fn names(&self, canvas: &mut Canvas, top: f64) {
        for (place, line) in self.lines.iter().enumerate() {
            let y = top + 18.0 + place as f64 * NAME_STEP;
            canvas.rectangle(Field::RIGHT - 28.0, y - 6.0, (20.0, 4.0), 1.0, line.paint);
            canvas.text(Field::RIGHT - 36.0, y, NAME, &line.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Lines {
        let line = |name: &str, values: &[f64], paint| Line {
            name: name.into(),
            values: values.to_vec(),
            paint,
        };
        Lines {
            title: "Loss".into(),
            notes: vec!["a machine".into()],
            across: "steps".into(),
            up: "loss".into(),
            lines: vec![
                line("a & b", &[2.0, 1.0, 0.0], Paint::Plain),
                line("ours", &[2.0, f64::NAN, 0.5], Paint::Highlight),
            ],
        }
    }

    #[test]
    fn lines_reach_from_edge_to_edge_and_the_largest_to_the_top() {
        let drawn = chart().draw();
        let path = drawn.lines().find(|line| line.starts_with("<polyline")).unwrap();
        let points: Vec<(f64, f64)> = path
            .split('"')
            .nth(1)
            .unwrap()
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!(points.len(), 3);
        let [(left, top), _, (right, bottom)] = points[..] else { panic!("three points") };
        assert!((left - Field::LEFT).abs() < 0.01 && (right - Field::RIGHT).abs() < 0.01);
        assert!((bottom - top - FIELD_HEIGHT).abs() < 0.01);
    }

    #[test]
    fn everything_said_is_drawn_and_what_is_no_number_is_left_out() {
        let drawn = chart().draw();
        for text in ["a machine", "a &amp; b", "ours", "loss", "steps: 3"] {
            assert_eq!(drawn.matches(&format!(">{text}</text>")).count(), 1, "{text}");
        }
        assert!(!drawn.contains("NaN"), "{drawn}");
        assert!(Lines::default().draw().ends_with("</svg>\n"));
    }
}
