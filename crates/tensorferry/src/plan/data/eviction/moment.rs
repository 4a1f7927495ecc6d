//! Moments of a run, and what is known at one of them.

/// A place in the order of uses: an epoch, and a position in it that all nodes count alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// Counted from the first of the run.
    pub epoch: u32,
    /// Within the epoch.
    pub position: u32,
}

/// Whether other nodes can read the sample from here, and have to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Copies {
    /// Nodes do not read from one another.
    #[default]
    Private,
    /// They do, and no other node keeps it.
    Only,
    /// They do, and another node keeps it too.
    Several,
}

/// One use of a sample on one node, and what is known of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Use {
    /// When it is used.
    pub now: Moment,
    /// When this node uses it next, if it does as far as the future is known. What looks at epochs
    /// only needs no exact position.
    pub next: Option<Moment>,
    /// How often this node uses it in the whole run, as far as that is known. Only `nopfs` asks.
    pub uses: u32,
    /// Where else it is.
    pub copies: Copies,
}
