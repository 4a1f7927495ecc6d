//! The randomness of one sample.
//!
//! It follows from the seed, the epoch and the sample's index and from nothing else, so that the same
//! run gives the same batches whatever the threads do. Fields of one sample start from the same
//! state: an image and its mask, prepared by equal chains, are cropped alike.

/// Random numbers for one sample: the project's generator under the name that it has here.
pub use crate::random::SplitMix64 as Chance;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn seed_epoch_and_index_each_change_what_is_drawn() {
        let first = |seed, epoch, index| Chance::of(seed, epoch, index).draw();
        let all = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1), first(0, 1, 1)];
        for (at, value) in all.iter().enumerate() {
            assert!(!all[..at].contains(value));
        }
        assert_eq!(first(3, 2, 1), first(3, 2, 1));
    }

    #[test]
    fn the_hash_is_the_one_by_which_the_python_package_chooses_substitutes() {
        assert_eq!(Chance::hash(&[0, 0, 0, 0]) % 1000, 776);
        assert_eq!(Chance::hash(&[1, 2, 3, 4]) % 1_000_000_000_000, 949_593_934_587);
    }

    #[test]
    fn the_first_numbers_never_change() {
        let mut chance = Chance::of(0, 0, 0);
        assert_eq!([chance.draw(), chance.draw()], FIRST);
    }

    /// What every earlier version drew: another value would change the batches of old runs.
    const FIRST: [u64; 2] = [0x2130_748a_aac8_0268, 0x0cc7_8fb9_79ce_5090];
}
