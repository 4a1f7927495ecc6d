//! Accelerators: memory that host code can't touch, reached by copies that finish later.
//!
//! ```text
//!             copy_in                 ┌────────────────────────────┐
//!   Block ───────────────► Stream ──► │ Memory   (capacity)        │
//!   Block ◄─────────────── Stream ◄── │                            │
//!             copy_out       │  ▲     │ kernels ◄── Mapped (host   │
//!                     record │  │wait │             memory used    │
//!                            ▼  │     │             over the link) │
//!                           Event     └────────────────────────────┘
//! ```
//!
//! A [`Stream`] is a queue of work that the device does in order; two streams are ordered only
//! by events: [`Device::record`] on one, [`Device::wait_for`] on the other. Completion is observed
//! at a [`Transfer`] or an [`Event`].
//!
//! **No waiting.** A call that submits work returns without waiting for it, and a copy does so for
//! blocks that the device can reach by itself: those of [`Device::allocate_host`], and others that
//! are page-locked for it, such as torch's pinned memory. With any other block a copy may return
//! only when it is done, behind all that is in line before it: CUDA's asynchronous copies of
//! pageable memory may be synchronous. So a schedule that counts on overlap takes its blocks from
//! `allocate_host`. ([`Host`] does everything within the call, so there nothing overlaps.)
//!
//! **Ownership.** A copy owns its [`Block`] and a share of its [`DeviceMemory`] until the device is done,
//! whether or not its `Transfer` still exists; then the block comes back through the `Transfer`, or
//! to its owner if nobody asks. So memory can be freed while it is in use: it goes, and stops
//! counting as used, when the last operation on it is done.
//!
//! **Errors.** What can be seen at once (ranges, another device's handles, a full queue) is refused
//! at the call, and the block is in the [`Refused`]. What fails later shows at the handle of the
//! operation that failed, at everything that the stream, and streams waiting for it, had in line
//! behind it, and at the stream's next [`Device::synchronize`]. [`Host`] and [`Emulated`] go on
//! after that report. Nothing may count on it: on a device a failure may be permanent, as many are
//! in CUDA, where from then on every call fails with the same error until the process ends.
//!
//! **Bounds.** Allocation is bounded by the capacity, the work in line on one stream by
//! [`STREAM_QUEUE_MAX`], the number of streams by [`STREAMS_MAX`], every wait by the caller's
//! limit, apart from that of a copy whose block is not page-locked.
//!
//! # Implementations
//!
//! [`Host`] does everything at once, in the calling thread. [`Emulated`] has a capacity, a link
//! that takes time, and finds races. A third implementation is for CUDA, whose driver has a call for each
//! method, so that it needs no change here. *There is no CUDA implementation yet, so this table
//! has not been tried on hardware.*
//!
//! | here | CUDA driver API |
//! |---|---|
//! | [`Device::facts`] | `cuDeviceGetName`, `cuMemGetInfo` |
//! | [`Device::allocate`], drop of [`DeviceMemory`] | `cuMemAlloc`, `cuMemFree` (which itself waits for the device; `cuMemFreeAsync` does not) |
//! | [`Device::allocate_host`], drop of the block | `cuMemHostAlloc`, `cuMemFreeHost` (as the keeper of a [`Foreign`](crate::memory::Foreign)) |
//! | [`Device::map_host`], [`Mapped::unmap`] or drop | `cuMemHostRegister` with `DEVICEMAP`, `cuMemHostUnregister` |
//! | [`Mapped::address`] | `cuMemHostGetDevicePointer` |
//! | [`Device::stream`], drop of [`Stream`] | `cuStreamCreate` with `NON_BLOCKING`, `cuStreamDestroy` (pending work still completes) |
//! | [`Device::copy_in`], [`Device::copy_out`] | `cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync` (asynchronous for page-locked blocks only), then `cuEventRecord` for the transfer |
//! | [`Device::record`] | `cuEventCreate` with `DISABLE_TIMING`, `cuEventRecord` |
//! | [`Device::wait_for`] | `cuStreamWaitEvent` |
//! | [`Event::is_done`], [`Transfer::is_done`] | `cuEventQuery` |
//! | [`Event::wait_within`], [`Transfer::wait_within`] | `cuEventQuery` until the limit, with growing pauses: `cuEventSynchronize` knows no limit |
//! | [`Device::synchronize`] | `cuStreamQuery` until the limit, then `cuStreamSynchronize` for the error |
//! | a dropped [`Transfer`] | its block goes to a list that one thread empties in order with `cuEventSynchronize` |
//! | [`Device::kernels`], [`Device::host_view`] | none: real kernels are launched by torch, and host code can't see the memory |

pub mod emulated;
pub mod link;

mod backing;
mod handles;
mod host;
mod kernels;
mod ticket;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use backing::ALLOCATION_ALIGNMENT;
pub use emulated::Emulated;
pub use handles::{
    Completion, DeviceMemory, Event, Held, Mapped, Presence, Refused, Stream, Transfer, Watch,
};
pub use host::Host;
pub use kernels::{DevicePointer, Entered, Kernel, Kernels, Operand, View};
pub use link::Direction;

/// The former name of [`DeviceMemory`].
pub type Memory = DeviceMemory;

/// The former name of [`DevicePointer`].
pub type Sight = DevicePointer;

use crate::error::{Error, Kind, Result};
use crate::memory::Block;

/// Operations that can be in line on one stream; the next is refused, as a thing to try again.
pub const STREAM_QUEUE_MAX: usize = 1024;

/// Streams that can exist on one device.
pub const STREAMS_MAX: usize = 256;

/// Memory of its own, and queues of work that move bytes in and out; see the [module](self).
pub trait Device: Send + Sync + fmt::Debug {
    /// What is known about the device, now.
    fn facts(&self) -> Facts;

    /// `len` bytes of device memory, freed when the last handle and the last operation on them are
    /// gone. What they contain is not defined.
    fn allocate(&self, len: usize) -> Result<DeviceMemory>;

    /// `len` bytes of host memory from which and to which this device copies fastest, and without
    /// making the caller wait.
    fn allocate_host(&self, len: usize) -> Result<Block>;

    /// Lets the device use `block` in place, over the link.
    fn map_host(&self, block: Block) -> Result<Mapped, Refused>;

    /// A new, empty queue of work.
    fn stream(&self) -> Result<Stream>;

    /// Copies all of `from` to `to`, at `offset`. May wait for the copy, unless `from` is
    /// page-locked for this device, as [`allocate_host`](Self::allocate_host) makes it.
    fn copy_in(
        &self,
        stream: &Stream,
        from: Block,
        to: &DeviceMemory,
        offset: usize,
    ) -> Result<Transfer, Refused>;

    /// Fills all of `to` from `from`, at `offset`. May wait for the copy, unless `to` is
    /// page-locked for this device, as [`allocate_host`](Self::allocate_host) makes it.
    fn copy_out(
        &self,
        stream: &Stream,
        from: &DeviceMemory,
        offset: usize,
        to: Block,
    ) -> Result<Transfer, Refused>;

    /// An event that is done when everything submitted to `stream` so far is.
    fn record(&self, stream: &Stream) -> Result<Event>;

    /// Makes what is submitted to `stream` from now on wait for `event`. The caller does not wait.
    fn wait_for(&self, stream: &Stream, event: &Event) -> Result<()>;

    /// Waits, at most for `limit`, until everything submitted to `stream` so far is done, and
    /// reports the first failure since the last report. A failure that is permanent is reported
    /// each time.
    fn synchronize(&self, stream: &Stream, limit: Duration) -> Result<()>;

    /// A look at device memory from host code: [`Kind::Unsupported`] unless host and device are
    /// one. Nothing may count on it.
    fn host_view(&self, memory: &DeviceMemory, range: Range<usize>) -> Result<View>;

    /// How to run host functions *as kernels of this device*; `None` for real accelerators.
    fn kernels(&self) -> Option<&dyn Kernels> {
        None
    }
}

/// What is known about a device: plain data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// What [`open`] takes to open such a device again.
    pub name: String,
    /// Bytes that can be allocated in all.
    pub capacity_bytes: u64,
    /// Bytes allocated now, including what is freed but still in use by an operation.
    pub used_bytes: u64,
    /// Whether host code can look at device memory.
    pub host_access: bool,
    /// The link, where it is modelled.
    pub link: Option<LinkFacts>,
    /// Where the figures come from, in words.
    pub basis: String,
}

impl Facts {
    /// Bytes that can still be allocated.
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes)
    }
}

/// The link of a device whose link is modelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// From host to device.
    pub into: link::Speed,
    /// From device to host.
    pub out: link::Speed,
    /// See [`link::direct_bytes`].
    pub direct_slowdown: f64,
}

/// The device of this name: `"host"`, `"emulated:v100-pcie3"`,
/// `"emulated:capacity=2GiB,bandwidth=4GB/s,latency=20us"`.
pub fn open(name: &str) -> Result<Arc<dyn Device>> {
    match name.split_once(':').unwrap_or((name, "")) {
        ("host", "") => Ok(Arc::new(Host::new())),
        ("emulated", spec) => Ok(Arc::new(Emulated::new(spec.parse()?)?)),
        ("cuda", _) => Err(Error::new(Kind::Unsupported, "this build has no CUDA device")),
        _ => Err(Error::invalid(format!(
            "no device {name:?}; write \"host\", \"emulated:<profile>\" or \
             \"emulated:capacity=2GiB,bandwidth=4GB/s\""
        ))),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn devices_open_by_name_and_their_facts_open_them_again() {
        for name in ["host", "emulated:a100-pcie4", "emulated:capacity=1MiB,bandwidth=4GB/s"] {
            let facts = open(name).unwrap().facts();
            assert_eq!(open(&facts.name).unwrap().facts(), facts);
            let text = serde_json::to_string(&facts).unwrap();
            assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
            assert_eq!(facts.free_bytes(), facts.capacity_bytes);
        }
    }

    #[test]
    fn unknown_devices_are_errors_that_name_the_known() {
        for (name, kind, part) in [
            ("cuda:0", Kind::Unsupported, "no CUDA device"),
            ("tpu", Kind::InvalidInput, "no device \"tpu\"; write \"host\""),
            ("host:1", Kind::InvalidInput, "no device \"host:1\""),
            ("emulated", Kind::InvalidInput, "does not describe an emulated device"),
        ] {
            let error = open(name).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
