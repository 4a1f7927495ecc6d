//! What a file is that is no checkpoint, by its first bytes.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use tensorferry::checkpoint::HEADER_BYTES_MAX;
use tensorferry::{Error, Kind, Result};

/// Enough to find the names in an index or an archive.
const FIRST_BYTES: u64 = 4096;

/// Where the name of an archive's first file stands.
const ZIP_NAME: usize = 30;

/// An error for what can't be a checkpoint, that says what it is. The rest is for the reader of
/// checkpoints to judge.
pub(super) fn refuse(path: &Path) -> Result<()> {
    let named = |error: Error| Err(error.with("file", path.display()));
    let failed = |error| Error::from_io(error, "can't read the file");
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return named(failed(error)),
    };
    if metadata.is_dir() {
        return named(Error::invalid("this is a directory; name one of the files in it"));
    }
    if !metadata.is_file() {
        return named(Error::invalid("this is no regular file"));
    }
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST_BYTES).read_to_end(&mut first));
    match read.map_err(failed).map(|_| what(&first)) {
        Err(error) => named(error),
        Ok(None) => Ok(()),
        Ok(Some(what)) => {
            let message = format!("this is {what}, not a checkpoint or a safetensors file");
            named(Error::new(Kind::Unsupported, message))
        }
    }
}

/// What begins so, unless it may be a checkpoint.
fn what(first: &[u8]) -> Option<&'static str> {
    if let Some((length, [b'{', ..])) = first.split_first_chunk::<8>()
        && u64::from_le_bytes(*length) <= HEADER_BYTES_MAX
    {
        return None;
    }
    let has = |text: &[u8]| first.windows(text.len()).any(|window| window == text);
    match first {
        [] => Some("an empty file"),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some("an array of NumPy"),
        [b'P', b'K', 3, 4, ..] => Some(archive(first)),
        [0x80, 2..=5, ..] => Some("a pickle, perhaps of an old torch.save"),
        [b'G', b'G', b'U', b'F', ..] => Some("a GGUF file"),
        [0x89, b'H', b'D', b'F', ..] => Some("an HDF5 file"),
        _ if !first.trim_ascii_start().starts_with(b"{") => None,
        _ if has(b"\"weight_map\"") => Some("an index of the files that hold the tensors"),
        _ => Some("a text in JSON"),
    }
}

/// An archive of which the first file's name tells who wrote it.
fn archive(first: &[u8]) -> &'static str {
    let len = first.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let name = first.get(ZIP_NAME..ZIP_NAME + len).unwrap_or_default();
    if name.ends_with(b".npy") {
        "an archive of NumPy arrays"
    } else if name.ends_with(b"/data.pkl") {
        "a file of torch.save"
    } else {
        "a zip archive"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_checkpoint_is_left_to_its_reader() {
        for first in [&b"\x02\0\0\0\0\0\0\0{}"[..], b"{\x22\0\0\0\0\0\0{", b"x", b"nonsense, long"]
        {
            assert_eq!(what(first), None, "{first:?}");
        }
    }

    #[test]
    fn an_archive_cut_anywhere_is_still_one() {
        let mut zip = [b"PK\x03\x04".as_slice(), &[0; 26], b"archive/data.pkl", b"rest"].concat();
        zip[26] = 16;
        assert_eq!(what(&zip), Some("a file of torch.save"));
        for end in 4..46 {
            assert_eq!(what(&zip[..end]), Some("a zip archive"), "{end}");
        }
    }
}
