//! What a state file contains, in a small file beside it: present only while all of it is true.
//!
//! A line with the CRC-32C of the rest in hexadecimal, then JSON. It is written beside its name and
//! renamed, so that it is there whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout::{CHUNK_BYTES, Layout, Shape};
use crate::codec::checksum::crc32c;
use crate::error::{Error, Kind, Result};

const VERSION: u32 = 1;

/// No ledger of ours is longer.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    version: u32,
    /// In the order in which they were added: where a chunk ends depends on it.
    pub batches: Vec<Vec<Shape>>,
    /// Steps that each tensor has taken.
    pub steps: Vec<f64>,
    pub chunks: Vec<Sums>,
}

/// Checksums of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    /// Of its bytes in the file.
    pub state: u32,
    /// Of the parameters that each of its segments was computed with, once they are known.
    pub parameters: Vec<Option<u32>>,
}

impl Ledger {
    pub fn new(batches: Vec<Vec<Shape>>, steps: Vec<f64>, chunks: Vec<Sums>) -> Self {
        Self { version: VERSION, batches, steps, chunks }
    }

    /// Puts it in its place.
    pub fn publish(&self, path: &Path) -> Result<()> {
        let failed = |error| {
            Error::from_io(error, "can't note the state of the optimizer")
                .with("file", path.display())
        };
        let json = serde_json::to_string(self)
            .map_err(|error| Error::new(Kind::Internal, error.to_string()))?;
        let draft = path.with_extension("draft");
        fs::write(&draft, format!("{:08x}\n{json}", crc32c(json.as_bytes()))).map_err(failed)?;
        fs::rename(&draft, path).map_err(failed)
    }

    /// Takes it away: what it says is about to be wrong.
    pub fn remove(path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::from_io(error, "can't begin a step").with("file", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Reads and judges it; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<(Self, Layout)>> {
        let failed = |error| {
            Error::from_io(error, "can't read the state of an optimizer")
                .with("file", path.display())
        };
        let bytes = match fs::metadata(path) {
            Ok(found) if found.len() <= BYTES_MAX => fs::read(path).map_err(failed)?,
            Ok(_) => return Err(corrupt("it is too long", path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        Self::judge(&bytes).map(Some).map_err(|why| corrupt(&why, path))
    }

    fn judge(bytes: &[u8]) -> Result<(Self, Layout), String> {
        let (checksum, json) = bytes.split_at_checked(9).ok_or("it is too short")?;
        if checksum != format!("{:08x}\n", crc32c(json)).as_bytes() {
            return Err("its checksum is wrong".into());
        }
        let ledger: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if ledger.version != VERSION {
            return Err(format!("it is of version {}, this is {VERSION}", ledger.version));
        }
        // Before chunks are cut: there must not be more of them than are listed.
        let elements = ledger.batches.iter().flatten().map(|shape| u128::from(shape.elements));
        if elements.sum::<u128>() > ledger.chunks.len() as u128 * (CHUNK_BYTES / 8) as u128 {
            return Err("it has more elements than chunks for them".into());
        }
        let mut layout = Layout::default();
        for batch in &ledger.batches {
            layout = layout.with(batch.clone());
        }
        let listed = ledger.chunks.iter().map(|sums| sums.parameters.len());
        let cut = layout.chunks.iter().map(|chunk| chunk.segments.len());
        if ledger.steps.len() != layout.tensors.len() || !listed.eq(cut) {
            return Err("its lists do not fit together".into());
        }
        Ok((ledger, layout))
    }
}

fn corrupt(why: &str, path: &Path) -> Error {
    let message = format!("the state of an optimizer can't be resumed: {why}");
    Error::new(Kind::Corrupt, message).with("file", path.display())
}

/// The ledger of a state file.
pub(super) fn beside(file: &Path) -> PathBuf {
    file.with_extension("ledger")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let shape = Shape { name: "w".into(), elements: 10, master: false };
        let sums = Sums { state: 7, parameters: vec![Some(9)] };
        Ledger::new(vec![vec![shape]], vec![3.0], vec![sums])
    }

    #[test]
    fn a_ledger_comes_back_as_it_was_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = beside(&directory.path().join("optimizer-0.state"));
        assert!(Ledger::read(&path).unwrap().is_none());
        ledger().publish(&path).unwrap();
        let (read, layout) = Ledger::read(&path).unwrap().unwrap();
        assert_eq!((read, layout.chunks.len()), (ledger(), 1));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        Ledger::remove(&path).unwrap();
        Ledger::remove(&path).unwrap();
        assert!(Ledger::read(&path).unwrap().is_none());
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        ledger().publish(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            assert_eq!(Ledger::read(&path).unwrap_err().kind(), Kind::Corrupt, "bit {bit}");
        }
        for len in 0..bytes.len() {
            fs::write(&path, &bytes[..len]).unwrap();
            assert!(Ledger::read(&path).is_err());
        }
    }

    #[test]
    fn lists_that_do_not_fit_together_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let endless = Shape { name: "w".into(), elements: u64::MAX, master: true };
        let broken = [
            Ledger { batches: vec![vec![endless.clone(), endless]], ..ledger() },
            Ledger { steps: vec![], ..ledger() },
            Ledger { chunks: vec![], ..ledger() },
            Ledger { chunks: vec![Sums::default()], ..ledger() },
            Ledger { version: 2, ..ledger() },
        ];
        for ledger in broken {
            ledger.publish(&path).unwrap();
            assert!(Ledger::read(&path).is_err());
        }
    }
}
