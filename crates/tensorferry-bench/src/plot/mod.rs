//! Figures as SVG: a [`Canvas`] of few primitives, and the charts that are drawn on it.
//!
//! Written by hand. `plotters` is small enough without its fonts, but it draws one fixed picture:
//! its colours can't follow a reader's dark page, and it places text by its own guess of a width,
//! which the reader's font then contradicts. Inline colours are named roles with a value for light
//! and one for dark, and text is anchored at the end that matters, so that only the room left for
//! names is a guess. The same data always gives the same bytes: a figure in the repository changes
//! only when its numbers do.

mod bars;
mod canvas;
mod lanes;
mod lines;
mod page;

pub use bars::{Bar, Bars, Group, Value, shortened};
pub use canvas::{Anchor, Canvas, Paint, Text};
pub use lanes::{Block, Curve, Lane, Lanes, Section};
pub use lines::{Line, Lines};
