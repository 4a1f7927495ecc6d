//! Which disk a directory lies on.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};

/// The disk's name and, where it tells, its model; `None` for what is no block device.
pub(super) fn disk_of(path: &Path) -> Option<String> {
    let device = stat(path).ok()?.st_dev;
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    describe(&fs::canonicalize(link).ok()?)
}

/// `device` is the kernel's directory of a disk or of a partition, which lies inside its disk's.
fn describe(device: &Path) -> Option<String> {
    let is_partition = device.join("partition").exists();
    let disk: PathBuf = if is_partition { device.parent()?.into() } else { device.into() };
    let name = disk.file_name()?.to_string_lossy().into_owned();
    let model = fs::read_to_string(disk.join("device/model")).unwrap_or_default();
    Some(match model.trim() {
        "" => name,
        model => format!("{name} ({model})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_as_its_disk_with_the_model_if_there_is_one() {
        let sys = tempfile::tempdir().unwrap();
        let partition = sys.path().join("nvme0n1/nvme0n1p2");
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "2\n").unwrap();
        assert_eq!(describe(&partition).as_deref(), Some("nvme0n1"));
        fs::create_dir(sys.path().join("nvme0n1/device")).unwrap();
        fs::write(sys.path().join("nvme0n1/device/model"), "Fast 9000  \n").unwrap();
        assert_eq!(describe(&partition).as_deref(), Some("nvme0n1 (Fast 9000)"));
        assert_eq!(describe(&sys.path().join("nvme0n1")).as_deref(), Some("nvme0n1 (Fast 9000)"));
    }
}
