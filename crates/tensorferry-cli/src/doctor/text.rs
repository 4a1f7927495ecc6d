//! A report for people: aligned columns, at most 96 wide.

use std::fmt::Write;

use super::finding::{Choice, Finding, Report, Status};
use crate::output::printable;

const WIDTH: usize = 96;
/// `  limited  `: the status stands before the name.
const STATUS_WIDTH: usize = 11;

/// The report as lines; with `coloured`, the status words carry ANSI colours.
pub(super) fn show(report: &Report, coloured: bool) -> String {
    let mut out = format!("tensorferry {} for {}\n\n", report.version, printable(&report.path));
    let names = report.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    for finding in &report.findings {
        show_finding(&mut out, finding, STATUS_WIDTH + names + 2, coloured);
    }
    out.push('\n');
    show_choice(&mut out, "engine", &report.summary.engine);
    show_choice(&mut out, "files", &report.summary.files);
    show_choice(&mut out, "codec", &report.summary.codec);
    for note in &report.notes {
        push_wrapped(&mut out, "note:   ", 8, note);
    }
    push_wrapped(&mut out, "found:  ", 8, &counts(&report.findings));
    out
}

fn show_finding(out: &mut String, finding: &Finding, column: usize, coloured: bool) {
    let name_width = column - STATUS_WIDTH;
    let status = format!("{:<1$}", finding.status.name(), STATUS_WIDTH - 2);
    let status = if coloured { paint(finding.status, &status) } else { status };
    let head = format!("  {status}{:<name_width$}", finding.name);
    push_wrapped(out, &head, column, &finding.value);
    let margin = " ".repeat(column);
    if !finding.meaning.is_empty() {
        push_wrapped(out, &margin, column, &finding.meaning);
    }
    if let Some(remedy) = &finding.remedy {
        // Nothing is wrong with what is not used: it can be had for later.
        let label = if finding.status == Status::Unused { "get:" } else { "fix:" };
        push_wrapped(out, &margin, column + 5, &format!("{label} {remedy}"));
    }
}

fn show_choice(out: &mut String, name: &str, choice: &Choice) {
    let because = choice.because.as_ref().map(|reason| format!(", because {reason}"));
    let text = format!("{}{}", choice.name, because.unwrap_or_default());
    push_wrapped(out, &format!("{:<8}", format!("{name}:")), 8, &text);
}

fn counts(findings: &[Finding]) -> String {
    let of = |status| findings.iter().filter(|finding| finding.status == status).count();
    let counted = Status::ALL.map(|status| format!("{} {}", of(status), status.name()));
    counted.join(", ")
}

/// Adds `head` and then the words of `text`; further lines start at `column`.
fn push_wrapped(out: &mut String, head: &str, column: usize, text: &str) {
    out.push_str(head);
    // The head may carry colours, which take no room: its visible width is the column, except
    // where a hanging indent was asked for.
    let mut used = column.min(head.chars().count());
    let mut first = true;
    for word in printable(text).split_whitespace() {
        let length = word.chars().count();
        if !first && used + 1 + length > WIDTH {
            let _ = write!(out, "\n{}", " ".repeat(column));
            used = column;
        } else if !first {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
        first = false;
    }
    out.push('\n');
}

fn paint(status: Status, word: &str) -> String {
    let colour = match status {
        Status::Ok => 32,
        Status::Limited => 33,
        Status::Missing | Status::Unused => 90,
        Status::Error => 31,
    };
    format!("\x1b[{colour}m{word}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Summary;
    use std::path::Path;

    fn report() -> Report {
        let summary = Summary {
            engine: Choice::fallback("threads", "io_uring is switched off on this machine"),
            files: Choice::best("direct"),
            codec: Choice::best("avx2"),
        };
        let findings = vec![
            Finding::new("io_uring", Status::Missing, "switched off")
                .means("Reads and writes use a pool of threads.")
                .remedy("sysctl kernel.io_uring_disabled=0"),
            Finding::new("cores", Status::Ok, "2").means("word ".repeat(40)),
        ];
        Report::new(Path::new("/scratch"), summary, findings)
    }

    #[test]
    fn a_report_reads_as_aligned_lines() {
        let shown = show(&report(), false);
        let expected = "\
tensorferry 0.1.0 for /scratch

  missing  io_uring  switched off
                     Reads and writes use a pool of threads.
                     fix: sysctl kernel.io_uring_disabled=0
  ok       cores     2
                     word word word word word word word word word word word word word word word
                     word word word word word word word word word word word word word word word
                     word word word word word word word word word word

engine: threads, because io_uring is switched off on this machine
files:  direct
codec:  avx2
note:   No part of tensorferry has been tested on GPU hardware; an emulated device stands in.
found:  1 ok, 0 limited, 1 missing, 0 unused, 0 error
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let coloured = show(&report(), true);
        assert!(coloured.contains("\x1b[90mmissing  \x1b[0mio_uring"), "{coloured}");
        let plain = ["\x1b[90m", "\x1b[32m", "\x1b[0m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(plain, show(&report(), false));
    }

    #[test]
    fn text_from_outside_cannot_steer_the_terminal() {
        let mut report = report();
        report.path = "/tmp/\x1b[2Jx\ny".to_owned();
        report.findings[0].value = "\x1b]0;title\x07".to_owned();
        let shown = show(&report, false);
        assert!(!shown.contains(['\x1b', '\x07']), "{shown:?}");
        assert!(shown.starts_with("tensorferry 0.1.0 for /tmp/\u{fffd}[2Jx\u{fffd}y\n"));
    }

    #[test]
    fn what_is_not_used_can_be_had_and_has_nothing_to_fix() {
        let mut report = report();
        report.findings[0].status = Status::Unused;
        let shown = show(&report, false);
        assert!(shown.contains("  unused   io_uring  switched off\n"), "{shown}");
        assert!(shown.contains(" get: sysctl kernel.io_uring_disabled=0\n"), "{shown}");
        assert!(!shown.contains("fix:"), "{shown}");
    }

    #[test]
    fn a_word_longer_than_the_line_is_kept_whole() {
        let mut report = report();
        report.findings[1].value = "x".repeat(200);
        assert!(show(&report, false).contains(&"x".repeat(200)));
    }
}
