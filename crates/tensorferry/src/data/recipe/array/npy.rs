//! The header of a `.npy` file: what the array behind it looks like.
//!
//! It is written by hand because the library that reads such headers brings a parser for all of
//! Python's literals along, where this is one dictionary of three entries.

use crate::data::sample::{Field, Layout};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// An array in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What it looks like.
    pub layout: Layout,
    /// Where its elements start.
    pub start: u64,
}

/// Headers are short: NumPy itself refuses longer ones.
const HEADER_BYTES_MAX: usize = 10_000;
/// As many as NumPy has.
const DIMENSIONS_MAX: usize = 64;

impl Header {
    /// Reads the header of an array, and checks that the array is there.
    pub fn of(field: Field<'_>) -> Result<Self> {
        let mut start = [0; 12];
        let known = field.len().min(12) as usize;
        field.read_at(0, &mut start[..known])?;
        if known < 10 || start[..6] != *b"\x93NUMPY" {
            return Err(corrupt("the file is no .npy file: it does not start as one"));
        }
        let (offset, length) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            2 | 3 => (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize),
            version => {
                let what = format!("the .npy file has version {version}; 1 to 3 are known");
                return Err(Error::new(Kind::Unsupported, what));
            }
        };
        if length > HEADER_BYTES_MAX {
            return Err(corrupt("the header of the .npy file is too long"));
        }
        let mut text = vec![0; length];
        field.read_at(offset, &mut text)?;
        let text = std::str::from_utf8(&text)
            .map_err(|_| corrupt("the header of the .npy file is no text"))?;
        let layout = layout(text)?;
        let start = offset + length as u64;
        check_size(&layout, field.len().saturating_sub(start))?;
        Ok(Self { layout, start })
    }
}

/// The header promises as many bytes as there are.
fn check_size(layout: &Layout, has: u64) -> Result<()> {
    let needs = layout.bytes().map(|bytes| bytes as u64);
    let kind = match needs {
        Some(needs) if needs == has => return Ok(()),
        Some(needs) if needs > has => Kind::Truncated,
        _ => Kind::Corrupt,
    };
    let what = format!("the .npy file has {has} bytes of data behind a header of {layout}");
    Err(Error::new(kind, what))
}

fn layout(text: &str) -> Result<Layout> {
    let order = entry(text, "fortran_order")?;
    if order.starts_with("True") {
        let what = "the array is stored in Fortran's order";
        let advice = "save numpy.ascontiguousarray(array) instead";
        return Err(Error::new(Kind::Unsupported, format!("{what}; {advice}")));
    }
    if !order.starts_with("False") {
        return Err(corrupt("the header of the .npy file does not say its order"));
    }
    Ok(Layout::new(dtype(entry(text, "descr")?)?, shape(entry(text, "shape")?)?))
}

/// What stands behind a key.
fn entry<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let missing = || corrupt("the header of the .npy file lacks an entry").with("entry", key);
    let found = ['\'', '"'].iter().find_map(|quote| {
        let quoted = format!("{quote}{key}{quote}");
        text.find(&quoted).map(|at| &text[at + quoted.len()..])
    });
    let value = found.ok_or_else(missing)?.trim_start().strip_prefix(':').ok_or_else(missing)?;
    Ok(value.trim_start())
}

fn shape(text: &str) -> Result<Vec<usize>> {
    let wrong = || corrupt("the header of the .npy file has no shape");
    let (inner, _) =
        text.strip_prefix('(').and_then(|text| text.split_once(')')).ok_or_else(wrong)?;
    let sides = inner.split(',').map(str::trim).filter(|side| !side.is_empty());
    let shape: Vec<usize> =
        sides.map(|side| side.parse().map_err(|_| wrong())).collect::<Result<_>>()?;
    if shape.len() > DIMENSIONS_MAX {
        return Err(corrupt("the array in the .npy file has too many dimensions"));
    }
    Ok(shape)
}

fn dtype(text: &str) -> Result<Dtype> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
    let name = quote.and_then(|quote| text[1..].split_once(quote)).map(|(name, _)| name);
    let Some(name) = name else {
        let what = "the .npy file holds records; only plain numbers are supported";
        return Err(Error::new(Kind::Unsupported, what));
    };
    let (order, kind) = name.split_at_checked(1).unwrap_or((name, ""));
    let dtype = match kind {
        "b1" => Dtype::Bool,
        "i1" => Dtype::I8,
        "u1" => Dtype::U8,
        "i2" => Dtype::I16,
        "u2" => Dtype::U16,
        "f2" => Dtype::F16,
        "i4" => Dtype::I32,
        "u4" => Dtype::U32,
        "f4" => Dtype::F32,
        "i8" => Dtype::I64,
        "u8" => Dtype::U64,
        "f8" => Dtype::F64,
        "c8" => Dtype::C64,
        _ => {
            let what =
                format!("the .npy file holds elements of {name:?}, which has no tensor type");
            return Err(Error::new(Kind::Unsupported, what));
        }
    };
    if order == ">" && dtype.bytes() > 1 {
        let what = "the array is stored with its bytes in big-endian order";
        let advice = "save array.astype(array.dtype.newbyteorder('<')) instead";
        return Err(Error::new(Kind::Unsupported, format!("{what}; {advice}")));
    }
    Ok(dtype)
}

fn corrupt(message: &str) -> Error {
    Error::new(Kind::Corrupt, message)
}
