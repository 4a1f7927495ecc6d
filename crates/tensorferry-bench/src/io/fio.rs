//! The rival's side: fio, as strong as it gets with the same means.
//!
//! The engine's pools lie in huge pages, which saves the kernel and the device most of the work of
//! a large transfer. fio's buffers are put there too, through the C library's allocator: it is
//! up to twice as fast with them.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use tensorferry::{Error, Kind, Result};

use super::{Case, Plan};

/// Of a pass over a whole file.
const BLOCK_BYTES: u64 = 1 << 20;

/// An fio that has shown that it can do the work here.
#[derive(Clone)]
pub(crate) struct Fio {
    version: String,
    path: PathBuf,
    /// Registered buffers and files, as the engine has them.
    registered: bool,
    /// Buffers in huge pages, likewise.
    huge_pages: bool,
}

impl Fio {
    /// Finds fio and lets it read one block; otherwise says why it can't take part.
    pub(crate) fn find(path: PathBuf, registered: bool) -> Result<Self, String> {
        let missing = "install fio to compare; Debian package: fio";
        let output = Command::new("fio").arg("--version").output().map_err(|_| missing)?;
        if !output.status.success() {
            return Err(missing.into());
        }
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let fio = Self { version, path, registered, huge_pages: true };
        let probe = ["--rw=read", "--bs=4096", "--size=4096", "--iodepth=1"].map(str::to_owned);
        fio.run(&probe, "read").map_err(|error| error.to_string())?;
        Ok(fio)
    }

    /// Bytes a second, as fio reports them.
    pub(super) fn sample(&self, plan: &Plan, case: Case) -> Result<f64> {
        let direction = if case.write { "write" } else { "read" };
        let order = if case.random { "rand" } else { "" };
        let arguments = [
            "--time_based".to_owned(),
            "--randrepeat=0".to_owned(),
            format!("--size={}", plan.file_bytes),
            format!("--rw={order}{direction}"),
            format!("--bs={}", case.block_bytes),
            format!("--iodepth={}", case.depth),
            format!("--runtime={}ms", plan.sample.as_millis()),
        ];
        self.run(&arguments, direction).map_err(|error| error.with("case", case))
    }

    /// Bytes a second over a whole file of `bytes`, once from front to back; what is written
    /// counts when it is synced.
    pub(crate) fn pass(&self, bytes: u64, write: bool) -> Result<f64> {
        self.whole(bytes, write, 16)
    }

    /// Bytes a second to read a whole file of `bytes` once, where no memory is used twice: as many blocks
    /// are under way as the file has, since each has a buffer of its own, which fio does not touch before.
    /// Registering them would, before the clock starts.
    pub(crate) fn read_into_new_memory(&self, bytes: u64) -> Result<f64> {
        let unregistered = Self { registered: false, ..self.clone() };
        unregistered.whole(bytes, false, bytes.div_ceil(BLOCK_BYTES))
    }

    /// Bytes a second to read a whole file of `bytes` once by an fio that is told no more than the engine,
    /// the size of blocks and how many are under way, as most people run it.
    pub(crate) fn read_as_it_comes(&self, bytes: u64) -> Result<f64> {
        Self { registered: false, huge_pages: false, ..self.clone() }.pass(bytes, false)
    }

    /// The whole file once, with so many blocks under way.
    fn whole(&self, bytes: u64, write: bool, depth: u64) -> Result<f64> {
        let direction = if write { "write" } else { "read" };
        let arguments = [
            format!("--size={bytes}"),
            format!("--rw={direction}"),
            format!("--bs={BLOCK_BYTES}"),
            format!("--iodepth={depth}"),
            format!("--end_fsync={}", u8::from(write)),
        ];
        self.run(&arguments, direction).map_err(|error| error.with("bytes", bytes))
    }

    /// Removes the file, so that the next pass makes a new one.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn run(&self, arguments: &[String], direction: &str) -> Result<f64> {
        let failed = |why: String| Error::new(Kind::Io, "fio failed").caused_by(why);
        let registered = if self.registered { "1" } else { "0" };
        let huge_pages = u8::from(self.huge_pages);
        let output = Command::new("fio")
            .env("GLIBC_TUNABLES", format!("glibc.malloc.hugetlb={huge_pages}"))
            .args(["--name=rival", "--ioengine=io_uring", "--direct=1", "--output-format=json"])
            .arg(format!("--fixedbufs={registered}"))
            .arg(format!("--registerfiles={registered}"))
            .arg(format!("--filename={}", self.path.display()))
            .args(arguments)
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(failed(String::from_utf8_lossy(&said).trim().to_owned()));
        }
        bandwidth(&output.stdout, direction).map_err(failed)
    }
}

/// Reads fio's report.
fn bandwidth(report: &[u8], direction: &str) -> Result<f64, String> {
    let report: serde_json::Value =
        serde_json::from_slice(report).map_err(|error| error.to_string())?;
    report["jobs"][0][direction]["bw_bytes"]
        .as_f64()
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| "its report has no bandwidth".into())
}

impl fmt::Display for Fio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, io_uring, O_DIRECT, huge pages", self.version)?;
        f.write_str(if self.registered { ", fixedbufs, registerfiles" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_the_figure_is_an_error() {
        let report = br#"{"jobs": [{"read": {"bw_bytes": 5}, "write": {"bw_bytes": 0}}]}"#;
        assert_eq!(bandwidth(report, "read"), Ok(5.0));
        assert!(bandwidth(report, "write").is_err());
        assert!(bandwidth(b"fio: out of luck", "read").is_err());
    }
}
