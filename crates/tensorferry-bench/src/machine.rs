//! The machine a figure was taken on.

use std::fs;

use serde::Serialize;
use tensorferry::memory::Headroom;

/// What a reader needs to know to place a figure.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// This crate's version.
    pub tensorferry: &'static str,
}

impl Machine {
    /// Looks.
    pub fn here() -> Self {
        let table = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = table.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| Some(line.split_once(':')?.1.trim()));
        Self {
            processor: model.unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: Headroom::now().map_or(0, |now| now.total),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            tensorferry: env!("CARGO_PKG_VERSION"),
        }
    }
}
