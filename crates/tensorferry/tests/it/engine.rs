//! The engine that tests of the data path share, as a process does.

use std::sync::{Arc, LazyLock};

use tensorferry::data::StoredFile;
use tensorferry::io::{Config, Shared, open};

/// The way to it.
pub fn shared() -> Shared {
    static SHARED: LazyLock<Shared> =
        LazyLock::new(|| Shared::only(open(&Config::default()).unwrap()));
    SHARED.clone()
}

/// A file of these bytes, which has no name any more.
pub fn file_of(bytes: &[u8]) -> Arc<StoredFile> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Arc::new(StoredFile::open(shared().engine().unwrap(), file.path()).unwrap())
}
