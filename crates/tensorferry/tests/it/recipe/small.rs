//! Numbers, bytes, and which recipe a field gets.

use tensorferry::Kind;
use tensorferry::data::recipe::{Chain, Custom, Step, for_suffix};
use tensorferry::data::sample::{Field, Layout};
use tensorferry::dtype::Dtype;

use super::{array, chance, prepare, recipe, refused, stored};

#[test]
fn classes_are_whole_numbers_in_text() {
    let recipe = recipe("cls", "[]");
    for (text, number) in [("7", 7_i64), (" -12\n", -12), ("9223372036854775807", i64::MAX)] {
        let (layout, memory) = array(&*recipe, text.as_bytes(), chance(0)).unwrap();
        assert_eq!(layout, Layout::new(Dtype::I64, []));
        assert_eq!(memory, number.to_le_bytes());
    }
    for text in ["", "cat", "1.5", "9223372036854775808", &format!("{}1", " ".repeat(64))] {
        let error = array(&*recipe, text.as_bytes(), chance(0)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().ends_with("is no whole number"), "{error}");
    }
}

#[test]
fn fields_of_unknown_endings_are_bytes() {
    for suffix in ["json", "txt", "", "jpg.txt"] {
        let recipe = recipe(suffix, "[]");
        for field in [stored(b"abc").field(0), Field::Memory(b"abc")] {
            let place = prepare(&*recipe, field, chance(0)).unwrap();
            assert_eq!(place.blobs, [(String::new(), b"abc".to_vec())]);
        }
    }
}

#[test]
fn a_function_makes_an_array_of_bytes() {
    let double = Custom::new(|layout, mut bytes| {
        for byte in &mut bytes {
            *byte *= 2;
        }
        Ok((layout, bytes))
    });
    let recipe = for_suffix("bin", &Chain::new([Step::Custom(double)])).unwrap();
    let (layout, memory) = array(&*recipe, &[1, 2, 3], chance(0)).unwrap();
    assert_eq!((layout, memory), (Layout::new(Dtype::U8, [3]), vec![2, 4, 6]));
}

#[test]
fn a_step_without_meaning_for_a_field_is_refused() {
    let chain = r#"[{"name": "RandomHorizontalFlip"}]"#;
    assert_eq!(
        refused("cls", chain).to_string(),
        "RandomHorizontalFlip is no step for a whole number"
    );
    assert_eq!(
        refused("txt", chain).to_string(),
        "RandomHorizontalFlip is no step for bytes, as files of several kinds or of an unknown one \
         are taken"
    );
    assert_eq!(refused("wav", chain).to_string(), "RandomHorizontalFlip is no step for sound");
}

#[cfg(feature = "images")]
#[test]
fn endings_are_known_in_any_case_and_with_what_stands_before_them() {
    for suffix in ["jpg", ".JPEG", "left.PNG", "webp"] {
        assert!(
            for_suffix(
                suffix,
                &Chain::from_json(r#"[{"name": "CenterCrop", "size": 3}]"#).unwrap()
            )
            .is_ok()
        );
    }
}

/// One BMP among pictures, or names without an ending, made bytes of all: "Decode is no step for
/// bytes".
#[test]
fn whoever_decodes_says_that_files_are_pictures_whatever_they_are_called() {
    for ending in ["", "bmp", "txt"] {
        recipe(ending, r#"[{"name": "Decode"}, {"name": "CenterCrop", "size": 8}]"#);
    }
    refused("npy", r#"[{"name": "Decode"}]"#);
}
