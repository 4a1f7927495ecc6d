//! Does the two-ended arena keep holes from forming? One training iteration is replayed against it
//! and against the same arena used from one end only.
//!
//! The trace is that of a ResNet-50 in FP32: each convolution's output and each `ReLU`'s output is
//! saved for backward. The compressible half (after `ReLU`) goes to storage, as FlashNeuron's second
//! phase chooses; the rest stays. Writes and reads run beside compute at a fixed share of its
//! speed, so an offloaded block dies some layers after it was made, and is taken again some layers
//! before backward needs it. Weights and their gradients live in one block that never moves.

use std::collections::{HashMap, VecDeque};

use tensorferry::memory::arena::{Arena, End, Span};
use tensorferry::{Kind, Size};

const MIB: u64 = 1 << 20;
const ALIGNMENT: u64 = 512;
const BATCH: u64 = 64;
const COMPRESSION: f64 = 2.0;

#[derive(Clone, Copy)]
struct Machine {
    /// Bytes that storage takes while compute makes one.
    link_share: f64,
    /// Offloaded tensors that backward asks for before it needs them.
    prefetch: usize,
}

#[derive(Clone, Copy)]
struct Tensor {
    bytes: u64,
    offloaded: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Weights,
    Saved(usize),
    Gradient(usize),
    Workspace(usize),
}

enum Event {
    Take(Name, u64, End),
    Drop(Name),
}

/// Everything saved for backward, in the order of forward.
fn resnet50() -> Vec<Tensor> {
    let activation = |channels: u64, side: u64| BATCH * channels * side * side * 4;
    let mut tensors = Vec::new();
    let mut layer = |bytes| {
        tensors.push(Tensor { bytes, offloaded: false });
        tensors.push(Tensor { bytes, offloaded: true });
    };
    layer(activation(64, 112));
    for (blocks, width, side) in [(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)] {
        for block in 0..blocks {
            // The first block of a stage halves the image in its second convolution.
            let before = if block == 0 && width > 64 { 2 * side } else { side };
            layer(activation(width, before));
            layer(activation(width, side));
            layer(activation(4 * width, side));
        }
    }
    tensors
}

/// What an iteration takes and drops, in order.
fn iteration(tensors: &[Tensor], machine: Machine) -> Vec<Event> {
    let mut events = vec![Event::Take(Name::Weights, 200 * MIB, End::Low)];
    forward(tensors, machine.link_share, &mut events);
    backward(tensors, machine.prefetch, &mut events);
    events.push(Event::Drop(Name::Weights));
    events
}

fn forward(tensors: &[Tensor], link_share: f64, events: &mut Vec<Event>) {
    let mut writes: VecDeque<(usize, f64)> = VecDeque::new();
    for (index, tensor) in tensors.iter().enumerate() {
        with_workspace(index, tensor, events, |events| events.push(take_saved(index, tensor)));
        // Compute of this layer lets storage take so much; the layer's own output is still in use.
        let mut room = tensor.bytes as f64 * link_share;
        while let Some((written, left)) = writes.front_mut() {
            let step = left.min(room);
            (*left, room) = (*left - step, room - step);
            if *left > 0.0 {
                break;
            }
            events.push(Event::Drop(Name::Saved(*written)));
            writes.pop_front();
        }
        if tensor.offloaded {
            writes.push_back((index, tensor.bytes as f64 / COMPRESSION));
        }
    }
    events.extend(writes.into_iter().map(|(index, _)| Event::Drop(Name::Saved(index))));
}

fn backward(tensors: &[Tensor], prefetch: usize, events: &mut Vec<Event>) {
    let last = tensors.len() - 1;
    let mut away: VecDeque<_> = (0..=last).rev().filter(|i| tensors[*i].offloaded).collect();
    let mut prefetched = VecDeque::new();
    events.push(Event::Take(Name::Gradient(last), tensors[last].bytes, End::High));
    for index in (0..=last).rev() {
        while prefetched.len() < prefetch
            && let Some(next) = away.pop_front()
        {
            events.push(take_saved(next, &tensors[next]));
            prefetched.push_back(next);
        }
        with_workspace(index, &tensors[index], events, |events| {
            if let Some(input) = index.checked_sub(1) {
                events.push(Event::Take(Name::Gradient(input), tensors[input].bytes, End::High));
            }
        });
        events.push(Event::Drop(Name::Gradient(index)));
        events.push(Event::Drop(Name::Saved(index)));
        prefetched.retain(|other| *other != index);
    }
}

fn take_saved(index: usize, tensor: &Tensor) -> Event {
    let end = if tensor.offloaded { End::High } else { End::Low };
    Event::Take(Name::Saved(index), tensor.bytes, end)
}

/// A convolution's scratch memory: taken first, dropped when the layer is done.
fn with_workspace(
    index: usize,
    tensor: &Tensor,
    events: &mut Vec<Event>,
    layer: impl FnOnce(&mut Vec<Event>),
) {
    let bytes = (tensor.bytes / 4).min(64 * MIB);
    events.push(Event::Take(Name::Workspace(index), bytes, End::High));
    layer(events);
    events.push(Event::Drop(Name::Workspace(index)));
}

/// The most and the mean fragmentation after each event, and the most bytes in use; `None` when
/// the trace does not fit.
fn replay(events: &[Event], capacity: u64, one_ended: bool) -> Option<(f64, f64, u64)> {
    let mut arena = Arena::new(Size(capacity), ALIGNMENT).unwrap();
    let mut live: HashMap<Name, Span> = HashMap::new();
    let (mut worst, mut sum) = (0.0f64, 0.0);
    for event in events {
        match event {
            Event::Take(name, bytes, end) => {
                let end = if one_ended { End::Low } else { *end };
                match arena.allocate(*bytes, end) {
                    Ok(span) => assert!(live.insert(*name, span).is_none()),
                    Err(error) => {
                        assert!(matches!(error.kind(), Kind::OutOfMemory | Kind::InvalidInput));
                        return None;
                    }
                }
            }
            Event::Drop(name) => arena.free(live.remove(name).unwrap()).unwrap(),
        }
        worst = worst.max(arena.stats().fragmentation);
        sum += arena.stats().fragmentation;
    }
    assert!(live.is_empty() && arena.stats().used == 0);
    Some((worst, sum / events.len() as f64, arena.stats().peak))
}

/// The smallest capacity, to a MiB, from which on the trace fits up to `ample`. Each is tried: with
/// holes, more room may by bad luck not fit what less room did, so bisection could land anywhere.
fn smallest_capacity(events: &[Event], ample: u64, one_ended: bool) -> u64 {
    let fits = |capacity: &u64| replay(events, *capacity, one_ended).is_some();
    let sizes = (0..=ample / MIB).rev().map(|mib| mib * MIB);
    sizes.take_while(fits).last().expect("an ample arena fits")
}

fn compare(machine: Machine) {
    let events = iteration(&resnet50(), machine);
    let (.., peak) = replay(&events, 1 << 40, false).unwrap();
    let ample = (peak + peak / 8).next_multiple_of(MIB);
    let [two, one] = [false, true].map(|one_ended| smallest_capacity(&events, ample, one_ended));
    let above = |capacity: u64| 100.0 * (capacity as f64 / peak as f64 - 1.0);
    // Both in the arena that the one-ended use needs: the same trace in the same room.
    let (worst_two, mean_two, _) = replay(&events, one, false).unwrap();
    let (worst_one, mean_one, _) = replay(&events, one, true).unwrap();
    println!(
        "link {:.1}, prefetch {}: in use {:4} MiB; two ends need {:4} (+{:.1}%), one end {:4} \
         (+{:4.1}%); fragmentation in {:4} MiB: two ends {worst_two:.3} at worst, {mean_two:.3} on \
         average, one end {worst_one:.3} and {mean_one:.3}",
        machine.link_share,
        machine.prefetch,
        peak / MIB,
        two / MIB,
        above(two),
        one / MIB,
        above(one),
        one / MIB,
    );
    assert!(above(two) < 1.0, "two ends need {two} for {peak}");
    assert!(two < one, "two ends need {two}, one end {one}");
    assert!(worst_two < worst_one && mean_two < mean_one);
}

#[test]
fn two_ends_fit_an_iteration_into_less_memory_than_one() {
    for link_share in [0.3, 0.4, 0.6] {
        for prefetch in [1, 3] {
            compare(Machine { link_share, prefetch });
        }
    }
}
