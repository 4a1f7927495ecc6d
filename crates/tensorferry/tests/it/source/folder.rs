//! `ImageFolder`, held to what torchvision gives for the same tree.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use tensorferry::Kind;
use tensorferry::data::source::Label;

use super::{content, names, opened, refused, write_all};

/// Names that are easy to sort wrongly, images that are easy to miss, and what is none.
const FILES: [&str; 29] = [
    "b/2.jpg",
    "b/10.jpg",
    "b/1.JPEG",
    "b/sub/x.png",
    "b/sub-a/y.png",
    "b/sub/deeper/z.webp",
    "b/Zed.jpg",
    "b/notes.txt",
    "b/no-ending",
    "b/.jpg",
    "b/.hidden.png",
    "b/a.jpg.txt",
    "b/dir.jpg/in.jpg",
    "B/upper.PnG",
    "a/\u{e9}.jpg",
    "a/e.jpg",
    "a/z.jpg",
    "a/\u{1f600}.jpg",
    "a/\u{ff5e}.jpg",
    "a/x.tif",
    "a/x.TIFF",
    "a/x.ppm",
    "a/x.pgm",
    "a/x.bmp",
    "a/x.gif",
    ".dot/k.jpg",
    "10/ten.jpg",
    "2/two.jpg",
    "\u{fc}/u.jpg",
];

/// `ImageFolder(root).samples` of torchvision 0.28 over that tree and its links.
const SAMPLES: [(&str, i64); 29] = [
    (".dot/k.jpg", 0),
    ("10/ten.jpg", 1),
    ("2/two.jpg", 2),
    ("B/upper.PnG", 3),
    ("a/e.jpg", 4),
    ("a/x.TIFF", 4),
    ("a/x.bmp", 4),
    ("a/x.pgm", 4),
    ("a/x.ppm", 4),
    ("a/x.tif", 4),
    ("a/z.jpg", 4),
    ("a/\u{e9}.jpg", 4),
    ("a/\u{ff5e}.jpg", 4),
    ("a/\u{1f600}.jpg", 4),
    ("b/.hidden.png", 5),
    ("b/.jpg", 5),
    ("b/1.JPEG", 5),
    ("b/10.jpg", 5),
    ("b/2.jpg", 5),
    ("b/Zed.jpg", 5),
    ("b/broken.jpg", 5),
    ("b/file-link.png", 5),
    ("b/also/far.jpg", 5),
    ("b/dir.jpg/in.jpg", 5),
    ("b/sub/x.png", 5),
    ("b/sub-a/y.png", 5),
    ("b/sub/deeper/z.webp", 5),
    ("linked/far.jpg", 6),
    ("\u{fc}/u.jpg", 7),
];

#[test]
fn classes_and_samples_are_numbered_as_torchvision_numbers_them() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path();
    let far = elsewhere.path().join("far.jpg");
    for name in FILES {
        write_all(root, &[(name, name.as_bytes())]);
    }
    write_all(root, &[("stray.jpg", b"in no class")]);
    fs::write(&far, b"far").unwrap();
    symlink(elsewhere.path(), root.join("linked")).unwrap();
    symlink(elsewhere.path(), root.join("b/also")).unwrap();
    symlink(&far, root.join("b/file-link.png")).unwrap();
    symlink("/nonexistent", root.join("b/broken.jpg")).unwrap();

    let source = opened(&json!({"kind": "folder", "root": root})).unwrap();
    assert_eq!(source.classes(), [".dot", "10", "2", "B", "a", "b", "linked", "\u{fc}"]);
    let expected: Vec<_> = SAMPLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&*source, root.to_str().unwrap()), expected);
    for (index, (name, class)) in SAMPLES.iter().enumerate() {
        assert_eq!(source.label(index), Label::Int(*class), "{name}");
        match *name {
            "b/broken.jpg" => {
                assert_eq!(source.fetch(index).unwrap_err().kind(), Kind::NotFound);
                assert_eq!(source.bytes(index), 0);
            }
            "b/also/far.jpg" | "linked/far.jpg" | "b/file-link.png" => {
                assert_eq!(content(&*source, index), [b"far"]);
            }
            _ => assert_eq!(content(&*source, index), [name.as_bytes()]),
        }
    }
}

#[test]
fn a_class_without_an_image_is_an_error_unless_it_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &[("full/0.jpg", b"0"), ("none/0.txt", b"0")]);
    fs::create_dir(folder.path().join("empty")).unwrap();
    let mut spec = json!({"kind": "folder", "root": folder.path()});
    let error = refused(&spec);
    assert_eq!(error.kind(), Kind::NotFound);
    let told = error.to_string();
    assert!(told.starts_with("no image was found for the classes empty, none; "), "{told}");
    assert!(told.contains("pass allow_empty=True"), "{told}");
    spec["allow_empty"] = json!(true);
    let source = opened(&spec).unwrap();
    assert_eq!(source.classes(), ["empty", "full", "none"]);
    assert_eq!((source.len(), source.label(0)), (1, Label::Int(1)));
    assert_eq!(source.fields(), ["jpg"]);
}

#[test]
fn a_root_that_is_no_dataset_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &[("0.jpg", b"0")]);
    let said = |root: &std::path::Path| {
        let error = refused(&json!({"kind": "folder", "root": root}));
        (error.kind(), error.to_string())
    };
    let (kind, told) = said(folder.path());
    assert_eq!(kind, Kind::NotFound);
    assert!(told.starts_with("no class is here: ImageFolder wants a directory for each"), "{told}");
    let (kind, told) = said(&folder.path().join("gone"));
    assert_eq!(kind, Kind::NotFound);
    assert!(told.starts_with("can't list the directory (directory: "), "{told}");
    let (kind, told) = said(&folder.path().join("0.jpg"));
    assert_eq!(kind, Kind::InvalidInput);
    assert!(told.starts_with("not a directory"), "{told}");
}

#[test]
fn files_that_are_not_decoded_are_told_when_the_list_is_made_and_can_be_left_off_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let names = ["a/1.jpg", "a/2.bmp", "b/3.TIF", "b/4.png"];
    write_all(folder.path(), &names.map(|name| (name, &b"x"[..])));
    let mut spec = json!({"kind": "folder", "root": root});
    let all = opened(&spec).unwrap();
    assert_eq!((all.len(), all.fields()), (4, &["jpg".to_owned()][..]), "they are pictures");
    let [warning] = all.warnings() else { panic!("{:?}", all.warnings()) };
    assert!(
        warning.starts_with("2 of 4 files are no JPEG, PNG or WebP by their names"),
        "{warning}"
    );
    assert!(warning.contains("extensions=") && warning.ends_with("a/2.bmp)"), "{warning}");
    spec["extensions"] = json!([".JPG", "png"]);
    let some = opened(&spec).unwrap();
    assert_eq!(super::names(&*some, root), ["a/1.jpg", "b/4.png"]);
    assert!(some.warnings().is_empty());
    spec["extensions"] = json!(["gif"]);
    let told = refused(&spec).to_string();
    assert!(told.contains("images end in gif"), "{told}");
    for none in [json!([]), json!(["."])] {
        spec["extensions"] = none;
        assert!(refused(&spec).to_string().starts_with("extensions names no ending"));
    }
}
