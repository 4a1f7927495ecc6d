//! What holds for every source.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tensorferry::Kind;
use tensorferry::data::source::{Fault, Faulty, Source, Throttled};

use super::{content, opened, tar::packed, write_all};

/// The laws: the list is fixed, its sizes are true, and many threads see what one sees.
pub fn check(what: &str, source: &dyn Source, expected: &[Vec<Vec<u8>>]) {
    assert_eq!(source.len(), expected.len(), "{what}: how many");
    assert_eq!(source.is_empty(), expected.is_empty(), "{what}");
    for (index, fields) in expected.iter().enumerate() {
        let name = source.name(index);
        assert!(!name.is_empty() && name == source.name(index), "{what}: {name}");
        assert_eq!(&content(source, index), fields, "{what}: {name}");
        let raw = source.fetch(index).unwrap();
        assert_eq!(raw.bytes(), source.bytes(index), "{what}: {name}: bytes");
        assert_eq!(raw.len(), source.fields().len(), "{what}: {name}: a name for each field");
        let total: usize = fields.iter().map(Vec::len).sum();
        assert_eq!(raw.bytes(), total as u64, "{what}: {name}");
        let memory = raw.in_memory().unwrap();
        assert_eq!(memory.as_memory().unwrap(), fields.concat(), "{what}: {name}: in memory");
        assert_eq!(memory.ends(), raw.ends(), "{what}: {name}");
    }
    thread::scope(|scope| {
        for turn in 0..4 {
            scope.spawn(move || {
                for step in 0..expected.len() * 3 {
                    let index = (step * (turn + 1) + turn) % expected.len();
                    assert_eq!(content(source, index), expected[index], "{what}: side by side");
                }
            });
        }
    });
}

/// Samples of all sizes that matter: empty, small, of a block, large enough to stay in their file.
fn samples() -> Vec<Vec<u8>> {
    let byte = |at: usize| (at * 7 + at / 256) as u8;
    let sizes = [0, 1, 511, 512, 513, 70_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 513];
    sizes.iter().map(|bytes| (0..*bytes).map(byte).collect()).collect()
}

#[test]
fn every_source_keeps_the_laws() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let samples = samples();
    let mut members = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        write_all(folder.path(), &[(&format!("classes/{}/{at}.png", at / 4), sample)]);
        members.push((format!("{at}.cls"), at.to_string().into_bytes()));
        members.push((format!("{at}.json"), vec![b' '; at * 40_000]));
        members.push((format!("{at}.png"), sample.clone()));
    }
    let (one, two) = members.split_at(12);
    write_all(folder.path(), &[("0.tar", &packed(one)), ("1.tar", &packed(two))]);

    let single: Vec<_> = samples.iter().map(|sample| vec![sample.clone()]).collect();
    let pairs = samples.iter().enumerate();
    let pairs: Vec<_> =
        pairs.map(|(at, sample)| vec![sample.clone(), at.to_string().into_bytes()]).collect();
    let classes = opened(&json!({"kind": "folder", "root": format!("{root}/classes")})).unwrap();
    check("folder", &*classes, &single);
    let files = json!({"kind": "files", "paths": format!("{root}/classes/*/*.png")});
    check("files", &*opened(&files).unwrap(), &single);
    let tar = opened(&json!({"kind": "tar", "shards": format!("{root}/{{0..1}}.tar")})).unwrap();
    check("tar", &*tar, &pairs);
    let lone = json!({"kind": "tar", "shards": format!("{root}/?.tar"), "fields": ["jpg;png"]});
    check("tar, one field", &*opened(&lone).unwrap(), &single);
    let slow = Throttled::new(Arc::clone(&tar), 1 << 40, Duration::from_micros(1)).unwrap();
    check("throttled", &slow, &pairs);
    check("faulty without faults", &Faulty::new(tar), &pairs);
}

fn small() -> (tempfile::TempDir, Arc<dyn Source>) {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &[("a", b"0123456789"), ("b", b"xy")]);
    let paths = format!("{}/*", folder.path().display());
    let source = opened(&json!({"kind": "files", "paths": paths})).unwrap();
    (folder, source)
}

#[test]
fn faults_happen_where_and_as_often_as_they_are_asked_for() {
    let (_folder, source) = small();
    let faulty = Faulty::new(source);
    faulty.fault(0, Fault::Fail(Kind::NotFound));
    let error = faulty.fetch(0).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().ends_with("/a)"), "{error}");
    assert_eq!(content(&faulty, 1), [b"xy"]);
    faulty.fault(0, Fault::Times(2));
    assert_eq!(faulty.fetch(0).unwrap_err().kind(), Kind::Io);
    assert!(faulty.fetch(0).unwrap_err().is_retryable());
    assert_eq!(content(&faulty, 0), [b"0123456789"]);
    faulty.fault(0, Fault::Cut(3));
    assert_eq!(content(&faulty, 0), [b"012"]);
    faulty.fault(0, Fault::Noise);
    assert_ne!(content(&faulty, 0), [b"0123456789"]);
    faulty.release();
    assert_eq!(content(&faulty, 0), [b"0123456789"]);
}

#[test]
fn a_fetch_that_hangs_goes_on_when_it_is_released() {
    let (_folder, source) = small();
    let faulty = Faulty::new(source);
    faulty.fault(1, Fault::Hang);
    thread::scope(|scope| {
        let hanging = scope.spawn(|| content(&faulty, 1));
        assert_eq!(content(&faulty, 0), [b"0123456789"], "others are not held up");
        faulty.release();
        assert_eq!(hanging.join().unwrap(), [b"xy"]);
    });
}

#[test]
fn a_throttled_source_refuses_what_would_never_end() {
    let (folder, source) = small();
    let error = Throttled::new(source, 0, Duration::ZERO).err().unwrap();
    assert_eq!(error.to_string(), "bytes_per_second is 0; nothing would ever arrive");
    let inner = json!({"kind": "files", "paths": format!("{}/*", folder.path().display())});
    let spec = json!({"kind": "throttled", "source": inner, "bytes_per_second": 1,
                      "latency_seconds": -1.0});
    let told = super::refused(&spec).to_string();
    assert_eq!(told, "latency_seconds is -1; it must not be negative");
}
