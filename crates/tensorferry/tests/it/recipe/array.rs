//! Arrays in `.npy` and `.npz` files.

use std::io::Write;

use proptest::prelude::*;
use tensorferry::Kind;
use tensorferry::data::chance::Chance;
use tensorferry::data::recipe::Scratch;
use tensorferry::data::sample::{Alone, Field, Layout};
use tensorferry::dtype::Dtype;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{array, chance, floats, prepare, recipe, refused, stored};

/// A `.npy` file as NumPy writes it.
fn npy(version: u8, descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    let prefix = if version == 1 { 10 } else { 12 };
    let padded = (prefix + text.len() + 1).next_multiple_of(64) - prefix;
    match version {
        1 => bytes.extend((padded as u16).to_le_bytes()),
        _ => bytes.extend((padded as u32).to_le_bytes()),
    }
    bytes.extend(format!("{text:<width$}\n", width = padded - 1).bytes());
    bytes.extend(data);
    bytes
}

fn plain(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy(1, &format!("'{descr}'"), "False", shape, data)
}

#[test]
fn arrays_of_every_version_and_type_come_as_they_are_stored() {
    let recipe = recipe("npy", "[]");
    let data: Vec<u8> = (0..48).collect();
    for (descr, dtype) in [
        ("|b1", Dtype::Bool),
        ("|i1", Dtype::I8),
        ("|u1", Dtype::U8),
        ("<i2", Dtype::I16),
        ("<u2", Dtype::U16),
        ("<f2", Dtype::F16),
        ("<i4", Dtype::I32),
        ("<u4", Dtype::U32),
        ("<f4", Dtype::F32),
        ("<i8", Dtype::I64),
        ("<u8", Dtype::U64),
        ("<f8", Dtype::F64),
        ("<c8", Dtype::C64),
    ] {
        let elements = 48 / dtype.bytes() as usize;
        for version in 1..=3 {
            let shape = format!("({}, 2)", elements / 2);
            let file = npy(version, &format!("'{descr}'"), "False", &shape, &data);
            let (layout, memory) = array(&*recipe, &file, chance(0)).unwrap();
            assert_eq!(layout, Layout::new(dtype, [elements / 2, 2]));
            assert_eq!(memory, data);
            let place = prepare(&*recipe, stored(&file).field(0), chance(0)).unwrap();
            assert_eq!(place.arrays[0].2, data);
        }
    }
    let (layout, _) = array(&*recipe, &plain("<f4", "()", &[0; 4]), chance(0)).unwrap();
    assert_eq!(layout, Layout::new(Dtype::F32, []));
    let (layout, _) = array(&*recipe, &plain("<f4", "(3,)", &[0; 12]), chance(0)).unwrap();
    assert_eq!(layout, Layout::new(Dtype::F32, [3]));
    let (layout, _) = array(&*recipe, &plain("<f4", "(0, 5)", &[]), chance(0)).unwrap();
    assert_eq!(layout, Layout::new(Dtype::F32, [0, 5]));
}

#[test]
fn an_array_that_is_not_what_its_header_says_is_refused() {
    let four = [0; 16];
    for (file, kind, says) in [
        (b"NUMPY".to_vec(), Kind::Corrupt, "is no .npy file"),
        (
            plain("<f4", "(5,)", &four),
            Kind::Truncated,
            "has 16 bytes of data behind a header of F32[5]",
        ),
        (plain("<f4", "(3,)", &four), Kind::Corrupt, "has 16 bytes of data"),
        (plain("<f4", "(99999999999, 99999999999)", &four), Kind::Corrupt, "has 16 bytes of data"),
        (plain(">f4", "(4,)", &four), Kind::Unsupported, "big-endian order; save array.astype"),
        (plain("<U4", "(1,)", &four), Kind::Unsupported, "\"<U4\", which has no tensor type"),
        (plain("<f4", "(4, -1)", &four), Kind::Corrupt, "has no shape"),
        (npy(1, "[('a', '<f4')]", "False", "(4,)", &four), Kind::Unsupported, "holds records"),
        (npy(1, "'<f4'", "True", "(2, 2)", &four), Kind::Unsupported, "numpy.ascontiguousarray"),
        (npy(1, "'<f4'", "Maybe", "(2, 2)", &four), Kind::Corrupt, "does not say its order"),
        (npy(9, "'<f4'", "False", "(4,)", &four), Kind::Unsupported, "has version 9"),
    ] {
        let error = array(&*recipe("npy", "[]"), &file, chance(0)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A volume whose elements say where they are.
fn volume(outer: usize, sides: [usize; 3]) -> Vec<u8> {
    let count = outer * sides.iter().product::<usize>();
    let data: Vec<u8> = (0..count as i32).flat_map(i32::to_le_bytes).collect();
    let [depth, height, width] = sides;
    plain("<i4", &format!("({outer}, {depth}, {height}, {width})"), &data)
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|number| i32::from_le_bytes(*number)).collect()
}

#[test]
fn a_part_of_a_volume_is_the_same_from_memory_and_from_a_file() {
    let file = volume(2, [6, 7, 8]);
    let on_disk = stored(&file);
    let chain = r#"[{"name": "RandomFlip3D"}, {"name": "RandomCrop3D", "size": [3, 4, 5]}, {"name": "RandomFlip3D"}]"#;
    let recipe = recipe("npy", chain);
    let mut starts = std::collections::HashSet::new();
    for index in 0..200 {
        let (layout, part) = array(&*recipe, &file, chance(index)).unwrap();
        assert_eq!(layout, Layout::new(Dtype::I32, [2, 3, 4, 5]));
        let place = prepare(&*recipe, on_disk.field(0), chance(index)).unwrap();
        assert!(place.arrays[0].2 == part);
        let part = ints(&part);
        // Neighbours in the part are neighbours in the volume, in one direction or the other.
        let strides = [1, 8, 56].into_iter().zip([1, 5, 20]).map(|(whole, cut)| {
            let step = part[cut] - part[0];
            assert!(step == whole || step == -whole, "{step}");
            step
        });
        let strides: Vec<i32> = strides.collect();
        for (at, element) in part.iter().enumerate() {
            let at = at as i32;
            let inner =
                strides[0] * (at % 5) + strides[1] * (at / 5 % 4) + strides[2] * (at / 20 % 3);
            assert_eq!(*element, part[0] + inner + at / 60 * 336);
        }
        starts.insert(part[0]);
    }
    assert!(starts.len() > 50, "{}", starts.len());
}

#[test]
fn elements_are_changed_as_the_steps_say() {
    let numbers: Vec<u8> =
        [0_i16, 1, 9, 1000].iter().flat_map(|number| number.to_le_bytes()).collect();
    let file = plain("<i2", "(2, 2)", &numbers);
    let (layout, log) = array(&*recipe("npy", r#"[{"name": "Log"}]"#), &file, chance(0)).unwrap();
    assert_eq!(layout, Layout::new(Dtype::F32, [2, 2]));
    assert_eq!(floats(&log), [0.0, 2_f32.ln(), 10_f32.ln(), 1001_f32.ln()]);
    let half = recipe("npy", r#"[{"name": "Log"}, {"name": "ToDtype", "dtype": "bfloat16"}]"#);
    let (layout, memory) = array(&*half, &file, chance(0)).unwrap();
    assert_eq!((layout.dtype, memory.len()), (Dtype::Bf16, 8));
    let scaled = recipe("npy", r#"[{"name": "ToDtype", "dtype": "float32", "scale": true}]"#);
    let (_, memory) = array(&*scaled, &file, chance(0)).unwrap();
    assert_eq!(floats(&memory), [0.0, 1.0 / 32767.0, 9.0 / 32767.0, 1000.0 / 32767.0]);
}

#[test]
fn steps_that_make_no_sense_for_arrays_are_refused() {
    let error = refused("npy", r#"[{"name": "CenterCrop", "size": 3}]"#);
    assert_eq!(error.to_string(), "CenterCrop is no step for an array");
    let error = refused("npy", r#"[{"name": "Log"}, {"name": "RandomFlip3D"}]"#);
    assert!(error.to_string().contains("RandomFlip3D goes before the steps that change elements"));
    let crop = recipe("npy", r#"[{"name": "RandomCrop3D", "size": 9}]"#);
    let error = array(&*crop, &volume(1, [9, 8, 9]), chance(0)).unwrap_err();
    assert!(
        error.to_string().contains("the volume is [9, 8, 9], and RandomCrop3D needs [9, 9, 9]")
    );
    let error = array(&*crop, &plain("<f4", "(2,)", &[0; 8]), chance(0)).unwrap_err();
    assert!(error.to_string().contains("that takes three dimensions"), "{error}");
}

fn npz(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, data) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn members_of_an_archive_are_arrays_by_their_names_and_are_cut_alike() {
    let members = [("image", volume(1, [4, 5, 6])), ("mask", volume(1, [4, 5, 6]))];
    let recipe = recipe("npz", r#"[{"name": "RandomCrop3D", "size": 3}]"#);
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let file = npz(&members, method);
        for field in [stored(&file).field(0), Field::Memory(&file)] {
            let place = prepare(&*recipe, field, chance(0)).unwrap();
            let names: Vec<_> = place.arrays.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names, ["image", "mask"]);
            assert_eq!(place.arrays[0].1, Layout::new(Dtype::I32, [1, 3, 3, 3]));
            assert!(place.arrays[0].2 == place.arrays[1].2);
        }
    }
}

#[test]
fn a_damaged_archive_names_its_member() {
    let file = npz(
        &[("first", volume(1, [1, 1, 1])), ("second", b"no array".to_vec())],
        CompressionMethod::Stored,
    );
    let recipe = recipe("npz", "[]");
    let mut place = Alone::default();
    let field = Field::Memory(&file);
    let error = recipe.prepare(field, chance(0), &mut Scratch::default(), &mut place).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("member: second"), "{error}");
}

#[test]
fn one_changed_byte_in_a_stored_member_is_found_by_its_checksum() {
    let members = [("first", volume(1, [1, 1, 1])), ("second", volume(1, [4, 5, 6]))];
    let mut file = npz(&members, CompressionMethod::Stored);
    let last = &members[1].1[members[1].1.len() - 16..];
    let at = file.windows(16).position(|window| window == last).unwrap();
    file[at + 3] ^= 1;
    let recipe = recipe("npz", "[]");
    for field in [stored(&file).field(0), Field::Memory(&file)] {
        let error = prepare(&*recipe, field, chance(0)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        let text = error.to_string();
        assert!(text.contains("checksum") && text.contains("member: second"), "{text}");
    }
}

proptest! {
    #[test]
    fn changed_files_give_an_array_or_an_error(
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
        archived in 0..3_u8,
    ) {
        let array = volume(1, [3, 3, 3]);
        let (suffix, mut bytes) = match archived {
            0 => ("npy", array),
            1 => ("npz", npz(&[("a", array)], CompressionMethod::Stored)),
            _ => ("npz", npz(&[("a", array)], CompressionMethod::Deflated)),
        };
        let at = place.index(bytes.len());
        bytes[at] = value;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut result = Alone::default();
        let field = Field::Memory(&bytes);
        let chance = Chance::of(0, 0, 0);
        let recipe = recipe(suffix, r#"[{"name": "RandomFlip3D"}]"#);
        let _ = recipe.prepare(field, chance, &mut Scratch::default(), &mut result);
    }
}
