//! What a file is, by its first bytes.
//!
//! Checkpoints come with names of any kind, and what lies in their place is often something else: a
//! page that says "not found", a pointer of git-lfs, an archive that nobody has unpacked. Whoever
//! reads files asks here, so that all say the same of one.

use std::fs::{self, File, FileType};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::header::HEADER_BYTES_MAX;
use crate::error::{Error, Kind, Result};

/// Enough for the names in an index or an archive, and for the mark of a tar file.
pub(super) const FIRST_BYTES: u64 = 4096;

/// Where the name of an archive's first file stands.
const ZIP_NAME: usize = 30;

/// Where a tar file says what it is.
const TAR_MARK: usize = 257;

/// What `torch.save` pickles first in files that are no archives.
const TORCH_MAGIC: &[u8] = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19";

/// Who reads what is neither.
const BY_LOAD: &str = "; ferry.load reads it";

/// Some editors put it in front of a text.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// A format of files with tensors in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A header and tensors. What nobody knows counts as one: reading it says why it is not.
    Safetensors,
    /// JSON, which may be the index of several files.
    Index,
    /// What `torch.save` writes.
    Torch,
    /// One array of NumPy.
    Numpy,
}

impl Format {
    /// `safetensors`, `index`, `torch` or `numpy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Index => "index",
            Self::Torch => "torch",
            Self::Numpy => "numpy",
        }
    }

    /// An error for a reader of safetensors files alone; nothing for those.
    pub fn refuse(self) -> Result<()> {
        match self {
            Self::Safetensors => Ok(()),
            Self::Index => Err(not_a_checkpoint("a text in JSON", "")),
            Self::Torch => Err(not_a_checkpoint("a file of torch.save", BY_LOAD)),
            Self::Numpy => Err(not_a_checkpoint("an array of NumPy", BY_LOAD)),
        }
    }
}

/// The format of a file; an error for what has no tensors, or only in a way that nobody here reads,
/// says what it is.
pub fn recognise(path: &Path) -> Result<Format> {
    look_at(path).map_err(|error| error.with("file", path.display()))
}

fn look_at(path: &Path) -> Result<Format> {
    let failed = |error| Error::from_io(error, "can't open file");
    // Opening a pipe would wait for somebody at its other end.
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        return Err(Error::invalid(format!("can't open file, it is {}", no_file(kind))));
    }
    let mut first = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FIRST_BYTES).read_to_end(&mut first))
        .map_err(failed)?;
    by_content(&first)
}

fn no_file(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory; name one of the files in it",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// The format of a file that begins so.
pub(super) fn by_content(first: &[u8]) -> Result<Format> {
    if let Some((length, [b'{', ..])) = first.split_first_chunk::<8>()
        && u64::from_le_bytes(*length) <= HEADER_BYTES_MAX
    {
        return Ok(Format::Safetensors);
    }
    match first {
        [] => Err(Error::new(Kind::Truncated, "the file is empty")),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Ok(Format::Numpy),
        [b'P', b'K', 3, 4, ..] => archive(first),
        [0x80, 2..=5, ..] => pickle(first),
        _ => match text(first) {
            Some(text) => document(text),
            None => binary(first),
        },
    }
}

/// What `torch.save` writes into an archive stands in a folder there.
fn archive(first: &[u8]) -> Result<Format> {
    let len = first.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let name = first.get(ZIP_NAME..ZIP_NAME + len).unwrap_or_default();
    if name.ends_with(b".npy") {
        let hint = "; open it with numpy.load";
        return Err(not_a_checkpoint("an archive of NumPy arrays", hint));
    }
    if has(first, b"/data.pkl") || has(first, b"/data/") {
        return Ok(Format::Torch);
    }
    Err(not_a_checkpoint("a zip archive", "; unpack it first"))
}

fn pickle(first: &[u8]) -> Result<Format> {
    if has(&first[..first.len().min(64)], TORCH_MAGIC) {
        return Ok(Format::Torch);
    }
    let hint = "; loading it would run whatever it says: if you trust it, load it with pickle";
    Err(not_a_checkpoint("a pickle", hint))
}

fn document(text: &str) -> Result<Format> {
    let start = text.trim_start_matches(BYTE_ORDER_MARK).trim_start();
    let begins =
        |with: &str| start.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    if start.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with(['"', '}'])) {
        return Ok(Format::Index);
    }
    Err(if begins("version https://git-lfs") {
        not_a_checkpoint("a pointer of git-lfs", "; fetch the file itself with `git lfs pull`")
    } else if begins("<!doctype html") || begins("<html") {
        not_a_checkpoint("a web page", "; the download gave an error or asked for a login")
    } else if begins("<?xml") {
        not_a_checkpoint("a text in XML", "; a download may have given an error")
    } else {
        not_a_checkpoint("a text", "")
    })
}

fn binary(first: &[u8]) -> Result<Format> {
    let is_tar = first.get(TAR_MARK..).is_some_and(|rest| rest.starts_with(b"ustar"));
    Err(match first {
        [0x1f, 0x8b, ..] => not_a_checkpoint("compressed by gzip", "; decompress it first"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            not_a_checkpoint("compressed by zstd", "; decompress it first")
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            not_a_checkpoint("compressed by xz", "; decompress it first")
        }
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => {
            not_a_checkpoint("compressed by bzip2", "; decompress it first")
        }
        [0x7f, b'E', b'L', b'F', ..] => not_a_checkpoint("a program or library", ""),
        [b'G', b'G', b'U', b'F', ..] => not_a_checkpoint("a GGUF file", ""),
        [0x89, b'H', b'D', b'F', ..] => not_a_checkpoint("an HDF5 file", ""),
        [0x89, b'P', b'N', b'G', ..] | [0xff, 0xd8, 0xff, ..] => not_a_checkpoint("a picture", ""),
        [0xff, 0xfe, rest @ ..] | [0xfe, 0xff, rest @ ..] if is_wide(rest) => {
            not_a_checkpoint("a text in UTF-16", "")
        }
        // A version, then the length and the text of who made it.
        [8, 1..=32, 0x12, len @ 1..=64, rest @ ..] if is_name(rest, *len) => {
            not_a_checkpoint("an ONNX model", "; export what it was made from")
        }
        _ if is_tar => not_a_checkpoint("a tar archive", "; unpack it first"),
        // A damaged one begins with anything.
        _ => return Ok(Format::Safetensors),
    })
}

/// Whether every second byte is zero, as in a text of letters of which each takes two.
fn is_wide(rest: &[u8]) -> bool {
    let (pairs, _) = rest.as_chunks::<2>();
    !pairs.is_empty() && pairs.iter().all(|pair| (pair[0] == 0) != (pair[1] == 0))
}

fn is_name(rest: &[u8], len: u8) -> bool {
    let name = rest.get(..usize::from(len)).unwrap_or(rest);
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

fn not_a_checkpoint(what: &str, hint: &str) -> Error {
    let message = format!("this is {what}, not a checkpoint or a safetensors file{hint}");
    Error::new(Kind::Unsupported, message)
}

/// The bytes as text, if they are nothing else; a character at their end may be cut.
fn text(first: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&first[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c');
    (!text.is_empty() && text.chars().all(is_text)).then_some(text)
}

fn has(first: &[u8], part: &[u8]) -> bool {
    first.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_checkpoint_is_left_to_its_reader() {
        for first in [
            &b"\x02\0\0\0\0\0\0\0{}"[..],
            b"{\x22\0\0\0\0\0\0{",
            b"\xf8\x0f\0\0\0\0\0\0",
            b"\xf8\x0f",
            b"\xf8\x0f\0\0\0\0\0\0[",
            b"\0\0\0\0",
            b"none\0sense",
        ] {
            assert_eq!(by_content(first).unwrap(), Format::Safetensors, "{first:?}");
        }
    }

    #[test]
    fn an_archive_cut_anywhere_is_still_one() {
        let mut zip = [b"PK\x03\x04".as_slice(), &[0; 26], b"archive/data.pkl", b"rest"].concat();
        zip[26] = 16;
        assert_eq!(by_content(&zip).unwrap(), Format::Torch);
        for end in 4..46 {
            let error = by_content(&zip[..end]).unwrap_err();
            assert!(error.to_string().starts_with("this is a zip archive"), "{end}: {error}");
        }
    }

    #[test]
    fn a_text_is_one_also_where_a_character_is_cut() {
        let text = "aé\n\tü\u{1f600}";
        for end in 1..=text.len() {
            let error = by_content(&text.as_bytes()[..end]).unwrap_err();
            let expected = "this is a text, not a checkpoint or a safetensors file";
            assert_eq!(error.to_string(), expected, "{end}");
        }
    }
}
