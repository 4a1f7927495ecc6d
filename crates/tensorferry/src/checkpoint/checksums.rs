//! The checksums of a file, kept in its header.
//!
//! The metadata has a text `crc32c`: eight hexadecimal digits for the header, then eight for each
//! tensor, in the order of their bytes, or for none of them. The header's own cover all of it, the
//! length in front and the padding behind included, with those eight digits taken as zeros.
//!
//! Digits have a fixed width, so that the length of the header is known before the first byte of a
//! tensor was read: the data can be written first, and the checksums cost no second pass.

use std::fmt::Write;

use super::header::Header;
use crate::codec::checksum::Crc32c;
use crate::error::{Error, Kind, Result};

/// The name of the text in the header's metadata.
pub const CHECKSUMS: &str = "crc32c";

/// What stands in front of the header's digits. Inside a JSON text a quotation mark has a backslash
/// in front of it, outside it never has: without one this can only be the key.
const MARK: &[u8] = b"\"crc32c\":\"";
const DIGITS: usize = 8;

/// The bytes of a header with checksums: those of the tensors, if any are given, and its own over
/// everything.
pub(super) fn seal(header: &mut Header, tensors: &[u32]) -> Result<Vec<u8>> {
    let mut text = "0".repeat(DIGITS);
    for checksum in tensors {
        // Writing to a string can't fail.
        let _ = write!(text, " {checksum:08x}");
    }
    header.metadata.insert(CHECKSUMS.to_owned(), text);
    let mut bytes = header.encode()?;
    let at = digits_at(&bytes)
        .ok_or_else(|| Error::new(Kind::Internal, "a header lacks its checksums"))?;
    let own = format!("{:08x}", of_header(&bytes, at));
    bytes[at..at + DIGITS].copy_from_slice(own.as_bytes());
    Ok(bytes)
}

/// The tensors' checksums, once the header's own was found right; `None` where only the header has
/// one, or not even that.
pub(super) fn unseal(header: &Header, bytes: &[u8]) -> Result<Option<Vec<u32>>> {
    let Some(text) = header.metadata.get(CHECKSUMS) else { return Ok(None) };
    let corrupt = |why: &str| {
        let hint = "the file was damaged, or changed by another program";
        Error::new(Kind::Corrupt, format!("{why}: {hint}")).with("field", CHECKSUMS)
    };
    let mut checksums = Vec::with_capacity(header.tensors.len() + 1);
    for digits in text.split(' ') {
        let number = number(digits).ok_or_else(|| corrupt("a checksum is no number"))?;
        checksums.push(number);
    }
    let own = checksums.remove(0);
    let at = digits_at(bytes).ok_or_else(|| corrupt("the header's checksum can't be found"))?;
    if of_header(bytes, at) != own {
        return Err(corrupt("the header's checksum is wrong"));
    }
    if checksums.len() == header.tensors.len() {
        return Ok(Some(checksums));
    }
    if checksums.is_empty() {
        return Ok(None);
    }
    Err(corrupt("there is not one checksum for each tensor"))
}

/// The number that is written so, and in no other way.
fn number(digits: &str) -> Option<u32> {
    let number = u32::from_str_radix(digits, 16).ok()?;
    (format!("{number:08x}") == digits).then_some(number)
}

fn digits_at(bytes: &[u8]) -> Option<usize> {
    let mut with_one_before = bytes.windows(1 + MARK.len());
    let is_key = |window: &[u8]| window[0] != b'\\' && &window[1..] == MARK;
    let at = with_one_before.position(is_key)? + 1 + MARK.len();
    (at + DIGITS <= bytes.len()).then_some(at)
}

fn of_header(bytes: &[u8], digits_at: usize) -> u32 {
    let mut checksum = Crc32c::new();
    checksum.update(&bytes[..digits_at]);
    checksum.update(&[b'0'; DIGITS]);
    checksum.update(&bytes[digits_at + DIGITS..]);
    checksum.finish()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn sealed() -> (Header, Vec<u8>) {
        let tensors = [("a", 3), ("crc32c", 1), ("\"crc32c\":\"", 0)];
        let tensors = tensors.map(|(name, len)| (name.to_owned(), Dtype::U8, vec![len]));
        let metadata = [("a note", "\"crc32c\":\"deadbeef"), ("a \"crc32c", "short"), ("\\", "\"")];
        let metadata = metadata.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let mut header = Header::lay_out(tensors, metadata.into()).unwrap();
        let bytes = seal(&mut header, &[1, 0xffff_ffff, 0]).unwrap();
        (header, bytes)
    }

    #[test]
    fn checksums_come_back_and_leave_the_length_of_the_header_alone() {
        let (mut header, bytes) = sealed();
        let again = Header::decode(&bytes[8..], 4).unwrap();
        assert_eq!(unseal(&again, &bytes).unwrap(), Some(vec![1, 0xffff_ffff, 0]));
        assert_eq!(seal(&mut header, &[0; 3]).unwrap().len(), bytes.len());
    }

    #[test]
    fn any_changed_byte_of_a_header_is_noticed() {
        let (_, bytes) = sealed();
        for at in 8..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let judged = Header::decode(&bytes[8..], 4).and_then(|header| {
                    // Without the key it is a file without checksums: the structure says there are.
                    if header.metadata.contains_key(CHECKSUMS) {
                        unseal(&header, &bytes)
                    } else {
                        Ok(None)
                    }
                });
                assert!(!matches!(judged, Ok(Some(_))), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_file_without_checksums_has_none() {
        let header = Header::default();
        assert_eq!(unseal(&header, &header.encode().unwrap()).unwrap(), None);
    }
}
