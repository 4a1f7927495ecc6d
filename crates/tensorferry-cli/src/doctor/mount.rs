//! Which file system holds a directory, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::finding::Status;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: PathBuf,
    /// As the kernel names it: `ext4`, `nfs4`, `fuse.sshfs`.
    pub(super) file_system: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Disk,
    Network,
    Memory,
    Overlay,
    Fuse,
    Other,
}

/// The mount that holds `path`, which must be absolute and without links.
pub(super) fn of(path: &Path, table: &str) -> Option<Mount> {
    // Of two mounts at the same point the later hides the earlier, and `max_by_key` keeps the
    // last of equals.
    table
        .lines()
        .filter_map(parse)
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// A line is `id parent major:minor root point options [optional...] - type source options`.
fn parse(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let point = unescape(front.split(' ').nth(4)?);
    let file_system = back.split(' ').next()?.to_owned();
    Some(Mount { point: OsString::from_vec(point).into(), file_system })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &str) -> Vec<u8> {
    let mut pieces = field.split('\\');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.extend(code.or(Some(b'\\')));
        bytes.extend(piece.as_bytes().iter().skip(if code.is_some() { 3 } else { 0 }));
    }
    bytes
}

impl Mount {
    pub(super) fn kind(&self) -> Kind {
        match self.file_system.as_str() {
            "ext4" | "ext3" | "xfs" | "btrfs" | "f2fs" | "zfs" | "bcachefs" => Kind::Disk,
            "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "lustre" | "gpfs" | "beegfs" | "9p" => {
                Kind::Network
            }
            "tmpfs" | "ramfs" | "hugetlbfs" => Kind::Memory,
            "overlay" => Kind::Overlay,
            other if other.starts_with("fuse") => Kind::Fuse,
            _ => Kind::Other,
        }
    }
}

impl Kind {
    /// How good it is for our files, what that means, and what to do about it.
    pub(super) const fn advice(self) -> (Status, &'static str, Option<&'static str>) {
        const SCRATCH: Option<&str> = Some("choose a directory on a local disk with --path");
        match self {
            Self::Disk => (Status::Ok, "A local disk: right for checkpoints and caches.", None),
            Self::Network => (
                Status::Limited,
                "A network file system: right for data and finished checkpoints, slow as scratch.",
                SCRATCH,
            ),
            Self::Memory => (
                Status::Limited,
                "Lies in memory: what is offloaded here takes the memory it should free.",
                SCRATCH,
            ),
            Self::Overlay => (
                Status::Limited,
                "A container's own layer: it goes away with the container and writes slowly.",
                Some("mount a volume into the container and name it with --path"),
            ),
            Self::Fuse => (
                Status::Limited,
                "A file system in user space: each transfer is copied through a process.",
                SCRATCH,
            ),
            Self::Other => (Status::Ok, "A file system that has not been tried.", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /tmp rw shared:2 master:3 - tmpfs tmpfs rw
31 22 0:27 / /mnt/my\\040data\\134x rw - nfs4 server:/export rw
32 31 0:28 / /mnt rw - xfs /dev/vdb rw
33 31 0:29 / /mnt rw - fuse.sshfs host: rw
a line that is none
";

    fn file_system(path: &str) -> String {
        of(Path::new(path), TABLE).unwrap().file_system
    }

    #[test]
    fn the_deepest_mount_holds_a_path_and_the_later_hides_the_earlier() {
        assert_eq!(file_system("/"), "ext4");
        assert_eq!(file_system("/home/a"), "ext4");
        assert_eq!(file_system("/tmp/a"), "tmpfs");
        assert_eq!(file_system("/tmpfoo"), "ext4");
        assert_eq!(file_system("/mnt/other"), "fuse.sshfs");
        assert_eq!(file_system("/mnt/my data\\x/y"), "nfs4");
    }

    #[test]
    fn a_path_on_no_mount_has_no_file_system() {
        assert_eq!(of(Path::new("/home"), ""), None);
        assert_eq!(of(Path::new("/home"), "31 22 0:27 / /mnt rw - xfs /dev/vdb rw"), None);
    }

    #[test]
    fn odd_escapes_are_kept_as_they_are() {
        assert_eq!(unescape("a\\04"), b"a\\04");
        assert_eq!(unescape("a\\999b"), b"a\\999b");
        assert_eq!(unescape("\\"), b"\\");
        assert_eq!(unescape("a\\ö"), "a\\ö".as_bytes());
    }

    #[test]
    fn file_systems_are_judged_by_their_kind() {
        for (name, kind, status) in [
            ("xfs", Kind::Disk, Status::Ok),
            ("nfs4", Kind::Network, Status::Limited),
            ("tmpfs", Kind::Memory, Status::Limited),
            ("overlay", Kind::Overlay, Status::Limited),
            ("fuse.s3fs", Kind::Fuse, Status::Limited),
            ("newfs", Kind::Other, Status::Ok),
        ] {
            let mount = Mount { point: "/".into(), file_system: name.to_owned() };
            let (judged, _, remedy) = mount.kind().advice();
            assert_eq!((mount.kind(), judged), (kind, status), "{name}");
            assert_eq!(remedy.is_some(), status == Status::Limited, "{name}");
        }
    }
}
