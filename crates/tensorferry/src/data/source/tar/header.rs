//! One header of a tar file: 512 bytes that name a member and say how long it is.
//!
//! The formats met in datasets are ustar, GNU's (`tar`, Python before 3.8) and pax (Python since):
//! GNU and pax put what does not fit into members of their own in front of the one they are about.

use crate::error::{Error, Kind, Result};

/// Everything in a tar is a multiple of this.
pub(super) const BLOCK: u64 = 512;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// A file.
    File,
    /// The next member's name, as GNU writes it.
    LongName,
    /// The next member's attributes, as pax writes them.
    Extended,
    /// A file with holes, which is not stored as it reads.
    Sparse,
    /// Directories, links and whatever else has no bytes for us.
    Other,
}

/// A header that has been checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a>(&'a [u8]);

impl<'a> Header<'a> {
    /// Reads a block; `None` for the zeros that end an archive.
    pub fn of(block: &'a [u8]) -> Result<Option<Self>> {
        if block.len() as u64 != BLOCK {
            return Err(corrupt("a header has 512 bytes"));
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Self(block);
        let stored = number(&block[148..156])?;
        // Some writers of old added up signed bytes.
        if stored != header.sum(i64::from) as u64
            && stored != header.sum(|byte| i64::from(byte as i8)) as u64
        {
            return Err(corrupt("the checksum of a header is wrong"));
        }
        Ok(Some(header))
    }

    fn sum(self, value: impl Fn(u8) -> i64) -> i64 {
        let spaces = 8 * i64::from(b' ');
        let outside = self.0[..148].iter().chain(&self.0[156..]);
        spaces + outside.map(|byte| value(*byte)).sum::<i64>()
    }

    pub fn kind(self) -> Type {
        match self.0[156] {
            // A directory of old is a file whose name ends in a slash: no part of a sample. So may
            // a name be that was cut at its hundredth byte and stands whole in front of it.
            b'0' | 0 | b'7' => Type::File,
            b'L' => Type::LongName,
            b'x' | b'X' => Type::Extended,
            b'S' => Type::Sparse,
            _ => Type::Other,
        }
    }

    /// How many bytes follow the header.
    pub fn bytes(self) -> Result<u64> {
        // Links name a size that is not stored.
        if matches!(self.0[156], b'1'..=b'6') { Ok(0) } else { number(&self.0[124..136]) }
    }

    pub fn name(self) -> Vec<u8> {
        let name = until_zero(&self.0[..100]);
        let prefix = until_zero(&self.0[345..500]);
        // GNU keeps times where ustar keeps the rest of a long name.
        if &self.0[257..263] != b"ustar\0" || prefix.is_empty() {
            return name.to_vec();
        }
        [prefix, b"/", name].concat()
    }
}

/// What an extended header says about the member behind it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub name: Option<Vec<u8>>,
    pub bytes: Option<u64>,
    pub sparse: bool,
}

impl Attributes {
    /// Reads pax records: `27 path=a/long/name.jpg\n`, where the number counts all of it.
    pub fn read(&mut self, mut records: &[u8]) -> Result<()> {
        let broken = || corrupt("an extended header can't be read");
        while let Some((first, _)) = records.split_first()
            && *first != 0
        {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
            let len: usize = text(&records[..space]).ok_or_else(broken)?;
            let record = records.get(space + 1..len).ok_or_else(broken)?;
            let record = record.strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"size" => self.bytes = Some(text(value).ok_or_else(broken)?),
                _ => self.sparse |= key.starts_with(b"GNU.sparse."),
            }
            records = &records[len..];
        }
        Ok(())
    }
}

/// The bytes in front of the first zero.
pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn text<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A number in octal digits, or in binary if the first bit is set.
fn number(field: &[u8]) -> Result<u64> {
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len() - 8.min(field.len() - 1));
        if high[0] != 0x80 || high[1..].iter().any(|byte| *byte != 0) {
            return Err(corrupt("a number in a header is too large"));
        }
        return Ok(low.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
    }
    let digits = until_zero(field).trim_ascii();
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'7' => Ok(value << 3 | u64::from(digit - b'0')),
        _ => Err(corrupt("a number in a header has other letters than digits")),
    })
}

#[cold]
pub(super) fn corrupt(told: &str) -> Error {
    Error::new(Kind::Corrupt, told)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0").unwrap(), 0o644);
        assert_eq!(number(b"    17 \0").unwrap(), 0o17);
        assert_eq!(number(b"\0\0\0\0").unwrap(), 0);
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x03\0\0\0\x01").unwrap(), (3 << 32) + 1);
        for bad in [&b"12a4\0"[..], b"\x80\x01\0\0\0\0\0\0\0\0\0\0", b"\xff\0\0\0\0\0\0\0\0\0\0\0"]
        {
            assert_eq!(number(bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
        }
    }

    #[test]
    fn extended_records_are_read_and_broken_ones_refused() {
        let mut attributes = Attributes::default();
        attributes.read(b"11 path=a\xc3\n12 size=123\n18 mtime=123456.7\n").unwrap();
        let expected =
            Attributes { name: Some(b"a\xc3".to_vec()), bytes: Some(123), sparse: false };
        assert_eq!(attributes, expected);
        for bad in
            [&b"x"[..], b"99 path=a\n", b"3 a", b"0 a=b\n", b"7 path\n", b"10 size=-1\n", b"2 "]
        {
            assert_eq!(attributes.read(bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
        }
    }
}
