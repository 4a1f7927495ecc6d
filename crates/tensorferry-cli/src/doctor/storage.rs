//! The directory given with `--path`: whether it takes direct I/O, and what holds it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use tensorferry::Size;

use super::finding::{Choice, Finding, Status};
use super::mount::{self, Mount};

/// What the core aligns buffers and offsets to.
const BLOCK: usize = 4096;

/// A block at an address that direct I/O accepts.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// How an attempt at direct I/O went.
enum Direct {
    /// Written and read back; the alignments of memory and offset, where the kernel tells.
    Works(Option<(u32, u32)>),
    /// The file system has no direct I/O.
    Refused(io::Error),
    /// No file could be made there at all.
    NoFile(io::Error),
    /// The file system took the flag and gave back other bytes or an error.
    Broken(String),
}

pub(super) fn probe_direct(path: &Path) -> (Finding, Choice) {
    describe_direct(&try_direct(path))
}

/// A file that goes away with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It was made a moment ago; whoever removed it first has done our work.
        let _ = fs::remove_file(&self.0);
    }
}

fn try_direct(path: &Path) -> Direct {
    let scratch = Scratch(path.join(format!(".tensorferry-doctor-{}", std::process::id())));
    // Made first without the flag: a file system that refuses O_DIRECT may do so after creating.
    if let Err(error) = File::create_new(&scratch.0) {
        // What lies there under this name is not ours to remove.
        std::mem::forget(scratch);
        return Direct::NoFile(error);
    }
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&scratch.0, flags, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return Direct::Refused(error.into()),
    };
    match round_trip(&file) {
        Ok(true) => Direct::Works(alignment(&file)),
        Ok(false) => Direct::Broken("other bytes came back than were written".to_owned()),
        Err(rustix::io::Errno::INVAL) => Direct::Refused(rustix::io::Errno::INVAL.into()),
        Err(error) => Direct::Broken(error.to_string()),
    }
}

fn round_trip(file: &rustix::fd::OwnedFd) -> rustix::io::Result<bool> {
    let written = Box::new(Block([0xa5; BLOCK]));
    let mut read = Box::new(Block([0; BLOCK]));
    let lengths =
        (rustix::io::pwrite(file, &written.0, 0)?, rustix::io::pread(file, &mut read.0[..], 0)?);
    Ok(lengths == (BLOCK, BLOCK) && read.0 == written.0)
}

fn alignment(file: &rustix::fd::OwnedFd) -> Option<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(file, "", flags, StatxFlags::DIOALIGN).ok()?;
    let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_mem_align != 0;
    told.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

fn describe_direct(direct: &Direct) -> (Finding, Choice) {
    let name = "direct I/O";
    match direct {
        Direct::Works(alignment) => {
            let value = alignment.map_or_else(String::new, |(memory, offset)| {
                format!(", alignment {offset} (memory {memory})")
            });
            let finding = Finding::new(name, Status::Ok, format!("wrote and read a block{value}"))
                .means("Large transfers go past the page cache and leave memory to training.")
                .fact("memory_alignment", alignment.map(|(memory, _)| memory))
                .fact("offset_alignment", alignment.map(|(_, offset)| offset));
            (finding, Choice::best("direct"))
        }
        Direct::Refused(error) => {
            let finding = Finding::new(name, Status::Limited, "refused by this file system")
                .means("Files go through the page cache, which copies every byte once more.")
                .remedy("choose a directory on a local disk (ext4, xfs) with --path")
                .fact("error", error.to_string());
            (finding, Choice::fallback("buffered", "this file system refuses O_DIRECT"))
        }
        Direct::NoFile(error) => {
            let finding =
                Finding::new(name, Status::Error, format!("can't create a file: {error}"))
                    .means("Nothing can be saved in this directory by this user.")
                    .remedy("choose a directory that you can write to with --path")
                    .fact("error", error.to_string());
            (finding, Choice::fallback("unknown", "no file can be created there"))
        }
        Direct::Broken(reason) => {
            let finding = Finding::new(name, Status::Error, format!("failed: {reason}"))
                .means("The file system accepts O_DIRECT but does not do it right.")
                .remedy("choose a directory on a local disk (ext4, xfs) with --path")
                .fact("error", reason.clone());
            (finding, Choice::fallback("buffered", "direct I/O failed there"))
        }
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

    #[test]
    fn a_probe_leaves_no_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        probe_direct(directory.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_the_probes_name_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join(format!(".tensorferry-doctor-{}", std::process::id()));
        fs::write(&taken, "mine").unwrap();
        let (finding, _) = probe_direct(directory.path());
        assert_eq!(finding.value, "can't create a file: File exists (os error 17)");
        assert_eq!(fs::read_to_string(taken).unwrap(), "mine");
    }

    #[test]
    fn each_outcome_of_direct_io_says_what_files_will_use() {
        let error = || io::Error::from_raw_os_error(22);
        for (direct, status, files) in [
            (Direct::Works(Some((512, 4096))), Status::Ok, "direct"),
            (Direct::Works(None), Status::Ok, "direct"),
            (Direct::Refused(error()), Status::Limited, "buffered"),
            (Direct::NoFile(error()), Status::Error, "unknown"),
            (Direct::Broken("other bytes".to_owned()), Status::Error, "buffered"),
        ] {
            let (finding, choice) = describe_direct(&direct);
            assert_eq!((finding.status, choice.name.as_str()), (status, files));
            assert_eq!(finding.remedy.is_none(), status == Status::Ok);
        }
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
