//! `.npz` files: zip archives whose members are `.npy` files.
//!
//! A member that is stored as it is, is read straight from the archive, once its checksum was found
//! right: so all of it is read, even where a part is used (`.npy` files have no checksum, and only the
//! part is read). A compressed one is inflated into memory first, up to the size that the archive says
//! and never beyond a limit; the library checks it on the way.

use std::io::{self, Read, Seek, SeekFrom};

use crc_fast::{CrcAlgorithm, Digest};
use zip::{CompressionMethod, ZipArchive};

use crate::data::sample::Field;
use crate::error::{Error, Kind, Result};

/// A compressed member that would become larger is refused.
const INFLATED_BYTES_MAX: u64 = 8 << 30;
/// More members than any sample has.
const MEMBERS_MAX: usize = 1 << 16;
/// Bytes that are checked at a time, of members that are still in their file.
const CHECKED_BYTES: u64 = 1 << 18;

/// Calls `each` with the name and the bytes of every member, in the archive's order.
pub fn members(
    field: Field<'_>,
    mut each: impl FnMut(&str, Field<'_>) -> Result<()>,
) -> Result<()> {
    let mut archive = ZipArchive::new(Bytes { field, at: 0 }).map_err(|error| damaged(&error))?;
    if archive.len() > MEMBERS_MAX {
        return Err(Error::new(Kind::Corrupt, "the .npz file has too many members"));
    }
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).map_err(|error| damaged(&error))?;
        let name = member.name().map_err(|error| damaged(&error))?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name);
        let size = member.size();
        let result = match (member.compression(), member.data_start()) {
            (CompressionMethod::Stored, Some(start)) => part(field, start, size)
                .and_then(|field| check(field, member.crc32()).and_then(|()| each(name, field))),
            _ => inflate(&mut member, size).and_then(|bytes| each(name, Field::Memory(&bytes))),
        };
        result.map_err(|error| error.with("member", name))?;
    }
    Ok(())
}

fn part(field: Field<'_>, start: u64, length: u64) -> Result<Field<'_>> {
    let end = start.checked_add(length).filter(|end| *end <= field.len());
    let end = end.ok_or_else(|| Error::new(Kind::Truncated, "the .npz file ends in a member"))?;
    Ok(match field {
        Field::Memory(bytes) => Field::Memory(&bytes[start as usize..end as usize]),
        Field::Stored { file, start: first, .. } => {
            Field::Stored { file, start: first + start, len: length }
        }
    })
}

/// Refuses bytes that are not those of this CRC-32.
fn check(field: Field<'_>, expected: u32) -> Result<()> {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    match field {
        Field::Memory(bytes) => digest.update(bytes),
        Field::Stored { len, .. } => {
            let mut piece = vec![0; len.min(CHECKED_BYTES) as usize];
            let mut at = 0;
            while at < len {
                let length = (len - at).min(CHECKED_BYTES) as usize;
                field.read_at(at, &mut piece[..length])?;
                digest.update(&piece[..length]);
                at += length as u64;
            }
        }
    }
    if digest.finalize() as u32 != expected {
        let message = "the bytes of a member of the .npz file do not match their checksum";
        return Err(Error::new(Kind::Corrupt, message));
    }
    Ok(())
}

fn inflate(member: &mut impl Read, size: u64) -> Result<Vec<u8>> {
    if size > INFLATED_BYTES_MAX {
        let what = format!("a member of the .npz file has {size} bytes when it is inflated");
        return Err(Error::invalid(format!("{what}; up to {INFLATED_BYTES_MAX} are")));
    }
    // What the archive says may be a lie: memory is asked for as the bytes come.
    let mut bytes = Vec::with_capacity(size.min(1 << 20) as usize);
    let read = member.take(size + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| {
        Error::new(Kind::Corrupt, "a member of the .npz file can't be inflated").caused_by(error)
    })?;
    if read as u64 != size {
        return Err(Error::new(Kind::Corrupt, "a member of the .npz file has another size"));
    }
    Ok(bytes)
}

fn damaged(error: &zip::result::ZipError) -> Error {
    Error::new(Kind::Corrupt, format!("the .npz file can't be read: {error}"))
}

/// A field as the library reads it.
struct Bytes<'a> {
    field: Field<'a>,
    at: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.field.len().saturating_sub(self.at).min(into.len() as u64) as usize;
        self.field.read_at(self.at, &mut into[..length]).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for Bytes<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.field.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_inflated_than_the_archive_says_and_the_limit_allows() {
        let (mut member, size) = (io::repeat(7).take(1 << 40), 1000);
        let error = inflate(&mut member, size).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "it never ends");
        let read = (1_u64 << 40) - member.limit();
        assert!(read <= size + 1, "{read} bytes were inflated");
        let mut member = io::repeat(7).take(1 << 40);
        let error = inflate(&mut member, INFLATED_BYTES_MAX + 1).unwrap_err();
        assert!(error.to_string().contains("up to 8589934592 are"), "{error}");
        assert_eq!(member.limit(), 1 << 40, "not a byte was");
    }
}
