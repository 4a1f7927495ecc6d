//! Who uses a sample when.

use tensorferry::Result;

use super::setup::Setup;

/// The node that uses each sample in each epoch; all epochs of a sample lie side by side.
///
/// Of a sample that comes twice in an epoch, because every rank needs as many, the first use counts: that is
/// at most one sample for each GPU.
#[derive(Debug)]
pub(super) struct Itinerary {
    epochs: usize,
    nodes: Nodes,
}

#[derive(Debug)]
enum Nodes {
    Few(Vec<u8>),
    Many(Vec<u16>),
}

impl Itinerary {
    pub(super) fn new(setup: &Setup, mut progress: impl FnMut(f64)) -> Result<Self> {
        let epochs = setup.epochs as usize;
        let places = setup.samples as usize * epochs;
        let mut nodes = if setup.nodes <= 1 << 8 {
            Nodes::Few(vec![0; places])
        } else {
            Nodes::Many(vec![0; places])
        };
        for epoch in 0..epochs {
            progress(epoch as f64 / epochs as f64);
            // One node needs no order to be told where samples go.
            if setup.nodes > 1 {
                nodes.fill(setup, epoch, &setup.order(epoch as u32)?);
            }
        }
        Ok(Self { epochs, nodes })
    }

    /// The first epoch after that one in which the node uses the sample.
    pub(super) fn next(&self, id: u32, node: u32, after: u32) -> Option<u32> {
        let found = match &self.nodes {
            Nodes::Few(nodes) => {
                let coming = &self.row(nodes, id)[after as usize + 1..];
                coming.iter().position(|other| u32::from(*other) == node)
            }
            Nodes::Many(nodes) => {
                let coming = &self.row(nodes, id)[after as usize + 1..];
                coming.iter().position(|other| u32::from(*other) == node)
            }
        };
        found.map(|epochs| after + 1 + epochs as u32)
    }

    /// How often the node uses the sample in the whole run.
    pub(super) fn uses(&self, id: u32, node: u32) -> u32 {
        let uses = match &self.nodes {
            Nodes::Few(nodes) => {
                self.row(nodes, id).iter().filter(|other| u32::from(**other) == node).count()
            }
            Nodes::Many(nodes) => {
                self.row(nodes, id).iter().filter(|other| u32::from(**other) == node).count()
            }
        };
        uses as u32
    }

    /// The node that uses the sample in that epoch.
    pub(super) fn node(&self, id: u32, epoch: u32) -> u32 {
        match &self.nodes {
            Nodes::Few(nodes) => self.row(nodes, id)[epoch as usize].into(),
            Nodes::Many(nodes) => self.row(nodes, id)[epoch as usize].into(),
        }
    }

    fn row<'a, T>(&self, nodes: &'a [T], id: u32) -> &'a [T] {
        &nodes[id as usize * self.epochs..][..self.epochs]
    }
}

impl Nodes {
    fn fill(&mut self, setup: &Setup, epoch: usize, order: &[u32]) {
        let epochs = setup.epochs as usize;
        let (world, gpus) = (setup.world_size(), setup.gpus);
        let uses = order.iter().zip((0..world).cycle().map(|rank| rank / gpus));
        let places = uses.map(|(id, node)| (*id as usize * epochs + epoch, node));
        match self {
            Self::Few(nodes) => places.for_each(|(place, node)| nodes[place] = node as u8),
            Self::Many(nodes) => places.for_each(|(place, node)| nodes[place] = node as u16),
        }
    }
}
