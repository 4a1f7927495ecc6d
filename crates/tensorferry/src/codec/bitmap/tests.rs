//! Every level against the portable one, and all of them against forged encodings.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;

use super::header::HEADER_BYTES;
use super::*;

/// Bits that a careless comparison or copy would change: signed zeros, subnormals, infinities,
/// and NaNs that signal, are quiet, or have a payload.
const DELICATE: [u32; 9] = [
    0x8000_0000,
    0x0000_0001,
    0x8000_8000,
    0x7f80_0000,
    0xff80_0001,
    0x7fc0_dead,
    0x7c01_fc01,
    0x0000_8000,
    0xffff_0000,
];

/// A tensor behind `skew` other bytes, so that it can have any alignment.
#[derive(Debug, Clone)]
struct Tensor {
    bytes: Vec<u8>,
    skew: usize,
    width: Width,
}

impl Tensor {
    fn data(&self) -> &[u8] {
        &self.bytes[self.skew..]
    }
}

/// Of 256 elements, `density` are not zero.
fn tensors() -> impl Strategy<Value = Tensor> {
    let width = prop_oneof![Just(Width::Two), Just(Width::Four)];
    let density = prop_oneof![Just(0u32), Just(256), Just(128), 0u32..=256];
    (width, density, 0usize..1200, 0usize..64, any::<u64>()).prop_map(
        |(width, density, elements, skew, seed)| {
            let mut state = seed | 1;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 20) as u32
            };
            let mut bytes = vec![0xa5; skew];
            for _ in 0..elements {
                let value = match random() % 256 {
                    draw if draw >= density => 0,
                    draw if draw % 4 == 0 => DELICATE[random() as usize % DELICATE.len()],
                    _ => random(),
                };
                bytes.extend_from_slice(&value.to_le_bytes()[..width.bytes()]);
            }
            Tensor { bytes, skew, width }
        },
    )
}

/// A good header with exactly as many bytes behind it as it announces, so that all of them are
/// looked at. Half of the time the bitmaps and offsets agree with one another and with `stored`,
/// or all but one do: random ones would be refused at the first row.
fn forgeries() -> impl Strategy<Value = Vec<u8>> {
    let width = prop_oneof![Just(Width::Two), Just(Width::Four)];
    let header = (width, 0u64..700).prop_flat_map(|(width, elements)| {
        (0..=elements).prop_map(move |stored| Header { width, elements, stored })
    });
    (header, any::<bool>(), any::<Option<Index>>()).prop_flat_map(|(header, agree, flip)| {
        let body = prop::collection::vec(any::<u8>(), header.encoded_len() - HEADER_BYTES);
        body.prop_map(move |mut body| {
            let mut header = header;
            if agree {
                header.stored = make_agree(&header, &mut body);
                body.resize(header.encoded_len() - HEADER_BYTES, 0xa5);
                if let Some(flip) = flip.filter(|_| !body.is_empty()) {
                    let bit = flip.index(body.len() * 8);
                    body[bit / 8] ^= 1 << (bit % 8);
                }
            }
            [&header.to_bytes()[..], &body].concat()
        })
    })
}

/// Clears the bits past the last element, counts the others into the offsets, and returns their
/// sum.
fn make_agree(header: &Header, body: &mut [u8]) -> u64 {
    let (bitmaps, rest) = body.split_at_mut(header.offsets_start() - HEADER_BYTES);
    let mut stored = 0u32;
    for (row, bitmap) in bitmaps.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let elements = (header.elements as usize - row * ROW_ELEMENTS).min(ROW_ELEMENTS);
        let kept = u128::from_le_bytes(*bitmap) & (u128::MAX >> (ROW_ELEMENTS - elements));
        *bitmap = kept.to_le_bytes();
        rest[row * 4..][..4].copy_from_slice(&stored.to_le_bytes());
        stored += kept.count_ones();
    }
    u64::from(stored)
}

#[test]
fn forgeries_are_refused_and_accepted_in_turn() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted = (0..200)
        .filter(|_| {
            let forged = forgeries().new_tree(&mut runner).unwrap().current();
            decoded(Level::Portable, &forged).is_ok()
        })
        .count();
    assert!((20..180).contains(&accepted), "{accepted} of 200 were accepted");
}

fn encoded(tensor: &Tensor) -> Vec<u8> {
    let mut dst = vec![0; encoded_len_max(tensor.data().len(), tensor.width)];
    let length = encode_into_at(Level::Portable, tensor.data(), tensor.width, &mut dst).unwrap();
    dst.truncate(length);
    dst
}

fn decoded(level: Level, encoded: &[u8]) -> Result<Vec<u8>> {
    let mut dst = vec![0x5a; inspect(encoded)?.decoded_len()];
    decode_into_at(level, encoded, &mut dst)?;
    Ok(dst)
}

/// An encoding of `elements` f32s, of which every third is zero.
fn sample(elements: u32) -> Vec<u8> {
    let bytes = (0..elements).flat_map(|i| (i % 3 * i).to_le_bytes()).collect();
    encoded(&Tensor { bytes, skew: 0, width: Width::Four })
}

#[test]
fn levels_that_this_processor_lacks_are_refused() {
    for level in Level::ALL.into_iter().filter(|level| !level.is_available()) {
        let error = encode_into_at(level, &[0; 4], Width::Four, &mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(decode_into_at(level, &sample(3), &mut [0; 12]).is_err());
        assert!(encoded_len_at(level, &[0; 4], Width::Four).is_err());
    }
}

#[test]
fn an_empty_tensor_is_a_header() {
    for width in [Width::Two, Width::Four] {
        let empty = encoded(&Tensor { bytes: vec![], skew: 0, width });
        assert_eq!(empty.len(), HEADER_BYTES);
        assert_eq!(decoded(Level::detect(), &empty).unwrap(), Vec::<u8>::new());
    }
}

#[test]
fn the_bytes_are_those_that_the_format_says() {
    let bytes: Vec<u8> = [0.0f32, 1.0, -0.0, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let encoded = encoded(&Tensor { bytes, skew: 0, width: Width::Four });
    assert_eq!(encoded[..8], *b"TFBM\x01\x00\x04\x00");
    assert_eq!(encoded[8..16], 4u64.to_le_bytes());
    assert_eq!(encoded[16..24], 2u64.to_le_bytes());
    assert_eq!(encoded[24..32], [0; 8]);
    assert_eq!(encoded[32..48], 0b0110u128.to_le_bytes());
    assert_eq!(encoded[48..52], [0; 4]);
    assert_eq!(encoded[52..56], 1.0f32.to_le_bytes());
    assert_eq!(encoded[56..], (-0.0f32).to_le_bytes());
}

#[test]
fn half_zero_f32_takes_a_little_more_than_half_the_bytes() {
    let bytes: Vec<u8> = (0..1280u32).flat_map(|i| (i % 2).to_le_bytes()).collect();
    let length = encoded_len(&bytes, Width::Four).unwrap();
    assert_eq!(length, HEADER_BYTES + 10 * 20 + bytes.len() / 2);
}

#[test]
fn bytes_that_are_not_whole_elements_are_refused() {
    for (bytes, width) in [(3, Width::Two), (6, Width::Four)] {
        let src = vec![0; bytes];
        assert_eq!(encoded_len(&src, width).unwrap_err().kind(), Kind::InvalidInput);
        let error = encode_into(&src, width, &mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
    }
    assert_eq!(Width::from_bytes(8).unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn every_forged_field_is_named_with_its_offset() {
    let good = sample(300);
    let offsets = HEADER_BYTES + 3 * 16;
    for (place, value, field, offset) in [
        (0, b'X', "magic", 0),
        (6, 3, "width", 6),
        (7, 1, "reserved", 7),
        (31, 1, "reserved", 7),
        (12, 1, "elements", 8),
        (18, 1, "stored", 16),
        (32, 0, "row offset", offsets + 4),
        (HEADER_BYTES + 2 * 16 + 15, 0x80, "bitmap", HEADER_BYTES + 2 * 16),
        (offsets, 1, "row offset", offsets),
        (offsets + 9, 7, "row offset", offsets + 8),
    ] {
        let mut forged = good.clone();
        assert_ne!(forged[place], value);
        forged[place] = value;
        let error = decoded(Level::detect(), &forged).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        let named: Vec<_> = error.context().take(2).collect();
        let expected = [("field", field), ("offset", &*offset.to_string())];
        assert_eq!(named, expected, "{error}");
    }
}

#[test]
fn bitmaps_that_ask_for_more_than_is_stored_are_refused() {
    // One row whose bitmap marks everything, with nothing stored.
    let header = Header { width: Width::Four, elements: 128, stored: 0 };
    let forged = [&header.to_bytes()[..], &[0xff; 16], &[0; 4]].concat();
    for level in Level::available() {
        let error = decoded(level, &forged).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("bitmap"), "{error}");
    }
}

#[test]
fn values_that_no_bitmap_asks_for_are_refused() {
    let header = Header { width: Width::Two, elements: 128, stored: 1 };
    let forged = [&header.to_bytes()[..], &[0; 16], &[0; 4], &[1, 1]].concat();
    let error = decoded(Level::detect(), &forged).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("field: stored, offset: 16"), "{error}");
}

#[test]
fn every_shorter_encoding_is_truncated_and_a_longer_one_corrupt() {
    let mut good = sample(200);
    for length in 0..good.len() {
        assert_eq!(inspect(&good[..length]).unwrap_err().kind(), Kind::Truncated, "{length}");
    }
    good.push(0);
    assert_eq!(inspect(&good).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn an_unknown_version_is_unsupported() {
    let mut newer = sample(3);
    newer[4] = 2;
    assert_eq!(inspect(&newer).unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn a_header_of_huge_counts_is_an_error() {
    for (elements, stored) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (1 << 32, 0), (1 << 31, 0)] {
        let header =
            [&b"TFBM\x01\x00\x04\x00"[..], &elements.to_le_bytes(), &stored.to_le_bytes(), &[0; 8]]
                .concat();
        assert!(inspect(&header).is_err());
    }
}

#[test]
fn rows_that_do_not_exist_and_wrong_destinations_are_refused() {
    let good = sample(300);
    let mut dst = vec![0; 1200];
    for rows in [0..4, 4..4, Range { start: 2, end: 1 }, usize::MAX..usize::MAX] {
        let error = decode_rows_into(&good, rows, &mut []).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
    }
    for length in [0, 1199] {
        let error = decode_into(&good, &mut dst[..length]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
    }
    decode_into(&good, &mut dst).unwrap();
    decode_rows_into(&good, 3..3, &mut []).unwrap();
}

proptest! {
    #[test]
    fn every_level_encodes_to_the_same_bytes_and_decodes_to_every_bit(tensor in tensors()) {
        let expected = encoded(&tensor);
        for level in Level::available() {
            let length = encoded_len_at(level, tensor.data(), tensor.width).unwrap();
            prop_assert_eq!(length, expected.len(), "{}", level);
            // Exactly the room that is needed, unaligned, with guards that must survive.
            let mut dst = vec![0x77; length + 8];
            let room = &mut dst[3..length + 3];
            let done = encode_into_at(level, tensor.data(), tensor.width, room).unwrap();
            prop_assert_eq!(done, length);
            prop_assert_eq!(&*room, &expected, "{}", level);
            prop_assert_eq!(&dst[..3], &[0x77; 3]);
            prop_assert_eq!(&dst[length + 3..], &[0x77; 5]);
            prop_assert_eq!(decoded(level, &expected).unwrap(), tensor.data(), "{}", level);
        }
    }

    #[test]
    fn no_encoding_is_longer_than_the_maximum(tensor in tensors()) {
        prop_assert!(encoded(&tensor).len() <= encoded_len_max(tensor.data().len(), tensor.width));
    }

    #[test]
    fn a_destination_that_is_too_small_is_an_error(tensor in tensors(), room in any::<Index>()) {
        let mut dst = vec![0; room.index(encoded(&tensor).len())];
        for level in Level::available() {
            let error = encode_into_at(level, tensor.data(), tensor.width, &mut dst).unwrap_err();
            prop_assert_eq!(error.kind(), Kind::InvalidInput);
        }
    }

    #[test]
    fn rows_decoded_apart_make_up_the_tensor(tensor in tensors(), cut in any::<Index>()) {
        let encoded = encoded(&tensor);
        let header = inspect(&encoded).unwrap();
        let cut = cut.index(header.rows() + 1);
        for level in Level::available() {
            let mut whole = Vec::new();
            for rows in [0..cut, cut..header.rows()] {
                let mut part = vec![0; header.rows_len(&rows)];
                decode_rows_into_at(level, &encoded, rows, &mut part).unwrap();
                whole.extend(part);
            }
            prop_assert_eq!(&whole[..], tensor.data());
        }
    }

    #[test]
    fn parts_are_valid_together_exactly_when_the_whole_is(
        tensor in tensors(),
        cut in any::<Index>(),
        place in any::<Index>(),
        flip in 1u8..,
    ) {
        let mut forged = encoded(&tensor);
        let place = place.index(forged.len());
        forged[place] ^= flip;
        if let Ok(header) = inspect(&forged) {
            let cut = cut.index(header.rows() + 1);
            let parts = [0..cut, cut..header.rows()].into_iter().all(|rows| {
                let mut part = vec![0; header.rows_len(&rows)];
                decode_rows_into(&forged, rows, &mut part).is_ok()
            });
            prop_assert_eq!(parts, decoded(Level::detect(), &forged).is_ok());
        }
    }

    #[test]
    fn all_levels_say_the_same_of_a_mutated_encoding(
        tensor in tensors(),
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut forged = encoded(&tensor);
        for (place, value) in edits {
            let place = place.index(forged.len());
            forged[place] = value;
        }
        if let Some(cut) = cut {
            forged.truncate(cut.index(forged.len()));
        }
        let expected = decoded(Level::Portable, &forged).map_err(|error| error.to_string());
        for level in Level::available() {
            let got = decoded(level, &forged).map_err(|error| error.to_string());
            prop_assert_eq!(&got, &expected, "{}", level);
        }
    }

    #[test]
    fn any_bytes_give_data_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decoded(Level::detect(), &bytes);
    }

    #[test]
    fn any_bytes_behind_a_good_header_are_judged_alike_at_every_level(forged in forgeries()) {
        prop_assert!(inspect(&forged).is_ok());
        let expected = decoded(Level::Portable, &forged).map_err(|error| error.to_string());
        for level in Level::available() {
            let got = decoded(level, &forged).map_err(|error| error.to_string());
            prop_assert_eq!(&got, &expected, "{}", level);
        }
    }
}
