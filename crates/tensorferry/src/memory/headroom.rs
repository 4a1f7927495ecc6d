//! How much memory there is for this process, and how much it can still take.

use std::fs;

use super::cgroup;

/// In bytes, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// What the machine has.
    pub total: u64,
    /// What the control groups of this process allow it, if they limit it.
    pub limit: Option<u64>,
    /// What can be taken now before somebody has to be killed for it.
    pub available: u64,
}

impl Headroom {
    /// As it is now; `None` where the kernel does not say.
    pub fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/meminfo").ok()?, cgroup::allowed())
    }

    fn of(meminfo: &str, allowed: Option<cgroup::Allowed>) -> Option<Self> {
        let total = field(meminfo, "MemTotal:")?;
        let available = field(meminfo, "MemAvailable:").unwrap_or(total);
        let left = allowed.map_or(u64::MAX, |allowed| allowed.left);
        let limit = allowed.map(|allowed| allowed.limit);
        Some(Self { total, limit, available: available.min(left) })
    }

    /// What this process may have in all.
    pub fn usable(&self) -> u64 {
        self.limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

/// The bytes in a line such as `MemTotal:  24 kB`.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::cgroup::Allowed;
    use super::*;

    const MEMINFO: &str = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n";

    #[test]
    fn the_nearer_of_the_machines_limit_and_the_groups_counts() {
        let seen = |limit, left| {
            let headroom = Headroom::of(MEMINFO, Some(Allowed { limit, left })).unwrap();
            (headroom.usable() >> 20, headroom.available >> 20)
        };
        assert_eq!(seen(2 << 30, 1 << 30), (2048, 1024));
        assert_eq!(seen(64 << 30, 60 << 30), (8192, 4096));
        let alone = Headroom::of(MEMINFO, None).unwrap();
        assert_eq!((alone.usable(), alone.available), (8 << 30, 4 << 30));
    }

    #[test]
    fn a_table_that_makes_no_sense_tells_nothing() {
        for table in ["", "MemTotal: x kB", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(Headroom::of(table, None), None, "{table}");
        }
    }

    #[test]
    fn this_machine_has_some() {
        let now = Headroom::now().unwrap();
        assert!(0 < now.available && now.available <= now.total, "{now:?}");
    }
}
