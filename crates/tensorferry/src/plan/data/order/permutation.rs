//! `torch.randperm` on the CPU.

use super::mt19937::Mt19937;
use crate::error::{Error, Result};

/// The most samples of a dataset: ids are `u32`, and the last one means "none" in tables of them.
pub const SAMPLES_MAX: u64 = u32::MAX as u64;

/// From here on torch draws 64 bits for each sample, since the rest of 32 bits would be skewed.
const WIDE_FROM: u32 = u32::MAX / 20;

/// The numbers below `n` in the order in which `torch.randperm(n, generator=g)` gives them.
pub fn randperm(n: u64, generator: &mut Mt19937) -> Result<Vec<u32>> {
    let n = check(n)?;
    Ok(if n < WIDE_FROM { narrow(n, generator) } else { wide(n, generator) })
}

pub(super) fn check(n: u64) -> Result<u32> {
    if n > SAMPLES_MAX {
        return Err(Error::invalid(format!(
            "{n} samples are more than the {SAMPLES_MAX} that can be numbered; split the dataset"
        )));
    }
    Ok(n as u32)
}

/// Swaps each place with one from there on.
fn narrow(n: u32, generator: &mut Mt19937) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n).collect();
    for at in 0..n.saturating_sub(1) {
        let ahead = generator.next_u32() % (n - at);
        order.swap(at as usize, (at + ahead) as usize);
    }
    order
}

/// Puts each number at a place up to its own, and what stood there at the end.
fn wide(n: u32, generator: &mut Mt19937) -> Vec<u32> {
    let mut order = Vec::with_capacity(n as usize);
    for number in 0..n {
        let place = (generator.next_u64() % (u64::from(number) + 1)) as usize;
        order.push(number);
        order[number as usize] = order[place];
        order[place] = number;
    }
    order
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn too_many_samples_are_an_error_that_says_what_to_do() {
        let error = randperm(SAMPLES_MAX + 1, &mut Mt19937::new(0)).unwrap_err();
        let expected = "4294967296 samples are more than the 4294967295 that can be numbered; \
                        split the dataset";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn both_ways_give_every_number_once() {
        for n in [0, 1, 2, 3, 10, 1000] {
            for shuffle in [narrow, wide] {
                let mut order = shuffle(n, &mut Mt19937::new(u64::from(n)));
                order.sort_unstable();
                assert_eq!(order, (0..n).collect::<Vec<_>>());
            }
        }
    }
}
