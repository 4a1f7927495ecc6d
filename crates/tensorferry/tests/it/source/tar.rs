//! Tar shards: every dialect, every cut.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::Mutex;

use proptest::prelude::*;
use serde_json::json;
use tensorferry::Kind;
use tensorferry::data::source::{Paths, Progress, Tar, TarOptions, scan_tar};

use super::{content, names, opened, refused, shared, write_all};

const BLOCK: usize = 512;

/// A tar of these members, as GNU's tar writes it.
pub fn packed<N: AsRef<str>, B: AsRef<[u8]>>(members: &[(N, B)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.as_ref().len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name.as_ref(), bytes.as_ref()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn fields(selection: &[&str]) -> Vec<String> {
    selection.iter().map(|field| (*field).to_owned()).collect()
}

fn small() -> Vec<u8> {
    let jpg = vec![b'j'; 600];
    let members: [(&str, &[u8]); 6] = [
        ("a/0.cls", b"3"),
        ("a/0.jpg", &jpg),
        ("a/1.cls", b"4"),
        ("a/1.jpg", b"second"),
        ("a/2.cls", b"5"),
        ("a/2.jpg", b"third"),
    ];
    packed(&members)
}

/// A shard in a directory of its own, and the description of it.
fn shard(bytes: &[u8]) -> (tempfile::TempDir, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &[("s.tar", bytes)]);
    let path = folder.path().join("s.tar");
    (folder, json!({"kind": "tar", "shards": path}))
}

#[test]
fn a_tar_cut_anywhere_gives_whole_samples_or_an_error_and_never_a_part() {
    let tar = small();
    let wanted = fields(&["jpg", "cls"]);
    let (whole, damage) = scan_tar(&tar, &wanted).unwrap();
    assert_eq!((whole.len(), damage.is_none()), (3, true));
    let mut seen = BTreeMap::new();
    for cut in (0..tar.len()).step_by(BLOCK).chain([1, 511, 513, tar.len() - 1]) {
        let (samples, damage) = scan_tar(&tar[..cut], &wanted).unwrap();
        assert!(whole.starts_with(&samples), "cut at {cut}");
        // A single block of zeros ends a tar, as it does for everybody else.
        assert_eq!(damage.is_none(), cut >= tar.len() - BLOCK, "cut at {cut}");
        let kind = damage.map(|error| error.kind());
        assert!(matches!(kind, None | Some(Kind::Truncated)), "cut at {cut}: {kind:?}");
        *seen.entry(samples.len()).or_insert(0) += 1;
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_cut_is_an_error_that_names_shard_and_offset_unless_what_is_whole_is_enough() {
    let tar = small();
    // The last image is gone, its header is still there.
    let header = tar.windows(7).rposition(|bytes| bytes == b"a/2.jpg").unwrap();
    let (_folder, spec) = shard(&tar[..header + BLOCK]);
    let error = refused(&spec);
    assert_eq!(error.kind(), Kind::Truncated);
    let told = error.to_string();
    assert!(told.starts_with("the tar is cut: a member of 5 bytes goes beyond its end"), "{told}");
    assert!(told.contains(&format!("(offset: {header}, shard: ")), "{told}");
    assert!(told.contains("s.tar, whole samples before it: 2, what to do: "), "{told}");
    assert!(told.contains("strict=False"), "{told}");

    let mut lenient = spec;
    lenient["strict"] = json!(false);
    let source = opened(&lenient).unwrap();
    assert_eq!(source.len(), 2);
    assert_eq!(content(&*source, 1), [&b"second"[..], b"4"]);
    assert_eq!(source.warnings().len(), 1);
    assert!(source.warnings()[0].starts_with("the tar is cut"), "{:?}", source.warnings());
}

#[test]
fn damage_in_the_middle_is_found_by_its_checksum() {
    let mut tar = small();
    let header = tar.windows(7).position(|bytes| bytes == b"a/1.jpg").unwrap();
    tar[header] = b'b';
    let (_folder, spec) = shard(&tar);
    let error = refused(&spec);
    assert_eq!(error.kind(), Kind::Corrupt);
    let told = error.to_string();
    assert!(
        told.starts_with(&format!("the checksum of a header is wrong (offset: {header}")),
        "{told}"
    );
}

#[test]
fn what_is_no_tar_says_so() {
    for (bytes, kind, told) in [
        (vec![b'x'; 2000], Kind::Corrupt, "not a tar file"),
        (Vec::new(), Kind::Truncated, "the tar is cut: it ends without its end marker"),
        ([&b"\x1f\x8b"[..], &[0; 1000]].concat(), Kind::Unsupported, "the tar is compressed"),
        (vec![0; 1024], Kind::NotFound, "the shards have no sample"),
        (packed(&[("README", "x")]), Kind::NotFound, "the shards have no sample"),
    ] {
        let (_folder, spec) = shard(&bytes);
        let error = refused(&spec);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(told), "{error}");
    }
}

#[test]
fn long_names_are_read_in_every_dialect() {
    // Cut at a hundred bytes, it ends in a slash.
    let long = format!("{}/{}", "directory/".repeat(20), "name".repeat(30));
    let middling = format!("{}/0", "d".repeat(120));
    let mut builder = tar::Builder::new(Vec::new());
    let mut append = |header: &mut tar::Header, name: &str, bytes: &[u8]| {
        header.set_size(bytes.len() as u64);
        builder.append_data(header, name, bytes).unwrap();
    };
    append(&mut tar::Header::new_gnu(), &format!("{long}.jpg"), b"gnu");
    append(&mut tar::Header::new_ustar(), &format!("{middling}.jpg"), b"ustar");
    append(&mut tar::Header::new_old(), "old.jpg", b"old");
    let path = format!("{long}pax.jpg");
    let records = [("path", path.as_bytes()), ("size", b"3"), ("mtime", b"1.5")];
    builder.append_pax_extensions(records).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(3);
    header.set_path("short").unwrap();
    header.set_cksum();
    builder.append(&header, &b"pax"[..]).unwrap();
    let (_folder, spec) = shard(&builder.into_inner().unwrap());
    let source = opened(&spec).unwrap();
    let keys = names(&*source, "").into_iter();
    let keys: Vec<_> = keys.map(|name| name.split(": ").nth(1).unwrap().to_owned()).collect();
    assert_eq!(keys, [long.clone(), middling, "old".to_owned(), format!("{long}pax")]);
    let all: Vec<_> = (0..4).flat_map(|index| content(&*source, index)).collect();
    assert_eq!(all, [&b"gnu"[..], b"ustar", b"old", b"pax"]);
}

#[test]
fn what_is_no_file_is_passed_over_and_what_is_no_sample_too() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut entry = |kind: tar::EntryType, name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    entry(tar::EntryType::Directory, "d.jpg/", b"");
    entry(tar::EntryType::Symlink, "link.jpg", b"");
    entry(tar::EntryType::Regular, "d/__meta__.jpg", b"kept");
    entry(tar::EntryType::Regular, "__meta__/0.jpg", b"no");
    entry(tar::EntryType::Regular, "._0.jpg", b"no");
    entry(tar::EntryType::Regular, "README", b"no");
    entry(tar::EntryType::Continuous, "last.jpg", b"yes");
    let (_folder, spec) = shard(&builder.into_inner().unwrap());
    let source = opened(&spec).unwrap();
    let all: Vec<_> = (0..source.len()).flat_map(|index| content(&*source, index)).collect();
    assert_eq!(all, [&b"kept"[..], b"yes"]);
}

#[test]
fn fields_are_chosen_by_name_and_by_alternatives() {
    let members = [
        ("0.cls", "3"),
        ("0.jpg", "zero"),
        ("0.seg.png", "mask"),
        ("1.PNG", "one"),
        ("1.cls", "4"),
        ("1.seg.png", "mask1"),
    ];
    let (_folder, mut spec) = shard(&packed(&members));
    let usual = opened(&spec).unwrap();
    assert_eq!(usual.fields(), ["jpg", "cls"], "jpg and png are both pictures");
    assert_eq!(content(&*usual, 0), [b"zero".to_vec(), b"3".to_vec()]);
    assert_eq!(content(&*usual, 1), [b"one".to_vec(), b"4".to_vec()]);

    spec["fields"] = json!(["png;jpg seg.png", "jpg;png"]);
    let chosen = opened(&spec).unwrap();
    assert_eq!(chosen.fields(), ["jpg", "seg.png", "jpg"]);
    assert_eq!(content(&*chosen, 0), [&b"zero"[..], b"mask", b"zero"]);

    spec["fields"] = json!(["npy"]);
    let told = refused(&spec).to_string();
    assert_eq!(told, "no sample has the field \"npy\"; the first one has cls, jpg, seg.png");
}

#[test]
fn a_sample_without_a_field_fails_alone_and_one_that_has_it_twice_fails_the_shard() {
    let (folder, spec) = shard(&packed(&[("0.jpg", "a"), ("0.cls", "1"), ("1.cls", "2")]));
    let source = opened(&spec).unwrap();
    assert_eq!(content(&*source, 0).len(), 2);
    let error = source.fetch(1).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let shard_name = folder.path().join("s.tar").display().to_string();
    let told = error.to_string();
    assert!(told.starts_with("the sample has no field \"jpg;"), "{told}");
    assert!(told.ends_with(&format!("(sample: {shard_name}: 1)")), "{told}");

    let (_folder, spec) = shard(&packed(&[("0.jpg", "a"), ("0.jpg", "b")]));
    let told = refused(&spec).to_string();
    assert!(told.starts_with("a sample has the same field twice"), "{told}");
    assert!(told.contains("member: 0.jpg"), "{told}");
}

#[test]
fn shards_come_in_the_order_of_the_pattern_and_progress_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..12 {
        let name = format!("{at:02}.tar");
        let members = [(format!("{at}-0.txt"), "x"), (format!("{at}-1.txt"), "y")];
        write_all(folder.path(), &[(name.as_str(), packed(&members).as_slice())]);
    }
    let root = folder.path().to_str().unwrap();
    let seen = Mutex::new(Vec::new());
    let how = TarOptions {
        fields: None,
        strict: true,
        storage_options: &BTreeMap::new(),
        progress: &|progress: Progress| seen.lock().unwrap().push(progress),
    };
    let paths = [format!("{root}/{{10..11}}.tar"), format!("{root}/0*.tar")];
    let source = Tar::open(&Paths::List(paths.to_vec()), &shared(), &how).unwrap();
    let keys = names(&source, root);
    assert_eq!((keys.len(), &*keys[0], &*keys[23]), (24, "10.tar: 10-0", "09.tar: 9-1"));
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 12);
    let last = seen.iter().max_by_key(|progress| progress.done).unwrap();
    assert_eq!((last.done, last.shards), (12, 12));

    let error = refused(&json!({"kind": "tar", "shards": format!("{root}/x*.tar")}));
    assert!(error.to_string().starts_with("no shard matches the pattern"), "{error}");
    let error = refused(&json!({"kind": "tar", "shards": [format!("{root}/x.tar")]}));
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert_eq!(refused(&json!({"kind": "tar", "shards": []})).kind(), Kind::InvalidInput);
}

#[test]
fn a_shard_that_shrinks_after_it_was_indexed_fails_the_samples_that_are_gone() {
    let tar = small();
    let (folder, spec) = shard(&tar);
    let source = opened(&spec).unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.path().join("s.tar")).unwrap();
    let end = tar.windows(7).rposition(|bytes| bytes == b"a/2.cls").unwrap() as u64;
    file.set_len(end).unwrap();
    assert_eq!(content(&*source, 1), [&b"second"[..], b"4"]);
    let error = source.fetch(2).unwrap_err();
    assert_eq!(error.kind(), Kind::Truncated);
    assert!(error.to_string().contains("a/2"), "{error}");
}

proptest! {
    /// The crate `tar` is the judge of what is in a tar that nobody damaged.
    #[test]
    fn members_are_found_where_the_crate_tar_finds_them(
        members in prop::collection::vec(
            ("[a-z]{1,3}(/[a-z]{1,120}){0,2}", prop::collection::vec(any::<u8>(), 0..3000)),
            1..12,
        ),
    ) {
        let members = members.into_iter().enumerate();
        let members: Vec<_> =
            members.map(|(at, (name, bytes))| (format!("{at}{name}.bin"), bytes)).collect();
        let bytes = packed(&members);
        let (samples, damage) = scan_tar(&bytes, &fields(&["bin"])).unwrap();
        prop_assert!(damage.is_none());
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut count = 0;
        for (entry, sample) in archive.entries().unwrap().zip(&samples) {
            let mut entry = entry.unwrap();
            let name = [sample.name.as_slice(), b".bin"].concat();
            prop_assert_eq!(&*entry.path_bytes(), name.as_slice());
            let range = sample.fields[0].clone().unwrap();
            prop_assert_eq!(range.start, entry.raw_file_position());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            prop_assert_eq!(&bytes[range.start as usize..range.end as usize], content.as_slice());
            count += 1;
        }
        prop_assert_eq!(count, members.len());
        prop_assert_eq!(count, samples.len());
    }
}
