//! Any file is opened, loaded and verified, or is an error that says why: nothing is on a disk.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use tensorferry::Kind;
use tensorferry::checkpoint::{Buffered, Checkpoint, Wanted};
use tensorferry::codec::checksum::crc32c;
use tensorferry::io::{Choice, Config, Engine, Mode, Open, Priority, open};
use tensorferry::memory::Buffer;

static ENGINE: LazyLock<Arc<dyn Engine>> =
    LazyLock::new(|| open(&Config::of(Choice::Memory)).expect("an engine"));

pub fn run(data: &[u8]) {
    let path = Path::new("any");
    let file = ENGINE.open(path, Open::buffered(Mode::Replace)).expect("a file");
    let block = Buffer::copy_of(data).expect("memory").into();
    ENGINE.write(&file, 0, block, Priority::Waiting).wait().expect("bytes in memory");
    let checkpoint = match Checkpoint::open(&ENGINE, path, Some(&Buffered), true) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return assert_is_told(error.kind()),
    };
    let tensors = &checkpoint.header().tensors;
    let wanted = (0..tensors.len()).map(|tensor| Wanted { tensor, into: None });
    let loaded = checkpoint.load(wanted.collect());
    assert_eq!(loaded.is_ok(), checkpoint.verify(&mut |_| ()).is_ok(), "they agree");
    match loaded {
        Ok(blocks) => {
            for (tensor, block) in tensors.iter().zip(blocks) {
                let start = (checkpoint.data_start() + tensor.range.start) as usize;
                assert!(crc32c(&block) == crc32c(&data[start..start + block.len()]));
            }
        }
        Err(error) => assert_is_told(error.kind()),
    }
}

fn assert_is_told(kind: Kind) {
    assert!(matches!(kind, Kind::Corrupt | Kind::Truncated | Kind::Unsupported), "{kind}");
}
