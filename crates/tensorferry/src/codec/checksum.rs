//! CRC-32C (Castagnoli): what iSCSI, ext4 and most storage formats use, and what processors have
//! instructions for.
//!
//! A checksum can be computed at once ([`crc32c`]), as bytes arrive ([`Crc32c`]), or for pieces
//! apart, by several threads, and then [`combine`]d without reading the pieces again.
//!
//! The fast version is that of the `crc-fast` crate, which chooses among its own kernels
//! (carry-less multiplication with SSE, AVX-512 or NEON) at run time and takes no [`Level`] from
//! us. [`crc32c_portable`] shares no code with it and is what it is tested against.
//!
//! [`Level`]: super::Level

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes that are copied before they are checksummed, while they are in the cache.
const STRIDE_BYTES: usize = 128 << 10;

/// The polynomial with its bits reversed, as the remainder is kept.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]` is the remainder of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[zeros - 1][byte];
            tables[zeros][byte] = shorter >> 8 ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
};

/// The CRC-32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// Copies `from` to `into`, which is as long, and gives the CRC-32C of the bytes: they come from
/// memory once for both.
pub(crate) fn copy_and_crc32c(into: &mut [u8], from: &[u8]) -> u32 {
    assert_eq!(into.len(), from.len(), "copied to a place of another length");
    let mut checksum = Crc32c::new();
    for (into, from) in into.chunks_mut(STRIDE_BYTES).zip(from.chunks(STRIDE_BYTES)) {
        into.copy_from_slice(from);
        checksum.update(into);
    }
    checksum.finish()
}

/// The checksum of two pieces one after the other, from the checksum of each and the length of the
/// second. It takes time logarithmic in the length: microseconds.
pub fn combine(first: u32, second: u32, second_len: u64) -> u32 {
    product(shift(second_len), first) ^ second
}

/// [`combine`] for many pieces that mostly have one length: what that length does to a checksum is
/// worked out once.
#[derive(Debug, Clone)]
pub struct Combiner {
    usual_len: u64,
    shift: u32,
}

impl Combiner {
    /// For pieces that mostly have this length.
    pub fn usually(len: u64) -> Self {
        Self { usual_len: len, shift: shift(len) }
    }

    /// The checksum of two pieces one after the other, as [`combine`] gives it.
    pub fn combine(&self, first: u32, second: u32, second_len: u64) -> u32 {
        if second_len == self.usual_len {
            return product(self.shift, first) ^ second;
        }
        combine(first, second, second_len)
    }
}

/// What so many bytes behind it do to a checksum: x to the power of their bits, modulo the polynomial.
/// Checksums are polynomials over bits, with the highest power in the lowest bit.
fn shift(bytes: u64) -> u32 {
    let (mut power, mut square, mut left) = (1 << 31, 1 << 23, bytes);
    while left > 0 {
        if left & 1 == 1 {
            power = product(square, power);
        }
        square = product(square, square);
        left >>= 1;
    }
    power
}

/// The product of two polynomials modulo that of CRC-32C.
fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            sum ^= b;
        }
        b = b >> 1 ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    sum
}

/// A checksum of bytes that arrive in pieces.
#[derive(Debug, Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of nothing yet.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The checksum of all bytes so far; more can follow.
    #[must_use]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// [`crc32c`] in plain Rust, eight bytes at a time by table: for tests and benchmarks.
pub fn crc32c_portable(data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<8>();
    let mut remainder = !0;
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(remainder);
        remainder = word
            .to_le_bytes()
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in tail {
        remainder = remainder >> 8 ^ TABLES[0][usize::from(remainder as u8 ^ byte)];
    }
    !remainder
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From RFC 3720, section B.4, and the check value that catalogues of CRCs give.
    #[test]
    fn published_vectors_give_their_published_checksums() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let mut read = [0; 48];
        for (place, value) in
            [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28)]
        {
            read[place] = value;
        }
        read[40] = 0x02;
        for (data, checksum) in [
            (&b""[..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (&read, 0xd996_3a56),
        ] {
            assert_eq!(crc32c(data), checksum);
            assert_eq!(crc32c_portable(data), checksum);
        }
    }

    proptest! {
        #[test]
        fn checksums_are_combined_as_the_library_does_for_any_length(
            first: u32, second: u32, usual in 0u64..1 << 40, other in 0u64..1 << 40,
        ) {
            let combiner = Combiner::usually(usual);
            for len in [usual, other] {
                for first in [first, 0] {
                    let [a, b] = [first, second].map(u64::from);
                    let algorithm = CrcAlgorithm::Crc32Iscsi;
                    let expected = crc_fast::checksum_combine(algorithm, a, b, len) as u32;
                    prop_assert_eq!(combine(first, second, len), expected);
                    prop_assert_eq!(combiner.combine(first, second, len), expected);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_fast_version_agrees_with_the_portable_one_at_any_alignment(
            data in proptest::collection::vec(any::<u8>(), 0..5000),
            start in 0usize..64,
        ) {
            let data = &data[start.min(data.len())..];
            prop_assert_eq!(crc32c(data), crc32c_portable(data));
        }

        #[test]
        fn pieces_give_the_checksum_of_the_whole(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            cut in 0usize..3000,
        ) {
            let (first, second) = data.split_at(cut.min(data.len()));
            let whole = crc32c(&data);
            let mut running = Crc32c::new();
            running.update(first);
            prop_assert_eq!(running.finish(), crc32c(first));
            running.update(second);
            prop_assert_eq!(running.finish(), whole);
            let combined = combine(crc32c(first), crc32c(second), second.len() as u64);
            prop_assert_eq!(combined, whole);
        }

        #[test]
        fn any_flipped_bit_changes_the_checksum(
            data in proptest::collection::vec(any::<u8>(), 1..600),
            bit in any::<proptest::sample::Index>(),
        ) {
            let bit = bit.index(data.len() * 8);
            let mut flipped = data.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(crc32c(&flipped), crc32c(&data));
        }
    }
}
