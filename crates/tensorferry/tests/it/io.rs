//! One conformance suite for every backend, and what each fault becomes.

mod inline;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tensorferry::io::{
    Choice, Config, Effect, Engine, Fault, Faults, File, Mode, On, Open, Priority, open,
};
use tensorferry::memory::{Block, Buffer, Foreign, Pool};
use tensorferry::metrics::Registry;
use tensorferry::{Error, Kind, trace};

/// An engine, and a directory of its own for its files.
struct Setting {
    engine: Arc<dyn Engine>,
    directory: tempfile::TempDir,
    direct: bool,
}

impl Setting {
    fn new(config: &Config, direct: bool) -> Self {
        // Not the system's temporary directory: that may be a file system without direct I/O.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { engine: open(config).unwrap(), directory, direct }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, name: &str, mode: Mode) -> File {
        let how = Open { mode, direct: self.direct };
        self.engine.open(&self.path(name), how).unwrap()
    }
}

/// Whether this machine's kernel lets processes use `io_uring`.
fn ring_is_there() -> bool {
    match open(&Config::of(Choice::Ring)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            eprintln!("the ring is not tested here: {error}");
            false
        }
    }
}

/// Every backend, direct and buffered, and every backend again under short transfers and passing
/// errors. Small pieces and few staging buffers make every limit bite.
fn on_every_backend(test: impl Fn(&Setting)) {
    let choices = [Choice::Ring, Choice::Threads, Choice::Memory];
    for choice in choices.into_iter().filter(|c| *c != Choice::Ring || ring_is_there()) {
        for (direct, chaos) in [(true, None), (false, None), (true, Some(7)), (true, Some(8))] {
            let config = Config {
                piece_bytes: 16 << 10,
                in_flight_bytes: 128 << 10,
                staging_buffers: 2,
                ring_depth: 16,
                threads: 3,
                faults: chaos.map(Faults::chaos),
                ..Config::of(choice)
            };
            eprintln!("{choice:?}, direct: {direct}, chaos: {chaos:?}");
            test(&Setting::new(&config, direct));
        }
    }
}

/// Bytes that differ from their neighbours and from other seeds.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn block(bytes: &[u8]) -> Block {
    Buffer::copy_of(bytes).unwrap().into()
}

fn blank(len: usize) -> Block {
    Buffer::zeroed(len).unwrap().into()
}

/// A block whose memory starts one byte behind an aligned address.
fn crooked(bytes: &[u8]) -> Block {
    let shifted = [&[0], bytes].concat();
    block(&shifted).narrow(1..shifted.len()).unwrap()
}

#[test]
fn a_file_without_a_name_is_used_as_any_other_and_leaves_nothing() {
    on_every_backend(|setting| {
        let directory = setting.directory.path();
        let open = || setting.engine.open(directory, Open::direct(Mode::Unnamed)).unwrap();
        let (one, other) = (open(), open());
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
        let bytes = pattern(1, 10_000);
        setting.engine.write(&one, 5, block(&bytes), Priority::Offload).wait().unwrap();
        let read = setting.engine.read(&one, 5, block(&[0; 10_000]), Priority::Waiting);
        assert!(*read.wait().unwrap() == *bytes);
        assert_eq!((one.len().unwrap(), other.len().unwrap()), (10_005, 0));
    });
}

#[test]
fn what_was_written_is_read_back_at_any_offset_and_length() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        for (offset, len) in [
            (0, 1),
            (0, 4096),
            (1, 4095),
            (4095, 2),
            (512, 4096),
            (8192, 100_000),
            (12_345, 67_890),
        ] {
            for make in [block, crooked] {
                let bytes = pattern(offset ^ len as u64, len);
                let written = setting.engine.write(&file, offset, make(&bytes), Priority::Offload);
                assert_eq!(written.wait().unwrap().len(), len);
                let into = make(&vec![0; len]);
                let read = setting.engine.read(&file, offset, into, Priority::Waiting);
                assert!(*read.wait().unwrap() == *bytes, "offset {offset}, length {len}");
            }
        }
    });
}

#[test]
fn neighbours_of_an_unaligned_write_are_never_clobbered() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        let len = 50_000;
        let mut expected = pattern(1, len);
        setting.engine.write(&file, 0, block(&expected), Priority::Offload).wait().unwrap();
        // All writes are under way at once and meet inside blocks.
        let cuts = [0, 1, 1000, 4096, 4097, 9000, 20_000, 20_480, 33_333, 49_999, 50_000];
        let fresh = pattern(2, len);
        let pending: Vec<_> = cuts
            .windows(2)
            .filter(|cut| cut[0] != 9000)
            .map(|cut| {
                let bytes = block(&fresh[cut[0]..cut[1]]);
                setting.engine.write(&file, cut[0] as u64, bytes, Priority::Offload)
            })
            .collect();
        for pending in pending {
            pending.wait().unwrap();
        }
        expected[..9000].copy_from_slice(&fresh[..9000]);
        expected[20_000..].copy_from_slice(&fresh[20_000..]);
        let read = setting.engine.read(&file, 0, blank(len), Priority::Waiting).wait().unwrap();
        assert!(*read == *expected);
        assert_eq!(file.len().unwrap(), len as u64);
    });
}

#[test]
fn a_file_is_as_long_as_its_last_written_byte() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        assert!(file.is_empty().unwrap());
        setting.engine.write(&file, 100, block(b"end"), Priority::Offload).wait().unwrap();
        assert_eq!(file.len().unwrap(), 103);
        let read = setting.engine.read(&file, 0, blank(103), Priority::Waiting).wait().unwrap();
        assert!(read[..100].iter().all(|byte| *byte == 0) && read[100..] == *b"end");
        file.set_len(101).unwrap();
        assert_eq!(file.len().unwrap(), 101);
    });
}

#[test]
fn a_reserved_file_has_its_length_and_reads_as_zeros() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        file.reserve(0).unwrap();
        assert!(file.is_empty().unwrap());
        file.reserve(10_000).unwrap();
        file.reserve(5_000).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        setting.engine.write(&file, 5_000, block(b"x"), Priority::Offload).wait().unwrap();
        let read = setting.engine.read(&file, 0, blank(10_000), Priority::Waiting).wait().unwrap();
        assert_eq!(read.iter().map(|byte| u32::from(*byte)).sum::<u32>(), u32::from(b'x'));
    });
}

#[test]
fn a_read_beyond_the_end_is_truncated_and_never_short() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        setting
            .engine
            .write(&file, 0, block(&pattern(3, 10_000)), Priority::Offload)
            .wait()
            .unwrap();
        for (offset, len) in [(0, 10_001), (9_999, 2), (10_000, 1), (8192, 4096), (1 << 40, 1)] {
            let failed = setting
                .engine
                .read(&file, offset, blank(len), Priority::Waiting)
                .wait()
                .unwrap_err();
            assert_eq!(failed.error.kind(), Kind::Truncated, "{}", failed.error);
            assert_eq!(failed.block.unwrap().len(), len, "the memory comes back");
            let text = failed.error.to_string();
            assert!(text.contains("the file has only") && text.contains("file: "), "{text}");
        }
    });
}

#[test]
fn empty_operations_are_done_at_once() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        let pending = setting.engine.read(&file, 77, blank(0), Priority::Waiting);
        assert!(pending.is_done());
        assert!(pending.wait().unwrap().is_empty());
        setting.engine.write(&file, 77, blank(0), Priority::Waiting).wait().unwrap();
        assert!(file.is_empty().unwrap());
        setting.engine.sync(&file, Priority::Waiting).wait().unwrap();
    });
}

#[test]
fn handles_can_be_polled_waited_on_with_a_limit_or_dropped() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        let bytes = pattern(4, 200_000);
        let polled = setting.engine.write(&file, 0, block(&bytes), Priority::Background);
        while !polled.is_done() {
            std::thread::yield_now();
        }
        drop(setting.engine.write(&file, 200_000, block(&bytes), Priority::Background));
        drop(setting.engine.read(&file, 0, blank(200_000), Priority::Background));
        let synced = setting.engine.sync(&file, Priority::Background);
        assert!(synced.wait_within(Duration::from_mins(1)));
        synced.wait().unwrap();
        drop(polled);
    });
}

#[test]
fn dropped_writes_still_arrive_and_their_buffers_come_back() {
    on_every_backend(|setting| {
        let pool = Pool::new(64 << 10, 4).unwrap();
        let file = setting.open("a", Mode::New);
        for number in 0..16_u64 {
            let mut lease = pool.take_within(Duration::from_mins(1)).unwrap();
            lease.fill(number as u8);
            drop(setting.engine.write(&file, number << 16, lease.into(), Priority::Offload));
        }
        while pool.free() < 4 {
            std::thread::yield_now();
        }
        let read =
            setting.engine.read(&file, 0, blank(16 << 16), Priority::Waiting).wait().unwrap();
        assert!(read.iter().enumerate().all(|(i, byte)| *byte == (i >> 16) as u8));
    });
}

#[test]
fn closing_the_engine_finishes_what_it_has_accepted() {
    for choice in [Choice::Auto, Choice::Threads] {
        let setting = Setting::new(&Config::of(choice), true);
        let file = setting.open("a", Mode::New);
        let bytes = pattern(5, 3 << 20);
        let pending = setting.engine.write(&file, 0, block(&bytes), Priority::Background);
        let Setting { engine, directory, .. } = setting;
        drop(engine);
        assert!(pending.is_done());
        assert!(*pending.wait().unwrap() == *bytes);
        assert!(std::fs::read(directory.path().join("a")).unwrap() == bytes);
    }
}

#[test]
fn many_threads_share_an_engine() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let (engine, file) = (&setting.engine, &file);
                scope.spawn(move || {
                    let priority = Priority::ALL[number as usize % 4];
                    let bytes = pattern(number, 30_001);
                    for round in 0..4 {
                        let offset = number * 30_001 * 4 + round * 30_001;
                        engine.write(file, offset, block(&bytes), priority).wait().unwrap();
                        let read = engine.read(file, offset, blank(30_001), priority).wait();
                        assert!(*read.unwrap() == *bytes);
                    }
                });
            }
        });
    });
}

#[test]
fn more_operations_than_may_be_open_wait_their_turn() {
    let config = Config { operations_max: 2, ..Config::of(Choice::Memory) };
    let setting = Setting::new(&config, true);
    let file = setting.open("a", Mode::New);
    let pending: Vec<_> = (0..100_u64)
        .map(|i| setting.engine.write(&file, i, block(&[i as u8]), Priority::Background))
        .collect();
    for pending in pending {
        pending.wait().unwrap();
    }
    let read = setting.engine.read(&file, 0, blank(100), Priority::Waiting).wait().unwrap();
    assert!(read.iter().enumerate().all(|(i, byte)| i == *byte as usize));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sequence_of_writes_leaves_what_a_plain_array_would(
        writes in prop::collection::vec((0usize..60_000, 1usize..40_000, 0usize..3), 1..12),
        chaos: Option<u64>, direct: bool, threads: bool,
    ) {
        let choice = if threads { Choice::Threads } else { Choice::Auto };
        let faults = chaos.map(Faults::chaos);
        let config = Config { piece_bytes: 8192, staging_buffers: 1, faults, ..Config::of(choice) };
        let setting = Setting::new(&config, direct);
        let file = setting.open("a", Mode::New);
        let mut model = vec![];
        for (number, (offset, len, shift)) in writes.into_iter().enumerate() {
            let bytes = pattern(number as u64, len + shift);
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&bytes[shift..]);
            let from = block(&bytes).narrow(shift..len + shift).unwrap();
            setting.engine.write(&file, offset as u64, from, Priority::Offload).wait().unwrap();
        }
        let read = setting.engine.read(&file, 0, blank(model.len()), Priority::Waiting).wait();
        prop_assert!(*read.unwrap() == *model);
        prop_assert!(std::fs::read(setting.path("a")).unwrap() == model);
    }
}

#[test]
fn an_engine_counts_what_it_did_and_leaves_a_trace() {
    let registry = Registry::new();
    let faults = Faults::new();
    let config = Config {
        metrics: registry.clone(),
        faults: Some(faults.clone()),
        ..Config::of(Choice::Threads)
    };
    let setting = Setting::new(&config, true);
    let file = setting.open("a", Mode::New);
    trace::start(1000).unwrap();
    setting.engine.write(&file, 0, blank(10_000), Priority::Offload).wait().unwrap();
    faults.add(Fault::new(On::Read, Effect::Short(4096)));
    setting.engine.read(&file, 0, blank(8192), Priority::Waiting).wait().unwrap();
    let again = || registry.counter("ferry_io_again_total", &[("why", "short")]).unwrap().get();
    assert_eq!((faults.injected(), again()), (1, 1));
    setting.engine.read(&file, 0, blank(99_999), Priority::Waiting).wait().unwrap_err();
    setting.engine.sync(&file, Priority::Background).wait().unwrap();
    let trace = trace::finish().unwrap();

    let text = registry.snapshot().to_prometheus();
    for line in [
        r#"ferry_io_bytes_total{op="write",priority="offload"} 10000"#,
        r#"ferry_io_bytes_total{op="read",priority="waiting"} 8192"#,
        r#"ferry_io_failures_total{op="read",priority="waiting"} 1"#,
        r#"ferry_io_operations_total{op="read",priority="waiting"} 2"#,
        r#"ferry_io_operations_total{op="sync",priority="background"} 1"#,
        r#"ferry_io_operation_seconds_count{op="write",priority="offload"} 1"#,
        r#"ferry_io_transfers_total{way="buffered"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let path = setting.path("trace.json");
    trace.write_to(&path).unwrap();
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written.contains(r#""name":"write""#) && written.contains(r#""bytes":10000"#));
}

// --- what each fault becomes ---

fn with_faults(test: impl Fn(&Setting, &Faults)) {
    for choice in [Choice::Auto, Choice::Threads, Choice::Memory] {
        let faults = Faults::new();
        let config =
            Config { faults: Some(faults.clone()), piece_bytes: 64 << 10, ..Config::of(choice) };
        test(&Setting::new(&config, true), &faults);
    }
}

#[test]
fn errors_of_the_kernel_become_typed_errors_that_name_the_file_and_the_offset() {
    for (code, kind) in [
        (libc::EIO, Kind::Io),
        (libc::ENOSPC, Kind::OutOfSpace),
        (libc::EDQUOT, Kind::OutOfSpace),
        (libc::EFBIG, Kind::FileTooLarge),
        (libc::EBADF, Kind::Closed),
    ] {
        with_faults(|setting, faults| {
            let file = setting.open("a", Mode::New);
            faults.add(Fault::new(On::Write, Effect::Fail(code)).touching(300_000));
            let bytes = pattern(6, 400_000);
            let failed = setting
                .engine
                .write(&file, 8192, block(&bytes), Priority::Offload)
                .wait()
                .unwrap_err();
            assert_eq!(failed.error.kind(), kind);
            let text = failed.error.to_string();
            assert!(text.starts_with("can't write 390.62 KiB at offset 8192 (file: /"), "{text}");
            assert!(*failed.block.unwrap() == *bytes, "the caller's bytes come back");
            // The fault is gone: the same engine and the same file work.
            setting.engine.write(&file, 8192, block(&bytes), Priority::Offload).wait().unwrap();
        });
    }
}

#[test]
fn passing_errors_are_retried_but_not_for_ever() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        faults.add(Fault::new(On::Write, Effect::Fail(libc::EINTR)).times(50));
        setting.engine.write(&file, 0, block(&[1; 4096]), Priority::Offload).wait().unwrap();
        assert_eq!(faults.injected(), 50);
        faults.add(Fault::new(On::Read, Effect::Fail(libc::EAGAIN)).times(u64::MAX));
        let failed =
            setting.engine.read(&file, 0, blank(4096), Priority::Waiting).wait().unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Io);
        assert!(faults.injected() < 300);
    });
}

#[test]
fn a_file_system_that_refuses_direct_transfers_is_served_through_the_page_cache() {
    for choice in [Choice::Auto, Choice::Threads] {
        let faults = Faults::new();
        faults.add(Fault::new(On::Write, Effect::Fail(libc::EINVAL)));
        let config = Config { faults: Some(faults), ..Config::of(choice) };
        let setting = Setting::new(&config, true);
        let file = setting.open("a", Mode::New);
        assert!(file.is_direct(), "the target directory's file system has direct I/O");
        let bytes = pattern(7, 65_536);
        setting.engine.write(&file, 0, block(&bytes), Priority::Offload).wait().unwrap();
        assert!(!file.is_direct());
        assert!(std::fs::read(setting.path("a")).unwrap() == bytes);
    }
}

#[test]
fn a_delayed_transfer_is_late_and_whole() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(30))));
        let started = std::time::Instant::now();
        let pending = setting.engine.write(&file, 0, block(b"late"), Priority::Offload);
        pending.wait().unwrap();
        assert!(started.elapsed() >= Duration::from_millis(30));
        let read = setting.engine.read(&file, 0, blank(4), Priority::Waiting).wait().unwrap();
        assert_eq!(&*read, b"late");
    });
}

#[test]
fn a_torn_write_stops_at_the_byte_and_everything_after_it_fails() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        let old = pattern(8, 300_000);
        setting.engine.write(&file, 0, block(&old), Priority::Offload).wait().unwrap();
        faults.add(Fault::new(On::Write, Effect::Tear(12_345)));
        let new = pattern(9, 40_000);
        let error: Error = setting
            .engine
            .write(&file, 0, block(&new), Priority::Offload)
            .wait()
            .unwrap_err()
            .into();
        assert_eq!(error.kind(), Kind::Io);
        let later = setting.engine.read(&file, 0, blank(1), Priority::Waiting).wait();
        assert_eq!(later.unwrap_err().error.kind(), Kind::Io);
        if setting.engine.facts().backend != "memory" {
            let left = std::fs::read(setting.path("a")).unwrap();
            assert!(left[..12_345] == new[..12_345] && left[12_345..] == old[12_345..]);
        }
    });
}

#[test]
fn a_failed_sync_poisons_the_file() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        faults.add(Fault::new(On::Sync, Effect::Fail(libc::EIO)));
        let failed = setting.engine.sync(&file, Priority::Waiting).wait().unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Io);
        for error in [
            setting.engine.sync(&file, Priority::Waiting).wait().unwrap_err().error,
            setting
                .engine
                .write(&file, 0, block(b"x"), Priority::Offload)
                .wait()
                .unwrap_err()
                .error,
        ] {
            assert!(error.to_string().contains("an earlier sync of this file failed"), "{error}");
        }
    });
}

/// The kernel reports a failed sync once: whoever asks next is told that all is well.
#[test]
fn a_sync_behind_a_failed_one_fails_too() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        faults.add(Fault::new(On::Sync, Effect::Delay(Duration::from_millis(20))));
        faults.add(Fault::new(On::Sync, Effect::Fail(libc::EIO)));
        let syncs: Vec<_> = (0..4).map(|_| setting.engine.sync(&file, Priority::Waiting)).collect();
        let results: Vec<_> = syncs.into_iter().map(|sync| sync.wait().is_ok()).collect();
        assert_eq!(results, [true, false, false, false]);
        assert_eq!(faults.injected(), 2, "none started after the failure");
    });
}

#[test]
fn a_stopped_engine_has_finished_its_work_and_refuses_more() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(20))));
        let pending = setting.engine.write(&file, 0, block(b"last"), Priority::Background);
        setting.engine.stop();
        assert!(pending.is_done());
        pending.wait().unwrap();
        let failed = setting.engine.write(&file, 0, block(b"more"), Priority::Waiting).wait();
        let failed = failed.unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Closed);
        assert!(failed.error.to_string().starts_with("the engine was stopped"));
        assert_eq!(&*failed.block.unwrap(), b"more");
        setting.engine.stop();
    });
}

/// An abandoned operation is dropped by the driver; what kept its memory alive goes with it.
#[test]
fn an_engine_may_be_let_go_of_by_its_own_driver() {
    for choice in [Choice::Auto, Choice::Threads, Choice::Memory] {
        let faults = Faults::new();
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(20))));
        let Setting { engine, directory, .. } =
            Setting::new(&Config { faults: Some(faults), ..Config::of(choice) }, true);
        let file = engine.open(&directory.path().join("a"), Open::direct(Mode::New)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let keeper = (Arc::clone(&engine), Announce(sender));
        let kept = Foreign::from_static(b"kept").kept_by(Box::new(keeper));
        drop(engine.write(&file, 0, kept.into(), Priority::Offload));
        drop((engine, file));
        receiver.recv_timeout(Duration::from_mins(1)).unwrap();
    }
}

/// Says when it is dropped.
struct Announce(std::sync::mpsc::Sender<()>);

impl Drop for Announce {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

// --- bad input, and the machine as it is ---

#[test]
fn what_cannot_be_opened_says_why() {
    let setting = Setting::new(&Config::default(), true);
    let fail = |path: PathBuf, mode| {
        let error = setting.engine.open(&path, Open::direct(mode)).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = fail(setting.path("missing"), Mode::Read);
    assert_eq!(kind, Kind::NotFound);
    assert!(
        text.starts_with("can't open file (file: /") && text.contains("No such file"),
        "{text}"
    );
    let (kind, text) = fail(setting.directory.path().into(), Mode::Create);
    assert_eq!(kind, Kind::InvalidInput);
    assert!(text.contains("it is a directory"), "{text}");
    let (kind, _) = fail(setting.path("no/such/directory"), Mode::Create);
    assert_eq!(kind, Kind::NotFound);
    std::fs::write(setting.path("there"), "x").unwrap();
    let (kind, text) = fail(setting.path("there"), Mode::New);
    assert_eq!(kind, Kind::Io);
    assert!(text.contains("File exists"), "{text}");
    let (kind, _) = fail(setting.path("there/below"), Mode::Read);
    assert_eq!(kind, Kind::InvalidInput);
    let status = std::process::Command::new("mkfifo").arg(setting.path("pipe")).status();
    if status.is_ok_and(|status| status.success()) {
        let (kind, text) = fail(setting.path("pipe"), Mode::Read);
        assert_eq!(kind, Kind::InvalidInput);
        assert!(text.contains("it is a pipe"), "{text}");
    }
}

#[test]
fn operations_that_make_no_sense_are_refused_with_the_memory_given_back() {
    let setting = Setting::new(&Config::default(), true);
    std::fs::write(setting.path("a"), "content").unwrap();
    let file = setting.open("a", Mode::Read);
    let engine = &setting.engine;
    let refused = |pending: tensorferry::io::Pending<Block>, part: &str| {
        let failed = pending.wait().unwrap_err();
        assert_eq!(failed.error.kind(), Kind::InvalidInput);
        assert!(failed.error.to_string().contains(part), "{}", failed.error);
        assert!(failed.block.is_some());
    };
    refused(engine.write(&file, 0, block(b"x"), Priority::Offload), "opened for reading");
    refused(engine.read(&file, u64::MAX, blank(2), Priority::Waiting), "beyond any file");
    refused(engine.read(&file, i64::MAX as u64, blank(2), Priority::Waiting), "beyond any file");
    let other = open(&Config::default()).unwrap();
    refused(other.read(&file, 0, blank(1), Priority::Waiting), "opened by another engine");
    refused(
        engine.read(&file, 0, Foreign::from_static(b"fixed").into(), Priority::Waiting),
        "must not be written",
    );
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |config: Config, name: &str| {
        let error = open(&config).err().expect(name);
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().starts_with(name), "{error}");
    };
    refused(Config { ring_depth: 0, ..Config::default() }, "ring_depth is 0");
    refused(Config { threads: 0, ..Config::default() }, "threads is 0");
    refused(Config { piece_bytes: 5000, ..Config::default() }, "piece_bytes is 5000");
    refused(Config { piece_bytes: 512, ..Config::default() }, "piece_bytes is 512");
    let config = Config { piece_bytes: 64 << 20, ..Config::default() };
    refused(config, "piece_bytes is 67108864, it must not exceed in_flight_bytes");
    refused(Config { in_flight_bytes: 0, ..Config::default() }, "in_flight_bytes is 0");
    refused(Config { staging_buffers: 0, ..Config::default() }, "staging_buffers is 0");
    refused(Config { operations_max: 0, ..Config::default() }, "operations_max is 0");
}

#[test]
fn a_full_disk_is_out_of_space() {
    let setting = Setting::new(&Config::default(), true);
    let full = setting.engine.open("/dev/full".as_ref(), Open::direct(Mode::Update)).unwrap();
    let failed = setting.engine.write(&full, 0, blank(4096), Priority::Offload).wait().unwrap_err();
    assert_eq!(failed.error.kind(), Kind::OutOfSpace);
    assert!(failed.error.to_string().contains("No space left on device"), "{}", failed.error);
}

/// A file system of one MiB, where this process may make one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let status = std::process::Command::new("mount").args(mount).arg(directory.path()).output();
        status.is_ok_and(|output| output.status.success()).then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

#[test]
fn a_disk_that_fills_up_in_the_middle_loses_nothing_that_was_there() {
    let Some(disk) = SmallDisk::mount() else {
        return eprintln!("no file system can be mounted here; /dev/full has to do");
    };
    for choice in [Choice::Auto, Choice::Threads] {
        let engine = open(&Config { piece_bytes: 64 << 10, ..Config::of(choice) }).unwrap();
        let old = engine.open(&disk.0.path().join("old"), Open::direct(Mode::Replace)).unwrap();
        let bytes = pattern(1, 300_000);
        engine.write(&old, 0, block(&bytes), Priority::Offload).wait().unwrap();
        let path = disk.0.path().join("new");
        let new = engine.open(&path, Open::direct(Mode::Replace)).unwrap();
        assert_eq!(new.reserve(4 << 20).unwrap_err().kind(), Kind::OutOfSpace);
        let failed = engine.write(&new, 0, blank(4 << 20), Priority::Offload).wait().unwrap_err();
        assert_eq!(failed.error.kind(), Kind::OutOfSpace);
        assert!(failed.error.is_retryable() && failed.block.is_some());
        // Room again: the same engine and the same file work.
        new.set_len(0).unwrap();
        engine.write(&new, 0, block(&bytes), Priority::Offload).wait().unwrap();
        let read = engine.read(&old, 0, blank(bytes.len()), Priority::Waiting).wait().unwrap();
        assert!(*read == *bytes);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_too_large_for_its_file_system_is_told_as_such() {
    let setting = Setting::new(&Config::default(), true);
    let file = setting.open("a", Mode::New);
    let far = (1 << 62) + 4096;
    let failed = setting.engine.write(&file, far, blank(4096), Priority::Offload).wait();
    assert_eq!(failed.unwrap_err().error.kind(), Kind::FileTooLarge);
}

#[test]
fn a_file_cut_short_while_it_is_read_is_truncated() {
    with_faults(|setting, faults| {
        let file = setting.open("a", Mode::New);
        setting.engine.write(&file, 0, blank(1 << 20), Priority::Offload).wait().unwrap();
        // The last piece starts long after the first have arrived.
        let delay = Effect::Delay(Duration::from_millis(50));
        faults.add(Fault::new(On::Read, delay).touching((1 << 20) - 1));
        let pending = setting.engine.read(&file, 0, blank(1 << 20), Priority::Waiting);
        file.set_len(1_000_000).unwrap();
        let error = pending.wait().unwrap_err().error;
        assert_eq!(error.kind(), Kind::Truncated);
        assert!(error.to_string().contains("the file has only 1000000 bytes"), "{error}");
    });
}

#[test]
fn a_file_replaced_while_it_is_read_is_still_the_old_one() {
    let setting = Setting::new(&Config::default(), true);
    std::fs::write(setting.path("a"), "old content").unwrap();
    let file = setting.open("a", Mode::Read);
    std::fs::write(setting.path("b"), "new").unwrap();
    std::fs::rename(setting.path("b"), setting.path("a")).unwrap();
    let read = setting.engine.read(&file, 0, blank(11), Priority::Waiting).wait().unwrap();
    assert_eq!(&*read, b"old content");
}

#[test]
fn registered_memory_and_files_give_the_same_bytes() {
    let pool = Pool::new(64 << 10, 4).unwrap();
    let config = Config { pools: vec![pool.clone()], ..Config::default() };
    let setting = Setting::new(&config, true);
    // More files than the table has slots, opened and closed, so that slots are reused.
    for round in 0..600_u64 {
        let file = setting.open(&format!("f{}", round % 3), Mode::Replace);
        let mut lease = pool.take().unwrap();
        lease.copy_from_slice(&pattern(round, 64 << 10));
        let lease = setting.engine.write(&file, 0, lease.into(), Priority::Offload).wait().unwrap();
        let read = setting.engine.read(&file, 0, lease, Priority::Waiting).wait().unwrap();
        assert!(*read == *pattern(round, 64 << 10));
    }
}

#[test]
fn a_closed_file_is_not_kept_open_by_the_ring() {
    let setting = Setting::new(&Config::default(), true);
    let file = setting.open("a", Mode::New);
    setting.engine.write(&file, 0, blank(8192), Priority::Offload).wait().unwrap();
    // A ring's registered files are listed in the information on its own descriptor.
    let is_registered = || {
        let path = setting.path("a");
        std::fs::read_dir("/proc/self/fdinfo")
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
            .any(|text| text.contains(path.to_str().unwrap()))
    };
    let is_open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        links
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .any(|target| target == setting.path("a"))
    };
    assert!(is_open());
    assert_eq!(is_registered(), setting.engine.facts().backend == "ring");
    drop(file);
    assert!(!is_open());
    let patience = std::time::Instant::now() + Duration::from_mins(1);
    while is_registered() {
        assert!(std::time::Instant::now() < patience, "the ring still holds the file");
        std::thread::sleep(Duration::from_millis(1));
    }
}
