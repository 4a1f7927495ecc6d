//! How much memory the control group of this process allows.
//!
//! A container sees the whole machine in `/proc/meminfo` and is killed when it believes it. Both
//! hierarchies are read: in version 2 the limits of all ancestors count, and so they do in
//! version 1 where hierarchical accounting is on.

use std::fs;
use std::path::{Component, Path};

/// Version 1 writes "no limit" as the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The lowest limit on the way from this process's group to the root, in bytes.
pub(super) fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_under(Path::new("/sys/fs/cgroup"), &groups)
}

fn limit_under(root: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(|line| limit_of(root, line)).min()
}

/// A line is `id:controllers:path`; version 2 has the id 0 and no controllers.
fn limit_of(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (hierarchy, file) = if id == "0" && controllers.is_empty() {
        (root.to_path_buf(), "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), "memory.limit_in_bytes")
    } else {
        return None;
    };
    // Inside a namespace the path may be that of the host, or lead out with `..`: the directories
    // that are not there are passed over, and the root of what is mounted is always looked at.
    let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let group = hierarchy.join(names.collect::<std::path::PathBuf>());
    let on_the_way = group.ancestors().take_while(|directory| directory.starts_with(&hierarchy));
    on_the_way.filter_map(|directory| read(&directory.join(file))).min()
}

fn read(file: &Path) -> Option<u64> {
    let limit = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < NO_LIMIT).then_some(limit)
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

    #[test]
    fn the_lowest_limit_on_the_way_to_the_root_counts() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("a/memory.max", "1000\n"),
            ("a/b/memory.max", "2000\n"),
            ("elsewhere/memory.max", "1\n"),
        ]);
        assert_eq!(limit_under(root.path(), "0::/a/b\n"), Some(1000));
        assert_eq!(limit_under(root.path(), "0::/\n"), None);
    }

    #[test]
    fn version_one_is_read_beside_version_two() {
        let root = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/job/memory.limit_in_bytes", "4096\n"),
        ]);
        let groups = "4:cpu,memory:/job\n3:cpu:/\n0::/\n";
        assert_eq!(limit_under(root.path(), groups), Some(4096));
        assert_eq!(limit_under(root.path(), "4:memory:/\n"), None);
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_what_is_mounted() {
        let root = tree(&[("memory.max", "500\n")]);
        assert_eq!(limit_under(root.path(), "0::/system.slice/docker-1.scope\n"), Some(500));
        assert_eq!(limit_under(root.path(), "0::/../../x\n"), Some(500));
    }

    #[test]
    fn nonsense_is_no_limit() {
        let root = tree(&[("memory.max", "lots\n")]);
        assert_eq!(limit_under(root.path(), "0::/\n\nx\n1:2\n"), None);
    }
}
