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
    let (before, start) = (engine_seconds(), Instant::now());
    sleep(length);
    let share = (engine_seconds() - before) / start.elapsed().as_secs_f64();
    drop(engine);
    Ok(share)
}

/// Processor time of all threads of engines in this process, from the scheduler's own clock.
fn engine_seconds() -> f64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0.0 };
    threads
        .filter_map(|thread| {
            let path = thread.ok()?.path();
            let name = fs::read_to_string(path.join("comm")).ok()?;
            let times = fs::read_to_string(path.join("schedstat")).ok()?;
            name.starts_with("ferry-io").then(|| times.split(' ').next()?.parse::<f64>().ok())?
        })
        .sum::<f64>()
        / 1e9
}
