//! Rectangles, lines, shapes and text, in roles rather than colours.

use std::fmt::{self, Write};

/// A drawing under way. Units are pixels; the origin is the upper left corner.
#[derive(Debug)]
pub struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

/// What a shape stands for; its colour follows, for light and for dark pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// The card everything lies on.
    Card,
    /// What is to be read first.
    Ink,
    /// What is to be read if one cares.
    Faint,
    /// Lines that guide the eye.
    Rule,
    /// What the figure is about.
    Highlight,
    /// What it is compared with.
    Plain,
    /// A limit that nothing passes, such as the disk's own speed.
    Limit,
}

/// How a role looks.
struct Role {
    paint: Paint,
    class: &'static str,
    light: &'static str,
    dark: &'static str,
}

const PALETTE: [Role; 7] = {
    const fn role(
        paint: Paint,
        class: &'static str,
        light: &'static str,
        dark: &'static str,
    ) -> Role {
        Role { paint, class, light, dark }
    }
    [
        role(Paint::Card, "card", "#ffffff", "#161b22"),
        role(Paint::Ink, "ink", "#1f2328", "#e6edf3"),
        role(Paint::Faint, "faint", "#656d76", "#8d96a0"),
        role(Paint::Rule, "rule", "#d0d7de", "#30363d"),
        role(Paint::Highlight, "highlight", "#e36209", "#f0883e"),
        role(Paint::Plain, "plain", "#8fa7c4", "#54708f"),
        role(Paint::Limit, "limit", "#c9d1d9", "#3d444d"),
    ]
};

/// Which end of a text stays in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// How a text looks.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Its height in pixels.
    pub size: f64,
    /// Heavier than the others.
    pub bold: bool,
    /// Its colour's role.
    pub paint: Paint,
    /// Which end stays in place.
    pub anchor: Anchor,
}

impl Text {
    /// How wide `text` gets at most in a usual font: room to leave, not a place to draw at.
    pub fn width(&self, text: &str) -> f64 {
        let per_character = if self.bold { 0.64 } else { 0.58 };
        text.chars().count() as f64 * self.size * per_character
    }
}

impl Canvas {
    /// An empty card.
    pub fn new(width: f64, height: f64) -> Self {
        let mut canvas = Self { width, height, body: String::new() };
        canvas.rectangle(0.0, 0.0, (width, height), 8.0, Paint::Card);
        canvas
    }

    /// A filled rectangle of `size`, its corners rounded.
    pub fn rectangle(&mut self, x: f64, y: f64, size: (f64, f64), radius: f64, paint: Paint) {
        let (x, y, width, height) = (Number(x), Number(y), Number(size.0), Number(size.1));
        let (radius, class) = (Number(radius), class(paint));
        self.add(format_args!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" class="{class}"/>"#
        ));
    }

    /// A thin line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint) {
        let (x1, y1, x2, y2) = (Number(from.0), Number(from.1), Number(to.0), Number(to.1));
        let class = class(paint);
        self.add(format_args!(
            r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class} stroke"/>"#
        ));
    }

    /// A line through points; those that are no numbers are left out.
    pub fn path(&mut self, points: &[(f64, f64)], paint: Paint) {
        let finite = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let points: Vec<String> =
            finite.map(|(x, y)| format!("{},{}", Number(*x), Number(*y))).collect();
        let (points, class) = (points.join(" "), class(paint));
        self.add(format_args!(
            r#"<polyline points="{points}" class="{class} stroke" style="fill: none; stroke-width: 1.6"/>"#
        ));
    }

    /// A filled shape with these corners.
    pub fn polygon(&mut self, corners: &[(f64, f64)], paint: Paint) {
        let corner = |(x, y): &(f64, f64)| format!("{},{}", Number(*x), Number(*y));
        let corners: Vec<String> = corners.iter().map(corner).collect();
        let (corners, class) = (corners.join(" "), class(paint));
        self.add(format_args!(r#"<polygon points="{corners}" class="{class}"/>"#));
    }

    /// A line of text on the base line `y`.
    pub fn text(&mut self, x: f64, y: f64, look: Text, text: &str) {
        let anchor = match look.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, size) = (Number(x), Number(y), Number(look.size));
        let weight = if look.bold { r#" font-weight="600""# } else { "" };
        let (class, text) = (class(look.paint), Escaped(text));
        self.add(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}"{weight} text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// The document; `title` is for those who can't see it.
    pub fn finish(self, title: &str) -> String {
        let (width, height, title) = (Number(self.width), Number(self.height), Escaped(title));
        let (light, dark) = (colours(|role| role.light), colours(|role| role.dark));
        let body = self.body;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>
text {{ font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }}
{light}@media (prefers-color-scheme: dark) {{
{dark}}}
</style>
{body}</svg>
"#
        )
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a `String` can't fail.
        let _ = writeln!(self.body, "{element}");
    }
}

fn class(paint: Paint) -> &'static str {
    PALETTE.iter().find(|role| role.paint == paint).map_or("ink", |role| role.class)
}

/// The style of every role, on light or on dark.
fn colours(of: impl Fn(&Role) -> &'static str) -> String {
    let rule = |role: &Role| {
        let (class, colour) = (role.class, of(role));
        format!(".{class} {{ fill: {colour}; }} .{class}.stroke {{ stroke: {colour}; }}\n")
    };
    PALETTE.iter().map(rule).collect()
}

/// A coordinate: two places are finer than any screen, and nothing longer is stored.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Text as XML wants it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // XML has no way to write the others.
                control if control.is_control() => f.write_char(' ')?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Text = Text { size: 12.0, bold: true, paint: Paint::Faint, anchor: Anchor::End };

    #[test]
    fn text_from_outside_stays_text() {
        let mut canvas = Canvas::new(10.0, 10.0);
        canvas.text(1.0, 2.5, LOOK, "a<b> & \"c\"\u{1b}\n");
        let drawn = canvas.finish("</title><script>");
        let text = r#"<text x="1" y="2.5" font-size="12" font-weight="600" text-anchor="end" class="faint">a&lt;b&gt; &amp; &quot;c&quot;  </text>"#;
        assert!(drawn.contains(text), "{drawn}");
        assert!(drawn.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"), "{drawn}");
    }

    #[test]
    fn coordinates_are_short_and_every_role_has_two_colours() {
        let mut canvas = Canvas::new(100.0, 50.0);
        canvas.rectangle(1.0 / 3.0, 10.0, (20.25, 0.0), 2.0, Paint::Highlight);
        canvas.line((0.0, 1.0), (2.0, 3.0), Paint::Rule);
        let drawn = canvas.finish("t");
        let bar = r#"<rect x="0.33" y="10" width="20.25" height="0" rx="2" class="highlight"/>"#;
        assert!(drawn.contains(bar), "{drawn}");
        assert!(drawn.contains(r#"class="rule stroke""#), "{drawn}");
        for Role { class, light, dark, .. } in PALETTE {
            for colour in [light, dark] {
                assert!(drawn.contains(&format!(".{class} {{ fill: {colour}; }}")), "{class}");
            }
        }
    }
}
