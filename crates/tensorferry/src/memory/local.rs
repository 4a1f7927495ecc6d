//! File systems that keep the files of a disk, or of memory, themselves.
//!
//! Others stand in front of them: over a network, or stacked, as overlay file systems of containers
//! are. What the kernel tells of a file there may be about the front only.

use std::os::fd::AsFd;

/// Magic numbers of ext4, XFS, Btrfs, F2FS and tmpfs.
const LOCAL: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// Whether a file lies on such a file system.
pub(crate) fn is_local(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| LOCAL.contains(&(stat.f_type as u32)))
}
