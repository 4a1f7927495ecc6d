//! What was measured of one iteration: what each layer computes, on the device and in place, and what the
//! link can do.
//!
//! Seconds are of each part by itself: nothing else ran on the device or the link. So a profile serves any
//! budget and any plan. A computation without parameters, such as the attention between two projections, is
//! a layer with zero bytes.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::document::{self, NUMBER_MAX, corrupt, in_bounds};

/// The version of profiles and plans that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;
const WHAT: &str = "profile of parameters";
/// Layers of a profile.
pub const LAYERS_MAX: usize = 1 << 16;
/// Bytes of a layer, so that no sum overflows.
const BYTES_MAX: u64 = 1 << 46;
/// A kernel that uses the link worse than this is a typing mistake.
const SLOWDOWN_MAX: f64 = 1e6;

/// One iteration, measured or modelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`VERSION`].
    pub version: u32,
    /// Where the numbers come from, for people: everything that is shown of a plan repeats it.
    pub source: String,
    /// In the order of forward; backward takes them in reverse.
    pub layers: Vec<Layer>,
    /// Between host and device.
    pub link: Link,
    /// On the device whatever the plan: activations, workspace, buffers of the model.
    pub work_bytes: u64,
}

/// A layer, or a part of one that moves as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// For people.
    pub name: String,
    /// What is copied in, or read in place. Zero if it has no parameters.
    pub parameter_bytes: u64,
    /// What goes back to the host. Zero if it is frozen.
    pub gradient_bytes: u64,
    /// Forward with its parameters on the device: the paper's `T_FP`.
    pub forward_seconds: f64,
    /// Backward with parameters and gradient on the device: `T_BP`, `T_CBP`.
    pub backward_seconds: f64,
    /// Forward with its parameters in host memory: `T_FP^H`.
    pub direct_forward_seconds: f64,
    /// Backward with its parameters in host memory: `T_BP^H`.
    pub direct_backward_seconds: f64,
    /// What crosses the link in such a forward: the rows that are looked up, or a matrix as often as it is
    /// read.
    pub direct_forward_bytes: u64,
    /// What crosses it in such a backward.
    pub direct_backward_bytes: u64,
    /// How much longer backward takes if it writes the gradient straight to host memory: `T_GBP - T_CBP`.
    pub direct_gradient_seconds: f64,
    /// The optimizer, on the host.
    pub update_seconds: f64,
    /// To copy the parameters in: `T_trans`. If it was not measured, latency and bandwidth say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_seconds: Option<f64>,
    /// To copy the gradient out. If it was not measured, as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_copy_seconds: Option<f64>,
}

/// Two directions that do not disturb each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// From host to device.
    pub inwards: Direction,
    /// From device to host.
    pub outwards: Direction,
    /// By which factor a kernel that works on host memory uses the link worse than a copy.
    pub direct_slowdown: f64,
    /// Whether such kernels and copies share the link. The paper takes it that they do not.
    pub direct_shares: bool,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Once a transfer runs.
    pub bytes_per_second: f64,
    /// What each transfer costs whatever its size.
    pub latency_seconds: f64,
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
        if self.layers.len() > LAYERS_MAX {
            let layers = self.layers.len();
            return Err(corrupt(format!("{layers} layers: at most {LAYERS_MAX} can be planned")));
        }
        bytes("work_bytes", self.work_bytes)?;
        self.link.check()?;
        for (number, layer) in self.layers.iter().enumerate() {
            layer.check().map_err(|error| {
                error.with("layer", number).with("name", format!("{:?}", layer.name))
            })?;
        }
        Ok(())
    }

    /// Bytes of all parameters.
    pub fn parameter_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.parameter_bytes).sum()
    }

    /// Bytes of all gradients.
    pub fn gradient_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.gradient_bytes).sum()
    }

    /// That share of all gradients, for those who reserve memory by a factor as the paper does.
    pub fn reserve(&self, share: f64) -> Result<u64> {
        if (0.0..=1.0).contains(&share) {
            return Ok((self.gradient_bytes() as f64 * share).round() as u64);
        }
        let message = format!("a gradient reserve of {share}; write a share from 0 to 1");
        Err(Error::invalid(message))
    }

    /// Seconds to copy a layer in; none if it has no parameters.
    pub fn copy_seconds(&self, layer: usize) -> f64 {
        let Layer { parameter_bytes, copy_seconds, .. } = self.layers[layer];
        copy_seconds.unwrap_or_else(|| self.link.inwards.seconds(parameter_bytes as f64))
    }

    /// Seconds to copy its gradient out; none if it has no gradient.
    pub fn gradient_copy_seconds(&self, layer: usize) -> f64 {
        let Layer { gradient_bytes, gradient_copy_seconds, .. } = self.layers[layer];
        gradient_copy_seconds.unwrap_or_else(|| self.link.outwards.seconds(gradient_bytes as f64))
    }
}

impl Direction {
    /// Seconds of one transfer; none if there is nothing to move.
    pub fn seconds(&self, bytes: f64) -> f64 {
        if bytes > 0.0 { self.latency_seconds + bytes / self.bytes_per_second } else { 0.0 }
    }

    fn check(&self, what: &str) -> Result<()> {
        let speed = self.bytes_per_second;
        let said = || format!("the link {what} moves {speed} bytes a second");
        in_bounds(speed, (1.0, NUMBER_MAX), said)?;
        seconds(&format!("the latency {what}"), self.latency_seconds)
    }
}

impl Link {
    fn check(&self) -> Result<()> {
        self.inwards.check("inwards")?;
        self.outwards.check("outwards")?;
        let slowdown = self.direct_slowdown;
        in_bounds(slowdown, (1.0, SLOWDOWN_MAX), || format!("direct_slowdown is {slowdown}"))
    }
}

impl Layer {
    fn check(&self) -> Result<()> {
        bytes("parameter_bytes", self.parameter_bytes)?;
        bytes("gradient_bytes", self.gradient_bytes)?;
        bytes("direct_forward_bytes", self.direct_forward_bytes)?;
        bytes("direct_backward_bytes", self.direct_backward_bytes)?;
        seconds("forward", self.forward_seconds)?;
        seconds("backward", self.backward_seconds)?;
        seconds("forward in place", self.direct_forward_seconds)?;
        seconds("backward in place", self.direct_backward_seconds)?;
        seconds("writing the gradient in place", self.direct_gradient_seconds)?;
        seconds("the update", self.update_seconds)?;
        seconds("the copy", self.copy_seconds.unwrap_or(0.0))?;
        seconds("the gradient's copy", self.gradient_copy_seconds.unwrap_or(0.0))?;
        let given = [
            (self.parameter_bytes, self.copy_seconds, "parameters", "copy_seconds"),
            (
                self.gradient_bytes,
                self.gradient_copy_seconds,
                "a gradient",
                "gradient_copy_seconds",
            ),
        ];
        for (size, given, what, field) in given {
            if size == 0 && given.is_some_and(|seconds| seconds > 0.0) {
                let message = format!("a layer without {what} has {field}");
                return Err(corrupt(message + "; leave it out"));
            }
        }
        Ok(())
    }
}

fn check_version(version: u32) -> Result<()> {
    document::check_version("profile", version, VERSION, "profile an iteration again")
}

fn bytes(what: &str, value: u64) -> Result<()> {
    if value <= BYTES_MAX {
        return Ok(());
    }
    Err(corrupt(format!("{what} is {value}; at most {BYTES_MAX} can be")))
}

fn seconds(what: &str, value: f64) -> Result<()> {
    in_bounds(value, (0.0, NUMBER_MAX), || format!("{what} takes {value} s"))
}
