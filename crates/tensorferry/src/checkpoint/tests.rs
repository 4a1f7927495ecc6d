//! What headers promise.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{DATA_ALIGNMENT, Dtype, HEADER_BYTES_MAX, Header, METADATA};
use crate::error::Kind;

/// Splits what `encode` wrote into the number and the JSON.
fn split(bytes: &[u8]) -> ([u8; 8], &[u8]) {
    let (first, json) = bytes.split_first_chunk::<8>().unwrap();
    (*first, json)
}

fn two() -> Header {
    let tensors = [
        ("mask".to_owned(), Dtype::Bool, vec![3]),
        ("weights \"1\"\n".to_owned(), Dtype::F32, vec![2, 2]),
    ];
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    Header::lay_out(tensors, metadata).unwrap()
}

#[test]
fn a_header_comes_back_as_it_was_and_its_data_starts_on_a_block() {
    let header = two();
    assert_eq!(header.tensors[0].range, 0..16, "larger elements stand first");
    assert_eq!(header.data_len(), 19);
    let bytes = header.encode().unwrap();
    assert_eq!(bytes.len() as u64 % DATA_ALIGNMENT, 0);
    let (first, json) = split(&bytes);
    assert_eq!(Header::data_start(first, bytes.len() as u64 + 19).unwrap(), bytes.len() as u64);
    assert_eq!(Header::decode(json, 19).unwrap(), header);
}

#[test]
fn an_empty_header_is_a_header() {
    let header = Header::default();
    let bytes = header.encode().unwrap();
    assert_eq!(Header::decode(split(&bytes).1, 0).unwrap(), header);
}

#[test]
fn names_that_stand_twice_or_have_a_meaning_are_refused_before_anything_is_written() {
    let tensor = |name: &str| (name.to_owned(), Dtype::U8, vec![1]);
    for names in [["a", "a"], ["a", METADATA]] {
        let error = Header::lay_out(names.map(tensor), BTreeMap::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().contains(&format!("tensor: {}", names[1])), "{error}");
    }
    for shape in [vec![u64::MAX, 2], vec![u64::MAX / 4]] {
        let huge = ("a".to_owned(), Dtype::F32, shape);
        let error = Header::lay_out([huge], BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "a tensor is too large (tensor: a)");
    }
}

#[test]
fn more_dimensions_than_torch_has_are_refused_on_both_ways() {
    let tensor = |dimensions| ("a".to_owned(), Dtype::U8, vec![1; dimensions]);
    let header = Header::lay_out([tensor(64)], BTreeMap::new()).unwrap();
    assert_eq!(Header::decode(split(&header.encode().unwrap()).1, 1).unwrap(), header);
    let error = Header::lay_out([tensor(65)], BTreeMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "a tensor has more than 64 dimensions (tensor: a)");
    let shape = vec!["1"; 1_000_000].join(",");
    let json = format!(r#"{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}"#);
    let error = Header::decode(json.as_bytes(), 1).unwrap_err();
    assert_eq!(error.to_string(), "the shape has more than 64 dimensions (tensor: a)");
}

#[test]
fn a_length_that_cannot_be_is_named() {
    for (len, file, kind, text) in [
        (0, 100, Kind::Corrupt, "a header of 0 bytes is too short"),
        (93, 100, Kind::Truncated, "the header has 93 bytes, the file only 100"),
        (
            HEADER_BYTES_MAX + 1,
            u64::MAX,
            Kind::Corrupt,
            "a damaged file, or no checkpoint: its header would have 100000001 bytes",
        ),
    ] {
        let error = Header::data_start(len.to_le_bytes(), file).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.to_string(), format!("{text} (field: header length)"));
    }
}

#[test]
fn every_inconsistency_is_an_error_that_names_the_tensor_or_the_field() {
    let one = |body: &str| format!(r#"{{"a":{{{body}}}}}"#);
    let both = |second: &str| {
        format!(r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},{second}}}"#)
    };
    for (json, text) in [
        (String::new(), "does not start with a brace"),
        ("[]".into(), "does not start with a brace"),
        ("{".into(), "EOF while parsing"),
        ("{} x".into(), "trailing characters"),
        (one(""), "tensor \"a\": missing field `dtype`"),
        (one(r#""dtype":"U8","shape":[8]"#), "missing field `data_offsets`"),
        (one(r#""dtype":7,"shape":[8],"data_offsets":[0,8]"#), "expected a string"),
        (one(r#""dtype":"X9","shape":[8],"data_offsets":[0,8]"#), "\"X9\" is no dtype"),
        (one(r#""dtype":"U8","shape":[-8],"data_offsets":[0,8]"#), "tensor \"a\": invalid value"),
        (one(r#""dtype":"U8","shape":[1.5],"data_offsets":[0,8]"#), "invalid type: floating"),
        (
            one(r#""dtype":"U8","shape":[8],"data_offsets":[8,0]"#),
            "run backwards: 8, 0 (tensor: a)",
        ),
        (one(r#""dtype":"U8","shape":[9],"data_offsets":[0,9]"#), "end at 9, the data has 8 bytes"),
        (
            one(r#""dtype":"U8","shape":[7],"data_offsets":[0,8]"#),
            "demand 7 bytes, data_offsets give 8",
        ),
        (one(r#""dtype":"U8","shape":[7],"data_offsets":[0,7]"#), "7 bytes, the file has 8 behind"),
        (
            one(r#""dtype":"U8","shape":[7],"data_offsets":[1,8]"#),
            "leaves a gap before it: it starts at 1",
        ),
        (
            one(r#""dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]"#),
            "more bytes than can be counted (tensor: a)",
        ),
        (both(r#""b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}"#), "overlaps the one before"),
        (
            both(r#""a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}"#),
            "the name \"a\" stands twice",
        ),
        (both(r#""__metadata__":{"k":1}"#), "expected a string"),
        (both(r#""__metadata__":{"k":"1","k":"2"}"#), "has \"k\" twice"),
        (both(r#""__metadata__":{},"__metadata__":{}"#), "stands twice"),
        (both(&format!(r#""b":{}"#, "[".repeat(100_000))), "tensor \"b\""),
        (one(&format!(r#""x":{}"#, "[".repeat(100_000))), "tensor \"a\": expected value"),
    ] {
        let error = Header::decode(json.as_bytes(), 8).unwrap_err();
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error:?}");
        assert!(error.to_string().contains(text), "{error} does not say {text}");
    }
    let error = Header::decode(b"{\"\xff\"", 0).unwrap_err();
    assert!(error.to_string().starts_with("the header is not text"), "{error}");
}

#[test]
fn empty_tensors_may_stand_anywhere() {
    let json = r#"{"end":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},
        "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
        "start":{"dtype":"F32","shape":[4294967296,3,0],"data_offsets":[0,0]}}"#;
    let header = Header::decode(json.as_bytes(), 4).unwrap();
    let names: Vec<_> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["start", "a", "end"]);
}

fn tensors() -> impl Strategy<Value = Vec<(String, Dtype, Vec<u64>)>> {
    let dtype = prop::sample::select(Dtype::all().collect::<Vec<_>>());
    let tensor = (dtype, prop::collection::vec(0u64..5, 0..4));
    prop::collection::btree_map(".{0,6}", tensor, 0..12).prop_map(|tensors| {
        tensors.into_iter().map(|(name, (dtype, shape))| (name, dtype, shape)).collect()
    })
}

proptest! {
    #[test]
    fn any_layout_is_aligned_contiguous_and_comes_back(
        tensors in tensors(),
        metadata in prop::collection::btree_map(".{0,6}", ".{0,9}", 0..4),
    ) {
        let header = Header::lay_out(tensors, metadata).unwrap();
        for tensor in &header.tensors {
            prop_assert_eq!(tensor.range.start % tensor.dtype.bytes(), 0);
        }
        let bytes = header.encode().unwrap();
        let (first, json) = split(&bytes);
        let start = Header::data_start(first, bytes.len() as u64 + header.data_len()).unwrap();
        prop_assert_eq!(start % DATA_ALIGNMENT, 0);
        let again = Header::decode(json, header.data_len()).unwrap();
        // Empty tensors at one place have no order of their own.
        let sorted = |mut header: Header| {
            header.tensors.sort_by(|a, b| {
                (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name))
            });
            header
        };
        prop_assert_eq!(sorted(again), sorted(header));
    }

    #[test]
    fn changed_bytes_give_a_consistent_header_or_an_error(
        tensors in tensors(), at: prop::sample::Index, byte: u8, data_len in 0u64..200,
    ) {
        let bytes = Header::lay_out(tensors, BTreeMap::new()).unwrap().encode().unwrap();
        let mut json = split(&bytes).1.to_vec();
        *at.get_mut(&mut json) = byte;
        if let Ok(header) = Header::decode(&json, data_len) {
            prop_assert_eq!(header.data_len(), data_len);
        }
    }
}
