//! Profiles from published shapes of networks and published figures of hardware.
//!
//! Nothing here is measured, and every profile says so in its source. What it is good for: to see which layers
//! would move where on a machine that is not at hand, and to compare plans with those of the paper.
//!
//! | what | file |
//! |---|---|
//! | networks by name | `shape.rs` |
//! | machines by name | `hardware.rs` |
//! | what a layer of one costs on the other | `layers.rs` |
//!
//! *Assumptions.* Values of 4 bytes, matrices by TF32 where there is such a thing. A kernel takes the longer of
//! arithmetic and memory, at the shares of the peak that `hardware.rs` names, and a launch. Backward takes
//! twice forward, three times with recomputation (networks of 0.7 billion parameters and more). In place, a
//! matrix crosses the link once for every [`ROWS_AT_ONCE`](tensorferry::plan::parameters::ROWS_AT_ONCE) rows of input, a table only with the rows that are looked
//! up, as on an emulated device; backward of a table does not read it. The optimizer is Adam, bound by the host's memory. The output
//! projection, which is tied to the table, is left out.

mod hardware;
pub mod layers;
mod shape;

pub use hardware::Hardware;
pub use shape::Shape;

use tensorferry::plan::parameters::{Direction, Link, Profile, VERSION};
use tensorferry::{Error, Result};

/// The batch if none is asked for.
pub const BATCH: u64 = 8;
/// A batch beyond this is a typing mistake.
const BATCH_MAX: u64 = 1 << 16;

/// The profile of a network on a machine, with `batch` sequences in an iteration.
pub fn profile(shape: &Shape, hardware: &Hardware, batch: u64) -> Result<Profile> {
    if !(1..=BATCH_MAX).contains(&batch) {
        return Err(Error::invalid(format!("a batch of {batch}; choose 1 to {BATCH_MAX}")));
    }
    let Hardware { link_bytes_per_second, latency_seconds, direct_slowdown, .. } = *hardware;
    let direction = Direction { bytes_per_second: link_bytes_per_second, latency_seconds };
    let link =
        Link { inwards: direction, outwards: direction, direct_slowdown, direct_shares: true };
    let layers = layers::layers(shape, hardware, &link, batch);
    let work_bytes = shape.work_bytes(batch);
    let (name, on, tokens) = (shape.name, hardware.name, shape.sequence);
    let source =
        format!("modelled, not measured: {name}, batches of {batch} with {tokens} tokens, on {on}");
    Ok(Profile { version: VERSION, source, layers, link, work_bytes })
}
