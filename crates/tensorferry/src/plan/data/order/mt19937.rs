//! The Mersenne Twister with 32 bits, as torch's generator for the CPU draws from it.

use std::fmt;

const WORDS: usize = 624;
const SHIFT: usize = 397;
const UPPER: u32 = 0x8000_0000;
const LOWER: u32 = 0x7fff_ffff;
const TWIST: u32 = 0x9908_b0df;

/// One stream of random words. All words are made anew, in place, after every 624 draws.
#[derive(Clone)]
pub struct Mt19937 {
    words: [u32; WORDS],
    drawn: usize,
}

impl Mt19937 {
    /// As `torch.Generator().manual_seed(seed)`; like torch, it looks at the lower 32 bits only.
    pub fn new(seed: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = seed as u32;
        for at in 1..WORDS {
            let last: u32 = words[at - 1];
            words[at] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        Self { words, drawn: WORDS }
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.drawn == WORDS {
            self.renew();
        }
        let mut word = self.words[self.drawn];
        self.drawn += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// The next 64 bits, the first draw in the upper half.
    pub fn next_u64(&mut self) -> u64 {
        let upper = u64::from(self.next_u32());
        upper << 32 | u64::from(self.next_u32())
    }

    fn renew(&mut self) {
        for at in 0..WORDS {
            let mixed = self.words[at] & UPPER | self.words[(at + 1) % WORDS] & LOWER;
            let odd = if mixed & 1 == 1 { TWIST } else { 0 };
            self.words[at] = self.words[(at + SHIFT) % WORDS] ^ (mixed >> 1) ^ odd;
        }
        self.drawn = 0;
    }
}

impl fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mt19937").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}
