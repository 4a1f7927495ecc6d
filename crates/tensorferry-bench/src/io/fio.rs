//! The rival's side.

use std::path::Path;
use std::process::Command;

use tensorferry::{Error, Kind, Result};

use super::{Case, Plan};

/// fio's version, if it is installed.
pub(super) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Bytes a second, as fio reports them.
pub(super) fn sample(path: &Path, plan: &Plan, case: Case) -> Result<f64> {
    let failed = |why: String| Error::new(Kind::Io, "fio failed").with("case", case).caused_by(why);
    let direction = if case.write { "write" } else { "read" };
    let order = if case.random { "rand" } else { "" };
    let output = Command::new("fio")
        .args(["--name=rival", "--ioengine=io_uring", "--direct=1", "--time_based"])
        .args(["--output-format=json", "--randrepeat=0"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={}", plan.file_bytes))
        .arg(format!("--rw={order}{direction}"))
        .arg(format!("--bs={}", case.block_bytes))
        .arg(format!("--iodepth={}", case.depth))
        .arg(format!("--runtime={}ms", plan.sample.as_millis()))
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    report["jobs"][0][direction]["bw_bytes"]
        .as_f64()
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| failed("its report has no bandwidth".into()))
}
