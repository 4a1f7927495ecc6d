//! Checkpoints from end to end: what comes back, what a failure leaves, what damage becomes.

mod crash;
mod damage;
mod faults;
mod interrupt;
mod load;
mod place;
mod save;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tensorferry::checkpoint::{
    Buffered, Checkpoint, Direct, Dtype, Header, Mapped, Options, Report, STRUCTURE, Saving,
    Tensor, Tool, Wanted, save, save_behind, staging,
};
use tensorferry::io::{Choice, Config, Engine, Faults, open};
use tensorferry::memory::{Block, Buffer, Pool};
use tensorferry::{Kind, Result};

/// Bytes in a window of a save: what is staged and written as one.
const WINDOW: u64 = 4 << 20;

const READERS: [&dyn Tool; 3] = [&Direct, &Buffered, &Mapped];
const WRITERS: [&dyn Tool; 2] = [&Direct, &Buffered];

/// An engine, and a directory of its own for its files.
struct Setting {
    engine: Arc<dyn Engine>,
    directory: tempfile::TempDir,
}

impl Setting {
    fn new(config: &Config) -> Self {
        // Not the system's temporary directory: that may be a file system without direct I/O.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { engine: open(config).unwrap(), directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("model.ferry")
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        Checkpoint::open(&self.engine, &self.path(), Some(&Buffered), true)
    }

    /// Only the file is there, and it holds `content`.
    fn assert_only(&self, content: &Content) {
        assert_eq!(files_in(self.directory.path()), ["model.ferry"]);
        content.assert_is_in(&self.engine, &self.path(), &Buffered);
    }
}

fn files_in(directory: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Runs a test on every engine that this machine has; with faults to be added, if it wants some.
fn on_every_engine(test: impl Fn(&Setting, &Faults)) {
    for choice in [Choice::Ring, Choice::Threads] {
        let faults = Faults::new();
        let config = Config { faults: Some(faults.clone()), ..Config::of(choice) };
        if choice == Choice::Ring
            && let Err(error) = open(&config)
        {
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            eprintln!("the ring is not tested here: {error}");
            continue;
        }
        test(&Setting::new(&config), &faults);
    }
}

/// Tensors and what is in them: bytes that differ from their neighbours, from those of the other
/// tensors and from those of other seeds.
struct Content {
    seed: u64,
    header: Header,
}

impl Content {
    fn new(seed: u64, tensors: Vec<(String, Dtype, Vec<u64>)>) -> Self {
        let text = r#"{"version":1,"checksum":true,"tool":"test","object":null}"#;
        let metadata = BTreeMap::from([(STRUCTURE.to_owned(), text.to_owned())]);
        Self { seed, header: Header::lay_out(tensors, metadata).unwrap() }
    }

    /// Tensors of so many bytes.
    fn of_sizes(seed: u64, sizes: &[u64]) -> Self {
        let tensors = sizes.iter().enumerate();
        let named = |(index, size): (usize, &u64)| (format!("t{index}"), Dtype::U8, vec![*size]);
        Self::new(seed, tensors.map(named).collect())
    }

    fn bytes(&self, tensor: &Tensor) -> Vec<u8> {
        let name = tensor.name.bytes();
        let name = name.fold(self.seed, |sum, byte| sum.wrapping_mul(257) ^ u64::from(byte));
        let mixed = |i: u64| (i ^ name).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let words = (0..tensor.len().div_ceil(8)).flat_map(|i| mixed(i).to_ne_bytes());
        words.take(tensor.len() as usize).collect()
    }

    fn source(&self) -> impl FnMut(&Tensor) -> Result<Block> + Send {
        |tensor: &Tensor| Ok(Buffer::copy_of(&self.bytes(tensor))?.into())
    }

    fn save(&self, setting: &Setting, options: &Options) -> Result<Report> {
        let header = self.header.clone();
        save(&setting.engine, &setting.path(), header, &mut self.source(), options)
    }

    fn save_behind(&self, setting: &Setting, options: &Options) -> Result<Saving> {
        let header = self.header.clone();
        save_behind(&setting.engine, &setting.path(), header, &mut self.source(), options)
    }

    /// Saves in one of the two ways, to the end.
    fn save_either(&self, setting: &Setting, options: &Options, behind: bool) -> Result<Report> {
        if behind {
            self.save_behind(setting, options)?.wait()
        } else {
            self.save(setting, options)
        }
    }

    /// The file holds these tensors, to the last bit, and nothing else.
    fn assert_is_in(&self, engine: &Arc<dyn Engine>, path: &Path, tool: &'static dyn Tool) {
        let checkpoint = Checkpoint::open(engine, path, Some(tool), true).unwrap();
        self.assert_is(&checkpoint);
    }

    fn assert_is(&self, checkpoint: &Checkpoint) {
        let found = &checkpoint.header().tensors;
        let names = |tensors: &[Tensor]| {
            let mut names: Vec<_> = tensors.iter().map(|tensor| tensor.name.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(found), names(&self.header.tensors));
        let loaded = checkpoint.load(all(checkpoint)).unwrap();
        for (tensor, block) in found.iter().zip(loaded) {
            assert!(*block == *self.bytes(tensor), "{} differs", tensor.name);
        }
    }
}

/// Every tensor of a file, into new memory.
fn all(checkpoint: &Checkpoint) -> Vec<Wanted> {
    let tensors = 0..checkpoint.header().tensors.len();
    tensors.map(|tensor| Wanted { tensor, into: None }).collect()
}

/// As fast as a test wants it: not durable. Staging memory for less than most objects here.
fn quick() -> Options {
    Options { durable: false, ..Options::new(staging(0).unwrap()) }
}

/// All buffers come back: those of writes that were under way when a save failed, once these end.
fn assert_comes_back(pool: &Pool) {
    let buffers: Vec<_> =
        (0..pool.slots()).map(|_| pool.take_within(Duration::from_mins(1))).collect();
    assert!(buffers.iter().all(Result::is_ok), "staging memory was lost");
}

#[test]
fn the_example_does_what_it_says() {
    // Beside the directory of this binary; `cargo test` builds examples too.
    let here = std::env::current_exe().unwrap();
    let example = here.ancestors().nth(2).unwrap().join("examples/checkpoint");
    let done = Command::new(&example).output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    for words in ["saved 4", "loaded bias: 4 KiB", "verified 4", "staged in ", "on disk after "] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
}
