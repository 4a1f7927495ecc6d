//! What a save promises when nothing goes wrong, and when its source does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tensorferry::checkpoint::{
    Checkpoint, Dtype, Mapped, Options, Saving, Source, Tensor, save, save_behind, staging,
};
use tensorferry::io::{Config, Effect, Fault, On};
use tensorferry::memory::{Block, Buffer, Pool};
use tensorferry::{Error, Kind, Result};

use super::{
    Content, READERS, Setting, WINDOW, WRITERS, assert_comes_back, files_in, on_every_engine, quick,
};

/// Objects at every edge there is.
fn objects() -> Vec<Content> {
    let dtypes: Vec<_> = Dtype::all().collect();
    let small = (0..1000).map(|i| {
        let shape = vec![i % 7, i % 11 + 1, 3];
        (format!("layer.{i}.\"w\"\n"), dtypes[i as usize % dtypes.len()], shape)
    });
    let unaligned = [3, WINDOW + 1, 5 * WINDOW / 2 - 1, 4095, (1 << 20) - 1, 1 << 20];
    vec![
        Content::new(1, vec![]),
        Content::new(2, vec![("none".into(), Dtype::F32, vec![0, 3])]),
        Content::new(3, vec![("scalar".into(), Dtype::F64, vec![])]),
        Content::of_sizes(4, &[0, 1, 0, 4096, 0]),
        Content::new(5, small.collect()),
        Content::of_sizes(6, &[WINDOW, 2 * WINDOW]),
        Content::of_sizes(7, &[WINDOW - 4096, 4096, 1]),
        Content::of_sizes(8, &unaligned),
    ]
}

#[test]
fn every_tool_reads_what_any_has_written_to_the_last_bit() {
    on_every_engine(|setting, _| {
        for (number, object) in objects().iter().enumerate() {
            for tool in WRITERS {
                for (behind, checksum) in [(false, true), (true, true), (false, false)] {
                    let options = Options { tool, checksum, ..quick() };
                    // A structure that promises checksums which are not there would be an error.
                    let mut object = Content { seed: object.seed, header: object.header.clone() };
                    if !checksum {
                        object.header.metadata.clear();
                    }
                    let report = object.save_either(setting, &options, behind).unwrap();
                    let len = std::fs::metadata(setting.path()).unwrap().len();
                    assert_eq!((report.bytes, report.tool), (len, tool.name()), "{number}");
                    for reader in READERS {
                        object.assert_is_in(&setting.engine, &setting.path(), reader);
                    }
                    let checkpoint = setting.checkpoint().unwrap();
                    let are_none = object.header.tensors.is_empty();
                    assert_eq!(checkpoint.has_checksums(), checksum || are_none);
                    let mut told = vec![0];
                    checkpoint.verify(&mut |bytes| told.push(bytes)).unwrap();
                    assert!(told.is_sorted() && told.last() == Some(&object.header.data_len()));
                }
            }
        }
    });
}

#[test]
fn any_reader_of_the_format_finds_the_same_tensors() {
    let setting = Setting::new(&Config::default());
    for object in objects() {
        object.save(&setting, &quick()).unwrap();
        let file = std::fs::read(setting.path()).unwrap();
        let len = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
        let data = &file[8 + len..];
        assert_eq!((8 + len) % 4096, 0);
        for tensor in &object.header.tensors {
            let entry = &header[&tensor.name];
            let offset = |index: usize| entry["data_offsets"][index].as_u64().unwrap() as usize;
            assert!(data[offset(0)..offset(1)] == *object.bytes(tensor), "{}", tensor.name);
            assert_eq!(entry["dtype"], tensor.dtype.name());
            assert_eq!(entry["shape"], serde_json::json!(tensor.shape));
        }
    }
}

#[test]
fn a_durable_save_is_in_its_place_and_leaves_nothing_else() {
    on_every_engine(|setting, _| {
        for behind in [false, true] {
            let object = Content::of_sizes(u64::from(behind), &[WINDOW + 5, 17]);
            let options = Options::new(staging(0).unwrap());
            object.save_either(setting, &options, behind).unwrap();
            setting.assert_only(&object);
        }
    });
}

#[test]
fn an_object_larger_than_its_staging_memory_is_streamed_through_it() {
    on_every_engine(|setting, faults| {
        let options = quick();
        let object = Content::of_sizes(1, &[7 * WINDOW, WINDOW / 2, 3 * WINDOW - 7]);
        assert!(object.header.data_len() > (options.staging.slots() as u64) * WINDOW);
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(5))).times(10));
        let saving = object.save_behind(setting, &options).unwrap();
        assert!(saving.staged_seconds() > 0.0);
        assert!(saving.wait_within(Duration::from_mins(1)) && saving.is_done());
        saving.wait().unwrap();
        setting.assert_only(&object);
        assert_comes_back(&options.staging);
    });
}

#[test]
fn the_memory_of_a_tensor_is_let_go_of_before_the_next_is_asked_for() {
    let setting = Setting::new(&Config::default());
    let object = Content::of_sizes(1, &[WINDOW; 6]);
    for behind in [false, true] {
        // One for the tensor that is being copied, one for the next.
        let lent = Pool::new(WINDOW as usize, 2).unwrap();
        let mut source = |tensor: &Tensor| -> Result<Block> {
            let mut lease = lent.take_within(Duration::from_mins(1))?;
            lease.copy_from_slice(&object.bytes(tensor));
            Ok(lease.into())
        };
        start(&setting, &object, &mut source, behind).unwrap();
        setting.assert_only(&object);
        assert_eq!(lent.free(), 2);
    }
}

/// Saves from this source, to the end.
fn start(setting: &Setting, object: &Content, source: &mut dyn Source, behind: bool) -> Result<()> {
    let (header, options) = (object.header.clone(), quick());
    if behind {
        let saving = save_behind(&setting.engine, &setting.path(), header, source, &options);
        saving.and_then(Saving::wait).map(drop)
    } else {
        save(&setting.engine, &setting.path(), header, source, &options).map(drop)
    }
}

#[test]
fn of_two_saves_of_one_path_the_one_that_began_last_stays() {
    on_every_engine(|setting, faults| {
        let (first, last) = (Content::of_sizes(1, &[WINDOW]), Content::of_sizes(2, &[WINDOW, 9]));
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(50))).times(3));
        let slow = first.save_behind(setting, &quick()).unwrap();
        let next = last.save_behind(setting, &quick()).unwrap();
        next.wait().unwrap();
        setting.assert_only(&last);
        assert!(slow.is_done(), "the later one has waited for it");
        slow.wait().unwrap();
        setting.assert_only(&last);
    });
}

#[test]
fn many_saves_at_once_share_their_staging_memory_and_all_succeed() {
    const THREADS: u64 = 4;
    let setting = Setting::new(&Config::default());
    let options = quick();
    let object = |seed| Content::of_sizes(seed, &[2 * WINDOW + seed, 100]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (setting, options) = (&setting, &options);
            scope.spawn(move || {
                for round in 0..6 {
                    let seed = thread * 100 + round;
                    object(seed).save_either(setting, options, seed % 2 == 0).unwrap();
                }
            });
        }
    });
    assert_eq!(files_in(setting.directory.path()), ["model.ferry"]);
    assert_comes_back(&options.staging);
    let checkpoint = setting.checkpoint().unwrap();
    let len = checkpoint.header().data_len();
    let last = (0..THREADS).map(|thread| object(thread * 100 + 5));
    let found = last.into_iter().find(|object| object.header.data_len() == len);
    found.expect("the last save of one of the threads").assert_is(&checkpoint);
}

#[test]
fn a_source_that_fails_is_told_and_the_old_file_stays() {
    on_every_engine(|setting, _| {
        let (old, new) = (Content::of_sizes(1, &[100]), Content::of_sizes(2, &[WINDOW; 9]));
        old.save(setting, &quick()).unwrap();
        for behind in [false, true] {
            let asked = AtomicUsize::new(0);
            let mut source = |tensor: &Tensor| match asked.fetch_add(1, Ordering::Relaxed) {
                4 => Err(Error::new(Kind::Timeout, "no answer").with("tensor", &tensor.name)),
                _ => Ok(Buffer::copy_of(&new.bytes(tensor))?.into()),
            };
            let error = start(setting, &new, &mut source, behind).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (Kind::Timeout, "no answer (tensor: t4)")
            );
            assert_eq!(asked.into_inner(), 5, "nobody asks again");
            setting.assert_only(&old);
        }
    });
}

#[test]
fn bytes_of_another_length_than_the_tensors_are_refused() {
    let setting = Setting::new(&Config::default());
    let object = Content::of_sizes(1, &[100]);
    for behind in [false, true] {
        let mut source = |_: &Tensor| Ok(Buffer::zeroed(99)?.into());
        let error = start(&setting, &object, &mut source, behind).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert_eq!(error.to_string(), "a tensor of 100 bytes came with 99 (tensor: t0)");
        assert!(files_in(setting.directory.path()).is_empty());
    }
}

#[test]
fn a_source_that_panics_leaves_the_old_file_and_no_draft() {
    on_every_engine(|setting, _| {
        let (old, new) = (Content::of_sizes(1, &[100]), Content::of_sizes(2, &[WINDOW; 9]));
        old.save(setting, &quick()).unwrap();
        for behind in [false, true] {
            let asked = AtomicUsize::new(0);
            let mut source = |tensor: &Tensor| -> Result<Block> {
                assert!(asked.fetch_add(1, Ordering::Relaxed) < 3, "the source gives up");
                Ok(Buffer::copy_of(&new.bytes(tensor))?.into())
            };
            let saving = AssertUnwindSafe(|| start(setting, &new, &mut source, behind));
            let panic = catch_unwind(saving).unwrap_err();
            assert_eq!(*panic.downcast::<&str>().unwrap(), "the source gives up");
            assert_eq!(asked.into_inner(), 4, "nobody asks again");
            setting.assert_only(&old);
        }
        // The path is not blocked for those who come after.
        new.save(setting, &quick()).unwrap();
        setting.assert_only(&new);
    });
}

#[test]
fn saving_over_a_file_that_is_mapped_or_being_read_changes_nothing_there() {
    let setting = Setting::new(&Config::default());
    let (old, new) = (Content::of_sizes(1, &[3 * WINDOW]), Content::of_sizes(2, &[3 * WINDOW]));
    old.save(&setting, &quick()).unwrap();
    let (opened, mapped) = (setting.checkpoint().unwrap(), setting.checkpoint().unwrap());
    let mapped_tool = Checkpoint::open(&setting.engine, &setting.path(), Some(&Mapped), true);
    let blocks = mapped.map().unwrap();
    new.save(&setting, &quick()).unwrap();
    setting.assert_only(&new);
    old.assert_is(&opened);
    old.assert_is(&mapped_tool.unwrap());
    assert!(*blocks[0] == *old.bytes(&old.header.tensors[0]));
    // To map it once more would show the new bytes as the old ones.
    let error = mapped.map().unwrap_err();
    let expected = "the file was replaced after it was opened; open it again (file: ";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn checksums_of_a_loaded_file_do_not_stay_in_one_that_is_saved_without() {
    let setting = Setting::new(&Config::default());
    let mut object = Content::of_sizes(1, &[100]);
    object.header.metadata.clear();
    object.save(&setting, &quick()).unwrap();
    object.header.metadata = setting.checkpoint().unwrap().header().metadata.clone();
    assert!(object.header.metadata.contains_key("crc32c"));
    object.save(&setting, &Options { checksum: false, ..quick() }).unwrap();
    setting.assert_only(&object);
    let checkpoint = setting.checkpoint().unwrap();
    assert!(!checkpoint.has_checksums());
    assert_eq!(checkpoint.header().metadata["crc32c"].len(), 8, "that of the header");
}

#[test]
fn metadata_of_any_kind_comes_back() {
    let setting = Setting::new(&Config::default());
    let mut object = Content::of_sizes(1, &[100]);
    for (key, text) in [("\"crc32c", "x"), ("a\\", "\"crc32c\":\""), ("\u{1}", "é\n")] {
        object.header.metadata.insert(key.to_owned(), text.to_owned());
    }
    object.save(&setting, &quick()).unwrap();
    let checkpoint = setting.checkpoint().unwrap();
    object.assert_is(&checkpoint);
    let mut metadata = checkpoint.header().metadata.clone();
    metadata.remove("crc32c");
    assert_eq!(metadata, object.header.metadata);
}

#[test]
fn what_cannot_save_says_what_can() {
    let setting = Setting::new(&Config::default());
    let object = Content::of_sizes(1, &[100]);
    let small = Options { staging: Pool::new(512 << 10, 4).unwrap(), ..quick() };
    for (options, text) in [
        (
            Options { tool: &Mapped, ..quick() },
            "the tool \"mapped\" only reads; save with \"direct\" or \"buffered\"",
        ),
        (
            small,
            "the staging memory's buffers are too small; make it with `staging` (bytes: 524288)",
        ),
    ] {
        for behind in [false, true] {
            let error = object.save_either(&setting, &options, behind).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (Kind::InvalidInput, text));
            assert!(files_in(setting.directory.path()).is_empty());
        }
    }
}
