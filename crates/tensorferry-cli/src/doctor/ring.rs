//! The kernel and its `io_uring`, and the engine that opens on them.
//!
//! The engine decides and this file explains. Whether the ring is used is what the engine says
//! after it was really opened; what is read of the kernel beside it only tells why, and how to get
//! more. So the finding can't say one thing while the engine does another.

use std::fs;
use std::io;
use std::sync::Arc;

use io_uring::IoUring;
use tensorferry::io::{Config, Engine};

use super::finding::{Choice, Finding, Status};

/// The first kernel that has all we use: `IORING_SETUP_DEFER_TASKRUN` came last.
const COMPLETE: (u32, u32) = (6, 1);
const NEWER: &str = "use Linux 6.1 or newer";

/// Enough for a look, small enough for any memory limit.
const ENTRIES: u32 = 8;

/// What the engine said when it was asked for its best.
#[derive(Debug)]
pub(super) enum Verdict {
    Ring,
    /// Another backend, and why not the ring.
    Instead {
        backend: &'static str,
        why: String,
    },
    /// No engine opens, and why.
    Nothing(String),
}

/// What the kernel offered when a small ring was set up.
struct Offer {
    /// Features that the engine needs and this kernel lacks.
    lacks: Vec<&'static str>,
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
    Finding::new("kernel", status, format!("{system} {release}"))
        .means("Linux 6.1 or newer has everything the ring engine uses.")
        .remedy_if_any((status != Status::Ok).then_some(NEWER))
        .fact("release", release)
}

/// The engine that every part of tensorferry would get here.
pub(super) fn open_engine() -> tensorferry::Result<Arc<dyn Engine>> {
    tensorferry::io::open(&Config::default())
}

impl Verdict {
    pub(super) fn of(engine: &tensorferry::Result<Arc<dyn Engine>>) -> Self {
        match engine.as_ref().map(|engine| engine.facts()) {
            Ok(facts) if facts.backend == "ring" => Self::Ring,
            Ok(facts) => Self::Instead { backend: facts.backend, why: facts.why.clone() },
            Err(error) => Self::Nothing(error.to_string()),
        }
    }

    pub(super) fn choice(&self) -> Choice {
        match self {
            Self::Ring => Choice::best("ring"),
            Self::Instead { backend, why } => Choice::fallback(*backend, why.as_str()),
            Self::Nothing(why) => Choice::fallback("none", why.as_str()),
        }
    }
}

pub(super) fn probe(verdict: &Verdict) -> Finding {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    describe(verdict, &look(), disabled.as_deref().map(str::trim))
}

/// Really sets rings up, since a kernel that has `io_uring` may still refuse it to this process.
fn look() -> io::Result<Offer> {
    let ring = IoUring::new(ENTRIES)?;
    let features = [
        ("ext_arg", ring.params().is_feature_ext_arg()),
        ("resource_tagging", ring.params().is_feature_resource_tagging()),
    ];
    let lacks = features.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
    let mut lean = IoUring::builder();
    lean.setup_single_issuer().setup_defer_taskrun();
    let deferred: io::Result<IoUring> = lean.build(ENTRIES);
    Ok(Offer { lacks, deferred: deferred.is_ok() })
}

fn describe(verdict: &Verdict, offer: &io::Result<Offer>, disabled: Option<&str>) -> Finding {
    let finding = match verdict {
        Verdict::Ring => used(offer),
        Verdict::Instead { backend, why } => not_used(Status::Missing, why, offer, disabled)
            .means(format!(
                "Reads and writes use the {backend} engine: more CPU time for the same speed."
            ))
            .fact("error", why.as_str()),
        Verdict::Nothing(why) => not_used(Status::Error, why, offer, disabled)
            .means(format!("No engine opens, so nothing can be read or written: {why}."))
            .fact("error", why.as_str()),
    };
    let offer = offer.as_ref().ok();
    finding
        .fact("in_use", matches!(verdict, Verdict::Ring))
        .fact("lacks", offer.map(|offer| offer.lacks.clone()))
        .fact("defer_taskrun", offer.map(|offer| offer.deferred))
        .fact("disabled", disabled)
}

fn used(offer: &io::Result<Offer>) -> Finding {
    let finding = |status, value: String| Finding::new("io_uring", status, value);
    match offer {
        Ok(offer) if offer.deferred => {
            finding(Status::Ok, "in use, with single_issuer and defer_taskrun".to_owned())
                .means("Many reads and writes are in flight at once from a single thread.")
        }
        Ok(_) => finding(Status::Limited, "in use, without defer_taskrun".to_owned())
            .means("The ring engine works, with a little more CPU time for each operation.")
            .remedy(NEWER),
        Err(error) => finding(Status::Limited, format!("in use; one more was refused: {error}"))
            .means("The ring engine works, but further engines may not get a ring."),
    }
}

/// Why there is no ring, as far as the kernel tells; else in the engine's own words.
fn not_used(
    status: Status,
    why: &str,
    offer: &io::Result<Offer>,
    disabled: Option<&str>,
) -> Finding {
    let (value, remedy) = match offer {
        Err(error) => refused(error, disabled),
        Ok(offer) if !offer.lacks.is_empty() => {
            (format!("too old: it lacks {} (Linux 5.13)", offer.lacks.join(", ")), NEWER)
        }
        Ok(_) => (
            format!("not in use: {why}"),
            "`ulimit -l unlimited` if memory was short, else report this as a bug",
        ),
    };
    Finding::new("io_uring", status, value).remedy(remedy)
}

/// Who refuses a ring, and what to do about it.
fn refused(error: &io::Error, disabled: Option<&str>) -> (String, &'static str) {
    match (disabled, error.kind()) {
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
            "`ulimit -l unlimited`, or use Linux 6.1 or newer",
        ),
        _ => (format!("setting up io_uring failed: {error}"), "report this as a bug"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn threads() -> Verdict {
        Verdict::Instead { backend: "threads", why: "the kernel refuses".to_owned() }
    }

    fn offer(lacks: &[&'static str], deferred: bool) -> Offer {
        Offer { lacks: lacks.to_vec(), deferred }
    }

    fn refusal(errno: Errno) -> io::Result<Offer> {
        Err(io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    /// Everything that a kernel may say, whatever the engine makes of it.
    fn offers() -> [io::Result<Offer>; 5] {
        [
            Ok(offer(&[], true)),
            Ok(offer(&[], false)),
            Ok(offer(&["resource_tagging"], false)),
            refusal(Errno::PERM),
            refusal(Errno::NOMEM),
        ]
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
            let finding = describe_kernel("Linux", release);
            assert_eq!(finding.status, status, "{release}");
            assert_eq!(finding.remedy.is_none(), status == Status::Ok, "{release}");
        }
    }

    #[test]
    fn a_complete_ring_is_used_and_has_nothing_to_fix() {
        let finding = describe(&Verdict::Ring, &Ok(offer(&[], true)), Some("0"));
        assert_eq!((finding.status, finding.remedy), (Status::Ok, None));
        assert_eq!(finding.value, "in use, with single_issuer and defer_taskrun");
    }

    #[test]
    fn an_older_ring_is_used_but_limited() {
        let finding = describe(&Verdict::Ring, &Ok(offer(&[], false)), None);
        assert_eq!((finding.status, finding.remedy.as_deref()), (Status::Limited, Some(NEWER)));
    }

    #[test]
    fn the_engine_decides_whatever_the_kernel_seems_to_offer() {
        for offer in offers() {
            let finding = describe(&Verdict::Ring, &offer, Some("0"));
            assert!(finding.value.starts_with("in use"), "{}", finding.value);
            assert_eq!(finding.facts["in_use"], true);

            let finding = describe(&threads(), &offer, Some("0"));
            assert_eq!(
                (finding.status, &finding.facts["in_use"]),
                (Status::Missing, &false.into())
            );
            assert!(finding.meaning.contains("threads engine"), "{}", finding.meaning);
            assert!(finding.remedy.is_some(), "{}", finding.value);

            let finding = describe(&Verdict::Nothing("no memory".to_owned()), &offer, Some("0"));
            assert_eq!((finding.status, &finding.facts["in_use"]), (Status::Error, &false.into()));
            assert!(finding.meaning.contains("No engine opens"), "{}", finding.meaning);
            assert!(finding.meaning.ends_with("no memory."), "{}", finding.meaning);
        }
    }

    #[test]
    fn the_finding_of_this_machine_agrees_with_its_engine() {
        let engine = open_engine();
        let verdict = Verdict::of(&engine);
        let is_ring = engine.is_ok_and(|engine| engine.facts().backend == "ring");
        assert_eq!(probe(&verdict).facts["in_use"], is_ring);
        assert_eq!(verdict.choice().name == "ring", is_ring);
    }

    #[test]
    fn a_kernel_before_5_13_is_said_to_be_too_old_and_for_what() {
        let lacks = Ok(offer(&["ext_arg", "resource_tagging"], false));
        let finding = describe(&threads(), &lacks, None);
        assert_eq!(finding.value, "too old: it lacks ext_arg, resource_tagging (Linux 5.13)");
    }

    #[test]
    fn a_refusal_that_only_the_engine_met_is_told_in_its_words() {
        let finding = describe(&threads(), &Ok(offer(&[], true)), None);
        assert_eq!(finding.value, "not in use: the kernel refuses");
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
            let finding = describe(&threads(), &refusal(errno), disabled);
            assert!(finding.value.starts_with(reason), "{}", finding.value);
        }
    }

    #[test]
    fn the_choice_is_the_engines_own() {
        assert_eq!(Verdict::Ring.choice(), Choice::best("ring"));
        assert_eq!(threads().choice(), Choice::fallback("threads", "the kernel refuses"));
        assert_eq!(Verdict::Nothing("x".to_owned()).choice(), Choice::fallback("none", "x"));
    }
}
