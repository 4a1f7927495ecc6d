//! The directory given with `--path`: whether it takes direct I/O, and what holds it.
//!
//! The engine itself is tried, with a new file and one block, so that what is said here is what
//! checkpoints and caches will meet.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tensorferry::io::{Engine, File, Mode, Open, Priority};
use tensorferry::memory::{ALIGNMENT, Buffer};
use tensorferry::{Error, Kind, Result, Size};

use super::finding::{Choice, Finding, Status};
use super::mount::{self, Mount};

const ELSEWHERE: &str = "choose a directory that you can write to with --path";
const LOCAL_DISK: &str = "choose a directory on a local disk (ext4, xfs) with --path";

/// A new file that goes away with this value, which exists only if the file was made: one that
/// was there before is never removed.
struct Scratch(File);

impl Scratch {
    fn create(engine: &dyn Engine, directory: &Path) -> Result<Self> {
        let path = directory.join(format!(".tensorferry-doctor-{}", std::process::id()));
        engine.open(&path, Open::direct(Mode::New)).map(Self)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever removed it first has done our work.
        let _ = fs::remove_file(self.0.path());
    }
}

pub(super) fn probe_direct(path: &Path, engine: &Result<Arc<dyn Engine>>) -> (Finding, Choice) {
    describe_direct(&match engine {
        Ok(engine) => round_trip(&**engine, path),
        Err(error) => Err(Error::new(Kind::Unsupported, "no engine opens here")
            .caused_by(format!("no engine opens here: {error}"))),
    })
}

/// Writes a block to a new file and reads it back; whether that went past the page cache.
fn round_trip(engine: &dyn Engine, directory: &Path) -> Result<bool> {
    let scratch = Scratch::create(engine, directory)?;
    let block = Buffer::copy_of(&[0xa5; ALIGNMENT])?;
    let written = engine.write(&scratch.0, 0, block.into(), Priority::Waiting).wait()?;
    let room = Buffer::zeroed(ALIGNMENT)?;
    let read = engine.read(&scratch.0, 0, room.into(), Priority::Waiting).wait()?;
    if *read != *written {
        return Err(Error::new(Kind::Corrupt, "other bytes came back than were written"));
    }
    Ok(scratch.0.is_direct())
}

fn describe_direct(tried: &Result<bool>) -> (Finding, Choice) {
    let finding = |status, value: &str| Finding::new("direct I/O", status, value);
    match tried {
        Ok(true) => {
            let finding = finding(Status::Ok, "wrote and read a block")
                .means("Large transfers go past the page cache and leave memory to training.");
            (finding, Choice::best("direct"))
        }
        Ok(false) => {
            let finding = finding(Status::Limited, "refused by this file system")
                .means("Files go through the page cache, which copies every byte once more.")
                .remedy(LOCAL_DISK);
            (finding, Choice::fallback("buffered", "this file system refuses O_DIRECT"))
        }
        Err(error) => {
            let (what, meaning, remedy) = failure(error.kind());
            // The operating system's words are enough; the file named around them is gone.
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let finding = finding(Status::Error, &format!("{what}: {cause}"))
                .means(meaning)
                .remedy(remedy)
                .fact("error", error.to_string());
            (finding, Choice::fallback("unknown", what))
        }
    }
}

/// What a failure of this kind is, what it means and what to do about it.
const fn failure(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::OutOfSpace => (
            "the disk or the quota on it is full",
            "Nothing can be saved in this directory before there is room.",
            "remove what is not needed, or choose another directory with --path",
        ),
        Kind::PermissionDenied => (
            "no file can be created there",
            "Nothing can be saved in this directory by this user.",
            ELSEWHERE,
        ),
        Kind::Corrupt => (
            "the file system is broken",
            "What is saved in this directory can't be trusted.",
            LOCAL_DISK,
        ),
        _ => (
            "writing and reading a block failed",
            "Whether anything can be saved in this directory is unknown.",
            ELSEWHERE,
        ),
    }
}

pub(super) fn probe_file_system(path: &Path) -> Finding {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let space = rustix::fs::statvfs(path).ok();
    let free = space.map(|space| Size(space.f_bavail.saturating_mul(space.f_frsize)));
    describe_file_system(mount::of(path, &table), free)
}

fn describe_file_system(mount: Option<Mount>, free: Option<Size>) -> Finding {
    let free_words = free.map_or_else(String::new, |free| format!(", {free} free"));
    let free_bytes = free.map(|free| free.0);
    let Some(mount) = mount else {
        return Finding::new("file system", Status::Error, format!("unknown{free_words}"))
            .means("/proc/self/mountinfo does not list this directory.")
            .fact("free_bytes", free_bytes);
    };
    let (status, meaning, remedy) = mount.kind().advice();
    let value = format!("{} on {}{free_words}", mount.file_system, mount.point.display());
    Finding::new("file system", status, value)
        .means(meaning)
        .remedy_if_any(remedy)
        .fact("type", mount.file_system)
        .fact("mount_point", mount.point.to_string_lossy())
        .fact("free_bytes", free_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use tensorferry::io::{Config, Effect, Fault, Faults, On, open};

    fn tried(directory: &Path, faults: &[(On, Errno)]) -> (Finding, Choice) {
        let injected = Faults::new();
        for (on, errno) in faults {
            injected.add(Fault::new(*on, Effect::Fail(errno.raw_os_error())));
        }
        probe_direct(directory, &open(&Config { faults: Some(injected), ..Config::default() }))
    }

    #[test]
    fn a_probe_leaves_no_file_behind_also_when_it_fails() {
        let directory = tempfile::tempdir().unwrap();
        for faults in [&[][..], &[(On::Write, Errno::IO)], &[(On::Read, Errno::IO)]] {
            let (finding, _) = tried(directory.path(), faults);
            assert_eq!(finding.status == Status::Error, !faults.is_empty(), "{}", finding.value);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_file_of_the_probes_name_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join(format!(".tensorferry-doctor-{}", std::process::id()));
        fs::write(&taken, "mine").unwrap();
        let (finding, _) = tried(directory.path(), &[]);
        let expected = "writing and reading a block failed: File exists (os error 17)";
        assert_eq!(finding.value, expected);
        assert_eq!(fs::read_to_string(taken).unwrap(), "mine");
    }

    #[test]
    fn a_file_system_that_refuses_direct_transfers_is_found_to_do_so() {
        let directory = tempfile::tempdir().unwrap();
        let (finding, choice) = tried(directory.path(), &[(On::Write, Errno::INVAL)]);
        if choice.name == "unknown" {
            return; // It has no direct I/O to begin with, so that the fault is a failure.
        }
        assert_eq!((finding.status, choice.name.as_str()), (Status::Limited, "buffered"));
    }

    #[test]
    fn a_full_disk_is_said_to_be_full() {
        let directory = tempfile::tempdir().unwrap();
        for (errno, cause) in [
            (Errno::NOSPC, "No space left on device (os error 28)"),
            (Errno::DQUOT, "Disk quota exceeded (os error 122)"),
        ] {
            let (finding, choice) = tried(directory.path(), &[(On::Write, errno)]);
            let expected = format!("the disk or the quota on it is full: {cause}");
            assert_eq!(finding.value, expected);
            assert_eq!(choice.name, "unknown");
        }
    }

    #[test]
    fn each_outcome_says_what_files_will_use() {
        let error = |errno| Err(Error::from_errno(errno, "can't open file"));
        for (tried, status, files) in [
            (Ok(true), Status::Ok, "direct"),
            (Ok(false), Status::Limited, "buffered"),
            (error(Errno::ROFS), Status::Error, "unknown"),
            (error(Errno::IO), Status::Error, "unknown"),
            (Err(Error::new(Kind::Corrupt, "other bytes")), Status::Error, "unknown"),
        ] {
            let (finding, choice) = describe_direct(&tried);
            assert_eq!((finding.status, choice.name.as_str()), (status, files));
            assert_eq!(finding.remedy.is_none(), status == Status::Ok);
        }
    }

    #[test]
    fn without_an_engine_it_is_the_engine_that_fails() {
        let engine = Err(Error::new(Kind::OutOfMemory, "no memory"));
        let (finding, _) = probe_direct(Path::new("/"), &engine);
        let expected = "writing and reading a block failed: no engine opens here: no memory";
        assert_eq!(finding.value, expected);
    }

    #[test]
    fn an_unknown_file_system_is_said_to_be_unknown() {
        let finding = describe_file_system(None, Some(Size(1 << 30)));
        assert_eq!(
            (finding.status, finding.value.as_str()),
            (Status::Error, "unknown, 1 GiB free")
        );
    }
}
