//! What an engine costs before and between operations.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tensorferry::io::{Choice, Config, open};
use tensorferry::{Error, Kind, Result};

use crate::sample::Samples;

/// Milliseconds to open an engine, 20 times.
pub(super) fn open_ms(choice: Choice) -> Result<Samples> {
    let mut raw = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let engine = open(&Config::of(choice))?;
        raw.push(start.elapsed().as_secs_f64() * 1e3);
        drop(engine);
    }
    Samples::of(raw).ok_or_else(|| Error::new(Kind::Internal, "no engine was opened"))
}

/// Share of one processor that the threads of an idle engine use.
pub(super) fn cpu_share(choice: Choice, length: Duration) -> Result<f64> {
    let engine = open(&Config::of(choice))?;
    sleep(Duration::from_millis(50));
    let unknown = || Error::new(Kind::Unsupported, "can't read how long threads ran, in /proc");
    let (before, start) = (engine_seconds().ok_or_else(unknown)?, Instant::now());
    sleep(length);
    let used = engine_seconds().ok_or_else(unknown)? - before;
    let share = used / start.elapsed().as_secs_f64();
    drop(engine);
    Ok(share)
}

/// Processor time of all threads of engines in this process, from the scheduler's own clock; `None`
/// when there is none to be seen.
fn engine_seconds() -> Option<f64> {
    let mut nanoseconds = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let path = thread.ok()?.path();
        if fs::read_to_string(path.join("comm")).ok()?.starts_with("ferry-io") {
            let times = fs::read_to_string(path.join("schedstat")).ok()?;
            nanoseconds.push(times.split(' ').next()?.parse::<f64>().ok()?);
        }
    }
    (!nanoseconds.is_empty()).then(|| nanoseconds.iter().sum::<f64>() / 1e9)
}
