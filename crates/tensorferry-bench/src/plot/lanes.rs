//! What happened when: lanes of blocks over time, and a quantity below them.
//!
//! All sections have one scale, so that what ends first is seen to end first.

use super::canvas::{Anchor, Canvas, Paint, Text};
use super::page::{Heading, MARGIN, WIDTH};

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Lanes {
    /// What it shows.
    pub title: String,
    /// How to read it: a line each.
    pub notes: Vec<String>,
    /// From top to bottom.
    pub sections: Vec<Section>,
}

/// One course of events.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Whose it is.
    pub name: String,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// Below the lanes.
    pub curve: Curve,
    /// Seconds that are marked by a line through all lanes.
    pub marks: Vec<f64>,
}

/// Blocks in a row.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// What happens there.
    pub name: String,
    /// By time, none over another.
    pub blocks: Vec<Block>,
}

/// Something that lasts.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Seconds.
    pub from: f64,
    /// Seconds.
    pub until: f64,
    /// Its role.
    pub paint: Paint,
}

/// A quantity over time, in steps, below a limit.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// What it is.
    pub name: String,
    /// From when on it is how much; nothing before the first.
    pub points: Vec<(f64, f64)>,
    /// What it never exceeds.
    pub limit: f64,
    /// What stands at the limit.
    pub label: String,
}

/// Where time begins.
const LEFT: f64 = 112.0;
const SECTION: Text = Text { size: 13.5, bold: true, paint: Paint::Ink, anchor: Anchor::Start };
const NAME: Text = Text { size: 12.5, bold: false, paint: Paint::Ink, anchor: Anchor::End };
const TICK: Text = Text { size: 11.0, bold: false, paint: Paint::Faint, anchor: Anchor::Middle };
const SECTION_STEP: f64 = 40.0;
const LANE_STEP: f64 = 24.0;
const LANE_HEIGHT: f64 = 16.0;
/// Room above the limit for its label.
const LIMIT_ROOM: f64 = 20.0;
const CURVE_HEIGHT: f64 = 84.0;
const AXIS_HEIGHT: f64 = 26.0;
const GAP: f64 = 10.0;
/// Blocks closer than so many pixels are drawn as one: nobody could tell them apart.
const TOGETHER: f64 = 0.25;
/// Ticks of the axis, about.
const TICKS: f64 = 8.0;

impl Lanes {
    /// The chart as an SVG document.
    pub fn draw(&self) -> String {
        let heading = Heading { title: &self.title, notes: &self.notes };
        let head = heading.bottom() + 8.0;
        let height = head + self.sections.iter().map(Section::height).sum::<f64>() + MARGIN / 2.0;
        let mut canvas = Canvas::new(WIDTH, height);
        heading.draw(&mut canvas);
        let scale = Scale::new(self.sections.iter().map(Section::end).fold(0.0, f64::max));
        let mut y = head;
        for section in &self.sections {
            section.draw(&mut canvas, y, &scale);
            y += section.height();
        }
        canvas.finish(&self.title)
    }
}

/// Seconds to pixels.
struct Scale {
    seconds: f64,
}

impl Scale {
    fn new(seconds: f64) -> Self {
        Self { seconds: if seconds > 0.0 { seconds } else { 1.0 } }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.seconds).clamp(0.0, 1.0) * (WIDTH - MARGIN - LEFT)
    }

    /// Round numbers of seconds, and how they are written.
    fn ticks(&self) -> Vec<(f64, String)> {
        let rough = self.seconds / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = nice.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let (factor, unit) = match self.seconds {
            long if long >= 2.0 => (1.0, "s"),
            short if short >= 2e-3 => (1e3, "ms"),
            _ => (1e6, "µs"),
        };
        let places = (-(step * factor).log10().floor()).max(0.0) as usize;
        let count = (self.seconds / step).floor() as usize;
        let tick = |number: usize| {
            let at = number as f64 * step;
            (at, format!("{:.places$} {unit}", at * factor))
        };
        (0..=count).map(tick).collect()
    }
}

impl Section {
    fn height(&self) -> f64 {
        let lanes = self.lanes.len() as f64 * LANE_STEP;
        SECTION_STEP + lanes + LIMIT_ROOM + CURVE_HEIGHT + AXIS_HEIGHT
    }

    fn end(&self) -> f64 {
        let blocks = self.lanes.iter().flat_map(|lane| &lane.blocks).map(|block| block.until);
        blocks.chain(self.curve.points.iter().map(|(at, _)| *at)).fold(0.0, f64::max)
    }

    fn draw(&self, canvas: &mut Canvas, mut y: f64, scale: &Scale) {
        canvas.line((MARGIN, y + 10.0), (WIDTH - MARGIN, y + 10.0), Paint::Rule);
        y += SECTION_STEP;
        canvas.text(MARGIN, y - 11.0, SECTION, &self.name);
        let bottom = y + self.height() - SECTION_STEP - AXIS_HEIGHT;
        for (at, label) in scale.ticks() {
            let x = scale.x(at);
            canvas.line((x, y), (x, bottom), Paint::Rule);
            canvas.text(x, bottom + 15.0, TICK, &label);
        }
        for lane in &self.lanes {
            lane.draw(canvas, y, scale);
            y += LANE_STEP;
        }
        self.curve.draw(canvas, y + LIMIT_ROOM, scale, self.end());
        for mark in &self.marks {
            let x = scale.x(*mark);
            canvas.line((x, y - self.lanes.len() as f64 * LANE_STEP), (x, bottom), Paint::Ink);
        }
    }
}

impl Lane {
    fn draw(&self, canvas: &mut Canvas, y: f64, scale: &Scale) {
        canvas.text(LEFT - GAP, y + LANE_HEIGHT - 4.0, NAME, &self.name);
        let mut open: Option<(f64, f64, Paint)> = None;
        let mut draw = |(from, until, paint): (f64, f64, Paint)| {
            canvas.rectangle(from, y, (until - from, LANE_HEIGHT), 0.0, paint);
        };
        for block in &self.blocks {
            let next = (scale.x(block.from), scale.x(block.until), block.paint);
            match &mut open {
                Some(last) if last.2 == next.2 && next.0 - last.1 < TOGETHER && is_thin(next) => {
                    last.1 = next.1;
                }
                _ => {
                    if let Some(done) = open.replace(next) {
                        draw(seen(done));
                    }
                }
            }
        }
        if let Some(last) = open {
            draw(seen(last));
        }
    }
}

/// Whether a gap beside it would be wider than itself.
fn is_thin((from, until, _): (f64, f64, Paint)) -> bool {
    until - from < 2.0
}

/// Wide blocks end a little earlier, so that two in a row are seen to be two; thin ones are at least seen.
fn seen((from, until, paint): (f64, f64, Paint)) -> (f64, f64, Paint) {
    let width = until - from;
    (from, if width > 3.0 { until - 0.75 } else { from + width.max(0.75) }, paint)
}

impl Curve {
    fn draw(&self, canvas: &mut Canvas, y: f64, scale: &Scale, end: f64) {
        let bottom = y + CURVE_HEIGHT;
        let largest = self.points.iter().map(|(_, value)| *value).fold(self.limit, f64::max);
        let height = |value: f64| if largest > 0.0 { value / largest * CURVE_HEIGHT } else { 0.0 };
        canvas.text(LEFT - GAP, bottom - CURVE_HEIGHT / 2.0 + 4.0, NAME, &self.name);
        let mut corners = Vec::with_capacity(2 * self.points.len() + 2);
        let mut level = bottom;
        for (at, value) in &self.points {
            let x = scale.x(*at);
            corners.push((x, level));
            level = bottom - height(*value);
            corners.push((x, level));
        }
        corners.extend([(scale.x(end), level), (scale.x(end), bottom)]);
        canvas.polygon(&corners, Paint::Plain);
        let limit = bottom - height(self.limit);
        canvas.line((LEFT, limit), (WIDTH - MARGIN, limit), Paint::Highlight);
        let look = Text { anchor: Anchor::End, ..TICK };
        canvas.text(WIDTH - MARGIN, limit - 5.0, look, &self.label);
        canvas.line((LEFT, bottom), (WIDTH - MARGIN, bottom), Paint::Faint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(seconds: f64) -> Lanes {
        let block = |from: f64, until: f64, paint| Block {
            from: from * seconds,
            until: until * seconds,
            paint,
        };
        let blocks = vec![block(0.0, 0.5, Paint::Plain), block(0.5, 1.0, Paint::Highlight)];
        let lanes = vec![Lane { name: "a & b".into(), blocks }, Lane::default()];
        let points = vec![(0.0, 1.0), (0.5 * seconds, 2.0)];
        let curve = Curve { name: "memory".into(), points, limit: 4.0, label: "budget".into() };
        let section = Section { name: "first".into(), lanes, curve, marks: vec![0.5 * seconds] };
        let notes = vec!["how to read it".into()];
        Lanes { title: "A step".into(), notes, sections: vec![section.clone(), section] }
    }

    #[test]
    fn blocks_lie_where_their_seconds_are() {
        let drawn = chart(3.0).draw();
        let half = LEFT + (WIDTH - MARGIN - LEFT) / 2.0;
        assert_eq!(drawn.matches(&format!(r#"<rect x="{half}""#)).count(), 2, "{drawn}");
        assert_eq!(drawn.matches(&format!(r#"<rect x="{LEFT}""#)).count(), 2, "{drawn}");
    }

    #[test]
    fn everything_said_is_drawn_in_each_section() {
        let drawn = chart(3.0).draw();
        for text in ["first", "a &amp; b", "memory", "budget", "0.0 s", "3.0 s"] {
            assert_eq!(drawn.matches(&format!(">{text}</text>")).count(), 2, "{text}: {drawn}");
        }
        assert!(chart(0.05).draw().contains(">50 ms</text>"));
        assert!(chart(5e-6).draw().contains(">5 µs</text>"));
    }

    #[test]
    fn thousands_of_blocks_that_touch_are_few_shapes() {
        let block = |number: u32| Block {
            from: f64::from(number),
            until: f64::from(number) + 0.99,
            paint: Paint::Plain,
        };
        let lane = Lane { name: "writes".into(), blocks: (0..100_000).map(block).collect() };
        let sections = vec![Section { lanes: vec![lane], ..Section::default() }];
        let drawn = Lanes { sections, ..Lanes::default() }.draw();
        assert_eq!(drawn.matches("<rect").count(), 2, "the card and one block");
    }

    #[test]
    fn the_same_data_gives_the_same_bytes_also_without_any() {
        assert_eq!(chart(3.0).draw(), chart(3.0).draw());
        let empty = Lanes { sections: vec![Section::default()], ..Lanes::default() }.draw();
        assert!(empty.starts_with("<svg ") && empty.ends_with("</svg>\n"));
        assert!(!empty.contains("NaN"), "{empty}");
    }
}
