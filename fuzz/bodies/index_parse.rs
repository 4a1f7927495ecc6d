//! Any bytes give an index whose files and ranks exist, or an error.

use std::collections::HashSet;

use tensorferry::Kind;
use tensorferry::checkpoint::{Index, Kept, Ranks};

pub fn run(data: &[u8]) {
    match Index::parse(data) {
        Ok(Index::Ranks(ranks)) => check(&ranks),
        Ok(Index::Shards(files)) => files.iter().for_each(|(_, file)| check_file(file)),
        Err(error) => assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error}"),
    }
}

fn check(ranks: &Ranks) {
    let files: HashSet<_> = ranks.files.iter().collect();
    assert!(files.len() == ranks.files.len() && !files.is_empty());
    ranks.files.iter().for_each(|file| check_file(file));
    for (_, kept) in &ranks.tensors {
        match kept {
            Kept::Sharded { shape, dim, .. } => assert!(*dim < shape.len()),
            Kept::Replicated { rank, .. } => assert!(*rank < files.len()),
            Kept::Private { ranks, equal, .. } => {
                assert!(ranks.is_sorted() && ranks.iter().all(|rank| *rank < files.len()));
                assert!(!ranks.is_empty() && (!equal || ranks.len() == files.len()));
            }
        }
    }
}

fn check_file(name: &str) {
    assert!(!name.contains(['/', '\0']) && !matches!(name, "" | "." | ".."));
}
