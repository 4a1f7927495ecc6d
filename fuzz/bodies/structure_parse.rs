//! Any text gives a structure whose leaves lie inside of what is stored, or an error.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tensorferry::Kind;
use tensorferry::checkpoint::{Dtype, Header, Leaf, Structure};

const LINES_MAX: usize = 20;

static HEADER: LazyLock<Header> = LazyLock::new(|| {
    let tensors = [
        ("w", Dtype::F32, vec![2, 3]),
        ("c", Dtype::U8, vec![4, 16]),
        ("raw", Dtype::U8, vec![5000]),
        ("none", Dtype::F32, vec![0, 3]),
    ];
    let tensors = tensors.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
    Header::lay_out(tensors, BTreeMap::new()).expect("a header")
});

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Structure::parse(text, &HEADER) {
        Ok(structure) => {
            structure.object.for_each_leaf(&mut check);
            assert!(structure.tree(LINES_MAX).to_string().lines().count() <= LINES_MAX);
        }
        Err(error) => assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error}"),
    }
}

fn check(leaf: &Leaf) {
    let stored = HEADER.tensors.iter().find(|tensor| tensor.name == leaf.name);
    let stored = stored.expect("names are known");
    let end = match &leaf.view {
        // What lies in shared memory is stored in order.
        Some(view) if leaf.memory.is_some() => {
            let end = view.end(&leaf.shape, leaf.itemsize).expect("ends are countable");
            assert!(i64::try_from(end).is_ok() && end > 0);
            leaf.shape.iter().product::<u64>() * leaf.itemsize
        }
        Some(view) => view.end(&leaf.shape, leaf.itemsize).expect("ends are countable"),
        None => leaf.shape.iter().product::<u64>() * leaf.itemsize,
    };
    assert!(end <= stored.range.end - stored.range.start);
}
