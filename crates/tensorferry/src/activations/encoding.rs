//! How the bytes of a chunk lie on disk, and the way there and back.
//!
//! Pure: bytes to bytes. A chunk is coded by itself, so that chunks are coded side by side and a
//! tensor of any size needs room for one. Coding that does not pay is not done: a chunk that would
//! not shrink by [`PAYS`] is stored as it is.

use crate::codec::bitmap::{self, Width};
use crate::codec::checksum::{copy_and_crc32c, crc32c};
use crate::codec::half::{self, Format};
use crate::error::{Error, Kind, Result};

/// What may be done to activations on their way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Nothing.
    None,
    /// Zeros are left out; every bit comes back.
    Lossless,
    /// `float32` is stored as `float16`, and zeros are left out: not every bit comes back.
    Half,
}

impl std::str::FromStr for Compress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "lossless" => Ok(Self::Lossless),
            "half" => Ok(Self::Half),
            _ => Err(Error::invalid(format!(
                "{text:?} is no compression; choose none, lossless or half"
            ))),
        }
    }
}

/// What the codecs know of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// `float32`: the only one that may be narrowed.
    Float32,
    /// Any other of four bytes.
    Four,
    /// Any of two bytes.
    Two,
    /// Any other width: stored as it is.
    Other,
}

impl Element {
    fn width(self) -> Option<Width> {
        match self {
            Self::Float32 | Self::Four => Some(Width::Four),
            Self::Two => Some(Width::Two),
            Self::Other => None,
        }
    }
}

/// How a chunk was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Raw,
    Bitmap,
    Half,
    HalfBitmap,
}

/// A chunk as it was stored: everything that is needed to get it back, and to know that it is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredChunk {
    pub encoding: Encoding,
    pub len: usize,
    pub checksum: u32,
}

/// The share of its bytes that a chunk must lose for coding to pay.
const PAYS: f64 = 0.05;

/// How many parts of a tensor are looked at, and bytes of each.
const LOOKS: usize = 16;
const LOOK_BYTES: usize = 4 << 10;

/// Room that a worker needs beside a chunk of `chunk` bytes to code it.
pub(super) fn room_beside(chunk: usize, compress: Compress) -> usize {
    if compress == Compress::Half { chunk / 2 } else { 0 }
}

/// Stores `from` at the beginning of `into`, which is at least as long. `beside` is room for halves.
pub(super) fn store(
    from: &[u8],
    element: Element,
    compress: Compress,
    into: &mut [u8],
    beside: &mut [u8],
) -> Result<StoredChunk> {
    // A range of bytes may end within an element.
    let is_whole = from.len().is_multiple_of(4);
    if compress == Compress::Half && element == Element::Float32 && is_whole {
        let halves = &mut beside[..from.len() / 2];
        half::narrow(Format::F16, from, halves)?;
        if !overflows(halves) {
            let (encoding, len) = if let Some(len) = pack(halves, Width::Two, into)? {
                (Encoding::HalfBitmap, len)
            } else {
                into[..halves.len()].copy_from_slice(halves);
                (Encoding::Half, halves.len())
            };
            return Ok(StoredChunk { encoding, len, checksum: crc32c(&into[..len]) });
        }
    }
    if compress != Compress::None
        && is_whole
        && let Some(width) = element.width()
        && let Some(len) = pack(from, width, into)?
    {
        return Ok(StoredChunk { encoding: Encoding::Bitmap, len, checksum: crc32c(&into[..len]) });
    }
    let checksum = copy_and_crc32c(&mut into[..from.len()], from);
    Ok(StoredChunk { encoding: Encoding::Raw, len: from.len(), checksum })
}

/// What so many bytes would be stored as, by a look at parts of them; nothing if they would not be encoded.
pub(super) fn estimate(from: &[u8], element: Element, compress: Compress) -> Result<Option<u64>> {
    if compress == Compress::None || element.width().is_none() || from.len() < LOOKS * LOOK_BYTES {
        return Ok(None);
    }
    let apart = from.len() / LOOKS / 4 * 4;
    let look = |number: usize| &from[number * apart..number * apart + LOOK_BYTES];
    let sample: Vec<u8> = (0..LOOKS).flat_map(look).copied().collect();
    let (mut into, mut beside) = (vec![0; sample.len()], vec![0; sample.len() / 2]);
    let stored = store(&sample, element, compress, &mut into, &mut beside)?;
    Ok(Some((from.len() as f64 * stored.len as f64 / sample.len() as f64) as u64))
}

/// Leaves the zeros out, if that pays.
fn pack(from: &[u8], width: Width, into: &mut [u8]) -> Result<Option<usize>> {
    let len = bitmap::encoded_len(from, width)?;
    if len as f64 > from.len() as f64 * (1.0 - PAYS) {
        return Ok(None);
    }
    bitmap::encode_into(from, width, into).map(Some)
}

/// Whether a number became infinite. One that was infinite before is taken for such a one, too: its
/// chunk is stored without loss.
fn overflows(halves: &[u8]) -> bool {
    const INFINITE: u16 = 0x7c00;
    halves.chunks_exact(2).any(|half| u16::from_le_bytes([half[0], half[1]]) & INFINITE == INFINITE)
}

/// Checks what was read of a chunk.
pub(super) fn check(stored: &StoredChunk, read: &[u8]) -> Result<()> {
    let found = crc32c(read);
    if found == stored.checksum {
        return Ok(());
    }
    Err(Error::new(Kind::Corrupt, "the scratch file does not contain what was written to it")
        .with("expected", format!("{:08x}", stored.checksum))
        .with("found", format!("{found:08x}")))
}

/// Gets a chunk that was not stored raw back. `beside` is room for halves.
pub(super) fn restore(
    stored: &StoredChunk,
    read: &[u8],
    into: &mut [u8],
    beside: &mut [u8],
) -> Result<()> {
    match stored.encoding {
        Encoding::Raw => into.copy_from_slice(read),
        Encoding::Bitmap => bitmap::decode_into(read, into)?,
        Encoding::Half => half::widen(Format::F16, read, into)?,
        Encoding::HalfBitmap => {
            let halves = &mut beside[..into.len() / 2];
            bitmap::decode_into(read, halves)?;
            half::widen(Format::F16, halves, into)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn floats(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn there_and_back(from: &[u8], element: Element, compress: Compress) -> (StoredChunk, Vec<u8>) {
        let (mut into, mut beside) = (vec![0; from.len()], vec![0; from.len() / 2]);
        let stored = store(from, element, compress, &mut into, &mut beside).unwrap();
        check(&stored, &into[..stored.len]).unwrap();
        let mut back = vec![1; from.len()];
        restore(&stored, &into[..stored.len], &mut back, &mut beside).unwrap();
        (stored, back)
    }

    #[test]
    fn zeros_are_left_out_where_that_pays() {
        let sparse: Vec<f32> = (0..4096).map(|i| if i % 3 == 0 { i as f32 } else { 0.0 }).collect();
        let (stored, back) = there_and_back(&floats(&sparse), Element::Float32, Compress::Lossless);
        assert_eq!((stored.encoding, back), (Encoding::Bitmap, floats(&sparse)));
        assert!(stored.len < 4096 * 2);
        let dense: Vec<f32> = (1..4097).map(|i| i as f32).collect();
        let (stored, _) = there_and_back(&floats(&dense), Element::Float32, Compress::Lossless);
        assert_eq!((stored.encoding, stored.len), (Encoding::Raw, 4096 * 4));
        let (stored, _) = there_and_back(&floats(&sparse), Element::Float32, Compress::None);
        assert_eq!(stored.encoding, Encoding::Raw);
        let (stored, _) = there_and_back(&floats(&sparse), Element::Other, Compress::Half);
        assert_eq!(stored.encoding, Encoding::Raw);
    }

    #[test]
    fn halves_are_half_as_long_and_near() {
        let numbers: Vec<f32> = (0..1000).map(|i| (i as f32).sin()).collect();
        let (stored, back) = there_and_back(&floats(&numbers), Element::Float32, Compress::Half);
        assert_eq!((stored.encoding, stored.len), (Encoding::Half, 2000));
        for (number, back) in numbers.iter().zip(back.chunks_exact(4)) {
            let back = f32::from_le_bytes(back.try_into().unwrap());
            assert!((number - back).abs() <= number.abs() / 1024.0 + 1e-7);
        }
        let sparse: Vec<f32> = (0..1024).map(|i| if i % 4 == 0 { 0.5 } else { 0.0 }).collect();
        let (stored, back) = there_and_back(&floats(&sparse), Element::Float32, Compress::Half);
        assert_eq!((stored.encoding, back), (Encoding::HalfBitmap, floats(&sparse)));
    }

    #[test]
    fn what_a_half_cannot_hold_is_stored_without_loss() {
        for large in [1e6, f32::INFINITY, f32::NAN] {
            let mut numbers = [1.5; 300];
            numbers[7] = large;
            let (stored, back) =
                there_and_back(&floats(&numbers), Element::Float32, Compress::Half);
            assert_eq!((stored.encoding, back), (Encoding::Raw, floats(&numbers)));
        }
    }

    #[test]
    fn one_flipped_bit_is_noticed_in_every_form() {
        let sparse: Vec<f32> = (0..512).map(|i| if i % 3 == 0 { i as f32 } else { 0.0 }).collect();
        let dense = vec![1.25_f32; 512];
        for numbers in [sparse, dense] {
            for compress in [Compress::None, Compress::Lossless, Compress::Half] {
                let from = floats(&numbers);
                let (mut into, mut beside) = (vec![0; from.len()], vec![0; from.len() / 2]);
                let stored =
                    store(&from, Element::Float32, compress, &mut into, &mut beside).unwrap();
                into[stored.len / 2] ^= 4;
                let error = check(&stored, &into[..stored.len]).unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupt);
            }
        }
    }

    proptest! {
        #[test]
        fn every_bit_comes_back_without_half(
            words in prop::collection::vec(prop_oneof![Just(0_u32), any::<u32>()], 0..2000),
            compress in prop_oneof![Just(Compress::None), Just(Compress::Lossless)],
            element in prop_oneof![Just(Element::Float32), Just(Element::Two), Just(Element::Other)],
        ) {
            let from: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(there_and_back(&from, element, compress).1, from);
        }
    }
}
