//! Saves tensors, loads them, verifies them, and saves once more without waiting for the disk.
//!
//!     cargo run --example checkpoint

use std::collections::BTreeMap;

use tensorferry::checkpoint::{
    Checkpoint, Dtype, Header, Options, Tensor, Wanted, save, save_behind, staging,
};
use tensorferry::io::{Config, open};
use tensorferry::memory::Buffer;
use tensorferry::{Result, Size};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("model.ferry");

    // One engine does all reading and writing of a process.
    let engine = open(&Config::default())?;

    // What the file will hold. Who knows these lines can compute where each tensor lies in it.
    let tensors = [("weight", Dtype::F32, vec![1024, 1024]), ("bias", Dtype::F32, vec![1024])];
    let tensors = tensors.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
    let note = ("step".to_owned(), "100".to_owned());
    let header = Header::lay_out(tensors, BTreeMap::from([note]))?;

    // A source is asked for one tensor after the other, so that never all of them need be in memory.
    let mut source = |tensor: &Tensor| {
        let mut bytes = Buffer::zeroed(tensor.len() as usize)?;
        bytes.fill(tensor.name.len() as u8);
        Ok(bytes.into())
    };

    // Staging memory is made once and bounds what all saves take together.
    let options = Options::new(staging(64 << 20)?);
    let report = save(&engine, &path, header.clone(), &mut source, &options)?;
    println!("saved {} in {:.1} ms", Size(report.bytes), report.seconds * 1e3);

    // Loading verifies what it reads. One of the tensors, into new memory:
    let checkpoint = Checkpoint::open(&engine, &path, None, true)?;
    let tensors = &checkpoint.header().tensors;
    let tensor = tensors.iter().position(|tensor| tensor.name == "bias").expect("a bias");
    let loaded = checkpoint.load(vec![Wanted { tensor, into: None }])?;
    assert!(loaded[0].iter().all(|byte| *byte == 4));
    println!("loaded {}: {}", tensors[tensor].name, Size(loaded[0].len() as u64));

    // All of them, only looked at.
    checkpoint.verify(&mut |_| ())?;
    println!("verified {}", Size(checkpoint.header().data_len()));

    // The next save goes on behind its caller, who may change the tensors at once.
    let saving = save_behind(&engine, &path, header, &mut source, &options)?;
    println!("staged in {:.1} ms", saving.staged_seconds() * 1e3);
    let report = saving.wait()?;
    println!("on disk after {:.1} ms", report.seconds * 1e3);
    Ok(())
}
