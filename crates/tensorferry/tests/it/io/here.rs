//! What callers carry out themselves is what the driver would have done.

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
                assert!(*engine.write_here(&file, offset, make(&bytes)).unwrap() == *bytes);
                let read = engine.read(&file, offset, make(&vec![0; len]), Priority::Waiting);
                assert!(*read.wait().unwrap() == *bytes, "written here, {len} at {offset}");
                let bytes = pattern(!offset ^ len as u64, len);
                engine.write(&file, offset, make(&bytes), Priority::Waiting).wait().unwrap();
                let read = engine.read_here(&file, offset, make(&vec![0; len])).unwrap();
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
                        engine.write_here(file, offset, crooked(&bytes)).unwrap();
                        let read = engine.read_here(file, offset, crooked(&vec![0; 100_001]));
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
    engine.write_here(&file, 0, block(&bytes)).unwrap();
    assert_eq!(faults.injected(), 3);

    faults.add(Fault::new(On::Write, Effect::Fail(libc::ENOSPC)));
    let failed = engine.write_here(&file, 0, block(&bytes)).unwrap_err();
    assert_eq!(failed.error.kind(), Kind::OutOfSpace);
    let text = failed.error.to_string();
    assert!(text.starts_with("can't write 8 KiB at offset 0 (file: /"), "{text}");
    assert!(*failed.block.unwrap() == *bytes, "the caller's bytes come back");

    let failed = engine.read_here(&file, 4096, blank(8192)).unwrap_err();
    assert_eq!(failed.error.kind(), Kind::Truncated);
    for (failed, part) in [
        (engine.read_here(&file, u64::MAX, blank(2)), "beyond any file"),
        (open(&Config::default()).unwrap().read_here(&file, 0, blank(1)), "another engine"),
        (engine.read_here(&file, 0, Foreign::from_static(b"fixed").into()), "must not be written"),
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
        engine.write_here(&file, 0, block(&old)).unwrap();
        faults.add(Fault::new(On::Write, Effect::Tear(12_345)));
        let new = pattern(9, 40_000);
        let failed = engine.write_here(&file, 0, block(&new)).unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Io);
        let read = engine.read(&file, 0, blank(1), Priority::Waiting).wait();
        for later in [read, engine.read_here(&file, 0, blank(1))] {
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
            let caller = scope.spawn(|| engine.write_here(&file, 0, block(b"last")).unwrap());
            while faults.injected() == 0 {
                std::thread::yield_now();
            }
            engine.stop();
            assert_eq!(file.len().unwrap(), 4, "it was written before the engine had stopped");
            assert_eq!(&*caller.join().unwrap(), b"last");
        });
        let failed = engine.write_here(&file, 0, block(b"more")).unwrap_err();
        assert_eq!(failed.error.kind(), Kind::Closed);
        assert!(failed.error.to_string().starts_with("the engine was stopped"));
        assert_eq!(&*failed.block.unwrap(), b"more");
    });
}
