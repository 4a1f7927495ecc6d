//! A sample on its way from storage to a batch.
//!
//! [`Raw`] is what a source gives: the stored bytes, cut into fields (the image, its class, ...). It
//! is cheap to clone, so that a cache and a recipe can hold it at once. Small samples are in memory;
//! a large one in a local file may stay there, and the recipe reads it straight to where it belongs.
//!
//! [`Place`] is where a recipe puts its result: it says which [`Layout`] it needs and gets the
//! sample's slot of the batch to write to. So nothing is copied twice, and a recipe knows nothing of
//! batches.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::StoredFile;
use super::spent;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// The stored bytes of a sample, by field.
#[derive(Clone)]
pub struct Raw {
    body: Body,
    /// Where each field ends; the first starts at zero, the others where the last one ended.
    ends: Arc<[u64]>,
}

#[derive(Clone)]
enum Body {
    Memory(Arc<Vec<u8>>),
    /// Where in the file each field starts; they need not lie next to each other.
    Stored {
        file: Arc<StoredFile>,
        starts: Arc<[u64]>,
    },
}

/// One field of a [`Raw`] sample.
#[derive(Clone, Copy)]
pub enum Field<'a> {
    /// Its bytes.
    Memory(&'a [u8]),
    /// Where its bytes are.
    Stored {
        /// An open file.
        file: &'a StoredFile,
        /// Where in it.
        start: u64,
        /// How many.
        len: u64,
    },
}

impl Raw {
    /// A sample with one field.
    pub fn single(bytes: Vec<u8>) -> Self {
        let ends = Arc::from([bytes.len() as u64]);
        Self { body: Body::Memory(Arc::new(bytes)), ends }
    }

    /// A sample of several fields, one behind the other; `ends` says where each ends.
    pub fn fields(bytes: Vec<u8>, ends: Vec<u64>) -> Result<Self> {
        if !ends.is_sorted() || ends.last().is_some_and(|end| *end != bytes.len() as u64) {
            return Err(Error::new(Kind::Internal, "the fields of a sample don't cover its bytes"));
        }
        Ok(Self { body: Body::Memory(Arc::new(bytes)), ends: ends.into() })
    }

    /// A sample with one field that is still in a file.
    pub fn stored(file: Arc<StoredFile>, start: u64, len: u64) -> Self {
        Self::scattered(file, &[(start, len)])
    }

    /// A sample whose fields are still in a file: where each starts, and how many bytes it has.
    pub fn scattered(file: Arc<StoredFile>, fields: &[(u64, u64)]) -> Self {
        let starts = fields.iter().map(|(start, _)| *start).collect();
        let ends = fields.iter().scan(0, |end, (_, len)| {
            *end += len;
            Some(*end)
        });
        Self { ends: ends.collect(), body: Body::Stored { file, starts } }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// How many of them are in memory.
    pub fn resident(&self) -> u64 {
        if matches!(self.body, Body::Memory(_)) { self.bytes() } else { 0 }
    }

    /// How many fields it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no field at all.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Field number `at`.
    pub fn field(&self, at: usize) -> Field<'_> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        let end = self.ends[at];
        match &self.body {
            Body::Memory(bytes) => Field::Memory(&bytes[start as usize..end as usize]),
            Body::Stored { file, starts } => {
                Field::Stored { file, start: starts[at], len: end - start }
            }
        }
    }

    /// The same sample with all of its bytes in memory, so that a cache can hold it.
    pub fn in_memory(&self) -> Result<Self> {
        let Body::Stored { file, starts } = &self.body else { return Ok(self.clone()) };
        let mut bytes = vec![0; self.bytes() as usize];
        let mut left = bytes.as_mut_slice();
        for (at, start) in starts.iter().enumerate() {
            let (field, rest) = left.split_at_mut(self.field(at).len() as usize);
            spent::reading(|| file.fill(*start, field))?;
            left = rest;
        }
        Ok(Self { body: Body::Memory(Arc::new(bytes)), ends: Arc::clone(&self.ends) })
    }

    /// The bytes, if they are in memory.
    pub fn as_memory(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Memory(bytes) => Some(bytes),
            Body::Stored { .. } => None,
        }
    }

    /// Where each field ends.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.as_memory().is_some() { "in memory" } else { "in a file" };
        write!(f, "Raw({} bytes in {} fields, {place})", self.bytes(), self.len())
    }
}

impl<'a> Field<'a> {
    /// How many bytes it has.
    pub fn len(self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Stored { len, .. } => len,
        }
    }

    /// Whether it has no byte.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// All of its bytes.
    pub fn all(self) -> Result<Cow<'a, [u8]>> {
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Stored { file, start, len } => {
                let mut bytes = vec![0; len as usize];
                spent::reading(|| file.fill(start, &mut bytes))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Fills `into` with the bytes from `offset` on; a field that ends earlier is
    /// [`Kind::Truncated`].
    pub fn read_at(self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.len());
        let Some(end) = end else {
            let has = format!("the sample has {} bytes", self.len());
            let needs = format!("{} are needed from {offset} on", into.len());
            return Err(Error::new(Kind::Truncated, format!("{has}, and {needs}")));
        };
        match self {
            Self::Memory(bytes) => into.copy_from_slice(&bytes[offset as usize..end as usize]),
            Self::Stored { file, start, .. } => {
                spent::reading(|| file.fill(start + offset, into))?;
            }
        }
        Ok(())
    }
}

/// What one array of a sample looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, without the batch's.
    pub shape: Vec<usize>,
}

impl Layout {
    /// An array of this type and shape.
    pub fn new(dtype: Dtype, shape: impl Into<Vec<usize>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Bytes of one such array; `None` when they can't be counted.
    pub fn bytes(&self) -> Option<usize> {
        let start = self.dtype.bytes() as usize;
        self.shape.iter().try_fold(start, |bytes, side| bytes.checked_mul(*side))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype.name(), self.shape)
    }
}

/// Where the results of a recipe go: one slot of each column of a batch.
pub trait Place {
    /// Memory for an array of this layout, every byte of which the caller writes. `member` names
    /// one of several arrays in a field; it is empty when there is but one.
    fn array(&mut self, member: &str, layout: &Layout) -> Result<&mut [u8]>;

    /// Keeps bytes that are not numbers as they are.
    fn bytes(&mut self, member: &str, bytes: &[u8]) -> Result<()>;
}

/// A place of its own for the results of one sample.
#[derive(Debug, Default)]
pub struct Alone {
    /// The arrays, by member.
    pub arrays: Vec<(String, Layout, Vec<u8>)>,
    /// The bytes, by member.
    pub blobs: Vec<(String, Vec<u8>)>,
}

impl Place for Alone {
    fn array(&mut self, member: &str, layout: &Layout) -> Result<&mut [u8]> {
        let bytes = layout.bytes().ok_or_else(|| Error::invalid("the array is too large"))?;
        self.arrays.push((member.to_owned(), layout.clone(), vec![0; bytes]));
        let (.., memory) = self.arrays.last_mut().ok_or_else(|| Error::invalid("no array"))?;
        Ok(memory)
    }

    fn bytes(&mut self, member: &str, bytes: &[u8]) -> Result<()> {
        self.blobs.push((member.to_owned(), bytes.to_vec()));
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_one_behind_the_other() {
        let raw = Raw::fields(b"imagecls".to_vec(), vec![5, 8]).unwrap();
        assert_eq!(&*raw.field(0).all().unwrap(), b"image");
        assert_eq!(&*raw.field(1).all().unwrap(), b"cls");
        assert_eq!((raw.bytes(), raw.len()), (8, 2));
        assert!(Raw::fields(b"image".to_vec(), vec![3]).is_err());
    }

    #[test]
    fn a_file_that_is_cut_while_a_sample_of_it_is_on_its_way_is_told() {
        let file = StoredFile::of(&[0; 10]);
        let raw = Raw::stored(Arc::clone(&file), 0, 10);
        file.cut(4);
        for error in [raw.in_memory().unwrap_err(), raw.field(0).all().unwrap_err()] {
            assert_eq!(error.kind(), Kind::Truncated);
            assert!(
                error.to_string().starts_with("the file ends too early: it was cut"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_sample_in_a_file_reads_as_one_in_memory() {
        let raw = Raw::stored(StoredFile::of(b"0123456789"), 2, 6);
        let mut some = [0; 3];
        raw.field(0).read_at(1, &mut some).unwrap();
        assert_eq!(&some, b"345");
        assert_eq!(raw.in_memory().unwrap().as_memory().unwrap(), b"234567");
        assert_eq!(raw.field(0).read_at(4, &mut some).unwrap_err().kind(), Kind::Truncated);
    }

    #[test]
    fn fields_in_a_file_may_lie_apart_and_in_another_order() {
        let raw = Raw::scattered(StoredFile::of(b"cls__image"), &[(5, 5), (0, 3)]);
        assert_eq!(&*raw.field(0).all().unwrap(), b"image");
        assert_eq!(&*raw.field(1).all().unwrap(), b"cls");
        assert_eq!(raw.ends(), [5, 8]);
        assert_eq!(raw.in_memory().unwrap().as_memory().unwrap(), b"imagecls");
    }

    #[test]
    fn every_read_from_a_file_is_charged_to_storage() {
        let far = Raw::stored(StoredFile::of(b"0123456789"), 0, 10);
        let near = far.in_memory().unwrap();
        let charged = |read: &dyn Fn()| {
            spent::noted();
            read();
            spent::noted().storage > 0.0
        };
        assert!(charged(&|| drop(far.in_memory().unwrap())));
        assert!(charged(&|| drop(far.field(0).all().unwrap())));
        assert!(charged(&|| far.field(0).read_at(0, &mut [0; 3]).unwrap()));
        assert!(!charged(&|| drop(near.field(0).all().unwrap())));
    }
}
