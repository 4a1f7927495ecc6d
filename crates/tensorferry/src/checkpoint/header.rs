//! The header of a safetensors file: what is in the file, and where.
//!
//! Decoding takes outside bytes. What comes out is consistent: names are unique, every range lies
//! inside the data, has the length that shape and dtype demand, and follows the one before without
//! gap or overlap up to the end of the file. Anything else is an error that names the tensor or the
//! field, and nothing is allocated on the word of the header alone.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// The data starts at a multiple of this many bytes.
pub const DATA_ALIGNMENT: u64 = 4096;

/// Longer headers are refused: the limit of the format's own library.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// No file has more: offsets are signed, and the header takes some.
const DATA_BYTES_MAX: u64 = i64::MAX as u64 - 2 * HEADER_BYTES_MAX;

/// More dimensions are refused: torch computes with no more, and each mention of a tensor repeats them.
pub(super) const DIMENSIONS_MAX: usize = 64;

/// The name under which the header keeps texts that are no tensors.
pub const METADATA: &str = "__metadata__";

/// Bytes of the number in front of the header.
const LENGTH_BYTES: u64 = 8;

/// What is in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// In the order of their bytes.
    pub tensors: Vec<Tensor>,
    /// Texts of any meaning.
    pub metadata: BTreeMap<String, String>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Unique in its file.
    pub name: String,
    /// What its elements are.
    pub dtype: Dtype,
    /// How many of them in each dimension; none for a scalar.
    pub shape: Vec<u64>,
    /// Its bytes, from the start of the data.
    pub range: Range<u64>,
}

impl Tensor {
    /// How many bytes it has.
    #[expect(clippy::len_without_is_empty, reason = "an empty tensor is nothing special")]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Header {
    /// Lays tensors out: those of whole blocks first, so that each starts on a block and direct I/O
    /// takes it without a copy; then the largest elements first, so that all are aligned; otherwise
    /// in the order given.
    pub fn lay_out(
        tensors: impl IntoIterator<Item = (String, Dtype, Vec<u64>)>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        tensors.sort_by_key(|(_, dtype, shape)| {
            let bytes = bytes_of(*dtype, shape).unwrap_or(0);
            let whole_blocks = bytes > 0 && bytes.is_multiple_of(DATA_ALIGNMENT);
            (!whole_blocks, std::cmp::Reverse(dtype.bytes()))
        });
        let mut end = 0u64;
        let mut known = HashSet::new();
        let tensors = tensors.into_iter().map(|(name, dtype, shape)| {
            if name == METADATA || !known.insert(name.clone()) {
                let why = "a tensor's name stands twice, or has a meaning of its own";
                return Err(Error::invalid(why).with("tensor", name));
            }
            if shape.len() > DIMENSIONS_MAX {
                let why = format!("a tensor has more than {DIMENSIONS_MAX} dimensions");
                return Err(Error::invalid(why).with("tensor", name));
            }
            let start = end;
            let bytes = bytes_of(dtype, &shape).and_then(|bytes| start.checked_add(bytes));
            end = bytes
                .filter(|end| *end <= DATA_BYTES_MAX)
                .ok_or_else(|| Error::invalid("a tensor is too large").with("tensor", &name))?;
            Ok(Tensor { name, dtype, shape, range: start..end })
        });
        Ok(Self { tensors: tensors.collect::<Result<_>>()?, metadata })
    }

    /// Whether the tensors are as a file has them: a header can also be put together by hand.
    pub(super) fn check(&self) -> Result<()> {
        for tensor in &self.tensors {
            let Range { start, end } = tensor.range;
            if start > end || bytes_of(tensor.dtype, &tensor.shape) != Some(end - start) {
                let why = "a tensor's range is not what its shape and dtype demand";
                return Err(Error::invalid(why).with("tensor", &tensor.name));
            }
        }
        check_contiguous(&self.tensors, self.data_len())
    }

    /// Bytes of all tensors.
    pub fn data_len(&self) -> u64 {
        self.tensors.last().map_or(0, |tensor| tensor.range.end)
    }

    /// The bytes in front of the data: length, JSON and padding.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let failed = |error: serde_json::Error| {
            Error::new(Kind::Internal, "can't write a header").caused_by(error)
        };
        let mut bytes = vec![0; LENGTH_BYTES as usize];
        bytes.push(b'{');
        if !self.metadata.is_empty() {
            write_field(&mut bytes, METADATA, &self.metadata).map_err(failed)?;
        }
        for tensor in &self.tensors {
            let written = Written {
                dtype: tensor.dtype.name(),
                shape: &tensor.shape,
                data_offsets: [tensor.range.start, tensor.range.end],
            };
            write_field(&mut bytes, &tensor.name, &written).map_err(failed)?;
        }
        bytes.push(b'}');
        bytes.resize(bytes.len().next_multiple_of(DATA_ALIGNMENT as usize), b' ');
        let len = bytes.len() as u64 - LENGTH_BYTES;
        if len > HEADER_BYTES_MAX {
            let message = "the header would be too long; save fewer tensors in one file";
            return Err(Error::invalid(message).with("bytes", len).with("limit", HEADER_BYTES_MAX));
        }
        bytes[..LENGTH_BYTES as usize].copy_from_slice(&len.to_le_bytes());
        Ok(bytes)
    }

    /// Where the data starts, from the first bytes of a file of `file_len` bytes.
    pub fn data_start(first: [u8; 8], file_len: u64) -> Result<u64> {
        let len = u64::from_le_bytes(first);
        let wrong = |kind, why: String| Err(Error::new(kind, why).with("field", "header length"));
        if len > HEADER_BYTES_MAX {
            let why =
                format!("a damaged file, or no checkpoint: its header would have {len} bytes");
            return wrong(Kind::Corrupt, why);
        }
        if len < 2 {
            return wrong(Kind::Corrupt, format!("a header of {len} bytes is too short"));
        }
        if LENGTH_BYTES + len > file_len {
            let why = format!("the header has {len} bytes, the file only {file_len}");
            return wrong(Kind::Truncated, why);
        }
        Ok(LENGTH_BYTES + len)
    }

    /// Reads the JSON of a header (what lies between the length and the data) and judges it against
    /// a file with `data_len` bytes of data.
    pub fn decode(json: &[u8], data_len: u64) -> Result<Self> {
        let text = std::str::from_utf8(json).map_err(|error| {
            Error::new(Kind::Corrupt, "the header is not text").caused_by(error)
        })?;
        if !text.starts_with('{') {
            return Err(Error::new(Kind::Corrupt, "the header does not start with a brace"));
        }
        let raw: Raw = serde_json::from_str(text).map_err(|error| {
            Error::new(Kind::Corrupt, "the header is not as the format demands").caused_by(error)
        })?;
        let mut tensors = Vec::with_capacity(raw.tensors.len());
        for (name, entry) in raw.tensors {
            let tensor = entry.judge(&name, data_len);
            tensors.push(tensor.map_err(|error| error.with("tensor", &name))?);
        }
        // Empty tensors share their start with the next; the end decides.
        tensors.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
        check_contiguous(&tensors, data_len)?;
        Ok(Self { tensors, metadata: raw.metadata })
    }
}

/// Bytes of a tensor; `None` when there is no such number.
pub(super) fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    // A zero anywhere makes it empty, whatever the others would overflow to.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(dtype.bytes(), |bytes, size| bytes.checked_mul(*size))
}

fn check_contiguous(tensors: &[Tensor], data_len: u64) -> Result<()> {
    let mut end = 0;
    for tensor in tensors {
        let Range { start, .. } = tensor.range;
        if start != end {
            let what =
                if start < end { "overlaps the one before" } else { "leaves a gap before it" };
            let message = format!("a tensor {what}: it starts at {start}, expected {end}");
            return Err(Error::new(Kind::Corrupt, message).with("tensor", &tensor.name));
        }
        end = tensor.range.end;
    }
    if end != data_len {
        let message =
            format!("the tensors have {end} bytes, the file has {data_len} behind its header");
        return Err(Error::new(Kind::Corrupt, message));
    }
    Ok(())
}

/// A tensor as it is written.
#[derive(Serialize)]
struct Written<'a> {
    dtype: &'a str,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

fn write_field(
    bytes: &mut Vec<u8>,
    name: &str,
    value: &impl Serialize,
) -> Result<(), serde_json::Error> {
    if !bytes.ends_with(b"{") {
        bytes.push(b',');
    }
    serde_json::to_writer(&mut *bytes, name)?;
    bytes.push(b':');
    serde_json::to_writer(bytes, value)
}

/// A tensor as it was read.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    fn judge(self, name: &str, data_len: u64) -> Result<Tensor> {
        let corrupt = |why: String| Err(Error::new(Kind::Corrupt, why));
        let dtype = Dtype::named(&self.dtype)?;
        let (start, end) = self.data_offsets;
        if self.shape.len() > DIMENSIONS_MAX {
            return corrupt(format!("the shape has more than {DIMENSIONS_MAX} dimensions"));
        }
        if start > end {
            return corrupt(format!("data_offsets run backwards: {start}, {end}"));
        }
        if end > data_len {
            return corrupt(format!("data_offsets end at {end}, the data has {data_len} bytes"));
        }
        // Beside a zero, sizes are not bounded by the bytes; strides have to be counted all the same.
        let sizes = self.shape.iter().filter(|size| **size != 0);
        let strides = sizes.copied().try_fold(1u64, u64::checked_mul);
        let countable = strides.is_some_and(|strides| i64::try_from(strides).is_ok());
        if self.shape.contains(&0) && !countable {
            return corrupt("the shape has more elements than can be counted".into());
        }
        match bytes_of(dtype, &self.shape) {
            Some(bytes) if bytes == end - start => {
                Ok(Tensor { name: name.to_owned(), dtype, shape: self.shape, range: start..end })
            }
            Some(bytes) => corrupt(format!(
                "shape and dtype demand {bytes} bytes, data_offsets give {}",
                end - start
            )),
            None => corrupt("the shape has more bytes than can be counted".into()),
        }
    }
}

/// A header as it was read: entries in the order of the text, no name twice.
#[derive(Default)]
struct Raw {
    tensors: Vec<(String, Entry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut raw = Raw::default();
        let mut known = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !known.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("the name {name:?} stands twice")));
            }
            if name == METADATA {
                raw.metadata = map.next_value_seed(Texts)?;
            } else {
                let entry = map
                    .next_value()
                    .map_err(|error| A::Error::custom(format_args!("tensor {name:?}: {error}")))?;
                raw.tensors.push((name, entry));
            }
        }
        Ok(raw)
    }
}

/// Texts by name, no name twice.
struct Texts;

impl<'de> DeserializeSeed<'de> for Texts {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            if texts.contains_key(&name) {
                let what = format_args!("{METADATA} has {name:?} twice");
                return Err(A::Error::custom(what));
            }
            texts.insert(name, text);
        }
        Ok(texts)
    }
}
