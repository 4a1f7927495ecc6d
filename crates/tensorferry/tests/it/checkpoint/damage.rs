//! What becomes of a file that was damaged after it was saved: an error that says where, never
//! other data.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tensorferry::checkpoint::{Checkpoint, Dtype, Options, Wanted};
use tensorferry::io::Config;
use tensorferry::{Error, Kind, Result};

use super::{Content, READERS, Setting, WINDOW, all, quick};

fn object() -> Content {
    let tensors = [
        ("large", Dtype::F32, vec![WINDOW / 4 + 7]),
        ("block", Dtype::U8, vec![4096]),
        ("small", Dtype::Bf16, vec![3, 5]),
        ("empty", Dtype::F32, vec![0]),
        ("flag", Dtype::Bool, vec![]),
    ];
    Content::new(1, tensors.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape)).into())
}

fn saved() -> (Setting, Content) {
    let (setting, object) = (Setting::new(&Config::default()), object());
    object.save(&setting, &quick()).unwrap();
    (setting, object)
}

/// With one byte changed, and then as it was.
fn with_flipped(setting: &Setting, at: u64, mask: u8, look: impl FnOnce()) {
    let file = File::options().read(true).write(true).open(setting.path()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
    look();
    file.write_all_at(&byte, at).unwrap();
}

/// Opens and loads everything.
fn load(setting: &Setting) -> Result<()> {
    let checkpoint = setting.checkpoint()?;
    checkpoint.load(all(&checkpoint)).map(drop)
}

fn assert_is_told(error: &Error) {
    let told = matches!(error.kind(), Kind::Corrupt | Kind::Truncated | Kind::Unsupported);
    assert!(told, "{error:?}");
    let text = error.to_string();
    let part = ["tensor", "field: ", "the header", "the structure"];
    assert!(part.iter().any(|part| text.contains(part)), "{text}");
    assert!(text.contains("model.ferry"), "{text}");
}

#[test]
fn every_byte_of_the_header_that_changes_is_noticed_whether_or_not_tensors_are_verified() {
    let (setting, object) = saved();
    let data_start = setting.checkpoint().unwrap().data_start();
    for at in 0..data_start {
        for mask in [0x01, 0x20, 0x80] {
            with_flipped(&setting, at, mask, || {
                for verify in [true, false] {
                    let path = setting.path();
                    let opened = Checkpoint::open(&setting.engine, &path, None, verify);
                    match opened.and_then(|opened| opened.load(all(&opened))) {
                        Ok(_) => panic!("byte {at} ^ {mask:#x} was not noticed"),
                        Err(error) => assert_is_told(&error),
                    }
                }
            });
        }
    }
    setting.assert_only(&object);
}

#[test]
fn a_header_is_checked_also_where_tensors_have_no_checksums() {
    let (setting, mut object) = (Setting::new(&Config::default()), object());
    // The structure promises checksums of tensors.
    object.header.metadata.clear();
    object.save(&setting, &Options { checksum: false, ..quick() }).unwrap();
    let checkpoint = setting.checkpoint().unwrap();
    assert!(!checkpoint.has_checksums());
    let (header, key) = (checkpoint.header(), "crc32c");
    for at in 0..checkpoint.data_start() {
        for bit in 0..8 {
            with_flipped(&setting, at, 1 << bit, || match setting.checkpoint() {
                Ok(changed) => {
                    // The key itself: without it there is nothing to check, and nothing else changed.
                    assert!(!changed.header().metadata.contains_key(key), "byte {at}, bit {bit}");
                    assert_eq!(changed.header().tensors, header.tensors);
                }
                Err(error) => assert_is_told(&error),
            });
        }
    }
}

#[test]
fn a_changed_byte_of_a_tensor_is_noticed_with_its_name_and_only_there() {
    let (setting, object) = saved();
    for reader in READERS {
        let open =
            || Checkpoint::open(&setting.engine, &setting.path(), Some(reader), true).unwrap();
        let checkpoint = open();
        let tensors = &checkpoint.header().tensors;
        for (index, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.len() > 0) {
            let places = [0, tensor.len() / 3, tensor.len() / 2, tensor.len() - 1];
            for within in places {
                let at = checkpoint.data_start() + tensor.range.start + within;
                with_flipped(&setting, at, 1 << (within % 8), || {
                    // What is small came with the header, so the file is opened as it is now.
                    let checkpoint = open();
                    let verified = checkpoint.verify(&mut |_| ());
                    for error in [verified, checkpoint.load(all(&checkpoint)).map(drop)] {
                        let error = error.unwrap_err();
                        assert_is_told(&error);
                        assert_eq!(error.kind(), Kind::Corrupt);
                        let named = format!("(tensor: {}, offset: ", tensor.name);
                        assert!(error.to_string().contains(&named), "{error}");
                    }
                    let others = (0..tensors.len()).filter(|other| *other != index);
                    let wanted = others.map(|tensor| Wanted { tensor, into: None });
                    checkpoint.load(wanted.collect()).unwrap();
                });
            }
        }
    }
    setting.assert_only(&object);
}

#[test]
fn who_asks_not_to_verify_gets_the_bytes_that_are_there() {
    let (setting, object) = saved();
    let data_start = setting.checkpoint().unwrap().data_start();
    with_flipped(&setting, data_start + 5, 1, || {
        let path = setting.path();
        let checkpoint = Checkpoint::open(&setting.engine, &path, Some(READERS[0]), false).unwrap();
        let loaded = checkpoint.load(vec![Wanted { tensor: 0, into: None }]).unwrap();
        let tensor = &checkpoint.header().tensors[0];
        let bytes = object.bytes(tensor);
        let differing = loaded[0].iter().zip(&bytes).enumerate().filter(|(_, (a, b))| a != b);
        assert_eq!(differing.map(|(at, _)| at).collect::<Vec<_>>(), [5]);
    });
}

#[test]
fn a_file_that_was_cut_or_extended_is_never_loaded() {
    let (setting, object) = saved();
    let whole = std::fs::read(setting.path()).unwrap();
    let len = whole.len();
    let data_start = setting.checkpoint().unwrap().data_start() as usize;
    let cuts = (0..24).chain((24..data_start).step_by(97)).chain((data_start..len).step_by(70_001));
    for cut in cuts.chain([data_start - 1, len - 4097, len - 4096, len - 1]) {
        std::fs::write(setting.path(), &whole[..cut]).unwrap();
        let error = load(&setting).unwrap_err();
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Truncated), "{cut}: {error:?}");
        assert!(error.to_string().contains("model.ferry"), "{cut}: {error}");
    }
    for more in [1, 4096, 1 << 20] {
        std::fs::write(setting.path(), [&whole[..], &vec![0; more]].concat()).unwrap();
        let error = load(&setting).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("bytes, the file has "), "{error}");
    }
    std::fs::write(setting.path(), whole).unwrap();
    setting.assert_only(&object);
}

#[test]
fn a_file_that_is_cut_while_it_is_open_is_truncated() {
    let (setting, _) = saved();
    let checkpoint = setting.checkpoint().unwrap();
    let file = File::options().write(true).open(setting.path()).unwrap();
    file.set_len(checkpoint.data_start() + 1000).unwrap();
    for error in [checkpoint.load(all(&checkpoint)).map(drop), checkpoint.verify(&mut |_| ())] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), Kind::Truncated, "{error}");
        assert!(error.to_string().contains("model.ferry"), "{error}");
    }
}

#[test]
fn headers_that_make_no_sense_are_refused_before_anything_is_allocated() {
    let setting = Setting::new(&Config::default());
    let entry = |shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"U8","shape":[{shape}],"data_offsets":[{start},{end}]}}"#)
    };
    let good = entry("8", 0, 8);
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let huge = u64::MAX - 7;
    for (json, text) in [
        (format!(r#"{{"a":{}}}"#, entry(&huge.to_string(), 0, huge)), "the data has 8 bytes"),
        (format!(r#"{{"a":{}}}"#, entry("4294967296,4294967296", 0, 8)), "can be counted"),
        (format!(r#"{{"a":{},"b":{good}}}"#, entry("0,4294967296,4294967296", 0, 0)), "be counted"),
        (format!(r#"{{"a":{},"b":{}}}"#, entry("5", 0, 5), entry("4", 4, 8)), "overlaps"),
        (format!(r#"{{"a":{},"b":{}}}"#, entry("3", 0, 3), entry("4", 4, 8)), "leaves a gap"),
        (format!(r#"{{"a":{}}}"#, entry("8", 1, 9)), "data_offsets end at 9"),
        (format!(r#"{{"a":{good},"a":{good}}}"#), "the name \"a\" stands twice"),
        (format!(r#"{{"a":{deep}}}"#), "tensor \"a\""),
        (format!(r#"{{"a":{good},"__metadata__":{{"tensorferry":"{{"}}}}"#), "the structure"),
        (format!(r#"{{"a":{good},"__metadata__":{{"crc32c":"1"}}}}"#), "field: crc32c"),
        (format!(r#"{{"a":{good},"__metadata__":{deep}}}"#), "the header"),
    ] {
        let len = (json.len() as u64).to_le_bytes();
        std::fs::write(setting.path(), [&len[..], json.as_bytes(), &[0; 8]].concat()).unwrap();
        let error = load(&setting).unwrap_err();
        assert_is_told(&error);
        assert!(error.to_string().contains(text), "{error} does not say {text}");
    }
    for len in [0, 1, u64::MAX, 1 << 63, 100_000_001] {
        std::fs::write(setting.path(), [&u64::to_le_bytes(len)[..], b"{}"].concat()).unwrap();
        let error = load(&setting).unwrap_err();
        assert!(error.to_string().contains("field: header length"), "{error}");
    }
}
