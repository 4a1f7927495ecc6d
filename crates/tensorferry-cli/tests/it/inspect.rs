//! `tensorferry inspect`: what it lists, what it finds wrong, and what it says of other files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tensorferry::checkpoint::{Dtype, Header, Options, STRUCTURE, Tensor, save, staging};
use tensorferry::io::{Config, open};
use tensorferry::memory::Buffer;

use crate::{Ended, run};

/// Where the tensors of these files start.
const DATA: u64 = 4096;

struct Setting {
    directory: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("model.ferry")
    }

    fn shown(&self) -> String {
        self.path().display().to_string()
    }

    fn write(&self, bytes: &[u8]) {
        fs::write(self.path(), bytes).unwrap();
    }

    fn inspect(&self, more: &[&str]) -> Ended {
        run(&[&["inspect", &self.shown()], more].concat())
    }

    /// What it says of a file that it can't list at all.
    fn refusal(&self) -> String {
        let ended = self.inspect(&[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        ended.stderr
    }

    fn flip(&self, at: u64) {
        let file = fs::File::options().read(true).write(true).open(self.path()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

fn save_at(path: &Path, tensors: Vec<(String, Dtype, Vec<u64>)>, metadata: &[(&str, &str)]) {
    let metadata = metadata.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    let header = Header::lay_out(tensors, metadata.collect::<BTreeMap<_, _>>()).unwrap();
    let mut source = |tensor: &Tensor| Ok(Buffer::zeroed(tensor.len() as usize)?.into());
    let options = Options::new(staging(0).unwrap());
    save(&open(&Config::default()).unwrap(), path, header, &mut source, &options).unwrap();
}

/// A file with an object, as Python saves it.
fn saved() -> Setting {
    let setting = Setting::new();
    let tensors = [
        ("w", Dtype::F32, vec![1024, 3]),
        ("layer.bias", Dtype::Bf16, vec![3]),
        ("step", Dtype::I64, vec![]),
    ];
    let tensors = tensors.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
    let object = r#"{"version":1,"checksum":true,"tool":"direct","object":
        {"dict":{"weight":{"tensor":{"name":"w"}},"lr":0.5,"note":"a\u001bb"}}}"#;
    save_at(&setting.path(), tensors.into(), &[(STRUCTURE, object), ("format", "pt")]);
    setting
}

fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn a_checkpoint_is_listed_and_verified() {
    let setting = saved();
    let ended = setting.inspect(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let expected = format!(
        "\
{}: 3 tensors, 12.01 KiB, in a file of 16.01 KiB

  name        dtype  shape       bytes  offset
  w           F32    [1024, 3]  12 KiB    4096
  step        I64    []            8 B   16384
  layer.bias  BF16   [3]           6 B   16392

object, saved by the tool direct:
  dict of 3
    weight: tensor F32 [1024, 3]
    lr: 0.5
    note: \"a\\u{{1b}}b\"

metadata:
  format: pt

checksums: verified
",
        setting.shown()
    );
    assert_eq!(ended.stdout, expected);
}

#[test]
fn the_document_has_all_of_it() {
    let setting = saved();
    let ended = setting.inspect(&["--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let document = document(&ended);
    let row = |name, dtype, shape: &[u64], bytes, offset| json!({"name": name, "dtype": dtype, "shape": shape, "bytes": bytes, "offset": offset});
    let tensors = json!([
        row("w", "F32", &[1024, 3], 12288, DATA),
        row("step", "I64", &[], 8, DATA + 12288),
        row("layer.bias", "BF16", &[3], 6, DATA + 12296),
    ]);
    let mut expected = json!({
        "file": setting.shown(), "bytes": DATA + 12302, "data_offset": DATA, "tensor_count": 3,
        "tensor_bytes": 12302, "tensors": tensors, "metadata": {"format": "pt"},
        "checksums": "verified", "error": null,
    });
    expected["object"] = document["object"].clone();
    assert_eq!(document, expected);
    assert_eq!(document["object"]["tree"][1], "  weight: tensor F32 [1024, 3]");
    let without = setting.inspect(&["--json", "--no-verify"]);
    let without: Value = serde_json::from_str(&without.stdout).unwrap();
    assert_eq!(without["checksums"], "unverified");
}

#[test]
fn a_long_list_is_cut_for_people_and_says_how_much_is_missing() {
    let setting = Setting::new();
    let tensors = (0..250).map(|number| (format!("t{number:03}"), Dtype::U8, vec![2]));
    save_at(&setting.path(), tensors.collect(), &[]);
    let shown = setting.inspect(&[]).stdout;
    assert!(shown.contains("  t199 ") && !shown.contains("  t200 "), "{shown}");
    assert!(shown.contains("\n  ... and 50 more tensors\n"), "{shown}");
    let shown = setting.inspect(&["--limit", "249"]).stdout;
    assert!(shown.contains("\n  ... and 1 more tensor\n"), "{shown}");
    let shown = setting.inspect(&["--limit", "0"]).stdout;
    assert!(
        shown.contains("\n  ... and 250 more tensors\n") && !shown.contains("dtype"),
        "{shown}"
    );
    let count = |more: &[&str]| {
        let document = document(&setting.inspect(&[&["--json"], more].concat()));
        assert_eq!(document["tensor_count"], 250);
        document["tensors"].as_array().unwrap().len()
    };
    assert_eq!((count(&[]), count(&["--limit", "7"])), (250, 7));
}

#[test]
fn a_damaged_tensor_is_named_after_the_list() {
    let setting = saved();
    setting.flip(DATA + 12288 + 3);
    let ended = setting.inspect(&[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("  layer.bias  BF16 "), "{}", ended.stdout);
    assert!(ended.stdout.ends_with("\nchecksums: wrong\n"), "{}", ended.stdout);
    let expected = "error: the checksum of a tensor is wrong: the file was damaged after it was \
                    saved (tensor: step, offset: 16384, ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    let json = setting.inspect(&["--json"]);
    assert_eq!((json.code, json.stderr.as_str()), (Some(1), ended.stderr.as_str()));
    let document = document(&json);
    assert_eq!(
        (&document["checksums"], &document["error"]["kind"]),
        (&"wrong".into(), &"Corrupt".into())
    );
    assert_eq!(
        ended.stderr,
        format!("error: {}\n", document["error"]["message"].as_str().unwrap())
    );
    // Who does not want to know is not told.
    let unread = setting.inspect(&["--no-verify"]);
    assert_eq!((unread.code, unread.stderr.as_str()), (Some(0), ""));
    assert!(unread.stdout.ends_with("\nchecksums: not verified\n"), "{}", unread.stdout);
}

#[test]
fn a_damaged_header_is_told_after_what_can_still_be_read() {
    let setting = saved();
    let text = fs::read(setting.path()).unwrap();
    let name = text.windows(10).position(|part| part == b"layer.bias").unwrap();
    setting.flip(name as u64);
    for more in [&[][..], &["--no-verify"]] {
        let ended = setting.inspect(more);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stdout.contains("  mayer.bias  BF16 "), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("\nchecksums: wrong\n"), "{}", ended.stdout);
        assert!(ended.stderr.starts_with("error: the header's checksum is wrong: "), "{ended:?}");
    }
    setting.flip(8);
    let error = setting.refusal();
    assert!(error.contains("a header") || error.contains("the header"), "{error}");
}

#[test]
fn an_object_that_makes_no_sense_is_told_after_the_tensors() {
    let setting = Setting::new();
    let json = r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":
        {"tensorferry":"{\"version\":1,\"checksum\":false,\"tool\":\"x\",\"object\":{\"y\":0}}"}}"#;
    setting.write(&[&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), b"abc"].concat());
    let ended = setting.inspect(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("  a     U8     [3] "), "{}", ended.stdout);
    assert!(!ended.stdout.contains("object"), "{}", ended.stdout);
    let expected = "error: the tag \"y\" is not known (at: the object, file: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
}

#[test]
fn a_file_that_was_cut_names_the_tensor_that_is_not_whole() {
    let setting = saved();
    let whole = fs::read(setting.path()).unwrap();
    setting.write(&whole[..whole.len() - 1]);
    let error = setting.refusal();
    assert!(error.contains("(tensor: layer.bias, file: "), "{error}");
    setting.write(&whole[..20]);
    let error = setting.refusal();
    assert!(error.contains("(field: header length, file: "), "{error}");
}

#[test]
fn anybodys_safetensors_file_is_listed_without_checksums() {
    let setting = Setting::new();
    let json = r#"{"a\u001b[2J":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
    let len = (json.len() as u64).to_le_bytes();
    setting.write(&[&len[..], json.as_bytes(), b"abc"].concat());
    let ended = setting.inspect(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.ends_with("\nchecksums: no checksums\n"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("  a\u{fffd}[2J  U8     [3]      3 B      70\n"),
        "{}",
        ended.stdout
    );
    assert_eq!(document(&setting.inspect(&["--json"]))["checksums"], "none");
    // Nor does an error take over the terminal.
    setting.write(&[&len[..], json.as_bytes(), b"ab"].concat());
    let error = setting.refusal();
    assert!(error.contains("(tensor: a\u{fffd}[2J, file: ") && !error.contains('\x1b'), "{error}");
}

#[test]
fn a_file_of_another_kind_is_told_as_what_it_is() {
    let setting = Setting::new();
    let zip = |name: &[u8]| {
        [b"PK\x03\x04".as_slice(), &[0; 22], &[name.len() as u8, 0, 0, 0], name].concat()
    };
    let no = "not a checkpoint or a safetensors file";
    for (bytes, said) in [
        (Vec::new(), "the file is empty".into()),
        (
            b"\x93NUMPY\x01\0v\0{'descr'".to_vec(),
            format!("this is an array of NumPy, {no}; ferry.load reads it"),
        ),
        (
            zip(b"weights.npy"),
            format!("this is an archive of NumPy arrays, {no}; open it with numpy.load"),
        ),
        (
            zip(b"model/data.pkl"),
            format!("this is a file of torch.save, {no}; ferry.load reads it"),
        ),
        (zip(b"readme"), format!("this is a zip archive, {no}; unpack it first")),
        (
            b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(),
            format!("this is a file of torch.save, {no}; ferry.load reads it"),
        ),
        (b"GGUF\x03\0\0\0".to_vec(), format!("this is a GGUF file, {no}")),
        (b"\x89PNG\r\n\x1a\n\0".to_vec(), format!("this is a picture, {no}")),
        (b"\xff\xfea\0b\0\n\0".to_vec(), format!("this is a text in UTF-16, {no}")),
        (
            b"\x08\x07\x12\x07pytorch\x1a\x032.1".to_vec(),
            format!("this is an ONNX model, {no}; export what it was made from"),
        ),
        (b"{\"a\": 1}".to_vec(), "the file is JSON, but no index of a checkpoint".into()),
        (b"neither this nor that".to_vec(), format!("this is a text, {no}")),
    ] {
        setting.write(&bytes);
        let expected = format!("error: {said} (file: {})\n", setting.shown());
        assert_eq!(setting.refusal(), expected);
    }
    setting.write(&[0xff; 20]);
    assert!(setting.refusal().contains("(field: header length, file: "));
    setting.write(&[0xff; 5]);
    assert!(setting.refusal().contains("a file of 5 bytes is no checkpoint"));
}

/// Two files and their index, as two ranks save them.
fn saved_by_ranks() -> Setting {
    let setting = Setting::new();
    let tensors = [
        vec![
            ("cut", Dtype::F32, vec![2, 3]),
            ("own", Dtype::U8, vec![5]),
            ("same", Dtype::I8, vec![]),
        ],
        vec![
            ("cut", Dtype::F32, vec![1, 3]),
            ("once", Dtype::F64, vec![2]),
            ("same", Dtype::I8, vec![]),
        ],
    ];
    for (rank, tensors) in tensors.into_iter().enumerate() {
        let tensors =
            tensors.into_iter().map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
        let object =
            r#"{"version":1,"checksum":true,"tool":"direct","object":{"dict":{"lr":0.5}}}"#;
        let path = setting.directory.path().join(format!("m-{rank}.ferry"));
        save_at(&path, tensors.collect(), &[(STRUCTURE, object)]);
    }
    let index = r#"{"tensorferry_index": 1, "token": "g3n2", "generation": 3, "world_size": 2,
        "files": ["m-0.ferry", "m-1.ferry"], "tensors": {
            "cut": {"kind": "sharded", "dtype": "F32", "shape": [3, 3], "dim": 0},
            "once": {"kind": "replicated", "dtype": "F64", "shape": [2], "rank": 1},
            "own": {"kind": "private", "ranks": [0], "equal": false},
            "same": {"kind": "private", "equal": true}}}"#;
    setting.write(index.as_bytes());
    setting
}

#[test]
fn the_index_of_several_ranks_lists_tensors_files_and_checksums() {
    let setting = saved_by_ranks();
    let ended = setting.inspect(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let expected = format!(
        "\
{}: 4 tensors, 58 B, in 2 files of 8.06 KiB, saved by 2 ranks as g3n2

  name  dtype  shape   bytes  place
  cut   F32    [3, 3]   36 B  cut along 0
  once  F64    [2]      16 B  in the file of rank 1
  own   U8     [5]       5 B  on rank 0
  same  I8     []        1 B  the same on all ranks

object, saved by the tool direct:
  dict of 1
    lr: 0.5

  file          bytes  checksums
  m-0.ferry  4.03 KiB  verified
  m-1.ferry  4.03 KiB  verified
",
        setting.shown()
    );
    assert_eq!(ended.stdout, expected);
    let document = document(&setting.inspect(&["--json", "--limit", "1"]));
    assert_eq!(document["save"], json!({"token": "g3n2", "ranks": 2}));
    assert_eq!(
        (document["tensor_count"].as_u64(), document["tensor_bytes"].as_u64()),
        (Some(4), Some(58))
    );
    let cut = json!({"name": "cut", "dtype": "F32", "shape": [3, 3], "bytes": 36, "place": "cut along 0"});
    assert_eq!(document["tensors"], json!([cut]));
    assert_eq!(document["files"][1]["checksums"], "verified");
}

#[test]
fn an_index_of_plain_files_says_which_file_has_what() {
    let setting = saved_by_ranks();
    let index = r#"{"metadata": {"total_size": 5}, "weight_map": {"own": "m-0.ferry", "once": "m-1.ferry"}}"#;
    setting.write(index.as_bytes());
    let ended = setting.inspect(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("  own   U8     [5]      5 B  m-0.ferry\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains(": 2 tensors, 21 B, in 2 files of "), "{}", ended.stdout);
}

#[test]
fn files_that_are_not_what_their_index_says_are_told_after_the_list() {
    let setting = saved_by_ranks();
    let index = fs::read_to_string(setting.path()).unwrap();
    let contradicts = "error: a file does not have a tensor as the index says (tensor: ";
    for (from, to, error) in [
        ("[3, 3]", "[3, 4]", format!("{contradicts}cut, file: m-0.ferry)\n")),
        ("[3, 3]", "[4, 3]", format!("{contradicts}cut, file: m-0.ferry)\n")),
        ("\"F64\"", "\"F32\"", format!("{contradicts}once, file: m-1.ferry)\n")),
        ("\"own\": {", "\"other\": {", format!("{contradicts}other, file: m-0.ferry)\n")),
        ("m-1.ferry", "m-2.ferry", "error: can't open file (file: ".into()),
        ("\"g3n2\"", "7", "error: the index of the checkpoint is damaged: its token".into()),
    ] {
        setting.write(index.replace(from, to).as_bytes());
        let ended = setting.inspect(&[]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with(&error), "{}", ended.stderr);
    }
    setting.write(index.as_bytes());
    let part = setting.directory.path().join("m-1.ferry");
    let file = fs::File::options().write(true).open(part).unwrap();
    file.write_all_at(b"\xff", DATA + 3).unwrap();
    let ended = setting.inspect(&[]);
    assert!(
        ended.stdout.contains("  m-1.ferry  4.03 KiB  wrong      Corrupt\n"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.starts_with("error: the checksum of a tensor is wrong"), "{ended:?}");
    assert_eq!(setting.inspect(&["--no-verify"]).code, Some(0));
}

#[test]
fn what_is_no_file_is_told_as_such() {
    let setting = Setting::new();
    let missing = setting.refusal();
    assert!(missing.starts_with("error: can't open file (file: "), "{missing}");
    assert!(missing.contains("No such file or directory"), "{missing}");
    fs::create_dir(setting.path()).unwrap();
    let directory = setting.refusal();
    let expected = "error: can't open file, it is a directory; name one of the files in it (file: ";
    assert!(directory.starts_with(expected), "{directory}");
    let ended = run(&["inspect", "/dev/null"]);
    assert_eq!(ended.stderr, "error: can't open file, it is a device (file: /dev/null)\n");
}

#[test]
fn arguments_that_cannot_be_read_are_usage_errors() {
    for (args, error) in [
        (&["inspect"][..], "the following required arguments were not provided:\n  <FILE>"),
        (&["inspect", "x", "--limit=-1"], "invalid value '-1' for '--limit <LIMIT>'"),
        (&["inspect", "x", "--limit", "all"], "invalid value 'all' for '--limit <LIMIT>'"),
    ] {
        let ended = run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(error), "{}", ended.stderr);
    }
}
