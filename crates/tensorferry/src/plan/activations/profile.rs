//! What was measured of one step: the activations that forward saved, when backward used them, and what
//! the disk and the codec can do.
//!
//! Times are of compute only: seconds since the start of forward or backward, stalls not counted. So a
//! profile says nothing about how it was taken, and serves any budget.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::plan::document::{self, NUMBER_MAX, corrupt, in_bounds};

/// The version of profiles and plans that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;
const WHAT: &str = "profile of activations";
/// Tensors of a profile.
pub const TENSORS_MAX: usize = 1 << 20;
/// Uses of a profile.
pub const USES_MAX: usize = 1 << 22;
/// What compute can make of a transfer by waiting for it.
pub(crate) const SPEEDUP: (f64, f64) = (0.1, 100.0);
/// Bytes of a tensor, so that no sum overflows.
const BYTES_MAX: u64 = 1 << 43;

/// One step, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`VERSION`].
    pub version: u32,
    /// In the order in which forward saved them.
    pub tensors: Vec<Tensor>,
    /// In the order in which backward used them. A tensor may be used several times, or never.
    pub uses: Vec<Use>,
    /// Compute of forward.
    pub forward_seconds: f64,
    /// Compute of backward.
    pub backward_seconds: f64,
    /// Where tensors go.
    pub disk: Disk,
    /// What makes them smaller on the way.
    pub codec: Codec,
}

/// An activation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// For people.
    pub name: String,
    /// In memory.
    pub bytes: u64,
    /// On disk if it is encoded; the same as `bytes` where encoding does not pay.
    pub encoded_bytes: u64,
    /// When forward saved it: compute seconds since the start of forward.
    pub saved_at: f64,
}

/// One use in backward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// Which tensor.
    pub tensor: usize,
    /// Compute seconds since the start of backward.
    pub at: f64,
    /// When its memory is free again if this is its last use.
    pub until: f64,
}

/// All drives together: one transfer at a time.
///
/// Beside compute a transfer shares the processors with it; while compute waits it has them for itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Bandwidth to it, beside compute.
    pub write_bytes_per_second: f64,
    /// Bandwidth from it, beside compute.
    pub read_bytes_per_second: f64,
    /// What each tensor costs whatever its size.
    pub seconds_per_transfer: f64,
    /// How many times as fast writes are while compute waits.
    #[serde(default = "unchanged")]
    pub awaited_write_speedup: f64,
    /// How many times as fast reads are while compute waits.
    #[serde(default = "unchanged")]
    pub awaited_read_speedup: f64,
}

/// Profiles that were taken before this was measured do not tell it.
fn unchanged() -> f64 {
    1.0
}

/// Speeds in bytes of memory, not of disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Codec {
    /// Before a write.
    pub encode_bytes_per_second: f64,
    /// After a read.
    pub decode_bytes_per_second: f64,
}

impl Tensor {
    /// How much smaller it gets; one where encoding does not pay.
    pub fn ratio(&self) -> f64 {
        if self.is_compressible() {
            self.bytes as f64 / self.encoded_bytes.max(1) as f64
        } else {
            1.0
        }
    }

    /// Whether encoding makes it smaller.
    pub fn is_compressible(&self) -> bool {
        self.encoded_bytes < self.bytes
    }

    /// What goes to the disk and comes back.
    pub fn stored_bytes(&self, encoded: bool) -> u64 {
        if encoded { self.encoded_bytes } else { self.bytes }
    }
}

impl Profile {
    /// Reads and judges a profile.
    pub fn parse(json: &str) -> Result<Self> {
        let profile: Self = document::read(json, WHAT, check_version)?;
        profile.check()?;
        Ok(profile)
    }

    /// What [`parse`](Self::parse) reads.
    pub fn to_json(&self) -> Result<String> {
        document::write(self, WHAT)
    }

    /// Whether it holds together: a profile may come from a file.
    pub fn check(&self) -> Result<()> {
        check_version(self.version)?;
        if self.tensors.len() > TENSORS_MAX || self.uses.len() > USES_MAX {
            let (tensors, uses) = (self.tensors.len(), self.uses.len());
            let bounds = format!("at most {TENSORS_MAX} and {USES_MAX} can be planned");
            return Err(corrupt(format!("{tensors} tensors and {uses} uses: {bounds}")));
        }
        seconds("the seconds of forward", self.forward_seconds, NUMBER_MAX)?;
        seconds("the seconds of backward", self.backward_seconds, NUMBER_MAX)?;
        self.disk.check()?;
        self.codec.check()?;
        self.check_tensors()?;
        self.check_uses()
    }

    /// Seconds to write a tensor beside compute.
    pub fn write_seconds(&self, tensor: usize, encoded: bool) -> f64 {
        let Disk { write_bytes_per_second, .. } = self.disk;
        let speeds = (self.codec.encode_bytes_per_second, write_bytes_per_second);
        self.transfer_seconds(tensor, encoded, speeds)
    }

    /// Seconds to read it back beside compute.
    pub fn read_seconds(&self, tensor: usize, encoded: bool) -> f64 {
        let Disk { read_bytes_per_second, .. } = self.disk;
        let speeds = (self.codec.decode_bytes_per_second, read_bytes_per_second);
        self.transfer_seconds(tensor, encoded, speeds)
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Seconds of a step in which nothing waits.
    pub fn seconds(&self) -> f64 {
        self.forward_seconds + self.backward_seconds
    }

    /// The codec works piece by piece beside the disk, so the slower of the two counts.
    fn transfer_seconds(&self, tensor: usize, encoded: bool, (codec, disk): (f64, f64)) -> f64 {
        let tensor = &self.tensors[tensor];
        let moved = tensor.stored_bytes(encoded) as f64 / disk;
        let worked = if encoded { tensor.bytes as f64 / codec } else { 0.0 };
        moved.max(worked) + self.disk.seconds_per_transfer
    }

    fn check_tensors(&self) -> Result<()> {
        let mut before = 0.0;
        for (number, tensor) in self.tensors.iter().enumerate() {
            tensor.check(before, self.forward_seconds).map_err(|error| {
                error.with("tensor", number).with("name", format!("{:?}", tensor.name))
            })?;
            before = tensor.saved_at;
        }
        Ok(())
    }

    fn check_uses(&self) -> Result<()> {
        let mut before = 0.0;
        for (number, use_) in self.uses.iter().enumerate() {
            use_.check(before, self).map_err(|error| error.with("use", number))?;
            before = use_.at;
        }
        Ok(())
    }
}

impl Tensor {
    fn check(&self, before: f64, forward_seconds: f64) -> Result<()> {
        if self.bytes > BYTES_MAX {
            let bytes = self.bytes;
            return Err(corrupt(format!("a tensor has {bytes} bytes; at most {BYTES_MAX} can be")));
        }
        if self.encoded_bytes > self.bytes {
            let (encoded, bytes) = (self.encoded_bytes, self.bytes);
            let message = format!("a tensor of {bytes} bytes has {encoded} when encoded");
            return Err(corrupt(message + "; where encoding does not pay, both are the same"));
        }
        seconds("the time at which a tensor was saved", self.saved_at, forward_seconds)?;
        in_order("a tensor was saved", before, self.saved_at)
    }
}

impl Use {
    fn check(&self, before: f64, profile: &Profile) -> Result<()> {
        if self.tensor >= profile.tensors.len() {
            let (tensor, all) = (self.tensor, profile.tensors.len());
            return Err(corrupt(format!("tensor {tensor} is used, and there are {all}")));
        }
        seconds("the time of a use", self.at, profile.backward_seconds)?;
        in_order("a tensor was used", before, self.at)?;
        seconds("the end of a use", self.until, profile.backward_seconds)?;
        if self.until < self.at {
            let (at, until) = (self.at, self.until);
            return Err(corrupt(format!("a use at {at} s ends before it begins, at {until} s")));
        }
        Ok(())
    }
}

impl Disk {
    fn check(&self) -> Result<()> {
        speed("the disk writes", self.write_bytes_per_second)?;
        speed("the disk reads", self.read_bytes_per_second)?;
        seconds("the seconds of each transfer", self.seconds_per_transfer, NUMBER_MAX)?;
        speedup("writes", self.awaited_write_speedup)?;
        speedup("reads", self.awaited_read_speedup)
    }
}

impl Codec {
    fn check(&self) -> Result<()> {
        speed("the codec encodes", self.encode_bytes_per_second)?;
        speed("the codec decodes", self.decode_bytes_per_second)
    }
}

fn check_version(version: u32) -> Result<()> {
    document::check_version("profile", version, VERSION, "profile a step again")
}

fn seconds(what: &str, value: f64, max: f64) -> Result<()> {
    in_bounds(value, (0.0, max), || format!("{what} is {value}"))
}

fn speed(what: &str, value: f64) -> Result<()> {
    in_bounds(value, (1.0, NUMBER_MAX), || format!("{what} {value} bytes a second"))
}

fn speedup(what: &str, value: f64) -> Result<()> {
    in_bounds(value, SPEEDUP, || format!("{what} are {value} times as fast while compute waits"))
}

fn in_order(what: &str, before: f64, at: f64) -> Result<()> {
    if before <= at {
        return Ok(());
    }
    Err(corrupt(format!("{what} at {at} s, after one at {before} s; list them in order of time")))
}
