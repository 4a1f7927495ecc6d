//! What the disk can do to a save: the error says it, the old file stays, no draft is left.

use std::process::Command;
use std::time::Duration;

use tensorferry::Kind;
use tensorferry::checkpoint::{Options, staging};
use tensorferry::io::{Choice, Config, Effect, Fault, Faults, On, open};

use super::{Content, Setting, WINDOW, WRITERS, assert_comes_back, files_in, on_every_engine};

/// The header, windows in the middle and a short one at the end.
fn object(seed: u64) -> Content {
    Content::of_sizes(seed, &[6 * WINDOW, 100])
}

/// Where the data starts: behind the only block of the header.
const DATA: u64 = 4096;

#[test]
fn a_save_that_fails_tells_why_and_loses_nothing() {
    const ALWAYS: u64 = u64::MAX;
    for (fault, kind) in [
        (Fault::new(On::Write, Effect::Fail(libc::EIO)), Kind::Io),
        (Fault::new(On::Write, Effect::Fail(libc::EIO)).after(12), Kind::Io),
        (Fault::new(On::Write, Effect::Fail(libc::EIO)).touching(0), Kind::Io),
        (Fault::new(On::Write, Effect::Fail(libc::EIO)).touching(DATA + 6 * WINDOW), Kind::Io),
        (Fault::new(On::Write, Effect::Fail(libc::ENOSPC)).after(3), Kind::OutOfSpace),
        (Fault::new(On::Write, Effect::Fail(libc::EDQUOT)).touching(0), Kind::OutOfSpace),
        (Fault::new(On::Write, Effect::Fail(libc::EFBIG)).after(1), Kind::FileTooLarge),
        (Fault::new(On::Sync, Effect::Fail(libc::EIO)), Kind::Io),
        (Fault::new(On::Sync, Effect::Fail(libc::ENOSPC)), Kind::OutOfSpace),
        (Fault::new(On::Any, Effect::Fail(libc::EIO)).times(ALWAYS), Kind::Io),
    ] {
        on_every_engine(|setting, faults| {
            let old = Content::of_sizes(1, &[1000]);
            old.save(setting, &Options::new(staging(0).unwrap())).unwrap();
            for (tool, behind) in WRITERS.into_iter().flat_map(|tool| [(tool, false), (tool, true)])
            {
                let options = Options { tool, ..Options::new(staging(0).unwrap()) };
                let before = faults.injected();
                faults.add(fault);
                let error = object(2).save_either(setting, &options, behind).unwrap_err();
                assert!(faults.injected() > before);
                assert_eq!(error.kind(), kind, "{fault:?}: {error}");
                assert!(error.to_string().contains("file: "), "{error}");
                assert_eq!(files_in(setting.directory.path()), ["model.ferry"]);
                assert_comes_back(&options.staging);
            }
            // Another engine: this one may fail for ever.
            let fresh = open(&Config::default()).unwrap();
            old.assert_is_in(&fresh, &setting.path(), WRITERS[1]);
        });
    }
}

#[test]
fn a_write_that_is_torn_anywhere_leaves_the_old_file() {
    for byte in
        [0, 1, 4095, DATA, DATA + WINDOW, DATA + 3 * WINDOW + 12_345, DATA + 6 * WINDOW + 99]
    {
        for behind in [false, true] {
            on_every_engine(|setting, faults| {
                let old = Content::of_sizes(1, &[1000]);
                let options = Options::new(staging(0).unwrap());
                old.save(setting, &options).unwrap();
                faults.add(Fault::new(On::Write, Effect::Tear(byte)));
                let error = object(2).save_either(setting, &options, behind).unwrap_err();
                assert_eq!(error.kind(), Kind::Io, "{error}");
                assert_eq!(files_in(setting.directory.path()), ["model.ferry"]);
                let fresh = open(&Config::default()).unwrap();
                old.assert_is_in(&fresh, &setting.path(), WRITERS[1]);
            });
        }
    }
}

#[test]
fn so_does_a_small_file_that_is_written_at_once() {
    let fail = Effect::Fail(libc::ENOSPC);
    for (on, effect, kind) in [
        (On::Write, fail, Kind::OutOfSpace),
        (On::Sync, fail, Kind::OutOfSpace),
        (On::Write, Effect::Tear(0), Kind::Io),
        (On::Write, Effect::Tear(DATA - 1), Kind::Io),
        (On::Write, Effect::Tear(DATA + 500), Kind::Io),
    ] {
        for tool in WRITERS {
            on_every_engine(|setting, faults| {
                let [old, new] = [1, 2].map(|seed| Content::of_sizes(seed, &[1000, 24]));
                let options = Options { tool, ..Options::new(staging(0).unwrap()) };
                old.save(setting, &options).unwrap();
                faults.add(Fault::new(on, effect));
                let error = new.save(setting, &options).unwrap_err();
                assert_eq!(error.kind(), kind, "{effect:?}: {error}");
                assert_eq!(files_in(setting.directory.path()), ["model.ferry"]);
                let fresh = open(&Config::default()).unwrap();
                old.assert_is_in(&fresh, &setting.path(), WRITERS[1]);
            });
        }
    }
}

#[test]
fn the_next_save_of_an_engine_that_has_failed_succeeds() {
    on_every_engine(|setting, faults| {
        let options = Options::new(staging(0).unwrap());
        for behind in [false, true] {
            faults.add(Fault::new(On::Write, Effect::Fail(libc::ENOSPC)).after(5));
            object(1).save_either(setting, &options, behind).unwrap_err();
            faults.add(Fault::new(On::Sync, Effect::Fail(libc::EIO)));
            object(2).save_either(setting, &options, behind).unwrap_err();
            object(3).save_either(setting, &options, behind).unwrap();
            setting.assert_only(&object(3));
        }
    });
}

#[test]
fn what_passes_by_itself_is_no_failure() {
    on_every_engine(|setting, faults| {
        let options = Options::new(staging(0).unwrap());
        for (seed, effect) in [
            (1, Effect::Short(1)),
            (2, Effect::Short(4096)),
            (3, Effect::Short(100_001)),
            (4, Effect::Delay(Duration::from_millis(3))),
            (5, Effect::Fail(libc::EINTR)),
            (6, Effect::Fail(libc::EAGAIN)),
        ] {
            for behind in [false, true] {
                faults.add(Fault::new(On::Write, effect).after(2).times(9));
                object(seed).save_either(setting, &options, behind).unwrap();
                faults.add(Fault::new(On::Read, effect).times(9));
                setting.assert_only(&object(seed));
            }
        }
    });
}

#[test]
fn saves_and_loads_are_exact_in_chaos() {
    for seed in 1..=6 {
        let faults = Some(Faults::chaos(seed));
        let choice = if seed % 2 == 0 { Choice::Auto } else { Choice::Threads };
        let setting = Setting::new(&Config { faults, ..Config::of(choice) });
        for (tool, behind) in WRITERS.into_iter().flat_map(|tool| [(tool, false), (tool, true)]) {
            let options = Options { tool, ..Options::new(staging(0).unwrap()) };
            object(seed).save_either(&setting, &options, behind).unwrap();
            setting.assert_only(&object(seed));
        }
    }
}

#[test]
fn reads_that_fail_are_errors_and_never_data() {
    on_every_engine(|setting, faults| {
        object(1).save(setting, &Options::new(staging(0).unwrap())).unwrap();
        for tool in WRITERS {
            let opened = || {
                let engine = &setting.engine;
                tensorferry::checkpoint::Checkpoint::open(engine, &setting.path(), Some(tool), true)
            };
            let failing = Fault::new(On::Read, Effect::Fail(libc::EIO));
            faults.add(failing);
            assert_eq!(opened().err().unwrap().kind(), Kind::Io);
            let checkpoint = opened().unwrap();
            faults.add(failing.touching(DATA + 2 * WINDOW));
            let error = checkpoint.load(super::all(&checkpoint)).err().unwrap();
            assert_eq!(error.kind(), Kind::Io, "{error}");
            faults.add(failing.touching(DATA + 6 * WINDOW));
            let error = checkpoint.verify(&mut |_| ()).unwrap_err();
            assert_eq!(error.kind(), Kind::Io, "{error}");
            assert!(error.to_string().contains("model.ferry"), "{error}");
            object(1).assert_is(&checkpoint);
        }
    });
}

/// A file system of eight MiB, where this process may make one.
struct SmallDisk(Setting);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let setting = Setting::new(&Config::default());
        let mount = ["-t", "tmpfs", "-o", "size=8m", "tmpfs"];
        let status = Command::new("mount").args(mount).arg(setting.directory.path()).output();
        status.is_ok_and(|output| output.status.success()).then_some(Self(setting))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let directory = self.0.directory.path();
        let _ = Command::new("umount").arg("--lazy").arg(directory).output();
    }
}

#[test]
fn a_full_disk_is_told_before_anything_is_copied() {
    let Some(disk) = SmallDisk::mount() else {
        return eprintln!("no file system can be mounted here; the injected faults have to do");
    };
    let old = Content::of_sizes(1, &[WINDOW]);
    let options = Options::new(staging(0).unwrap());
    old.save(&disk.0, &options).unwrap();
    for (tool, behind) in WRITERS.into_iter().flat_map(|tool| [(tool, false), (tool, true)]) {
        let options = Options { tool, ..options.clone() };
        let header = object(2).header;
        let mut source = |_: &_| panic!("a tensor was asked for");
        let path = disk.0.path();
        let error = if behind {
            let engine = &disk.0.engine;
            tensorferry::checkpoint::save_behind(engine, &path, header, &mut source, &options)
                .unwrap_err()
        } else {
            tensorferry::checkpoint::save(&disk.0.engine, &path, header, &mut source, &options)
                .unwrap_err()
        };
        assert_eq!(error.kind(), Kind::OutOfSpace, "{error}");
        assert!(error.to_string().contains("No space left on device"), "{error}");
        disk.0.assert_only(&old);
    }
}

#[test]
fn a_file_beyond_the_limit_of_the_process_is_too_large() {
    // The limit would hold for every test of this process, and its signal would end it.
    let limited = r#"trap "" XFSZ; ulimit -f 16384; exec "$0" --exact "$1" --ignored --nocapture"#;
    let name = "checkpoint::faults::saves_under_a_limit";
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", limited]).arg(program).arg(name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "for a process of its own: a_file_beyond_the_limit_of_the_process_is_too_large"]
fn saves_under_a_limit() {
    let setting = Setting::new(&Config::default());
    let old = Content::of_sizes(1, &[1000]);
    let options = Options::new(staging(0).unwrap());
    old.save(&setting, &options).unwrap();
    for behind in [false, true] {
        let error = object(2).save_either(&setting, &options, behind).unwrap_err();
        assert_eq!(error.kind(), Kind::FileTooLarge, "{error}");
        setting.assert_only(&old);
    }
}
