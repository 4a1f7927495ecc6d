//! What no policy can beat.

use super::itinerary::Itinerary;
use super::setup::Setup;

/// The fewest bytes that the backend has to give, for each epoch: no policy has read less after any number
/// of epochs.
pub(super) fn bound(setup: &Setup, itinerary: &Itinerary) -> Vec<u64> {
    let bytes = setup.bytes();
    if setup.peers {
        let caches = setup.cache.saturating_mul(setup.nodes.into());
        let later = bytes.saturating_sub(caches);
        return (0..setup.epochs).map(|epoch| if epoch == 0 { bytes } else { later }).collect();
    }
    let again = Again::new(setup, itinerary);
    let mut bound = vec![bytes; setup.epochs as usize];
    for node in 0..setup.nodes as usize {
        let hits = again.hits(node, setup.cache);
        bound.iter_mut().zip(hits).for_each(|(bytes, hit)| *bytes -= hit);
    }
    bound
}

/// Bytes by node, epoch of a use and epoch of the next use on the same node.
struct Again {
    epochs: usize,
    bytes: Vec<u64>,
}

impl Again {
    fn new(setup: &Setup, itinerary: &Itinerary) -> Self {
        let epochs = setup.epochs as usize;
        let mut bytes = vec![0; setup.nodes as usize * epochs * epochs];
        for id in 0..setup.samples as u32 {
            for epoch in 0..setup.epochs {
                let node = itinerary.node(id, epoch);
                if let Some(next) = itinerary.next(id, node, epoch) {
                    let from = node as usize * epochs + epoch as usize;
                    bytes[from * epochs + next as usize] += setup.sizes.of(id);
                }
            }
        }
        Self { epochs, bytes }
    }

    /// Bytes that the node has at hand in each epoch if at the end of each it keeps those of the nearest
    /// next use, as many as fit.
    fn hits(&self, node: usize, cache: u64) -> Vec<u64> {
        let mut kept = vec![0; self.epochs];
        (0..self.epochs)
            .map(|epoch| {
                let hit = std::mem::take(&mut kept[epoch]);
                let used = &self.bytes[(node * self.epochs + epoch) * self.epochs..];
                let mut free = cache;
                for (kept, used) in kept.iter_mut().zip(used).skip(epoch + 1) {
                    *kept = (*kept + used).min(free);
                    free -= *kept;
                }
                hit
            })
            .collect()
    }
}
