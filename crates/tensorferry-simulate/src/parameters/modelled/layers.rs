//! What the parts of a transformer cost on a machine.

use tensorferry::plan::parameters::{Layer, Link, looked_up_bytes, read_bytes};

use super::hardware::Hardware;
use super::shape::Shape;

/// Of a value.
pub(super) const BYTES: u64 = 4;
/// What a kernel takes at the least.
const LAUNCH_SECONDS: f64 = 5e-6;
/// Adam reads a parameter, its gradient and two moments, and writes all but the gradient: 7 values.
const UPDATE_VALUES: u64 = 7;

/// One part, before it is known what that takes.
struct Part {
    name: String,
    parameters: u64,
    /// Of forward.
    operations: f64,
    /// Values that forward reads and writes on the device.
    values: u64,
    /// Values that backward reads and writes beside twice those.
    backward_values: u64,
    /// Parameters that cross the link when forward reads them in place, and when backward does.
    read: (u64, u64),
    /// Whether it belongs to a block, whose forward backward may compute again.
    is_in_block: bool,
}

/// The layers of a network.
pub(super) fn layers(shape: &Shape, hardware: &Hardware, link: &Link, batch: u64) -> Vec<Layer> {
    let tokens = batch * shape.sequence;
    let mut parts = vec![table(shape, tokens)];
    for block in 0..shape.blocks {
        parts.extend(self::block(shape, tokens, block));
    }
    parts.push(norm("norm".into(), shape.hidden, tokens));
    let bench = Bench { hardware, link, recomputes: shape.recomputes };
    parts.into_iter().map(|part| bench.layer(part)).collect()
}

fn block(shape: &Shape, tokens: u64, number: u64) -> [Part; 7] {
    let hidden = shape.hidden;
    let name = |part: &str| format!("{number}.{part}");
    let matrix = |part, rows, columns| matrix(name(part), (rows, columns), tokens);
    let pairs = shape.heads() * shape.sequence * tokens;
    let attention = Part {
        name: name("attention"),
        parameters: 0,
        operations: 4.0 * (tokens * shape.sequence * hidden) as f64,
        values: 4 * pairs + 4 * tokens * hidden,
        backward_values: 0,
        read: (0, 0),
        is_in_block: true,
    };
    [
        norm(name("norm1"), hidden, tokens),
        matrix("qkv", hidden, 3 * hidden),
        attention,
        matrix("out", hidden, hidden),
        norm(name("norm2"), hidden, tokens),
        matrix("up", hidden, 4 * hidden),
        matrix("down", 4 * hidden, hidden),
    ]
}

/// Tokens and positions. Its gradient is dense.
fn table(shape: &Shape, tokens: u64) -> Part {
    let parameters = (shape.vocabulary + shape.positions) * shape.hidden;
    let rows = tokens * shape.hidden;
    Part {
        name: "embedding".into(),
        parameters,
        operations: 0.0,
        values: 2 * rows,
        backward_values: parameters,
        read: (looked_up_bytes(parameters, shape.hidden, tokens), 0),
        is_in_block: false,
    }
}

fn norm(name: String, hidden: u64, tokens: u64) -> Part {
    let parameters = 2 * hidden;
    let read = read_bytes(parameters, tokens);
    let values = 2 * tokens * hidden;
    let operations = 0.0;
    let (read, is_in_block) = ((read, read), true);
    Part { name, parameters, operations, values, backward_values: 0, read, is_in_block }
}

fn matrix(name: String, (rows, columns): (u64, u64), tokens: u64) -> Part {
    let parameters = rows * columns + columns;
    let read = read_bytes(parameters, tokens);
    let operations = 2.0 * (tokens * rows * columns) as f64;
    let values = parameters + tokens * (rows + columns);
    let (read, is_in_block) = ((read, read), true);
    Part { name, parameters, operations, values, backward_values: 0, read, is_in_block }
}

/// Where parts are timed.
struct Bench<'a> {
    hardware: &'a Hardware,
    link: &'a Link,
    recomputes: bool,
}

impl Bench<'_> {
    fn layer(&self, part: Part) -> Layer {
        let forward = self.kernel(part.operations, part.values);
        let computes_again = self.recomputes && part.is_in_block;
        let again = if computes_again { forward } else { 0.0 };
        let backward =
            self.kernel(2.0 * part.operations, 2 * part.values + part.backward_values) + again;
        let (read, read_back) = part.read;
        let direct_forward_bytes = BYTES * read;
        let direct_backward_bytes = BYTES * (read_back + if computes_again { read } else { 0 });
        let link = |bytes: u64| self.link.inwards.seconds(bytes as f64 * self.link.direct_slowdown);
        let gradient_bytes = BYTES * part.parameters;
        let written = self.link.outwards.seconds(gradient_bytes as f64 * self.link.direct_slowdown);
        let update = (UPDATE_VALUES * gradient_bytes) as f64 / self.hardware.host_bytes_per_second;
        Layer {
            name: part.name,
            parameter_bytes: BYTES * part.parameters,
            gradient_bytes,
            forward_seconds: forward,
            backward_seconds: backward,
            direct_forward_seconds: forward.max(link(direct_forward_bytes)),
            direct_backward_seconds: backward.max(link(direct_backward_bytes)),
            direct_forward_bytes,
            direct_backward_bytes,
            direct_gradient_seconds: (written - backward).max(0.0),
            update_seconds: update,
            copy_seconds: None,
            gradient_copy_seconds: None,
        }
    }

    fn kernel(&self, operations: f64, values: u64) -> f64 {
        let memory = (BYTES * values) as f64 / self.hardware.memory_bytes_per_second;
        LAUNCH_SECONDS + memory.max(operations / self.hardware.operations_per_second)
    }
}
