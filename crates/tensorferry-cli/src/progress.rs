//! A line that says what is going on, on a terminal's standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Gone when dropped; nothing at all where nobody looks.
pub(crate) struct Progress(ProgressBar);

/// Steps of the bar: finer than any terminal is wide.
const STEPS: u64 = 1000;

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(STEPS);
        // A template that does not parse would be a bug; the default bar is no worse than none.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:24} {elapsed:>4}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Says what is done next, and which part of the whole is behind.
    pub(crate) fn show(&mut self, what: &str, done: f64) {
        self.0.set_position((done * STEPS as f64) as u64);
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
