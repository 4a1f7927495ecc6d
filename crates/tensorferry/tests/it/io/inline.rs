//! What callers carry out themselves is what the driver would have done.

use std::io::IoSliceMut;

use tensorferry::io::Borrowed;

use super::*;

#[test]
fn bytes_are_the_same_whoever_moves_them() {
    on_every_backend(|setting| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        for (offset, len) in
            [(0, 1), (0, 4096), (1, 4095), (4095, 2), (8192, 200_000), (12_345, 67_890)]
        {
            for make in [block, crooked] {
                let bytes = pattern(offset ^ len as u64, len);
                assert!(*engine.write_inline(&file, offset, make(&bytes)).unwrap() == *bytes);
                let read = engine.read(&file, offset, make(&vec![0; len]), Priority::Waiting);
                assert!(*read.wait().unwrap() == *bytes, "written here, {len} at {offset}");
                let bytes = pattern(!offset ^ len as u64, len);
                engine.write(&file, offset, make(&bytes), Priority::Waiting).wait().unwrap();
                let read = engine.read_inline(&file, offset, make(&vec![0; len])).unwrap();
                assert!(*read == *bytes, "read here, {len} at {offset}");
            }
        }
    });
}

#[test]
fn many_callers_take_turns_with_what_is_not_aligned() {
    on_every_backend(|setting| {
        let file = setting.open("a", Mode::New);
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let (engine, file) = (&setting.engine, &file);
                scope.spawn(move || {
                    let bytes = pattern(number, 100_001);
                    for round in 0..4 {
                        let offset = (number * 4 + round) * 100_001;
                        engine.write_inline(file, offset, crooked(&bytes)).unwrap();
                        let read = engine.read_inline(file, offset, crooked(&vec![0; 100_001]));
                        assert!(*read.unwrap() == *bytes);
                    }
                });
            }
        });
    });
}

#[test]
fn it_counts_and_fails_as_the_driver_does() {
    let metrics = Registry::new();
    let faults = Faults::new();
    let config =
        Config { metrics: metrics.clone(), faults: Some(faults.clone()), ..Config::default() };
    let setting = Setting::new(&config, true);
    let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
    let bytes = pattern(1, 8192);
    faults.add(Fault::new(On::Write, Effect::Fail(libc::EINTR)).times(3));
    engine.write_inline(&file, 0, block(&bytes)).unwrap();
    assert_eq!(faults.injected(), 3);

    faults.add(Fault::new(On::Write, Effect::Fail(libc::ENOSPC)));
    let failed = engine.write_inline(&file, 0, block(&bytes)).unwrap_err();
    assert_eq!(failed.error.kind(), Kind::OutOfSpace);
    let text = failed.error.to_string();
    assert!(text.starts_with("can't write 8 KiB at offset 0 (file: /"), "{text}");
    assert!(*failed.block.unwrap() == *bytes, "the caller's bytes come back");

    let failed = engine.read_inline(&file, 4096, blank(8192)).unwrap_err();
    assert_eq!(failed.error.kind(), Kind::Truncated);
    for (failed, part) in [
        (engine.read_inline(&file, u64::MAX, blank(2)), "beyond any file"),
        (open(&Config::default()).unwrap().read_inline(&file, 0, blank(1)), "another engine"),
        (
            engine.read_inline(&file, 0, Foreign::from_static(b"fixed").into()),
            "must not be written",
        ),
    ] {
        let failed = failed.unwrap_err();
        assert!(failed.error.to_string().contains(part), "{}", failed.error);
        assert!(failed.block.is_some());
    }
    let text = metrics.snapshot().to_prometheus();
    for line in [
        "ferry_io_operations_total{op=\"write\",priority=\"waiting\"} 2",
        "ferry_io_failures_total{op=\"write\",priority=\"waiting\"} 1",
        "ferry_io_bytes_total{op=\"write\",priority=\"waiting\"} 8192",
        "ferry_io_transfers_total{way=\"direct\"} 7",
        "ferry_io_again_total{why=\"hindered\"} 4",
        "ferry_io_again_total{why=\"short\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn after_a_torn_write_the_power_is_gone_for_everybody() {
    with_faults(|setting, faults| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        let old = pattern(8, 300_000);
        engine.write_inline(&file, 0, block(&old)).unwrap();
        faults.add(Fault::new(On::Write, Effect::Tear(12_345)));
        let new = pattern(9, 40_000);
        let failed = engine.write_inline(&file, 0, block(&new)).unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Io);
        let read = engine.read(&file, 0, blank(1), Priority::Waiting).wait();
        for later in [read, engine.read_inline(&file, 0, blank(1))] {
            assert_eq!(later.unwrap_err().error.kind(), Kind::Io);
        }
        if engine.facts().backend != "memory" {
            let left = std::fs::read(setting.path("a")).unwrap();
            assert!(left[..12_345] == new[..12_345] && left[12_345..] == old[12_345..]);
        }
    });
}

#[test]
fn an_engine_that_stops_waits_for_its_callers_and_refuses_more() {
    with_faults(|setting, faults| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        faults.add(Fault::new(On::Write, Effect::Delay(Duration::from_millis(50))));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| engine.write_inline(&file, 0, block(b"last")).unwrap());
            while faults.injected() == 0 {
                std::thread::yield_now();
            }
            engine.stop();
            assert_eq!(file.len().unwrap(), 4, "it was written before the engine had stopped");
            assert_eq!(&*caller.join().unwrap(), b"last");
        });
        let failed = engine.write_inline(&file, 0, block(b"more")).unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Closed);
        assert!(failed.error.to_string().starts_with("the engine was stopped"));
        assert_eq!(&*failed.block.unwrap(), b"more");
    });
}

/// What slices of these lengths are filled with, and how much of that came from the file.
fn filled(setting: &Setting, file: &File, offset: u64, lens: &[usize]) -> (Vec<u8>, usize) {
    let mut memory: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
    let mut slices: Vec<_> = memory.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
    let into = Borrowed::Slices(&mut slices);
    let moved = setting.engine.move_inline(file, offset, into, Priority::Waiting).unwrap();
    (memory.concat(), moved)
}

#[test]
fn borrowed_memory_is_moved_as_owned_memory_is() {
    on_every_backend(|setting| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        for (offset, len) in [(0, 1), (0, 4096), (4095, 2), (8192, 200_000), (12_345, 67_890)] {
            let bytes = pattern(offset ^ len as u64, len);
            let from = Borrowed::Bytes(&bytes);
            assert_eq!(engine.move_inline(&file, offset, from, Priority::Offload).unwrap(), len);
            let read = engine.read(&file, offset, blank(len), Priority::Waiting);
            assert!(*read.wait().unwrap() == *bytes, "written here, {len} at {offset}");

            let lens = [0, len / 3, 0, len - len / 3];
            assert!(filled(setting, &file, offset, &lens) == (bytes.clone(), len));
            let mut behind = b"before".to_vec();
            let into = Borrowed::Behind { bytes: &mut behind, least: len };
            let moved = engine.move_inline(&file, offset, into, Priority::Waiting).unwrap();
            assert!(moved >= len && behind.len() == 6 + moved);
            assert!(behind.starts_with(b"before") && behind[6..].starts_with(&bytes));
        }
    });
}

#[test]
fn where_a_file_ends_borrowed_memory_is_filled_that_far() {
    on_every_backend(|setting| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        let bytes = pattern(1, 5000);
        engine.write(&file, 0, block(&bytes), Priority::Waiting).wait().unwrap();
        for lens in [&[9000][..], &[500, 8500], &[]] {
            let (memory, moved) = filled(setting, &file, 4000, lens);
            assert_eq!(moved, if lens.is_empty() { 0 } else { 1000 });
            assert!(memory[..moved] == bytes[4000..4000 + moved]);
        }
        for offset in [5000, 9000] {
            assert_eq!(filled(setting, &file, offset, &[10]).1, 0);
        }
        let mut behind = Vec::new();
        let into = Borrowed::Behind { bytes: &mut behind, least: 9000 };
        assert_eq!(engine.move_inline(&file, 0, into, Priority::Waiting).unwrap(), 5000);
        assert!(behind == bytes);
    });
}

#[test]
fn borrowed_memory_is_counted_and_fails_as_the_drivers_does() {
    let metrics = Registry::new();
    let faults = Faults::new();
    let config =
        Config { metrics: metrics.clone(), faults: Some(faults.clone()), ..Config::default() };
    let setting = Setting::new(&config, true);
    let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
    let write = |file: &File, offset| {
        engine.move_inline(file, offset, Borrowed::Bytes(&[7; 8192]), Priority::Offload)
    };
    faults.add(Fault::new(On::Write, Effect::Fail(libc::EINTR)).times(3));
    faults.add(Fault::new(On::Write, Effect::Short(100)));
    assert_eq!(write(&file, 0).unwrap(), 8192);
    assert_eq!(filled(&setting, &file, 0, &[4096, 4096]), (vec![7; 8192], 8192));

    faults.add(Fault::new(On::Write, Effect::Fail(libc::ENOSPC)));
    let error = write(&file, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfSpace);
    let text = error.to_string();
    assert!(text.starts_with("can't write 8 KiB at offset 0 (file: /"), "{text}");
    faults.add(Fault::new(On::Write, Effect::Fail(libc::EAGAIN)).times(1000));
    assert!(write(&file, 0).unwrap_err().is_retryable());
    assert_eq!(faults.injected(), 3 + 1 + 1 + 101);
    faults.calm();
    let other = open(&Config::default()).unwrap();
    let foreign = other.move_inline(&file, 0, Borrowed::Bytes(b"x"), Priority::Offload);
    let read_only = setting.open("a", Mode::Read);
    for (error, part) in [
        (write(&file, u64::MAX).unwrap_err(), "beyond any file"),
        (write(&read_only, 0).unwrap_err(), "opened for reading"),
        (foreign.unwrap_err(), "another engine"),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let text = metrics.snapshot().to_prometheus();
    for line in [
        "ferry_io_operations_total{op=\"write\",priority=\"offload\"} 5",
        "ferry_io_failures_total{op=\"write\",priority=\"offload\"} 4",
        "ferry_io_bytes_total{op=\"write\",priority=\"offload\"} 8192",
        "ferry_io_bytes_total{op=\"read\",priority=\"waiting\"} 8192",
        "ferry_io_again_total{why=\"hindered\"} 103",
        "ferry_io_again_total{why=\"short\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_write_of_borrowed_memory_that_is_torn_ends_at_that_byte() {
    with_faults(|setting, faults| {
        let (engine, file) = (&setting.engine, setting.open("a", Mode::New));
        engine.write_inline(&file, 0, block(&[1; 9000])).unwrap();
        faults.add(Fault::new(On::Write, Effect::Tear(1234)));
        let torn = engine.move_inline(&file, 0, Borrowed::Bytes(&[2; 9000]), Priority::Offload);
        assert_eq!(torn.unwrap_err().kind(), Kind::Io);
        if engine.facts().backend != "memory" {
            let left = std::fs::read(setting.path("a")).unwrap();
            assert!(left[..1234] == [2; 1234] && left[1234..] == [1; 9000 - 1234]);
        }
    });
}

#[test]
fn a_file_that_is_read_once_is_opened_whatever_it_is_and_never_waited_for() {
    for choice in [Choice::Auto, Choice::Threads] {
        let setting = Setting::new(&Config::of(choice), false);
        let (engine, pipe) = (&setting.engine, setting.path("pipe"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(filled(&setting, &setting.open("pipe", Mode::Once), 0, &[10]).1, 0);

        std::fs::create_dir(setting.path("b")).unwrap();
        let directory = setting.open("b", Mode::Once);
        let into = Borrowed::Behind { bytes: &mut Vec::new(), least: 1 };
        let error = engine.move_inline(&directory, 0, into, Priority::Waiting).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput, "{error}");
        assert_eq!(directory.len().unwrap_err().kind(), Kind::InvalidInput);
        let error = engine.open(&setting.path("c"), Open::buffered(Mode::Once)).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);

        // Through the driver too, more of them than it could keep.
        std::fs::write(setting.path("d"), pattern(2, 5000)).unwrap();
        let files: Vec<_> = (0..400).map(|_| setting.open("d", Mode::Once)).collect();
        let read = |file| engine.read(file, 0, blank(5000), Priority::Prefetch);
        for read in files.iter().map(read).collect::<Vec<_>>() {
            assert!(*read.wait().unwrap() == *pattern(2, 5000));
        }
        assert!(engine.write_inline(&files[0], 0, blank(1)).is_err(), "it is only read");
    }
}
