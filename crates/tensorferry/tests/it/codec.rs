//! The codecs as their callers use them.

use std::ops::Range;

use tensorferry::Kind;
use tensorferry::codec::bitmap::{self, Width};
use tensorferry::codec::checksum::{Crc32c, combine, crc32c};
use tensorferry::codec::half::{self, Format};

/// A tensor as activations often are: no negative numbers, about half of them zero.
fn activations(elements: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..elements).flat_map(|_| next().max(0.0).to_le_bytes()).collect()
}

#[test]
fn several_threads_decode_one_encoding_to_the_tensor_it_was() {
    let tensor = activations(100_001);
    let mut encoded = vec![0; bitmap::encoded_len(&tensor, Width::Four).unwrap()];
    assert!(encoded.len() * 10 < tensor.len() * 6, "half of the elements are zero");
    let length = bitmap::encode_into(&tensor, Width::Four, &mut encoded).unwrap();
    assert_eq!(length, encoded.len());

    let header = bitmap::inspect(&encoded).unwrap();
    let mut decoded = vec![0; header.decoded_len()];
    let cuts = [0, 100, 101, 500, header.rows()];
    std::thread::scope(|scope| {
        let mut rest = &mut decoded[..];
        for cut in cuts.windows(2) {
            let rows = Range { start: cut[0], end: cut[1] };
            let (part, after) = rest.split_at_mut(header.rows_len(&rows));
            rest = after;
            let encoded = &encoded;
            scope.spawn(move || bitmap::decode_rows_into(encoded, rows, part).unwrap());
        }
    });
    assert!(decoded == tensor);
}

#[test]
fn a_checksum_of_parts_finds_a_value_that_changed_where_the_decoder_can_not() {
    let tensor = activations(4096);
    let mut encoded = vec![0; bitmap::encoded_len(&tensor, Width::Four).unwrap()];
    bitmap::encode_into(&tensor, Width::Four, &mut encoded).unwrap();
    let (first, second) = encoded.split_at(1000);
    let whole = combine(crc32c(first), crc32c(second), second.len() as u64);

    *encoded.last_mut().unwrap() ^= 1;
    bitmap::decode_into(&encoded, &mut vec![0; tensor.len()]).unwrap();
    let mut running = Crc32c::new();
    encoded.chunks(777).for_each(|chunk| running.update(chunk));
    assert_ne!(running.finish(), whole);
}

/// Large enough for outputs to be written past the cache, from a place within a line of it.
#[test]
fn large_tensors_narrow_and_widen_as_their_elements_do() {
    let tensor = activations((9 << 20) + 3);
    for format in Format::ALL {
        let mut halves = vec![0; tensor.len() / 2 + 2];
        half::narrow(format, &tensor, &mut halves[2..]).unwrap();
        let mut numbers = vec![0; tensor.len() + 4];
        half::widen(format, &halves[2..], &mut numbers[4..]).unwrap();
        let elements = tensor.as_chunks::<4>().0.iter().zip(numbers[4..].as_chunks::<4>().0);
        for ((number, back), half) in elements.zip(halves[2..].as_chunks::<2>().0) {
            let expected = half::narrow_one(format, f32::from_le_bytes(*number));
            assert_eq!(u16::from_le_bytes(*half), expected);
            assert_eq!(half::widen_one(format, expected).to_le_bytes(), *back);
        }
    }
}

#[test]
fn a_damaged_encoding_is_an_error_that_names_where() {
    let tensor = activations(1000);
    let mut encoded = vec![0; bitmap::encoded_len(&tensor, Width::Four).unwrap()];
    bitmap::encode_into(&tensor, Width::Four, &mut encoded).unwrap();
    encoded[40] ^= 0x10;
    let error = bitmap::decode_into(&encoded, &mut vec![0; tensor.len()]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("field: row offset, offset: 164"), "{error}");
}
