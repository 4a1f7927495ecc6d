//! Names and times in tables for people.

/// Characters of a name that are shown.
const NAME_CHARS_MAX: usize = 40;

/// A text without what steers a terminal: it may come from a file.
pub(in crate::plan) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A name, printable and not too long.
pub(in crate::plan) fn name(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return printable(name);
    }
    let start: String = name.chars().take(NAME_CHARS_MAX - 1).collect();
    printable(&start) + "…"
}

/// Seconds in the unit that reads best.
pub(in crate::plan) fn duration(seconds: f64) -> String {
    if seconds >= 1.0 || seconds == 0.0 {
        format!("{seconds:.3} s")
    } else if seconds >= 1e-3 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{:.1} µs", seconds * 1e6)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_where_it_gets_too_long_and_steers_no_terminal() {
        assert_eq!(name(&"x".repeat(40)), "x".repeat(40));
        assert_eq!(name(&"x".repeat(41)), "x".repeat(39) + "…");
        assert_eq!(name("a\u{1b}[2J"), "a\u{fffd}[2J");
    }

    #[test]
    fn seconds_have_the_unit_that_reads_best() {
        let shown = [0.0, 0.000_012_34, 0.012_345, 1.5].map(duration);
        assert_eq!(shown, ["0.000 s", "12.3 µs", "12.35 ms", "1.500 s"]);
    }
}
