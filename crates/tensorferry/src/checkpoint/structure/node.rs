//! A node of the tree: a value of Python, or a container of such.

use super::leaf::Leaf;

/// Keys and values of a dict, in their order.
pub type Entries = Vec<(Node, Node)>;

/// A value, named as in Python. It is small, because a text of a few bytes makes one.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are Python's")]
pub enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// In hexadecimal digits, beyond 64 bits.
    LongInt(String),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    /// How many.
    Bytes(usize),
    /// How many.
    ByteArray(usize),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Set(Vec<Self>),
    FrozenSet(Vec<Self>),
    Dict(Entries),
    /// With the attribute `_metadata` of what modules give, if it had one.
    OrderedDict(Entries, Option<Box<Self>>),
    Counter(Entries),
    /// torch's.
    Size(Vec<i64>),
    /// torch's.
    Dtype(String),
    /// torch's.
    Device(String),
    /// NumPy's, of this dtype.
    Scalar(String),
    Tensor(Box<Leaf>),
    /// NumPy's.
    Array(Box<Leaf>),
    /// Bytes that are stored as a tensor.
    Blob(Box<Leaf>),
    /// A bytearray that is stored as a tensor.
    ByteArrayBlob(Box<Leaf>),
}

impl Node {
    /// Calls `visit` with each leaf, in order.
    pub fn for_each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a Leaf)) {
        match self {
            Self::Tensor(leaf)
            | Self::Array(leaf)
            | Self::Blob(leaf)
            | Self::ByteArrayBlob(leaf) => {
                visit(leaf);
            }
            Self::List(items) | Self::Tuple(items) => {
                for item in items {
                    item.for_each_leaf(visit);
                }
            }
            Self::Dict(entries) | Self::Counter(entries) => leaves_of(entries, visit),
            Self::OrderedDict(entries, metadata) => {
                leaves_of(entries, visit);
                if let Some(metadata) = metadata {
                    metadata.for_each_leaf(visit);
                }
            }
            // Neither keys nor elements of sets are leaves.
            _ => {}
        }
    }
}

fn leaves_of<'a>(entries: &'a Entries, visit: &mut impl FnMut(&'a Leaf)) {
    for (_, value) in entries {
        value.for_each_leaf(visit);
    }
}
