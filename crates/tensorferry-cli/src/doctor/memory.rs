//! Host memory: how much there is, how much may be pinned, and in what pages.

use std::fs;

use rustix::process::{Resource, getrlimit};
use tensorferry::Size;
use tensorferry::memory::Headroom;

use super::finding::{Finding, Status};

/// The bit of `CAP_IPC_LOCK` in a capability set.
const IPC_LOCK: u32 = 14;
/// What the ring engine registers by default is well below this.
const LOCK_ENOUGH: u64 = 64 << 20;

pub(super) fn probe_size() -> Finding {
    describe_size(Headroom::now())
}

fn describe_size(headroom: Option<Headroom>) -> Finding {
    let Some(headroom) = headroom else {
        return Finding::new("memory", Status::Error, "unknown")
            .means("/proc/meminfo can't be read, so how much there is stays unknown.");
    };
    let Headroom { total, limit, available } = headroom;
    let usable = headroom.usable();
    let bounded = usable < total;
    let value = if bounded {
        format!("{} by control group, of {}", Size(usable), Size(total))
    } else {
        format!("{}, {} available", Size(total), Size(available))
    };
    let meaning = "Training and the engine's buffers have to fit into this together.";
    let finding = Finding::new("memory", if bounded { Status::Limited } else { Status::Ok }, value)
        .means(meaning)
        .fact("total_bytes", total)
        .fact("available_bytes", available)
        .fact("limit_bytes", limit);
    if bounded {
        finding.remedy("give the container or job a higher memory limit")
    } else {
        finding
    }
}

pub(super) fn probe_lock() -> Finding {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    describe_lock(getrlimit(Resource::Memlock).current, may_lock(&status))
}

/// Whether `CAP_IPC_LOCK` is effective, which lifts the limit.
fn may_lock(status: &str) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << IPC_LOCK) != 0)
}

fn describe_lock(limit: Option<u64>, privileged: bool) -> Finding {
    let words = limit.map_or_else(|| "unlimited".to_owned(), |limit| Size(limit).to_string());
    let enough = privileged || limit.is_none_or(|limit| limit >= LOCK_ENOUGH);
    let lifted = if privileged { ", lifted by CAP_IPC_LOCK" } else { "" };
    let finding = Finding::new(
        "memory lock",
        if enough { Status::Ok } else { Status::Limited },
        format!("{words}{lifted}"),
    )
    .fact("limit_bytes", limit)
    .fact("cap_ipc_lock", privileged);
    if enough {
        finding.means("The ring engine's buffers can be registered with the kernel.")
    } else {
        finding
            .means(
                "Buffers beyond it are not registered: a little more CPU time for each transfer.",
            )
            .remedy("`ulimit -l unlimited`, or memlock in /etc/security/limits.conf")
    }
}

pub(super) fn probe_huge_pages() -> Finding {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    describe_huge_pages(text.ok().as_deref())
}

fn describe_huge_pages(text: Option<&str>) -> Finding {
    let mode = text.and_then(|text| text.split(['[', ']']).nth(1));
    let name = "huge pages";
    let finding = match mode {
        Some(mode @ ("always" | "madvise")) => Finding::new(name, Status::Ok, mode)
            .means("Large buffers use 2 MiB pages where the kernel has them free."),
        _ => Finding::new(name, Status::Limited, mode.unwrap_or("not in this kernel"))
            .means("Large buffers use 4 KiB pages: more work to register and to walk them.")
            .remedy("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"),
    };
    finding.fact("mode", mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(limit: Option<u64>) -> Finding {
        describe_size(Some(Headroom { total: 8 << 30, limit, available: 4 << 30 }))
    }

    #[test]
    fn memory_is_what_the_control_group_allows() {
        let finding = described(Some(2 << 30));
        assert_eq!(finding.value, "2 GiB by control group, of 8 GiB");
        assert_eq!(finding.status, Status::Limited);
    }

    #[test]
    fn a_limit_above_the_machines_memory_limits_nothing() {
        for limit in [None, Some(64 << 30)] {
            let finding = described(limit);
            assert_eq!(finding.value, "8 GiB, 4 GiB available");
            assert_eq!((finding.status, finding.remedy), (Status::Ok, None));
        }
    }

    #[test]
    fn unreadable_memory_is_an_error_and_not_a_guess() {
        assert_eq!(describe_size(None).status, Status::Error);
    }

    #[test]
    fn a_low_lock_limit_is_limited_unless_a_capability_lifts_it() {
        assert_eq!(describe_lock(Some(8 << 20), false).status, Status::Limited);
        let lifted = describe_lock(Some(8 << 20), true);
        assert_eq!(
            (lifted.status, lifted.value.as_str()),
            (Status::Ok, "8 MiB, lifted by CAP_IPC_LOCK")
        );
        assert_eq!(describe_lock(None, false).value, "unlimited");
        assert_eq!(describe_lock(Some(LOCK_ENOUGH), false).status, Status::Ok);
    }

    #[test]
    fn the_capability_is_read_from_the_effective_set() {
        assert!(may_lock("CapPrm:\t0\nCapEff:\t0000000000004000\n"));
        assert!(!may_lock("CapPrm:\t4000\nCapEff:\t0000000000003fff\n"));
        assert!(!may_lock("CapEff:\tnonsense\n"));
    }

    #[test]
    fn the_mode_of_huge_pages_is_the_word_in_brackets() {
        assert_eq!(describe_huge_pages(Some("always [madvise] never\n")).value, "madvise");
        assert_eq!(describe_huge_pages(Some("always madvise [never]\n")).status, Status::Limited);
        assert_eq!(describe_huge_pages(None).value, "not in this kernel");
    }
}
