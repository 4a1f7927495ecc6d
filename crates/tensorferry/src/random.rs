//! The one generator of pseudo-random numbers.
//!
//! Samples, plans and made-up cases follow from a seed, on every machine and in every version: what a seed
//! gives never changes.

/// `SplitMix64`: its whole state is one word, and every word is a good start. Copies draw the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Starts from a seed, an epoch and an index; equal ones give equal numbers, others unlike ones.
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

    /// A number from `low` to below `high`, evenly spread in the logarithm; both are above zero.
    pub fn factor(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// True in that share of all cases.
    pub fn likely(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A whole number below `bound`, which is above zero; zero otherwise.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: its bias is below 2^-32 for every bound met here.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A place in a list of that length; zero if it is empty.
    pub fn place(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_those_of_the_published_generator() {
        // From the authors' own program, for the seed of its example.
        let mut random = SplitMix64::new(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| random.draw()), published);
    }

    #[test]
    fn what_was_drawn_in_every_earlier_version_is_drawn_again() {
        let mut random = SplitMix64::of(7, 1, 42);
        assert_eq!(random.draw(), 8_753_419_552_378_125_075);
        assert_eq!(random.below(1_000_000), 433_194);
        assert_eq!(random.place(1000), 758);
        assert_eq!(random.unit().to_bits(), 0x3fc7_0ad2_a27d_05b8);
        assert_eq!(random.between(-1.0, 3.0).to_bits(), 0xbfd9_8d93_0ac8_a6d8);
        // What a power comes to in its last bits is a matter of the platform.
        assert!((random.factor(1e-3, 1e3) - 174.561_435_381_918).abs() < 1e-9);
        assert!(random.likely(1.0) && !random.likely(0.0));
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_fill_them() {
        let mut random = SplitMix64::of(7, 0, 0);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            assert!((2.0..3.0).contains(&random.between(2.0, 3.0)));
            assert!((0.5..8.0).contains(&random.factor(0.5, 8.0)));
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!((random.below(0), random.place(0)), (0, 0));
    }
}
