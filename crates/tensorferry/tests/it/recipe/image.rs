//! Pictures, held to what Pillow and torchvision make of the same files (`tests/data/images`).

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use tensorferry::Kind;
use tensorferry::data::chance::Chance;
use tensorferry::data::recipe::image::change::{Change, Size};
use tensorferry::data::recipe::image::geometry;
use tensorferry::data::recipe::step::{Decode, Interpolation, PIXELS_MAX};
use tensorferry::data::recipe::{Chain, Custom, Scratch, Step, for_suffix};
use tensorferry::data::sample::{Field, Layout};
use tensorferry::dtype::Dtype;

use super::{array, chance, floats, prepare, recipe, refused, stored};

pub fn data(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/images");
    fs::read(folder.join(name)).unwrap()
}

/// Every picture with the pixels that Pillow gives for it.
pub fn pictures() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/images");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names
        .filter_map(|name| name.into_string().unwrap().strip_suffix(".raw").map(str::to_owned));
    let mut names: Vec<_> = names.filter(|name| name.contains('.')).collect();
    names.sort();
    assert!(names.len() > 25, "{names:?}");
    names
}

/// Bytes in rows, as they are decoded.
const PIXELS: &str =
    r#"{"name": "ToDtype", "dtype": "uint8"}, {"name": "ToLayout", "layout": "HWC"}"#;

#[track_caller]
fn close(pixels: &[u8], expected: &[u8], most: u8, what: &str) {
    assert_eq!(pixels.len(), expected.len(), "{what}");
    let differences = pixels.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
    let worst = differences.clone().max().unwrap();
    let mean = differences.map(u32::from).sum::<u32>() as f32 / pixels.len() as f32;
    assert!(worst <= most && mean < 0.5, "{what}: {worst} at most, {mean} on average");
}

#[test]
fn pictures_of_every_colour_layout_are_decoded_as_pillow_decodes_them() {
    for name in pictures().iter().filter(|name| !name.starts_with("turned")) {
        let suffix = name.rsplit('.').next().unwrap();
        let recipe = recipe(suffix, &format!("[{PIXELS}]"));
        let (layout, pixels) = array(&*recipe, &data(name), chance(0)).unwrap();
        assert_eq!(layout, Layout::new(Dtype::U8, [47, 61, 3]), "{name}");
        let lossy = name.ends_with("jpg") || name.starts_with("lossy");
        close(&pixels, &data(&format!("{name}.raw")), u8::from(lossy), name);
    }
}

#[test]
fn pictures_are_turned_as_their_camera_was_if_that_is_asked_for() {
    let turned = recipe(
        "jpg",
        &format!(r#"[{{"name": "Decode", "apply_exif_orientation": true}}, {PIXELS}]"#),
    );
    for orientation in 2..=8 {
        let name = format!("turned-{orientation}.jpg");
        let (layout, pixels) = array(&*turned, &data(&name), chance(0)).unwrap();
        let sides = if orientation < 5 { [47, 61, 3] } else { [61, 47, 3] };
        assert_eq!(layout.shape, sides, "{name}");
        close(&pixels, &data(&format!("{name}.raw")), 1, &name);
    }
}

#[test]
fn a_header_says_how_large_a_picture_is_and_too_large_ones_are_refused_by_it() {
    use tensorferry::data::recipe::image::decode::open;
    let decode = Decode { apply_exif_orientation: true, ..Decode::default() };
    let mut decoder = None;
    for name in pictures() {
        let mut bytes = data(&name);
        // All but the end, by which a JPEG file is known to be whole.
        let (from, to) = (bytes.len() * 3 / 4, bytes.len() - 2);
        bytes[from..to].fill(0);
        let lies = ["exif-6", "turned-5", "turned-6", "turned-7", "turned-8"];
        let lies = lies.iter().any(|start| name.starts_with(start));
        let sides = if lies { Size::new(47, 61) } else { Size::new(61, 47) };
        assert_eq!(open(&bytes, &decode, &mut decoder).unwrap().size(), sides, "{name}");
        let small = Decode { max_pixels: 61 * 47 - 1, ..decode };
        let refused = open(&bytes, &small, &mut decoder).err().unwrap();
        assert!(refused.to_string().ends_with("raise max_pixels of Decode"), "{name}: {refused}");
    }
}

#[derive(Deserialize)]
struct Resized {
    width: usize,
    height: usize,
    #[serde(rename = "box")]
    area: Option<[u32; 4]>,
    filter: Option<Interpolation>,
    shorter: Option<u32>,
    centre: Option<u32>,
    longer_max: Option<u32>,
}

/// Parts that a chain can't ask for directly go through Pillow's order: cut, then resized.
fn resized_chain(case: &Resized) -> String {
    let number = |name: &str, number: Option<u32>| {
        number.map_or(String::new(), |it| format!(r#", "{name}": {it}"#))
    };
    let resize = case.shorter.map_or(String::new(), |side| {
        format!(r#"{{"name": "Resize", "size": {side}{}}},"#, number("max_size", case.longer_max))
    });
    let centre = case
        .centre
        .map_or(String::new(), |side| format!(r#"{{"name": "CenterCrop", "size": {side}}},"#));
    format!("[{resize}{centre}{PIXELS}]")
}

#[test]
fn resizing_agrees_with_torchvision_within_one_level() {
    let cases: Vec<Resized> = serde_json::from_slice(&data("resized.json")).unwrap();
    let (photo, expected) = (data("photo.jpg"), data("resized.raw"));
    let mut expected = &expected[..];
    for case in cases {
        let (wanted, rest) = expected.split_at(case.width * case.height * 3);
        expected = rest;
        let what = format!("{:?} {:?} {:?}", case.area, case.filter, case.shorter);
        let pixels = match case.area {
            None => array(&*recipe("jpg", &resized_chain(&case)), &photo, chance(0)).unwrap().1,
            Some(area) => cut_and_resized(&photo, area, case.filter.unwrap()),
        };
        // Its lobes leave the range of bytes, and are cut off after another pass than Pillow's.
        let most = if case.filter == Some(Interpolation::Lanczos) { 3 } else { 1 };
        close(&pixels, wanted, most, &what);
    }
    assert!(expected.is_empty());
}

/// Goes below the chains, which draw their parts by chance.
fn cut_and_resized(
    photo: &[u8],
    [left, top, width, height]: [u32; 4],
    filter: Interpolation,
) -> Vec<u8> {
    use tensorferry::data::recipe::image::decode::open;
    use tensorferry::data::recipe::image::geometry::{Area, View, Window};
    use tensorferry::data::recipe::image::pixels::{Pixels, Resizer};
    use tensorferry::data::recipe::image::workspace::Buffers;
    let region = Area { left, top, width, height };
    let window =
        Window { left: left.into(), top: top.into(), width: width.into(), height: height.into() };
    let view = View { region, window, target: Size::new(48, 40), filter: Some(filter) };
    let (mut decoder, mut buffers) = (None, Buffers::default());
    let opened = open(photo, &Decode::default(), &mut decoder).unwrap();
    let found = opened.decode(view, &mut buffers).unwrap();
    let mut result = Vec::new();
    let pixels = Pixels::new(buffers.pixels(), found.size, 3).unwrap();
    let mut resizer = Resizer::new();
    pixels
        .within(found.view.region)
        .unwrap()
        .resize(&found.view, &mut resizer, &mut result)
        .unwrap();
    result
}

#[test]
fn numbers_are_torchvisions_to_the_last_bit() {
    let (pixels, expected) = (data("normalised.pixels"), data("normalised.raw"));
    let chain = Chain::new([
        Step::Custom(Custom::new(move |_, _| {
            Ok((Layout::new(Dtype::U8, [9, 11, 3]), pixels.clone()))
        })),
        serde_json::from_str(NORMALIZE).unwrap(),
    ]);
    let recipe = for_suffix("jpg", &chain).unwrap();
    let (layout, numbers) = array(&*recipe, &data("photo.jpg"), chance(0)).unwrap();
    assert_eq!(layout, Layout::new(Dtype::F32, [3, 9, 11]));
    assert_eq!(floats(&numbers), floats(&expected));
}

const NORMALIZE: &str =
    r#"{"name": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}"#;

#[test]
fn a_part_of_a_picture_has_the_pixels_of_the_whole() {
    for name in
        pictures().iter().filter(|name| name.ends_with("jpg") && !name.starts_with("turned"))
    {
        let whole = data(name);
        let (_, all) = array(&*recipe("jpg", &format!("[{PIXELS}]")), &whole, chance(0)).unwrap();
        for side in [1, 5, 16, 33] {
            let crop = format!(r#"[{{"name": "RandomCrop", "size": {side}}}, {PIXELS}]"#);
            let crop = recipe("jpg", &crop);
            for index in 0..60 {
                let (_, part) = array(&*crop, &whole, chance(index)).unwrap();
                assert!(is_inside(&part, side, &all), "{name}, part {index} of {side}");
            }
        }
    }
}

fn is_inside(part: &[u8], side: usize, all: &[u8]) -> bool {
    let place = |top: usize, left: usize| {
        (0..side).all(|y| {
            let start = ((top + y) * 61 + left) * 3;
            all[start..start + side * 3] == part[y * side * 3..(y + 1) * side * 3]
        })
    };
    (0..=47 - side).any(|top| (0..=61 - side).any(|left| place(top, left)))
}

/// The usual chain for training.
fn usual() -> String {
    let crop = r#"{"name": "RandomResizedCrop", "size": [20, 24]}"#;
    let flip = r#"{"name": "RandomHorizontalFlip"}, {"name": "RandomVerticalFlip"}"#;
    format!("[{crop}, {flip}, {NORMALIZE}]")
}

#[test]
fn the_same_chance_gives_the_same_numbers_from_memory_a_file_or_decoded_pixels() {
    let recipe = recipe("jpg", &usual());
    for name in ["rgb-420.jpg", "cmyk.jpg", "rgba.png", "lossy.webp"] {
        let bytes = data(name);
        let kept = recipe.decode(Field::Memory(&bytes), &mut Scratch::default()).unwrap().unwrap();
        let kept_file = stored(kept.as_memory().unwrap());
        assert!(recipe.decode(kept.field(0), &mut Scratch::default()).unwrap().is_none());
        let mut before = Vec::new();
        for index in 0..30 {
            let (layout, numbers) = array(&*recipe, &bytes, chance(index)).unwrap();
            assert_eq!(layout, Layout::new(Dtype::F32, [3, 20, 24]));
            for field in [stored(&bytes).field(0), kept.field(0), kept_file.field(0)] {
                let place = prepare(&*recipe, field, chance(index)).unwrap();
                assert!(place.arrays[0].2 == numbers, "{name}, {index}");
            }
            assert!(numbers != before, "another chance, another part");
            before = numbers;
        }
    }
}

#[test]
fn flips_turn_what_comes_before_them_and_are_cut_as_they_are_seen() {
    let photo = data("photo.jpg");
    let pixels = |steps: &str| {
        let (layout, pixels) =
            array(&*recipe("jpg", &format!("[{steps} {PIXELS}]")), &photo, chance(0)).unwrap();
        (layout.shape[1], pixels)
    };
    let mirrored = |(width, pixels): (usize, Vec<u8>)| -> Vec<u8> {
        pixels
            .chunks(width * 3)
            .flat_map(|row| row.as_chunks::<3>().0.iter().rev().flatten().copied())
            .collect()
    };
    let upside_down = |(width, pixels): (usize, Vec<u8>)| -> Vec<u8> {
        pixels.chunks(width * 3).rev().flatten().copied().collect()
    };
    let across = r#"{"name": "RandomHorizontalFlip", "p": 1},"#;
    let down = r#"{"name": "RandomVerticalFlip", "p": 1},"#;
    let resize = r#"{"name": "Resize", "size": [80, 90]},"#;
    assert_eq!(pixels(across).1, mirrored(pixels("")));
    assert_eq!(pixels(down).1, upside_down(pixels("")));
    assert_eq!(pixels(&format!("{across}{across}")), pixels(""));
    close(&pixels(&format!("{across}{resize}")).1, &mirrored(pixels(resize)), 1, "resized");
    // The middle of an odd number of spare columns is not the middle of the mirror image.
    let centre = r#"{"name": "CenterCrop", "size": [100, 110]},"#;
    let frame =
        r#"{"name": "RandomCrop", "size": [151, 207], "padding": [1, 0, 3, 0], "fill": 9},"#;
    let after = pixels(&format!("{across}{frame}{centre}"));
    let reference = {
        let (width, flipped) = (203, pixels(across).1);
        let framed = flipped.chunks(width * 3).flat_map(|row| [&[9; 3][..], row, &[9; 9]].concat());
        let framed: Vec<u8> = framed.collect();
        let (left, top) = (48, 26);
        let rows = framed.chunks(207 * 3).skip(top).take(100);
        rows.flat_map(|row| row[left * 3..(left + 110) * 3].to_vec()).collect::<Vec<_>>()
    };
    assert!(after.1 == reference);
}

#[test]
fn every_type_and_layout_says_the_same_numbers() {
    let photo = data("photo.jpg");
    let give = |steps: &str| {
        let crop =
            r#"{"name": "RandomResizedCrop", "size": [7, 9]}, {"name": "RandomHorizontalFlip"}"#;
        array(&*recipe("jpg", &format!("[{crop}{steps}]")), &photo, chance(3)).unwrap()
    };
    let (layout, planes) = give("");
    assert_eq!(layout, Layout::new(Dtype::F32, [3, 7, 9]));
    let (layout, bytes) = give(&format!(", {PIXELS}"));
    assert_eq!(layout, Layout::new(Dtype::U8, [7, 9, 3]));
    let planes = floats(&planes);
    for (at, byte) in bytes.iter().enumerate() {
        let expected = f32::from(*byte) / 255.0;
        assert_eq!(planes[at % 3 * 63 + at / 3].to_bits(), expected.to_bits());
    }
    for (name, dtype, tolerance) in [("float16", Dtype::F16, 1e-3), ("bfloat16", Dtype::Bf16, 1e-2)]
    {
        let (layout, halves) =
            give(&format!(r#", {{"name": "ToDtype", "dtype": "{name}", "scale": true}}"#));
        assert_eq!(layout, Layout::new(dtype, [3, 7, 9]));
        let format = if dtype == Dtype::F16 {
            tensorferry::codec::half::Format::F16
        } else {
            tensorferry::codec::half::Format::Bf16
        };
        for (half, number) in halves.as_chunks::<2>().0.iter().zip(&planes) {
            let half = tensorferry::codec::half::widen_one(format, u16::from_le_bytes(*half));
            assert!((half - number).abs() <= tolerance * number.abs(), "{half} {number}");
        }
    }
    let (_, unscaled) = give(r#", {"name": "ToDtype", "dtype": "float32"}"#);
    assert!(floats(&unscaled).iter().any(|number| *number > 1.0));
    let (layout, grey) = {
        let chain = r#"[{"name": "Decode", "mode": "L"}, {"name": "Resize", "size": 20}]"#;
        array(&*recipe("png", chain), &data("grey.png"), chance(0)).unwrap()
    };
    assert_eq!(layout, Layout::new(Dtype::F32, [1, 20, 25]));
    assert!(floats(&grey).iter().all(|number| (0.0..=1.0).contains(number)));
}

#[test]
fn functions_get_pixels_or_numbers_at_their_place() {
    let seen = |layout: &'static str| {
        Step::Custom(Custom::new(move |got, bytes| {
            assert_eq!(got.to_string(), layout);
            Ok((got, bytes))
        }))
    };
    let step = |text: &str| serde_json::from_str::<Step>(text).unwrap();
    let chain = Chain::new([
        step(r#"{"name": "Resize", "size": [30, 40]}"#),
        seen("U8[30, 40, 3]"),
        step(r#"{"name": "CenterCrop", "size": 16}"#),
        step(r#"{"name": "ToDtype", "dtype": "float32", "scale": true}"#),
        seen("F32[3, 16, 16]"),
        step(NORMALIZE),
    ]);
    let recipe_with = for_suffix("jpg", &chain).unwrap();
    let without = format!(
        r#"[{{"name": "Resize", "size": [30, 40]}}, {{"name": "CenterCrop", "size": 16}}, {NORMALIZE}]"#
    );
    let photo = data("photo.jpg");
    let with = array(&*recipe_with, &photo, chance(0)).unwrap();
    let without = array(&*recipe("jpg", &without), &photo, chance(0)).unwrap();
    assert_eq!(with.0, without.0);
    // Resized and then cut, or cut out of what is resized: the last bit of a weight may differ.
    for (a, b) in floats(&with.1).iter().zip(floats(&without.1)) {
        assert!((a - b).abs() < 0.04, "{a} {b}");
    }
    let lying = Chain::new([Step::Custom(Custom::new(|_, bytes| {
        Ok((Layout::new(Dtype::F32, [3, 1000]), bytes))
    }))]);
    let error = array(&*for_suffix("jpg", &lying).unwrap(), &photo, chance(0)).unwrap_err();
    assert!(error.to_string().contains("gave 91959 bytes for an array F32[3, 1000]"), "{error}");
}

#[derive(Deserialize)]
struct Sampled {
    width: u32,
    height: u32,
    mean: [f64; 4],
    std: [f64; 4],
}

#[test]
fn random_parts_are_as_large_and_lie_as_torchvisions_do() {
    const DRAWS: u64 = 40_000;
    let rows: Vec<Sampled> = serde_json::from_slice(&data("sampling.json")).unwrap();
    let filter = Interpolation::Bilinear;
    let (scale, ratio) = ([0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
    let change = Change::ResizedCrop { size: Size::new(7, 7), scale, ratio, filter };
    for row in rows {
        let (mut sums, mut squares) = ([0.0; 4], [0.0; 4]);
        for index in 0..DRAWS {
            let size = Size::new(row.width, row.height);
            let plan = geometry::plan(&[change], size, PIXELS_MAX, &mut chance(index)).unwrap();
            let area = plan.first.region;
            for (at, number) in
                [area.top, area.left, area.height, area.width].into_iter().enumerate()
            {
                sums[at] += f64::from(number);
                squares[at] += f64::from(number) * f64::from(number);
            }
        }
        for at in 0..4 {
            let mean = sums[at] / DRAWS as f64;
            let std = (squares[at] / DRAWS as f64 - mean * mean).sqrt();
            // Both are samples: five standard errors of their difference.
            let error = 5.0 * row.std[at] * (2.0 / DRAWS as f64).sqrt() + 1e-9;
            assert!((mean - row.mean[at]).abs() < error, "{at}: {mean} and {}", row.mean[at]);
            assert!((std - row.std[at]).abs() < error, "{at}: {std} and {}", row.std[at]);
        }
    }
}

#[test]
fn a_fast_decoder_gives_almost_the_same_picture() {
    let photo = data("photo.jpg");
    let give = |fast: bool, size: &str| {
        let chain = format!(
            r#"[{{"name": "Decode", "fast": {fast}}}, {{"name": "Resize", "size": {size}}}, {PIXELS}]"#
        );
        array(&*recipe("jpg", &chain), &photo, chance(0)).unwrap().1
    };
    for size in ["[60, 90]", "[30, 40]", "[15, 20]"] {
        let (exact, fast) = (give(false, size), give(true, size));
        assert!(exact != fast, "{size} is not decoded small");
        let sum: u32 = exact.iter().zip(&fast).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
        assert!(sum < 3 * exact.len() as u32, "{size}: {sum} of {}", exact.len());
    }
    assert_eq!(give(false, "[100, 100]"), give(true, "[100, 100]"));
}

#[test]
fn a_picture_with_too_many_pixels_is_refused_before_it_is_decoded() {
    for name in ["photo.jpg", "rgb.png", "lossy.webp"] {
        let recipe = recipe("jpg", r#"[{"name": "Decode", "max_pixels": 2000}]"#);
        let error = array(&*recipe, &data(name), chance(0)).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(
            error
                .to_string()
                .contains("more than 2000 pixels; if it is meant to be, raise max_pixels"),
            "{error}"
        );
    }
    // A narrow picture whose shorter side grows.
    let recipe = recipe(
        "jpg",
        r#"[{"name": "CenterCrop", "size": [1, 200]}, {"name": "Resize", "size": 20000}]"#,
    );
    let error = array(&*recipe, &data("photo.jpg"), chance(0)).unwrap_err();
    assert!(error.to_string().contains("4000000 x 20000"), "{error}");
}

#[test]
fn a_chain_that_makes_no_sense_is_refused_with_what_to_do() {
    for (chain, says) in [
        (r#"[{"name": "Flip"}]"#, "unknown variant `Flip`, expected one of `Decode`"),
        (r#"[{"name": "CenterCrop"}]"#, "missing field `size`"),
        (r#"[{"name": "CenterCrop", "size": 0}]"#, "CenterCrop takes sides from 1"),
        (r#"[{"name": "CenterCrop", "size": [1, 2, 3]}]"#, "CenterCrop takes one side or 2, not 3"),
        (r#"[{"name": "CenterCrop", "size": 2, "pad": 1}]"#, "unknown field `pad`"),
        (r#"[{"name": "RandomHorizontalFlip", "p": 2}]"#, "a probability from 0 to 1, not 2"),
        (
            r#"[{"name": "RandomResizedCrop", "size": 2, "scale": [1, 0.5]}]"#,
            "takes a scale of two numbers above zero, the smaller first",
        ),
        (
            r#"[{"name": "Resize", "size": [2, 3], "max_size": 9}]"#,
            "max_size goes with a shorter side alone",
        ),
        (
            r#"[{"name": "Resize", "size": 5, "max_size": 5}]"#,
            "max_size must be above the shorter side, 5",
        ),
        (
            r#"[{"name": "RandomCrop", "size": 5, "padding": [1, 2, 3]}]"#,
            "1, 2 or 4 numbers as its padding",
        ),
        (r#"[{"name": "Normalize", "mean": [0.5], "std": [0]}]"#, "can't divide by a std of zero"),
        (
            r#"[{"name": "Normalize", "mean": [0.5, 0.5], "std": [1]}]"#,
            "2 means and 1 stds for 3 channels",
        ),
        (
            r#"[{"name": "ToDtype", "dtype": "uint8"}, {"name": "Normalize", "mean": [0.5], "std": [1]}]"#,
            "uint8 can't hold them",
        ),
        (
            r#"[{"name": "Normalize", "mean": [0.5], "std": [1]}, {"name": "CenterCrop", "size": 2}]"#,
            "CenterCrop goes before ToDtype, Normalize",
        ),
        (
            r#"[{"name": "CenterCrop", "size": 2}, {"name": "Decode"}]"#,
            "Decode is the first step or none",
        ),
        (r#"[{"name": "Log"}]"#, "Log is no step for a picture"),
    ] {
        let error = refused("jpg", chain);
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().contains(says), "{chain}: {error}");
    }
    let small = recipe("jpg", r#"[{"name": "RandomCrop", "size": 300}]"#);
    let error = array(&*small, &data("photo.jpg"), Chance::of(0, 0, 0)).unwrap_err();
    assert!(
        error.to_string().contains("is 203 x 151, and RandomCrop needs 300 x 300; pad_if_needed"),
        "{error}"
    );
    let padded = recipe("jpg", r#"[{"name": "RandomCrop", "size": 300, "pad_if_needed": true}]"#);
    let (layout, _) = array(&*padded, &data("photo.jpg"), chance(0)).unwrap();
    assert_eq!(layout.shape, [3, 300, 300]);
}
