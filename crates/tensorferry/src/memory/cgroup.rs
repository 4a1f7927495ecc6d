//! How much memory the control groups of this process allow.
//!
//! A container sees the whole machine in `/proc/meminfo` and is killed when it believes it. Both
//! hierarchies are read: in version 2 the limits of all ancestors count, and so they do in
//! version 1 where hierarchical accounting is on.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Version 1 writes "no limit" as the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// What is known of all groups from that of this process to the root, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    /// The lowest limit.
    pub(super) limit: u64,
    /// The least that one of them has left. Files that it can let go of count as left.
    pub(super) left: u64,
}

/// What a hierarchy calls its files.
struct Names {
    limit: &'static str,
    used: &'static str,
    idle_files: &'static str,
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle_files: "total_inactive_file ",
};
const VERSION_2: Names =
    Names { limit: "memory.max", used: "memory.current", idle_files: "inactive_file " };

/// `None` without a limit.
pub(super) fn allowed() -> Option<Allowed> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    allowed_under(Path::new("/sys/fs/cgroup"), &groups)
}

fn allowed_under(root: &Path, groups: &str) -> Option<Allowed> {
    groups.lines().filter_map(|line| allowed_by(root, line)).reduce(Allowed::and)
}

/// A line is `id:controllers:path`; version 2 has the id 0 and no controllers.
fn allowed_by(root: &Path, line: &str) -> Option<Allowed> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (hierarchy, names) = if id == "0" && controllers.is_empty() {
        (root.to_path_buf(), VERSION_2)
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), VERSION_1)
    } else {
        return None;
    };
    // Inside a namespace the path may be that of the host, or lead out with `..`: the directories
    // that are not there are passed over, and the root of what is mounted is always looked at.
    let parts = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let group = hierarchy.join(parts.collect::<PathBuf>());
    let on_the_way = group.ancestors().take_while(|directory| directory.starts_with(&hierarchy));
    on_the_way.filter_map(|directory| names.read(directory)).reduce(Allowed::and)
}

impl Allowed {
    fn and(self, other: Self) -> Self {
        Self { limit: self.limit.min(other.limit), left: self.left.min(other.left) }
    }
}

impl Names {
    fn read(&self, group: &Path) -> Option<Allowed> {
        let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit).filter(|limit| *limit < NO_LIMIT)?;
        let kinds = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle_files = kinds.lines().find_map(|line| line.strip_prefix(self.idle_files));
        let idle_files = idle_files.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
        // Where it is not told what is used, nothing is known to be left.
        let used = number(self.used).map_or(limit, |used| used.saturating_sub(idle_files));
        Some(Allowed { limit, left: limit.saturating_sub(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    fn limit_under(root: &tempfile::TempDir, groups: &str) -> Option<u64> {
        allowed_under(root.path(), groups).map(|allowed| allowed.limit)
    }

    #[test]
    fn what_is_left_is_the_least_that_a_group_has_left() {
        let root = tree(&[
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "950\n"),
            ("a/memory.stat", "anon 1\ninactive_file 100\nactive_file 800\n"),
            ("a/b/memory.max", "800\n"),
            ("a/b/memory.current", "300\n"),
            ("memory/job/memory.limit_in_bytes", "4096\n"),
            ("memory/job/memory.usage_in_bytes", "4000\n"),
            ("memory/job/memory.stat", "inactive_file 1000\ntotal_inactive_file 4\n"),
            ("unknown/memory.max", "7\n"),
        ]);
        let left = |groups| allowed_under(root.path(), groups).unwrap().left;
        assert_eq!(left("0::/a/b\n"), 150);
        assert_eq!(left("0::/a/b\n4:memory:/job\n"), 100);
        assert_eq!(left("0::/unknown\n"), 0);
    }

    #[test]
    fn the_lowest_limit_on_the_way_to_the_root_counts() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("a/memory.max", "1000\n"),
            ("a/b/memory.max", "2000\n"),
            ("elsewhere/memory.max", "1\n"),
        ]);
        assert_eq!(limit_under(&root, "0::/a/b\n"), Some(1000));
        assert_eq!(limit_under(&root, "0::/\n"), None);
    }

    #[test]
    fn version_one_is_read_beside_version_two() {
        let root = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/job/memory.limit_in_bytes", "4096\n"),
        ]);
        let groups = "4:cpu,memory:/job\n3:cpu:/\n0::/\n";
        assert_eq!(limit_under(&root, groups), Some(4096));
        assert_eq!(limit_under(&root, "4:memory:/\n"), None);
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_what_is_mounted() {
        let root = tree(&[("memory.max", "500\n")]);
        assert_eq!(limit_under(&root, "0::/system.slice/docker-1.scope\n"), Some(500));
        assert_eq!(limit_under(&root, "0::/../../x\n"), Some(500));
    }

    #[test]
    fn nonsense_is_no_limit() {
        let root = tree(&[("memory.max", "lots\n")]);
        assert_eq!(limit_under(&root, "0::/\n\nx\n1:2\n"), None);
    }
}
