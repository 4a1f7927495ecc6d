//! Which reads fetch the parts of a sample: pure arithmetic.
//!
//! The members of a sample in a tar lie next to each other, a header and some padding apart. Reading
//! the little that is between them costs less than a second read.

use std::ops::Range;

/// One read, and the parts that lie in it by their numbers, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub range: Range<u64>,
    pub parts: Vec<usize>,
}

/// Joins parts that are at most `gap_max` bytes apart. Parts that overlap are read apart.
pub(super) fn runs(parts: &[Range<u64>], gap_max: u64) -> Vec<Run> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| parts[*at].start);
    let mut runs: Vec<Run> = Vec::with_capacity(1);
    for at in order {
        let part = &parts[at];
        let last = runs
            .last_mut()
            .filter(|run| part.start.checked_sub(run.range.end).is_some_and(|gap| gap <= gap_max));
        match last {
            Some(run) => {
                run.range.end = part.end;
                run.parts.push(at);
            }
            None => runs.push(Run { range: part.clone(), parts: vec![at] }),
        }
    }
    runs
}

/// Cuts memory for all parts into one slice for each.
pub(super) fn slices<'a>(parts: &[Range<u64>], mut memory: &'a mut [u8]) -> Vec<&'a mut [u8]> {
    let mut slices = Vec::with_capacity(parts.len());
    for part in parts {
        let (slice, rest) = memory.split_at_mut((part.end - part.start) as usize);
        slices.push(slice);
        memory = rest;
    }
    slices
}

/// Where each part ends when they lie one behind the other.
pub(super) fn ends(parts: &[Range<u64>]) -> Vec<u64> {
    let mut end = 0;
    let add = |part: &Range<u64>| {
        end += part.end - part.start;
        end
    };
    parts.iter().map(add).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_at_once_in_the_order_of_the_file() {
        let run = |range, parts: &[usize]| Run { range, parts: parts.to_vec() };
        assert_eq!(runs(&[600..900, 10..20], 1000), [run(10..900, &[1, 0])]);
        assert_eq!(runs(&[10..20, 5000..5001], 1000), [run(10..20, &[0]), run(5000..5001, &[1])]);
        assert_eq!(runs(&[10..20, 10..20], 1000), [run(10..20, &[0]), run(10..20, &[1])]);
        assert_eq!(runs(&[10..10, 10..20], 0), [run(10..20, &[0, 1])], "an empty part is no gap");
        assert_eq!(ends(&[600..900, 10..20]), [300, 310]);
    }
}
