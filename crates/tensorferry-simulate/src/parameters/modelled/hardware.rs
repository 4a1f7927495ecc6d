//! Machines by name: published peaks, and the shares of them that we take to be usable.

use tensorferry::{Error, Result};

/// An accelerator, its slot and its host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// As users write it.
    pub name: &'static str,
    /// Memory of the accelerator.
    pub capacity_bytes: u64,
    /// Usable arithmetic, in operations a second.
    pub operations_per_second: f64,
    /// Usable bandwidth of its memory.
    pub memory_bytes_per_second: f64,
    /// Usable bandwidth of the slot, each way.
    pub link_bytes_per_second: f64,
    /// What a transfer costs whatever its size.
    pub latency_seconds: f64,
    /// How much worse than a copy a kernel uses the slot.
    pub direct_slowdown: f64,
    /// Usable bandwidth of the host's memory, which bounds the optimizer.
    pub host_bytes_per_second: f64,
}

/// V100: 15.7 TFLOPS of FP32, of which 0.8; 900 GB/s. The paper's has 32 GB, and 12 cores beside it.
const V100: Hardware = Hardware {
    name: "v100-pcie3",
    capacity_bytes: 32 << 30,
    operations_per_second: 0.8 * 15.7e12,
    memory_bytes_per_second: 0.8 * 900e9,
    link_bytes_per_second: PCIE3,
    latency_seconds: 10e-6,
    direct_slowdown: 1.25,
    host_bytes_per_second: 60e9,
};

/// A100: 156 TFLOPS of TF32, of which 0.4; 2039 GB/s. The paper's has 80 GB, and 128 cores beside eight.
const A100: Hardware = Hardware {
    name: "a100-pcie3",
    capacity_bytes: 80 << 30,
    operations_per_second: 0.4 * 156e12,
    memory_bytes_per_second: 0.8 * 2039e9,
    link_bytes_per_second: PCIE3,
    latency_seconds: 10e-6,
    direct_slowdown: 1.25,
    host_bytes_per_second: 150e9,
};

/// 78 % of 15.75 GB/s, as with the emulated devices of these names.
const PCIE3: f64 = 12.3e9;

impl Hardware {
    /// Every machine.
    pub const ALL: [Self; 3] =
        [V100, A100, Self { name: "a100-pcie4", link_bytes_per_second: 2.0 * PCIE3, ..A100 }];

    /// The machine of that name; an error lists those there are.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|hardware| hardware.name == name).ok_or_else(|| {
            let known = Self::ALL.map(|hardware| hardware.name).join(", ");
            Error::invalid(format!("no machine {name:?}; choose one of {known}"))
        })
    }
}
