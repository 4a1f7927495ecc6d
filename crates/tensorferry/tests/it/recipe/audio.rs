//! Sound in `.wav` files.

use proptest::prelude::*;
use tensorferry::Kind;
use tensorferry::data::recipe::Scratch;
use tensorferry::data::sample::{Alone, Field, Layout};
use tensorferry::dtype::Dtype;

use super::{array, chance, floats, prepare, recipe, stored};

fn wav(code: u16, bits: u16, channels: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"RIFF\0\0\0\0WAVE".to_vec();
    // A chunk of odd length that nobody knows stands before the others.
    bytes.extend(b"LIST\x03\0\0\0abc\0fmt \x10\0\0\0");
    for number in [code, channels] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([0; 10]);
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn sound_of_every_width_becomes_floats_of_each_channel() {
    let expected = [-1.0, 0.5, 0.0, -0.25];
    let eight = [0, 192, 128, 96];
    let sixteen: Vec<u8> =
        [-32768_i16, 16384, 0, -8192].iter().flat_map(|it| it.to_le_bytes()).collect();
    let wide: Vec<u8> =
        [i32::MIN, 1 << 30, 0, -(1 << 29)].iter().flat_map(|it| it.to_le_bytes()).collect();
    let twenty_four: Vec<u8> = wide.chunks(4).flat_map(|it| it[1..].to_vec()).collect();
    let float: Vec<u8> = expected.iter().flat_map(|it: &f32| it.to_le_bytes()).collect();
    let recipe = recipe("wav", "[]");
    for file in [
        wav(1, 8, 2, &eight),
        wav(1, 16, 2, &sixteen),
        wav(1, 24, 2, &twenty_four),
        wav(1, 32, 2, &wide),
        wav(3, 32, 2, &float),
    ] {
        let (layout, memory) = array(&*recipe, &file, chance(0)).unwrap();
        assert_eq!(layout, Layout::new(Dtype::F32, [2, 2]));
        assert_eq!(floats(&memory), [-1.0, 0.0, 0.5, -0.25]);
    }
}

#[test]
fn sound_of_16_bits_can_stay_as_it_is() {
    let data: Vec<u8> = (0..12).collect();
    let view = recipe("wav", r#"[{"name": "AsStored"}]"#);
    for field in [stored(&wav(1, 16, 2, &data)).field(0), Field::Memory(&wav(1, 16, 2, &data))] {
        let place = prepare(&*view, field, chance(0)).unwrap();
        assert_eq!(place.arrays[0].1, Layout::new(Dtype::I16, [3, 2]));
        assert_eq!(place.arrays[0].2, data);
    }
    let error = array(&*view, &wav(1, 24, 2, &data), chance(0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn a_damaged_or_unknown_file_says_what_is_wrong() {
    let recipe = recipe("wav", "[]");
    let whole = wav(1, 16, 2, &[0; 8]);
    for (file, kind, says) in [
        (b"RIFF".to_vec(), Kind::Truncated, "ends in its header"),
        (vec![0; 100], Kind::Corrupt, "is no .wav file"),
        (whole[..whole.len() - 1].to_vec(), Kind::Truncated, "has 7 bytes of sound of 8"),
        (wav(1, 16, 2, &[0; 6]), Kind::Corrupt, "in the middle of a frame"),
        (wav(1, 16, 0, &[0; 8]), Kind::Corrupt, "has no channel"),
        (wav(85, 16, 2, &[0; 8]), Kind::Unsupported, "format 85 with 16 bits; PCM of 8"),
    ] {
        let error = array(&*recipe, &file, chance(0)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

proptest! {
    #[test]
    fn changed_files_give_sound_or_an_error(
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = wav(1, 16, 2, &[7; 40]);
        let at = place.index(bytes.len());
        bytes[at] = value;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut result = Alone::default();
        let recipe = recipe("wav", "[]");
        let _ = recipe.prepare(Field::Memory(&bytes), chance(0), &mut Scratch::default(), &mut result);
        let held: usize = result.arrays.iter().map(|(_, _, memory)| memory.len()).sum();
        prop_assert!(held <= bytes.len() * 4);
    }
}
