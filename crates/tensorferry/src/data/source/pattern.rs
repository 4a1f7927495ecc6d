//! Patterns of names: `shard-{000..012}.tar`, `{train,test}/*.jpg`.
//!
//! Braces are opened here, as a shell opens them: a range of numbers keeps its leading zeros, a
//! list is taken as it stands, and braces may stand in braces. What is left with a `*`, `?` or `[`
//! is for the store to match.

use crate::error::{Error, Result};

/// More names than this from one pattern are a slip of the keyboard.
const NAMES_MAX: usize = 1 << 22;

/// Whether a store has to match this pattern against what it holds.
pub(super) fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

/// Every name that the braces of a pattern stand for.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut open = vec![pattern.to_owned()];
    let mut done = Vec::new();
    // The first pair is opened until none is left; the order is a shell's.
    while let Some(next) = open.pop() {
        let Some((before, inside, after)) = first_pair(&next) else {
            done.push(next);
            continue;
        };
        let choices = choices(inside)?;
        if open.len() + done.len() + choices.len() > NAMES_MAX {
            let told = format!("{pattern:?} stands for more than {NAMES_MAX} names");
            return Err(Error::invalid(format!("{told}; check the ranges in its braces")));
        }
        open.extend(choices.iter().rev().map(|choice| format!("{before}{choice}{after}")));
    }
    Ok(done)
}

/// The first pair of braces with a list or a range in it: what is before, inside and behind.
fn first_pair(pattern: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(start) = pattern[from..].find('{').map(|at| from + at) {
        let end = closing(pattern, start);
        if let Some(end) = end
            && let inside = &pattern[start + 1..end]
            && (parts(inside).len() > 1 || range(inside).is_some())
        {
            return Some((&pattern[..start], inside, &pattern[end + 1..]));
        }
        // A pair that says nothing, or half a pair: a name may have one.
        from = start + 1;
    }
    None
}

fn closing(pattern: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in pattern[start..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(start + at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// What stands between the commas that are in no further pair.
fn parts(inside: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_usize, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&inside[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[from..]);
    parts
}

fn choices(inside: &str) -> Result<Vec<String>> {
    let Some((first, last, width)) = range(inside) else {
        return Ok(parts(inside).into_iter().map(str::to_owned).collect());
    };
    if first.abs_diff(last) >= NAMES_MAX as u64 {
        let told = format!("the range {{{inside}}} has more than {NAMES_MAX} numbers");
        return Err(Error::invalid(told));
    }
    let number = |number: u64| format!("{number:0width$}");
    Ok(if first <= last {
        (first..=last).map(number).collect()
    } else {
        (last..=first).rev().map(number).collect()
    })
}

/// The ends of a range of numbers and how wide each is written: `000..012`.
fn range(inside: &str) -> Option<(u64, u64, usize)> {
    let (first, last) = inside.split_once("..")?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let padded = [first, last].iter().any(|text| text.len() > 1 && text.starts_with('0'));
    let width = if padded { first.len().max(last.len()) } else { 0 };
    Some((number(first)?, number(last)?, width))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn joined(pattern: &str) -> String {
        expand(pattern).unwrap().join(" ")
    }

    #[test]
    fn braces_open_as_a_shell_opens_them() {
        for (pattern, expected) in [
            ("a-{000..003}.tar", "a-000.tar a-001.tar a-002.tar a-003.tar"),
            ("{8..11}", "8 9 10 11"),
            ("{08..11}", "08 09 10 11"),
            ("{2..0}", "2 1 0"),
            ("{a,b}/{0..1}", "a/0 a/1 b/0 b/1"),
            ("x{a,{0..1},}y", "xay x0y x1y xy"),
            ("{5..5}", "5"),
            ("plain", "plain"),
            ("{}", "{}"),
            ("{one}", "{one}"),
            ("{a..c}", "{a..c}"),
            ("half{a,b", "half{a,b"),
            ("}{", "}{"),
            ("{x{0..1}", "{x0 {x1"),
        ] {
            assert_eq!(joined(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_range_too_long_is_refused_before_it_fills_the_memory() {
        for pattern in ["{0..999999999999}", "{0..9999999}{0..9999999}"] {
            assert!(expand(pattern).unwrap_err().to_string().contains("more than"), "{pattern}");
        }
    }
}
