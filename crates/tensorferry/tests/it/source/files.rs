//! Files by name and by pattern.

use std::fs;

use serde_json::json;
use tensorferry::Kind;
use tensorferry::data::source::Label;

use super::{content, names, opened, refused, write_all};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files: [(&str, &[u8]); 4] =
        [("b.npy", b"b"), ("a.npy", b"a"), ("deep/c.NPY", b"c"), ("odd[1].wav", b"w")];
    write_all(folder.path(), &files);
    folder
}

#[test]
fn a_list_is_taken_as_it_stands_and_a_pattern_in_order() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let list =
        json!([format!("{root}/b.npy"), format!("{root}/odd[1].wav"), format!("{root}/b.npy")]);
    let list = opened(&json!({"kind": "files", "paths": list})).unwrap();
    assert_eq!(names(&*list, root), ["b.npy", "odd[1].wav", "b.npy"]);
    assert_eq!(list.fields(), [""], "endings differ");
    let all = opened(&json!({"kind": "files", "paths": format!("{root}/**/*.[nN]*")})).unwrap();
    assert_eq!(names(&*all, root), ["a.npy", "b.npy", "deep/c.NPY"]);
    assert_eq!(all.fields(), ["npy"]);
    let braces = opened(&json!({"kind": "files", "paths": format!("{root}/{{b,a}}.npy")})).unwrap();
    assert_eq!(names(&*braces, root), ["b.npy", "a.npy"]);
}

#[test]
fn labels_are_none_whole_numbers_or_numbers_one_for_each_file() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let with =
        |labels| json!({"kind": "files", "paths": format!("{root}/*.npy"), "labels": labels});
    let label = |labels| opened(&with(labels)).unwrap().label(1);
    assert_eq!(label(json!(null)), Label::None);
    assert_eq!(label(json!([4, -5])), Label::Int(-5));
    assert_eq!(label(json!([4, 0.5])), Label::Float(0.5));
    assert_eq!(label(json!([true, false])), Label::Bool(false));
    assert_eq!(
        refused(&with(json!([1]))).to_string(),
        "there are 2 files and 1 labels; give a label for each file"
    );
}

#[test]
fn a_pattern_that_matches_nothing_is_told() {
    let folder = folder();
    let pattern = format!("{}/*.jpg", folder.path().display());
    let error = refused(&json!({"kind": "files", "paths": pattern}));
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().starts_with("no file matches the pattern"), "{error}");
}

#[test]
fn a_file_that_is_missing_or_a_directory_fails_alone_when_it_is_fetched() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let paths =
        json!([format!("{root}/gone.npy"), format!("{root}/deep"), format!("{root}/a.npy")]);
    let source = opened(&json!({"kind": "files", "paths": paths})).unwrap();
    let said = |index: usize| {
        let error = source.fetch(index).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, told) = said(0);
    assert_eq!(kind, Kind::NotFound);
    assert!(told.contains(&format!("(file: {root}/gone.npy)")), "{told}");
    let (kind, told) = said(1);
    assert_eq!(kind, Kind::InvalidInput);
    assert!(told.starts_with("a directory stands where a file should be"), "{told}");
    assert_eq!(content(&*source, 2), [b"a"]);
    fs::write(folder.path().join("a.npy"), b"longer").unwrap();
    assert_eq!(said(2).0, Kind::Corrupt, "changed since it was listed");
    fs::rename(folder.path().join("a.npy"), folder.path().join("z.npy")).unwrap();
    assert_eq!(said(2).0, Kind::NotFound, "renamed");
}
