//! The kernel and its `io_uring`, and the engine that opens on it.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use tensorferry::io::Config;

use super::finding::{Choice, Finding, Status};

/// The operations the ring engine is made of.
const NEEDED: [(&str, u8); 3] =
    [("read", opcode::Read::CODE), ("write", opcode::Write::CODE), ("fsync", opcode::Fsync::CODE)];
/// Saves the kernel from pinning a buffer's pages on every read; engines do without it.
const REGISTERED: (&str, u8) = ("read_fixed", opcode::ReadFixed::CODE);

/// The first kernel that has all we use: `IORING_SETUP_DEFER_TASKRUN` came last.
const COMPLETE: (u32, u32) = (6, 1);

/// Enough for a probe, small enough for any memory limit.
const ENTRIES: u32 = 8;

/// What setting up a ring told.
struct Ring {
    /// The supported ones among [`NEEDED`] and [`REGISTERED`].
    operations: Vec<&'static str>,
    /// Whether one thread may submit and reap without interrupts (Linux 6.1).
    deferred: bool,
}

pub(super) fn probe_kernel() -> Finding {
    let name = rustix::system::uname();
    let (system, release) = (name.sysname().to_string_lossy(), name.release().to_string_lossy());
    describe_kernel(&system, &release)
}

fn describe_kernel(system: &str, release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let status = if version >= COMPLETE { Status::Ok } else { Status::Limited };
    let finding = Finding::new("kernel", status, format!("{system} {release}"))
        .means("Linux 6.1 or newer has everything the ring engine uses.")
        .fact("release", release);
    if status == Status::Ok { finding } else { finding.remedy("use Linux 6.1 or newer") }
}

/// The engine that really opens here: it decides, this only asks it.
pub(super) fn probe_engine() -> Choice {
    match tensorferry::io::open(&Config::default()) {
        Ok(engine) if engine.facts().backend == "ring" => Choice::best("ring"),
        Ok(engine) => Choice::fallback(engine.facts().backend, engine.facts().why.clone()),
        Err(error) => Choice::fallback("none", error.to_string()),
    }
}

pub(super) fn probe() -> Finding {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    describe(&set_up(), disabled.as_deref().map(str::trim))
}

/// Really sets rings up, since a kernel that has `io_uring` may still refuse it to this process.
fn set_up() -> io::Result<Ring> {
    let ring = IoUring::new(ENTRIES)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let all = NEEDED.iter().chain([&REGISTERED]);
    let operations = all.filter(|(_, code)| probe.is_supported(*code)).map(|(name, _)| *name);
    Ok(Ring { operations: operations.collect(), deferred: set_up_deferred().is_ok() })
}

fn set_up_deferred() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES)
}

fn describe(ring: &io::Result<Ring>, disabled: Option<&str>) -> Finding {
    let finding = match ring {
        Err(error) => refused(error, disabled),
        Ok(ring) => granted(ring),
    };
    finding.fact("disabled", disabled)
}

fn granted(ring: &Ring) -> Finding {
    let lacks = |name: &str| !ring.operations.contains(&name);
    let missing: Vec<_> = NEEDED.iter().map(|(name, _)| *name).filter(|name| lacks(name)).collect();
    let value = format!("{}{}", ring.operations.join(", "), deferred_words(ring.deferred));
    let (status, meaning) = if !missing.is_empty() {
        let meaning = "Reads and writes use a pool of threads: more CPU time for the same speed.";
        (Status::Limited, meaning)
    } else if !ring.deferred || lacks(REGISTERED.0) {
        let meaning = "The ring engine works, with a little more CPU time for each operation.";
        (Status::Limited, meaning)
    } else {
        let meaning = "Many reads and writes are in flight at once from a single thread.";
        (Status::Ok, meaning)
    };
    let finding = Finding::new("io_uring", status, value)
        .means(meaning)
        .fact("operations", ring.operations.clone())
        .fact("defer_taskrun", ring.deferred);
    if status == Status::Ok { finding } else { finding.remedy("use Linux 6.1 or newer") }
}

const fn deferred_words(deferred: bool) -> &'static str {
    if deferred { "; single_issuer and defer_taskrun" } else { "; no defer_taskrun" }
}

fn refused(error: &io::Error, disabled: Option<&str>) -> Finding {
    let (reason, remedy) = match (disabled, error.kind()) {
        (Some("1"), _) => (
            "io_uring is reserved for privileged users (kernel.io_uring_disabled = 1)".to_owned(),
            "sysctl kernel.io_uring_disabled=0, or join the group in kernel.io_uring_group",
        ),
        (Some("2"), _) => (
            "io_uring is switched off (kernel.io_uring_disabled = 2)".to_owned(),
            "sysctl kernel.io_uring_disabled=0",
        ),
        (_, io::ErrorKind::PermissionDenied) => (
            "a sandbox forbids io_uring".to_owned(),
            "in containers, allow io_uring_setup, io_uring_enter, io_uring_register in seccomp",
        ),
        (_, io::ErrorKind::Unsupported) => (
            "this kernel has no io_uring".to_owned(),
            "use Linux 6.1 or newer, built with CONFIG_IO_URING",
        ),
        (_, io::ErrorKind::OutOfMemory) => (
            "the memory lock limit leaves no room for a ring".to_owned(),
            "raise it with `ulimit -l`, or use Linux 5.12 or newer",
        ),
        _ => (format!("setting up io_uring failed: {error}"), "report this as a bug"),
    };
    Finding::new("io_uring", Status::Missing, reason)
        .means("Reads and writes use a pool of threads: more CPU time for the same speed.")
        .remedy(remedy)
        .fact("error", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    const ALL: [&str; 4] = ["read", "write", "fsync", "read_fixed"];

    fn with(operations: &[&'static str], deferred: bool) -> Finding {
        describe(&Ok(Ring { operations: operations.to_vec(), deferred }), Some("0"))
    }

    fn without(errno: Errno, disabled: Option<&str>) -> Finding {
        describe(&Err(io::Error::from_raw_os_error(errno.raw_os_error())), disabled)
    }

    #[test]
    fn a_kernel_is_judged_by_its_version() {
        for (release, status) in [
            ("6.1.0-18-amd64", Status::Ok),
            ("6.18.44-fc", Status::Ok),
            ("7.0-rc1", Status::Ok),
            ("5.15.0-91-generic", Status::Limited),
            ("6", Status::Limited),
            ("nonsense", Status::Limited),
        ] {
            assert_eq!(describe_kernel("Linux", release).status, status, "{release}");
        }
    }

    #[test]
    fn a_complete_ring_is_used_and_has_nothing_to_fix() {
        let finding = with(&ALL, true);
        assert_eq!((finding.status, finding.remedy), (Status::Ok, None));
        assert_eq!(
            finding.value,
            "read, write, fsync, read_fixed; single_issuer and defer_taskrun"
        );
    }

    #[test]
    fn an_older_ring_is_used_but_limited() {
        for finding in [with(&ALL, false), with(&ALL[..3], true)] {
            assert_eq!(finding.status, Status::Limited);
            assert!(finding.remedy.is_some());
        }
    }

    #[test]
    fn a_ring_without_a_needed_operation_means_threads() {
        let finding = with(&["fsync", "read_fixed"], true);
        assert_eq!(finding.status, Status::Limited);
        assert!(finding.meaning.contains("pool of threads"), "{}", finding.meaning);
    }

    #[test]
    fn a_refused_ring_says_who_refuses_it() {
        for (errno, disabled, reason) in [
            (Errno::PERM, Some("2"), "io_uring is switched off (kernel.io_uring_disabled = 2)"),
            (Errno::PERM, Some("1"), "io_uring is reserved for privileged users"),
            (Errno::PERM, Some("0"), "a sandbox forbids io_uring"),
            (Errno::NOSYS, None, "this kernel has no io_uring"),
            (Errno::NOMEM, Some("0"), "the memory lock limit leaves no room for a ring"),
            (Errno::INVAL, None, "setting up io_uring failed: Invalid argument"),
        ] {
            let finding = without(errno, disabled);
            assert_eq!(finding.status, Status::Missing);
            assert!(finding.value.starts_with(reason), "{}", finding.value);
            assert!(finding.remedy.is_some(), "{reason}");
        }
    }
}
