//! Where the samples of one shard lie, in little memory: 12 bytes for a field, 8 for a sample and
//! the letters of its name.

use std::ops::Range;

use super::fields::{Fields, split};
use super::header::BLOCK;
use super::members::{Member, Members};
use crate::data::source::Names;
use crate::data::source::store::Object;
use crate::error::{Error, Kind, Result};

/// The block of a field that a sample does not have.
const MISSING: u32 = u32::MAX;

/// The samples of a shard.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub keys: Names,
    fields: usize,
    /// Where each field of each sample starts, in blocks, so that a word holds it up to 2 TiB.
    blocks: Vec<u32>,
    bytes: Vec<u64>,
    /// Which of its names each field was met under, as bits.
    pub met: Vec<u64>,
    /// What is wrong with the shard, behind the samples that are here.
    pub damage: Option<Error>,
}

impl Index {
    /// Reads the headers of a shard. If it is cut or damaged, the samples in front of that are here,
    /// as far as they are whole, and the damage is told.
    pub fn read(object: &dyn Object, fields: &Fields) -> Result<Self> {
        let mut index =
            Self { fields: fields.len(), met: vec![0; fields.len()], ..Self::default() };
        let mut members = Members::new(object);
        let mut sample = Sample::default();
        loop {
            match members.next() {
                Ok(Some(member)) => index.take(&mut sample, &member, fields)?,
                Ok(None) => break,
                Err(error) if is_damage(&error) => {
                    // Whether more of the last sample was to come, nobody knows.
                    if sample.found.iter().any(Option::is_none) {
                        sample = Sample::default();
                    }
                    index.damage = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        index.close(&sample)?;
        index.keys.shrink();
        index.blocks.shrink_to_fit();
        index.bytes.shrink_to_fit();
        Ok(index)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Where the fields of a sample are; `None` for one that it does not have.
    pub fn sample(&self, at: usize) -> impl Iterator<Item = Option<Range<u64>>> {
        let fields = at * self.fields..(at + 1) * self.fields;
        fields.map(|field| {
            let start = u64::from(self.blocks[field]) * BLOCK;
            (self.blocks[field] != MISSING).then(|| start..start + self.bytes[field])
        })
    }

    fn take(&mut self, sample: &mut Sample, member: &Member, fields: &Fields) -> Result<()> {
        let Some((key, name)) = split(&member.name) else { return Ok(()) };
        if !sample.open || sample.key != key {
            self.close(sample)?;
            let found = vec![None; fields.len()];
            *sample = Sample { open: true, key: key.to_vec(), found };
        }
        for (at, place) in fields.of(&name) {
            match sample.found[at] {
                Some((known, _, _)) if known == place => return Err(twice(member)),
                Some((known, _, _)) if known < place => {}
                _ => sample.found[at] = Some((place, member.range.start, member.range.end)),
            }
        }
        Ok(())
    }

    fn close(&mut self, sample: &Sample) -> Result<()> {
        if !sample.open {
            return Ok(());
        }
        for (at, found) in sample.found.iter().enumerate() {
            let (block, bytes) = match *found {
                None => (MISSING, 0),
                Some((place, start, end)) => {
                    self.met[at] |= 1 << place.min(63);
                    (block_of(start)?, end - start)
                }
            };
            self.blocks.push(block);
            self.bytes.push(bytes);
        }
        self.keys.push(&sample.key);
        Ok(())
    }
}

/// The sample whose members are being read.
#[derive(Default)]
struct Sample {
    open: bool,
    key: Vec<u8>,
    /// By field: which of its names it has, and where it lies.
    found: Vec<Option<(usize, u64, u64)>>,
}

/// The fields of the first sample of a shard, in order.
pub(super) fn first_sample(object: &dyn Object) -> Result<Vec<String>> {
    let mut members = Members::new(object);
    let mut first: Option<Vec<u8>> = None;
    let mut names = Vec::new();
    while let Some(member) = members.next()? {
        let Some((key, name)) = split(&member.name) else { continue };
        if first.get_or_insert_with(|| key.to_vec()) != key {
            break;
        }
        names.push(name);
    }
    Ok(names)
}

/// Whether the bytes are to blame, and not the way to them.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Truncated | Kind::Corrupt)
}

fn block_of(start: u64) -> Result<u32> {
    u32::try_from(start / BLOCK)
        .ok()
        .filter(|block| *block != MISSING)
        .ok_or_else(|| Error::new(Kind::Unsupported, "the shard is larger than 2 TiB; split it"))
}

#[cold]
fn twice(member: &Member) -> Error {
    let told = "a sample has the same field twice; pack the shard anew with one of them";
    let error = Error::new(Kind::Corrupt, told);
    error.with("member", String::from_utf8_lossy(&member.name)).with("offset", member.range.start)
}
