//! What a load promises: any tensors, in any order, into any memory, from anybody's file.

use std::path::Path;

use tensorferry::Kind;
use tensorferry::checkpoint::{Checkpoint, Dtype, Wanted};
use tensorferry::io::Config;
use tensorferry::memory::{Block, Buffer, Foreign};

use super::{Content, READERS, Setting, WINDOW, on_every_engine, quick};

/// Small ones, large ones, several that are read as one, and one that is far from the others.
fn object() -> Content {
    let sizes = [10, 3 * WINDOW + 1, 20, 0, WINDOW, 2000, 1 << 20, 30, 40];
    Content::of_sizes(1, &sizes)
}

#[test]
fn any_tensors_are_loaded_in_the_order_wanted() {
    on_every_engine(|setting, _| {
        let object = object();
        object.save(setting, &quick()).unwrap();
        for reader in READERS {
            let opened = Checkpoint::open(&setting.engine, &setting.path(), Some(reader), true);
            let checkpoint = opened.unwrap();
            assert_eq!(checkpoint.tool(), reader.name());
            let tensors = &checkpoint.header().tensors;
            for order in [vec![], vec![8], vec![3, 1, 8, 0], vec![5, 5, 1, 1], vec![7, 2, 6, 4]] {
                let wanted = order.iter().map(|tensor| Wanted { tensor: *tensor, into: None });
                let loaded = checkpoint.load(wanted.collect()).unwrap();
                assert_eq!(loaded.len(), order.len());
                for (tensor, block) in order.iter().zip(loaded) {
                    assert!(
                        *block == *object.bytes(&tensors[*tensor]),
                        "{}",
                        tensors[*tensor].name
                    );
                }
            }
        }
    });
}

/// Memory of so many bytes that starts where no device wants it.
fn crooked(len: usize) -> Block {
    Block::from(Buffer::zeroed(len + 1).unwrap()).narrow(1..len + 1).unwrap()
}

#[test]
fn tensors_are_put_into_the_memory_that_is_given() {
    on_every_engine(|setting, _| {
        let object = object();
        object.save(setting, &quick()).unwrap();
        for reader in READERS {
            let opened = Checkpoint::open(&setting.engine, &setting.path(), Some(reader), true);
            let checkpoint = opened.unwrap();
            let tensors = &checkpoint.header().tensors;
            let memory: Vec<_> =
                tensors.iter().map(|tensor| crooked(tensor.len() as usize)).collect();
            let places: Vec<_> = memory.iter().map(|block| block.as_ptr()).collect();
            let wanted = memory.into_iter().enumerate();
            let wanted = wanted.map(|(tensor, block)| Wanted { tensor, into: Some(block) });
            let loaded = checkpoint.load(wanted.collect()).unwrap();
            for ((tensor, block), place) in tensors.iter().zip(loaded).zip(places) {
                assert!(*block == *object.bytes(tensor), "{}", tensor.name);
                assert_eq!(block.as_ptr(), place, "{} stays where it is", tensor.name);
            }
        }
    });
}

#[test]
fn memory_that_does_not_suit_is_refused_with_the_tensors_name() {
    let setting = Setting::new(&Config::default());
    object().save(&setting, &quick()).unwrap();
    let checkpoint = setting.checkpoint().unwrap();
    let tensors = &checkpoint.header().tensors;
    let place = |name: &str| tensors.iter().position(|tensor| tensor.name == name).unwrap();
    let fixed = Block::from(Foreign::from_static(b"0123456789"));
    for (tensor, into, text) in [
        (place("t0"), crooked(9), "a tensor of 10 bytes can't be put into 9 (tensor: t0)"),
        (place("t0"), fixed, "can't load into memory that is only read (file: "),
        (99, crooked(1), "the file has no tensor number 99"),
    ] {
        let Err(error) = checkpoint.load(vec![Wanted { tensor, into: Some(into) }]) else {
            panic!("{text}");
        };
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

/// Writes a file as others do: without padding, so that its data starts anywhere.
fn write_foreign(path: &Path, object: &Content, spaces: usize) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for tensor in &object.header.tensors {
        let start = data.len();
        data.extend_from_slice(&object.bytes(tensor));
        let entry = serde_json::json!({
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape,
            "data_offsets": [start, data.len()],
        });
        header.insert(tensor.name.clone(), entry);
    }
    let mut json = serde_json::to_vec(&header).unwrap();
    json.resize(json.len() + spaces, b' ');
    let len = (json.len() as u64).to_le_bytes();
    std::fs::write(path, [&len[..], &json, &data].concat()).unwrap();
}

#[test]
fn others_files_are_read_wherever_their_data_starts() {
    on_every_engine(|setting, _| {
        let tensors = [
            ("a", Dtype::F32, WINDOW / 2 + 3),
            ("b", Dtype::F64, 5),
            ("c", Dtype::Bf16, 1 << 20),
            ("d", Dtype::U8, 1),
            ("e", Dtype::F64, WINDOW / 8),
        ];
        let tensors = tensors.map(|(name, dtype, len)| (name.to_owned(), dtype, vec![len]));
        let object = Content::new(1, tensors.into());
        for spaces in [0, 1, 2, 3, 5, 100_000] {
            write_foreign(&setting.path(), &object, spaces);
            for reader in READERS {
                let opened = Checkpoint::open(&setting.engine, &setting.path(), Some(reader), true);
                let checkpoint = opened.unwrap();
                assert!(!checkpoint.has_checksums() && checkpoint.structure().is_none());
                object.assert_is(&checkpoint);
                checkpoint.verify(&mut |_| ()).unwrap();
                for (tensor, block) in object.header.tensors.iter().zip(checkpoint.map().unwrap()) {
                    assert!(*block == *object.bytes(tensor), "{}", tensor.name);
                }
            }
        }
    });
}

#[test]
fn without_a_tool_what_is_cached_is_read_through_the_cache() {
    let setting = Setting::new(&Config::default());
    let object = object();
    object.save(&setting, &quick()).unwrap();
    drop(std::fs::read(setting.path()).unwrap());
    let checkpoint = Checkpoint::open(&setting.engine, &setting.path(), None, true).unwrap();
    assert_eq!(checkpoint.tool(), "buffered");
    object.assert_is(&checkpoint);
}

#[test]
fn what_is_no_file_is_refused_with_what_it_is() {
    let setting = Setting::new(&Config::default());
    let pipe = setting.directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let missing = setting.path();
    for (path, kind, text) in [
        (
            setting.directory.path(),
            Kind::InvalidInput,
            "can't open file, it is a directory (file: ",
        ),
        (&pipe, Kind::InvalidInput, "can't open file, it is a pipe (file: "),
        (&missing, Kind::NotFound, "can't open file (file: "),
    ] {
        let opened = Checkpoint::open(&setting.engine, path, None, true);
        let Err(error) = opened else { panic!("{} was opened", path.display()) };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
}
