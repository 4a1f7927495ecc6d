//! What all charts have: a width, a margin, and a title with notes at the top.

use super::canvas::{Anchor, Canvas, Paint, Text};

pub(super) const WIDTH: f64 = 860.0;
pub(super) const MARGIN: f64 = 28.0;
const TITLE: Text = Text { size: 19.0, bold: true, paint: Paint::Ink, anchor: Anchor::Start };
const NOTE: Text = Text { size: 12.0, bold: false, paint: Paint::Faint, anchor: Anchor::Start };
const NOTE_STEP: f64 = 18.0;

/// A title, and a line for each note below it.
pub(super) struct Heading<'a> {
    pub title: &'a str,
    pub notes: &'a [String],
}

impl Heading<'_> {
    /// Where what is below it may begin.
    pub fn bottom(&self) -> f64 {
        MARGIN + TITLE.size + self.notes.len() as f64 * NOTE_STEP
    }

    pub fn draw(&self, canvas: &mut Canvas) {
        let mut y = MARGIN + TITLE.size * 0.75;
        canvas.text(MARGIN, y, TITLE, self.title);
        y += 6.0;
        for note in self.notes {
            y += NOTE_STEP;
            canvas.text(MARGIN, y, NOTE, note);
        }
    }
}
