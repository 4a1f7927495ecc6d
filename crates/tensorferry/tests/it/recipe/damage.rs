//! Damaged pictures: an error, or a picture; never a panic, and never invented pixels.

use std::iter;

use proptest::prelude::*;
use tensorferry::Kind;
use tensorferry::data::chance::Chance;
use tensorferry::data::recipe::Scratch;
use tensorferry::data::recipe::image::change::{Change, Padding, Size};
use tensorferry::data::recipe::image::geometry::{self, Act};
use tensorferry::data::recipe::step::Interpolation;
use tensorferry::data::sample::{Alone, Field};

use super::image::{data, pictures};
use super::{array, chance, recipe};

const CHAIN: &str = r#"[
    {"name": "Decode", "max_pixels": 100000, "apply_exif_orientation": true},
    {"name": "RandomResizedCrop", "size": 16}
]"#;

#[test]
fn a_file_that_ends_too_early_is_an_error_wherever_it_is_cut() {
    let recipe = recipe("jpg", CHAIN);
    for name in pictures() {
        let bytes = data(&name);
        for end in (0..bytes.len() - 1).step_by(13).chain([bytes.len() - 1]) {
            // What follows the last row of a PNG picture says nothing of its pixels.
            let tail = if name.ends_with("png") { 16 } else { 0 };
            if end + tail >= bytes.len() {
                continue;
            }
            let result = array(&*recipe, &bytes[..end], chance(end as u64));
            let error = result.expect_err(&format!("{name} cut at {end}"));
            let kinds = [Kind::Truncated, Kind::Corrupt, Kind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{name} cut at {end}: {error}");
        }
    }
}

#[test]
fn an_empty_or_unknown_file_says_what_it_is() {
    let recipe = recipe("jpg", "[]");
    let error = array(&*recipe, &[], chance(0)).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (Kind::Truncated, "the picture is empty".to_owned())
    );
    let error = array(&*recipe, b"GIF89a", chance(0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(
        error.to_string(),
        "the file is a GIF picture, and only JPEG, PNG and WebP are decoded: convert it, take it \
         off the list (extensions= of ImageFolder), or pass over it with on_error=\"skip\""
    );
    let error = array(&*recipe, b"hello, world", chance(0)).unwrap_err();
    assert!(error.to_string().starts_with("the file starts with \"hello, w\", and"), "{error}");
}

#[test]
fn bytes_behind_a_picture_and_between_its_segments_do_no_harm() {
    let recipe = recipe("jpg", CHAIN);
    let bytes = data("rgb-420.jpg");
    let expected = array(&*recipe, &bytes, chance(0)).unwrap();
    let longer = [&bytes[..], &[0; 100]].concat();
    assert!(array(&*recipe, &longer, chance(0)).unwrap() == expected);
    // A camera's bug that many collections have: the library warns, and every pixel is there.
    let table = bytes.windows(2).position(|pair| pair == [0xff, 0xdb]).unwrap();
    let between = [&bytes[..table], &[0; 3], &bytes[table..]].concat();
    assert!(array(&*recipe, &between, chance(0)).unwrap() == expected);
}

#[test]
fn a_thread_goes_on_after_a_damaged_file() {
    let recipe = recipe("jpg", "[]");
    let mut scratch = Scratch::default();
    for name in pictures() {
        let bytes = data(&name);
        for damaged in [&bytes[..bytes.len() / 2], &bytes[..30], &[][..]] {
            let mut place = Alone::default();
            let chance = Chance::of(0, 0, 0);
            assert!(
                recipe.prepare(Field::Memory(damaged), chance, &mut scratch, &mut place).is_err()
            );
        }
        let mut place = Alone::default();
        recipe.prepare(Field::Memory(&bytes), chance(0), &mut scratch, &mut place).unwrap();
        let alone = array(&*recipe, &bytes, chance(0)).unwrap();
        assert!(place.arrays[0].2 == alone.1, "{name}");
    }
}

#[test]
fn decoded_pixels_that_lie_about_their_size_are_refused() {
    let recipe = recipe("jpg", CHAIN);
    let bytes = data("rgb.png");
    let field = Field::Memory(&bytes);
    let kept = recipe.decode(field, &mut Scratch::default()).unwrap().unwrap();
    let mut kept = kept.as_memory().unwrap().to_vec();
    assert!(array(&*recipe, &kept, chance(0)).is_ok());
    assert_eq!(array(&*recipe, &kept[..100], chance(0)).unwrap_err().kind(), Kind::Corrupt);
    kept[8] += 1;
    assert_eq!(array(&*recipe, &kept, chance(0)).unwrap_err().kind(), Kind::Corrupt);
    kept[8..16].fill(0xff);
    assert_eq!(array(&*recipe, &kept, chance(0)).unwrap_err().kind(), Kind::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_files_give_a_picture_or_an_error(
        seed in any::<u64>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let recipe = recipe("jpg", CHAIN);
        for name in pictures() {
            let mut bytes = data(&name);
            for (place, value) in &edits {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            if let Ok((layout, numbers)) = array(&*recipe, &bytes, Chance::of(seed, 0, 0)) {
                prop_assert_eq!(layout.shape, [3, 16, 16]);
                prop_assert_eq!(numbers.len(), 3 * 16 * 16 * 4);
            }
        }
    }

    #[test]
    fn any_bytes_behind_any_beginning_are_a_picture_or_an_error(
        start in prop::sample::select(vec![
            &b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBPVP8 ", b"\x93TFpix1\n", b"",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let recipe = recipe("jpg", CHAIN);
        let bytes = [start, &rest].concat();
        if let Ok((layout, _)) = array(&*recipe, &bytes, chance(0)) {
            prop_assert_eq!(layout.shape, [3, 16, 16]);
        }
    }

    #[test]
    fn geometry_stays_inside_of_the_picture(
        (width, height) in (1_u32..3000, 1_u32..3000),
        changes in prop::collection::vec(change(), 0..6),
        seed in any::<u64>(),
    ) {
        let mut chance = Chance::of(seed, 0, 0);
        let Ok(plan) = geometry::plan(&changes, Size::new(width, height), 1 << 26, &mut chance) else {
            return Ok(());
        };
        let mut now = Size::new(width, height);
        for act in iter::once(&Act::View(plan.first)).chain(&plan.rest) {
            now = match act {
                Act::Pad(padding, _) => Size::new(
                    now.width + padding.left + padding.right,
                    now.height + padding.top + padding.bottom,
                ),
                Act::View(view) => {
                    let (area, window) = (view.region, view.window);
                    prop_assert!(area.width > 0 && area.left + area.width <= now.width);
                    prop_assert!(area.height > 0 && area.top + area.height <= now.height);
                    let edge = |start: u32, length: u32| f64::from(start + length) + 1e-6;
                    prop_assert!(window.left >= f64::from(area.left) - 1e-6 && window.width > 0.0);
                    prop_assert!(window.left + window.width <= edge(area.left, area.width));
                    prop_assert!(window.top + window.height <= edge(area.top, area.height));
                    let needed = view.needed();
                    prop_assert!(needed.left >= area.left && needed.top >= area.top);
                    prop_assert!(needed.left + needed.width <= area.left + area.width);
                    prop_assert!(needed.height > 0 && needed.top + needed.height <= area.top + area.height);
                    if view.filter.is_none() {
                        prop_assert_eq!(area.size(), view.target);
                    }
                    view.target
                }
            };
        }
        prop_assert_eq!(now, plan.size);
        prop_assert!(now.width > 0 && now.height > 0);
    }
}

fn change() -> impl Strategy<Value = Change> {
    let size = || (1_u32..400, 1_u32..400).prop_map(|(width, height)| Size::new(width, height));
    let padding = (0_u32..9, 0_u32..9, 0_u32..9, 0_u32..9);
    let padding =
        padding.prop_map(|(left, top, right, bottom)| Padding { left, top, right, bottom });
    let filter = Interpolation::Bicubic;
    prop_oneof![
        (size(), 0.01..1.0).prop_map(move |(size, low)| Change::ResizedCrop {
            size,
            scale: [low, 1.0],
            ratio: [0.5, 2.0],
            filter
        }),
        size().prop_map(move |size| Change::Resize { size, filter }),
        (1_u32..300, prop::option::of(300_u32..500))
            .prop_map(move |(side, longer_max)| { Change::Shorter { side, longer_max, filter } }),
        size().prop_map(Change::Centre),
        (size(), padding, any::<bool>()).prop_map(|(size, padding, if_needed)| Change::Crop {
            size,
            padding,
            if_needed,
            fill: 1
        }),
        Just(Change::FlipX(0.5)),
        Just(Change::FlipY(0.5)),
    ]
}
