//! The randomness of one sample.
//!
//! It follows from the seed, the epoch and the sample's index and from nothing else, so that the same
//! run gives the same batches whatever the threads do. Fields of one sample start from the same
//! state: an image and its mask, prepared by equal chains, are cropped alike.

/// Random numbers for one sample; copies draw the same.
///
/// The generator is `SplitMix64`: its whole state is one word, and every word is a good start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// The chance of sample `index` in `epoch`.
    pub fn of(seed: u64, epoch: u64, index: u64) -> Self {
        Self(Self::hash(&[seed, epoch, index]))
    }

    /// One word made of several, each of which changes all of its bits.
    pub fn hash(words: &[u64]) -> u64 {
        words.iter().fold(0, |hash, word| Self(hash ^ word).draw())
    }

    /// The next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number below `bound`, which is above zero; zero otherwise.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: its bias is below 2^-32 for every bound met here.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

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
    fn numbers_stay_in_their_bounds_and_fill_them() {
        let mut chance = Chance::of(7, 0, 0);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            assert!((2.0..3.0).contains(&chance.between(2.0, 3.0)));
            seen[chance.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
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
