//! What structures promise.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::error::Kind;

fn header() -> Header {
    let tensors = [
        ("w", Dtype::F32, vec![2, 3]),
        ("c", Dtype::U8, vec![4, 16]),
        ("raw", Dtype::U8, vec![5000]),
        ("none", Dtype::F32, vec![0, 3]),
    ];
    let tensors = tensors.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
    Header::lay_out(tensors, BTreeMap::new()).unwrap()
}

fn with_object(object: &str) -> String {
    format!(r#"{{"version":1,"checksum":true,"tool":"direct","object":{object}}}"#)
}

fn parsed(object: &str) -> Node {
    let text = with_object(object);
    Structure::parse(&text, &header()).unwrap_or_else(|error| panic!("{object}: {error}")).object
}

fn refused(object: &str) -> String {
    let error = match Structure::parse(&with_object(object), &header()) {
        Ok(structure) => panic!("{object} gives {structure:?}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    error.to_string()
}

#[test]
fn every_kind_of_value_is_read() {
    let text = |text: &str| Node::Str(text.to_owned());
    for (json, node) in [
        ("null", Node::None),
        ("true", Node::Bool(true)),
        ("-9223372036854775808", Node::Int(i64::MIN)),
        ("-0.0", Node::Float(-0.0)),
        (r#""é\n""#, text("é\n")),
        (r#"{"int":"-0x8000000000000001"}"#, Node::LongInt("-0x8000000000000001".into())),
        (r#"{"float":"7ff0000000000000"}"#, Node::Float(f64::INFINITY)),
        (
            r#"{"complex":[1.5,{"float":"fff0000000000000"}]}"#,
            Node::Complex(1.5, f64::NEG_INFINITY),
        ),
        (r#"{"bytes":"YQ=="}"#, Node::Bytes(1)),
        (r#"{"bytearray":""}"#, Node::ByteArray(0)),
        ("[1,[]]", Node::List(vec![Node::Int(1), Node::List(vec![])])),
        (r#"{"tuple":[1]}"#, Node::Tuple(vec![Node::Int(1)])),
        (r#"{"set":[1,{"frozenset":[]}]}"#, Node::Set(vec![Node::Int(1), Node::FrozenSet(vec![])])),
        (r#"{"dict":{"a":1}}"#, Node::Dict(vec![(text("a"), Node::Int(1))])),
        (r#"{"dict":[[null,1]]}"#, Node::Dict(vec![(Node::None, Node::Int(1))])),
        (
            r#"{"metadata":{"odict":{}},"odict":{}}"#,
            Node::OrderedDict(vec![], Some(Box::new(Node::OrderedDict(vec![], None)))),
        ),
        (r#"{"counter":[[30,1]]}"#, Node::Counter(vec![(Node::Int(30), Node::Int(1))])),
        (
            r#"{"dict":[[9223372036854775807,1],[9223372036854775808.0,2]]}"#,
            Node::Dict(vec![
                (Node::Int(i64::MAX), Node::Int(1)),
                (Node::Float(9_223_372_036_854_775_808.0), Node::Int(2)),
            ]),
        ),
        (r#"{"size":[2,-1]}"#, Node::Size(vec![2, -1])),
        (r#"{"dtype":"bfloat16"}"#, Node::Dtype("bfloat16".into())),
        (r#"{"device":"cuda:1"}"#, Node::Device("cuda:1".into())),
        (r#"{"scalar":["<f4","0000803f"]}"#, Node::Scalar("<f4".into())),
    ] {
        assert_eq!(parsed(json), node, "{json}");
    }
    assert!(matches!(parsed("-0.0"), Node::Float(zero) if zero.is_sign_negative()));
}

#[test]
fn a_value_takes_little_more_memory_than_its_text_may() {
    assert!(size_of::<Node>() <= 40, "{}", size_of::<Node>());
}

#[test]
fn leaves_say_what_they_are_with_all_defaults_filled_in() {
    let leaf = |json: &str| match parsed(json) {
        Node::Tensor(leaf) | Node::Array(leaf) | Node::Blob(leaf) => leaf,
        other => panic!("{other:?}"),
    };
    let plain = leaf(r#"{"tensor":"w"}"#);
    assert_eq!(
        (plain.dtype.as_str(), plain.itemsize, plain.shape.as_slice()),
        ("F32", 4, &[2, 3][..])
    );
    assert!(!plain.grad && !plain.parameter && plain.view.is_none() && plain.device == "cpu");
    let parameter = leaf(r#"{"tensor":{"name":"w","parameter":true,"device":"cuda:0"}}"#);
    assert!(parameter.grad && parameter.parameter && parameter.device == "cuda:0");
    assert!(!leaf(r#"{"tensor":{"name":"w","parameter":true,"grad":false}}"#).grad);
    let complex = leaf(r#"{"tensor":{"name":"c","dtype":"complex128","itemsize":16}}"#);
    assert_eq!((complex.dtype.as_str(), complex.shape.as_slice()), ("complex128", &[4][..]));
    let view = leaf(r#"{"tensor":{"name":"w","shape":[3],"stride":[2],"offset":4}}"#);
    assert_eq!(view.view, Some(View { stride: vec![2], offset: 4 }));
    let array = leaf(r#"{"array":{"name":"c","numpy":">c16","itemsize":16}}"#);
    assert_eq!(array.shape, [4]);
    assert_eq!(leaf(r#"{"blob":"raw"}"#).shape, [5000]);
    assert_eq!(
        leaf(r#"{"tensor":{"name":"none","shape":[9,0],"stride":[1,1],"offset":0}}"#).shape,
        [9, 0]
    );
}

#[test]
fn what_is_wrong_with_an_object_is_told_with_its_place() {
    for (object, text) in [
        (r#"{"dict":{"a":{"tuple":[1,{"what":1}]}}}"#, "the tag \"what\" is not known (at: a[1])"),
        (
            r#"{"dict":[[[1],1]]}"#,
            "a key of a dict is of a type that keys can't have (at: the object)",
        ),
        (r#"{"dict":[[3,{"odict":{"x y":{}}}]]}"#, "0 keys instead of one tag (at: [3][\"x y\"])"),
        (r#"{"dict":[["k",[{}]]]}"#, "instead of one tag (at: [\"k\"][0])"),
        (r#"{"dict":{},"metadata":1}"#, "an object has 2 keys instead of one tag"),
        (r#"{"odict":{},"metadata":{"int":"1"}}"#, "makes no sense (at: _metadata)"),
        (r#"{"dict":{"a":1,"a":2}}"#, "the key \"a\" stands twice (at: the object)"),
        (r#"{"dict":[[1,1],[1.0,2]]}"#, "two equal keys or elements"),
        (r#"{"dict":[[{"tuple":[true]},1],[{"tuple":[1]},2]]}"#, "two equal keys or elements"),
        (r#"{"set":["a","a"]}"#, "two equal keys or elements"),
        (r#"{"set":[{"frozenset":[1,2]},{"frozenset":[2,1]}]}"#, "two equal keys or elements"),
        (r#"{"set":[[]]}"#, "an element of a set is of a type that elements can't have"),
        (r#"{"dict":[[{"frozenset":[]},1]]}"#, "a key of a dict is of a type that keys can't have"),
        (r#"{"dict":[[1]]}"#, "an item of a dict has 1 parts instead of two"),
        (r#"{"dict":[1]}"#, "an item of a dict is an integer, not a pair"),
        (r#"{"dict":"a"}"#, "a dict is a text, not an object or an array of pairs"),
        (r#"{"tuple":{}}"#, "\"tuple\" holds an object, not an array"),
        (r#"{"complex":[1,2]}"#, "does not hold two floats"),
        (r#"{"size":[1.5]}"#, "\"size\" holds a float, not integers"),
        (r#"{"scalar":["<f4","0000803"]}"#, "digits of one element"),
        (r#"{"scalar":["|O8","0000000000000000"]}"#, "digits of one element"),
        (r#"{"bytes":"YQ"}"#, "\"bytes\" holds no text, or one that makes no sense"),
        (r#"{"device":"the moon"}"#, "\"device\" holds no text, or one that makes no sense"),
        (r#"{"dtype":7}"#, "\"dtype\" holds no text, or one that makes no sense"),
    ] {
        let error = refused(object);
        assert!(error.contains(text), "{error} does not say {text}");
    }
}

#[test]
fn what_is_wrong_with_a_leaf_is_told_with_its_place() {
    for (leaf, text) in [
        (r#""gone""#, "the file has no tensor \"gone\" (at: t)"),
        ("7", "a tensor is an integer, not a name or an object"),
        ("{}", "a tensor without a name"),
        (r#"{"name":"w","name":"w"}"#, "the key \"name\" stands twice"),
        (r#"{"name":"w","size":1}"#, "the unknown field \"size\""),
        (r#"{"name":"w","object":-1}"#, "the field \"object\" of a tensor makes no sense"),
        (r#"{"name":"w","device":"../x"}"#, "\"../x\" is no device"),
        (r#"{"name":"w","numpy":"<f4"}"#, "a tensor has a dtype of NumPy"),
        (r#"{"name":"w","dtype":"float32"}"#, "dtype and itemsize of a tensor make no sense"),
        (r#"{"name":"w","itemsize":4}"#, "dtype and itemsize of a tensor make no sense"),
        (r#"{"name":"c","dtype":"x","itemsize":8}"#, "elements of 8 bytes are not stored as U8"),
        (r#"{"name":"w","dtype":"x","itemsize":3}"#, "elements of 3 bytes are not stored as U8"),
        (r#"{"name":"c","dtype":"x","itemsize":0}"#, "an element has 0 bytes"),
        (r#"{"name":"c","dtype":"x","itemsize":65537}"#, "an element has 65537 bytes"),
        (r#"{"name":"w","shape":[1],"stride":[1]}"#, "lacks its shape, stride or offset"),
        (r#"{"name":"w","shape":[1],"stride":[],"offset":0}"#, "differ in length"),
        (
            r#"{"name":"w","shape":[1],"stride":[1],"offset":2}"#,
            "begins at byte 2, inside an element",
        ),
        (r#"{"name":"w","shape":[7],"stride":[1],"offset":0}"#, "ends at byte 28, 24 are stored"),
        (r#"{"name":"w","shape":[0],"stride":[1],"offset":28}"#, "ends at byte 28, 24 are stored"),
        (r#"{"name":"w","shape":[-1],"stride":[1],"offset":0}"#, "the field \"shape\" of a tensor"),
        (
            r#"{"name":"w","shape":[9223372036854775807],"stride":[9],"offset":0}"#,
            "more bytes than can be counted",
        ),
    ] {
        let error = refused(&format!(r#"{{"dict":{{"t":{{"tensor":{leaf}}}}}}}"#));
        assert!(error.contains(text) && error.ends_with("(at: t)"), "{error} does not say {text}");
    }
    for (node, text) in [
        (r#"{"array":"w"}"#, "an array without its dtype"),
        (r#"{"array":{"name":"w","numpy":"<f8"}}"#, "\"<f8\" are not stored as F32"),
        (r#"{"array":{"name":"c","numpy":"<c16","itemsize":8}}"#, "have no 8 bytes"),
        (r#"{"array":{"name":"w","numpy":"|O8"}}"#, "\"|O8\" is no dtype of NumPy"),
        (r#"{"array":{"name":"w","numpy":"<f4","grad":true}}"#, "fields that only tensors have"),
        (r#"{"blob":"w"}"#, "bytes are not stored as one row of U8"),
        (r#"{"bytearray_blob":"c"}"#, "bytes are not stored as one row of U8"),
        (
            r#"[{"tensor":{"name":"w","object":0}},{"tensor":{"name":"c","object":0}}]"#,
            "object 0 is described in two ways (at: [1])",
        ),
        (
            r#"[{"tensor":{"name":"w","memory":0}},{"tensor":{"name":"raw","memory":0}}]"#,
            "memory 0 is described in two ways (at: [1])",
        ),
        (r#"{"array":{"name":"w","numpy":"<f4","memory":0}}"#, "fields that only tensors have"),
        (r#"{"blob":{"name":"raw","memory":0}}"#, "bytes are not stored as one row of U8"),
    ] {
        let error = refused(node);
        assert!(error.contains(text), "{error} does not say {text}");
    }
}

#[test]
fn places_in_shared_memory_are_countable_and_of_the_shape_that_is_stored() {
    let leaf =
        |name: &str, more: &str| format!(r#"{{"tensor":{{"name":"{name}",{more},"memory":3}}}}"#);
    let place = |shape: &str, stride: &str, offset: u64| {
        format!(
            r#""dtype":"float32","itemsize":4,"shape":{shape},"stride":{stride},"offset":{offset}"#
        )
    };
    let both = format!(
        "[{},{}]",
        leaf("w", &place("[2,3]", "[9,0]", 40)),
        leaf("c", r#""dtype":"complex128","itemsize":16,"shape":[4],"stride":[1],"offset":16"#)
    );
    let Node::List(leaves) = parsed(&both) else { panic!() };
    let Node::Tensor(w) = &leaves[0] else { panic!() };
    assert_eq!((w.memory, w.name.as_str()), (Some(3), "w"));
    assert_eq!(w.view, Some(View { stride: vec![9, 0], offset: 40 }), "far beyond what is stored");
    for (more, why) in [
        (place("[3,2]", "[2,1]", 0), "a tensor is not stored as its place in shared memory says"),
        (place("[2,3]", "[3]", 0), "differ in length"),
        (place("[2,3]", "[3,1]", 2), "begins at byte 2, inside an element"),
        (place("[2,3]", "[9223372036854775807,1]", 0), "more bytes than can be counted"),
        (place("[2,3]", "[2305843009213693951,1]", 0), "a tensor has no place in shared memory"),
        (r#""shape":[2,3],"stride":[3,1],"offset":0"#.into(), "has no dtype"),
        (place("[2,3]", "[3,1]", 0).replace('4', "8"), "a tensor is not stored as its place"),
    ] {
        let error = refused(&leaf("w", &more));
        assert!(error.contains(why), "{error} does not say {why}");
    }
    let error = refused(&leaf("none", &place("[0,3]", "[3,1]", 0)));
    assert!(error.contains("a tensor has no place in shared memory"), "{error}");
    let mixed =
        format!("[{},{}]", leaf("w", &place("[2,3]", "[3,1]", 0)), leaf("w", r#""grad":true"#));
    assert!(refused(&mixed).contains("memory 3 is described in two ways"));
}

#[test]
fn one_object_may_be_stored_under_several_names() {
    let twice = r#"[{"tensor":{"name":"w","object":0}},{"tensor":{"name":"w2","object":0}}]"#;
    let shape = vec![2, 3];
    let tensors = ["w", "w2"].map(|name| (name.to_owned(), Dtype::F32, shape.clone()));
    let header = Header::lay_out(tensors, BTreeMap::new()).unwrap();
    Structure::parse(&with_object(twice), &header).unwrap();
}

#[test]
fn the_text_around_the_object_is_judged_and_unknown_keys_in_it_are_passed_over() {
    let error = |text: &str| Structure::parse(text, &header()).unwrap_err();
    for (text, why) in [
        ("", "the structure of the object is not JSON"),
        ("[]", "the structure is an array, not an object"),
        (r#"{"version":0}"#, "\"version\" is missing or no positive integer"),
        (r#"{"version":1.0}"#, "\"version\" is missing or no positive integer"),
        (r#"{"version":1,"version":1}"#, "the key \"version\" stands twice"),
        (r#"{"version":1,"checksum":1}"#, "\"checksum\" is missing or no boolean"),
        (r#"{"version":1,"checksum":true}"#, "\"tool\" is missing, no text or too long"),
        (r#"{"version":1,"checksum":true,"tool":""}"#, "\"object\" is missing"),
        (r#"{"version":18446744073709551617}"#, "is no integer of 64 bits (byte: 11)"),
    ] {
        let error = error(text);
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(why), "{error} does not say {why}");
    }
    let newer = error(r#"{"version":3,"object":{"magic":1}}"#);
    assert_eq!(newer.kind(), Kind::Unsupported);
    assert_eq!(
        newer.to_string(),
        "the object was saved by a newer tensorferry, in version 3 of its structure; upgrade to \
         load it (known: 2)"
    );
    let text = r#"{"later":{"x":[1]},"version":1,"tool":"torch","checksum":false,"object":null}"#;
    let structure = Structure::parse(text, &header()).unwrap();
    assert_eq!(
        (structure.version, structure.checksum, structure.tool.as_str()),
        (1, false, "torch")
    );
}

#[test]
fn an_object_may_refer_to_tensors_that_are_stored_elsewhere_and_views_of_them_are_judged() {
    let parse = |elsewhere: &str, leaf: &str| {
        let object = format!(r#"{{"tensor":{leaf}}},"elsewhere":{elsewhere}"#);
        Structure::parse(&with_object(&object), &header()).map_err(|error| error.to_string())
    };
    let leaf = match parse(r#"[["far","F64",[5]],["none else","U8",[]]]"#, r#""far""#) {
        Ok(Structure { object: Node::Tensor(leaf), .. }) => leaf,
        other => panic!("{other:?}"),
    };
    assert_eq!((leaf.dtype.as_str(), leaf.shape), ("F64", vec![5]));
    let beyond = r#"{"name":"far","shape":[6],"stride":[1],"offset":0,"dtype":"x","itemsize":8}"#;
    let huge = r#"[["far","F64",[4611686018427387904,8]]]"#;
    let more = "holds more than arrays of name, dtype and shape";
    for (elsewhere, leaf, why) in [
        (r#"[["far","F64",[5]]]"#, beyond, "a view ends at byte 48, 40 are stored"),
        ("[]", r#""far""#, "the file has no tensor \"far\""),
        ("{}", r#""w""#, "\"elsewhere\" is an object, not an array"),
        ("[{}]", r#""w""#, more),
        (r#"[["far","F64"]]"#, r#""far""#, more),
        (r#"[["far","F64",[-1]]]"#, r#""far""#, more),
        (r#"[["far",1,[]]]"#, r#""far""#, more),
        (r#"[["far","F1",[]]]"#, r#""far""#, "\"F1\" is no dtype"),
        (r#"[["w","F32",[2,3]]]"#, r#""w""#, "\"w\" is elsewhere and here"),
        (r#"[["far","U8",[1]],["far","U8",[1]]]"#, r#""far""#, "or elsewhere twice"),
        (huge, r#""far""#, "has more bytes than can be counted"),
    ] {
        let error = parse(elsewhere, leaf).unwrap_err();
        assert!(error.contains(why), "{error} does not say {why}");
    }
}

#[test]
fn containers_nest_as_deep_as_is_promised_and_no_deeper() {
    let nested = |open: &str, close: &str, levels: usize, leaf: &str| {
        format!("{}{leaf}{}", open.repeat(levels), close.repeat(levels))
    };
    let leaf = r#"{"tensor":{"name":"w","shape":[1],"stride":[1],"offset":0}}"#;
    for (open, close) in [
        ("[", "]"),
        (r#"{"dict":{"k":"#, "}}"),
        (r#"{"dict":[[1,"#, "]]}"),
        (r#"{"odict":{},"metadata":"#, "}"),
    ] {
        parsed(&nested(open, close, NESTING_MAX, leaf));
        let error = refused(&nested(open, close, NESTING_MAX + 1, "1"));
        assert!(error.contains("more than 40 containers stand inside one another"), "{error}");
    }
    let error = refused(&nested("[", "]", 100_000, ""));
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn a_tree_shows_each_tensor_and_value_in_a_line() {
    let object = r#"{"dict":{
        "model":{"odict":{"a.w":{"tensor":{"name":"w","parameter":true,"device":"cuda:0"}},
                          "part":{"tensor":{"name":"w","shape":[3],"stride":[1],"offset":0}}},
                 "metadata":{"odict":{"":{"dict":{"version":1}}}}},
        "betas":{"tuple":[0.9,0.999]},"steps":[[1],{"bytes":"YQ=="}],
        "bad\u001b[2J":"it's\n","raw":{"blob":"raw"},"e":{"array":{"name":"w","numpy":"<f4"}}}}"#;
    let structure = Structure::parse(&with_object(object), &header()).unwrap();
    let whole = structure.tree(100).to_string();
    let expected = r#"dict of 6
  model: OrderedDict of 2
    a.w: parameter F32 [2, 3] on cuda:0
    part: tensor F32 [3], a view of w
  betas: tuple of 2: 0.9, 0.999
  steps: list of 2
    [0]: list of 1: 1
    [1]: bytes, 1
  bad\u{1b}[2J: "it's\n"
  raw: bytes, 5000
  e: array <f4 [2, 3]
"#;
    assert_eq!(whole, expected);
    let lines = |max| structure.tree(max).to_string();
    assert_eq!(lines(3), "dict of 6\n  model: OrderedDict of 2\n... and 9 more lines");
    assert_eq!(lines(11), whole);
    assert_eq!(lines(0), "... and 11 more lines");
}

#[test]
fn long_texts_and_lists_are_cut_when_shown() {
    let node = format!("[{}\"é{}\"]", "1,".repeat(200), "x".repeat(500));
    let structure = Structure::parse(&with_object(&node), &header()).unwrap();
    let line = structure.tree(9).to_string();
    assert!(line.starts_with("list of 201: 1, 1, ") && line.ends_with("...\n"), "{line}");
    assert!(line.len() < 100, "{line}");
}

/// Objects as a writer would give them, and things that are almost such.
fn objects() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec![
        "null",
        "true",
        "1",
        "-2.5",
        r#""k""#,
        r#"{"int":"0x10000000000000000"}"#,
        r#"{"size":[1]}"#,
        r#"{"bytes":"YQ=="}"#,
        r#"{"tensor":"w"}"#,
        r#"{"blob":"raw"}"#,
        r#"{"tensor":"gone"}"#,
        r#"{"tensor":{"name":"c","dtype":"complex128","itemsize":16,"object":1}}"#,
    ]);
    let view =
        (0u64..8, 0u64..8, 0u64..30, 0u64..9).prop_map(|(size, stride, offset, itemsize)| {
            format!(
                r#"{{"tensor":{{"name":"w","shape":[{size}],"stride":[{stride}],"offset":{offset},
                "dtype":"x","itemsize":{itemsize}}}}}"#
            )
        });
    let leaf = prop_oneof![plain.prop_map(str::to_owned), view];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let items = prop::collection::vec(inner, 0..4);
        (items, prop::sample::select(vec!["list", "tuple", "set", "dict", "pairs", "odict"]))
            .prop_map(|(items, kind)| {
                let keyed = |(index, item)| format!(r#""{index}":{item}"#);
                let paired = |(index, item)| format!("[{index},{item}]");
                let listed = items.join(",");
                let items = items.iter().enumerate();
                match kind {
                    "list" => format!("[{listed}]"),
                    "pairs" => {
                        format!(
                            r#"{{"dict":[{}]}}"#,
                            items.map(paired).collect::<Vec<_>>().join(",")
                        )
                    }
                    "dict" | "odict" => {
                        let keyed = items.map(keyed).collect::<Vec<_>>().join(",");
                        format!(r#"{{"{kind}":{{{keyed}}}}}"#)
                    }
                    kind => format!(r#"{{"{kind}":[{listed}]}}"#),
                }
            })
    })
}

proptest! {
    #[test]
    fn what_is_taken_lies_inside_of_what_is_stored_and_is_shown_in_the_lines_allowed(
        object in objects(), lines_max in 0usize..20,
    ) {
        let header = header();
        let Ok(structure) = Structure::parse(&with_object(&object), &header) else { return Ok(()) };
        let mut leaves = Vec::new();
        structure.object.for_each_leaf(&mut |leaf| leaves.push(leaf));
        for leaf in leaves {
            let stored = header.tensors.iter().find(|tensor| tensor.name == leaf.name).unwrap();
            let bytes = stored.range.end - stored.range.start;
            let end = match &leaf.view {
                Some(view) => view.end(&leaf.shape, leaf.itemsize).unwrap(),
                None => leaf.shape.iter().product::<u64>() * leaf.itemsize,
            };
            prop_assert!(end <= bytes);
        }
        let shown = structure.tree(lines_max).to_string();
        prop_assert!(shown.lines().count() <= lines_max.max(1));
    }

    #[test]
    fn changed_bytes_give_a_structure_or_an_error(
        object in objects(), at: prop::sample::Index, byte in 0u8..128,
    ) {
        let mut text = with_object(&object).into_bytes();
        *at.get_mut(&mut text) = byte;
        let Ok(text) = String::from_utf8(text) else { return Ok(()) };
        if let Err(error) = Structure::parse(&text, &header()) {
            prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported));
        }
    }
}
