//! The machine a figure was taken on.

use std::fs;

use serde::Serialize;

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
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
        };
        let kib = field("/proc/meminfo", "MemTotal")
            .and_then(|value| value.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()));
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            tensorferry: env!("CARGO_PKG_VERSION"),
        }
    }
}
