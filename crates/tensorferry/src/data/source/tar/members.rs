//! The files in a tar, one after the other, by reading headers only.
//!
//! Written by hand rather than with the crate `tar`: that one passes over a member that is cut
//! without a word when it seeks, takes an archive without an end for a whole one, and does not say
//! where in the file an error is. It is what the tests compare with.

use std::ops::Range;

use super::header::{Attributes, BLOCK, Header, Type, corrupt, until_zero};
use super::window::Window;
use crate::data::source::store::Object;
use crate::error::{Error, Kind, Result};

/// Names and attributes of one member that take more than this are damage.
const EXTENDED_MAX: u64 = 1 << 20;

/// A file in a tar.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub name: Vec<u8>,
    pub range: Range<u64>,
}

/// A way through a tar.
pub(super) struct Members<'a> {
    window: Window<'a>,
    end: u64,
    at: u64,
}

impl<'a> Members<'a> {
    pub fn new(object: &'a dyn Object) -> Self {
        Self { window: Window::new(object), end: object.bytes(), at: 0 }
    }

    /// The next file; `None` behind the last. A tar that is cut or damaged is an error that says at
    /// which offset, and then there is no way further.
    pub fn next(&mut self) -> Result<Option<Member>> {
        let start = self.at;
        self.step().map_err(|error| error.with("offset", start))
    }

    fn step(&mut self) -> Result<Option<Member>> {
        let mut long = Attributes::default();
        loop {
            let start = self.at;
            let Some((kind, name, bytes)) = self.header()? else { return Ok(None) };
            let applies = !matches!(kind, Type::LongName | Type::Extended);
            let bytes = long.bytes.filter(|_| applies).unwrap_or(bytes);
            let range = self.pass(start + BLOCK, bytes)?;
            match kind {
                Type::LongName => long.name = Some(until_zero(self.extended(range)?).to_vec()),
                Type::Extended => long.read(self.extended(range)?)?,
                Type::Sparse => return Err(sparse()),
                Type::File if long.sparse => return Err(sparse()),
                Type::File => return Ok(Some(Member { name: long.name.unwrap_or(name), range })),
                Type::Other => long = Attributes::default(),
            }
        }
    }

    fn header(&mut self) -> Result<Option<(Type, Vec<u8>, u64)>> {
        let end = self.at + BLOCK;
        if end > self.end {
            let told = "the tar is cut: it ends without its end marker";
            return Err(Error::new(Kind::Truncated, told));
        }
        let block = self.window.get(self.at..end)?;
        let header = Header::of(block).map_err(|error| match self.at {
            0 => not_tar(block, error),
            _ => error,
        })?;
        let Some(header) = header else { return Ok(None) };
        Ok(Some((header.kind(), header.name(), header.bytes()?)))
    }

    /// Goes behind a member; where its bytes are.
    fn pass(&mut self, start: u64, bytes: u64) -> Result<Range<u64>> {
        let end = start.checked_add(bytes).filter(|end| *end <= self.end).ok_or_else(|| {
            let told = format!("the tar is cut: a member of {bytes} bytes goes beyond its end");
            Error::new(Kind::Truncated, told)
        })?;
        // Padding may lie behind the end; whoever wants a header there finds it cut.
        self.at = end.next_multiple_of(BLOCK);
        Ok(start..end)
    }

    fn extended(&mut self, range: Range<u64>) -> Result<&[u8]> {
        if range.end - range.start > EXTENDED_MAX {
            return Err(corrupt("a name or an extended header is too long"));
        }
        self.window.get(range)
    }
}

#[cold]
fn sparse() -> Error {
    let told = "a sparse file is in the tar; pack the files without --sparse";
    Error::new(Kind::Unsupported, told)
}

#[cold]
fn not_tar(block: &[u8], error: Error) -> Error {
    let packed: [&[u8]; 4] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"];
    if packed.iter().any(|magic| block.starts_with(magic)) {
        let told = "the tar is compressed, and samples can't be found in it; decompress it";
        return Error::new(Kind::Unsupported, told);
    }
    Error::new(Kind::Corrupt, "not a tar file").caused_by(error)
}
