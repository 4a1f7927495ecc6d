//! Files that stand among pictures and are not decoded: what they are, so that an error can say it.

/// How each begins, and what it is.
const KINDS: [(&[u8], &str); 14] = [
    (b"GIF8", "a GIF picture"),
    (b"II*\0", "a TIFF picture"),
    (b"MM\0*", "a TIFF picture"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000 picture"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"<svg", "an SVG picture"),
    (b"<?xml", "an XML text"),
    (b"<!DOCTYPE", "a web page, perhaps of a download that failed"),
    (b"<html", "a web page, perhaps of a download that failed"),
    (b"version https://git-lfs", "a pointer of Git LFS, whose file was not fetched"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PK\x03\x04", "a zip archive"),
    (b"%PDF", "a PDF document"),
];

/// What a file is by its first bytes, if that is known here.
pub(super) fn kind(bytes: &[u8]) -> Option<&'static str> {
    if let Some((_, kind)) = KINDS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Some(kind);
    }
    match bytes {
        // Two letters may be text; the four bytes after the size of the file are reserved.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Some("a BMP picture"),
        [b'P', b'1'..=b'7', b' ' | b'\t' | b'\r' | b'\n', ..] => {
            Some("a PNM picture (PPM, PGM, PBM)")
        }
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => {
            Some("an AVIF picture")
        }
        [_, _, _, _, b'f', b't', b'y', b'p', b'h' | b'm', ..] => Some("a HEIF picture"),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_stands_among_pictures_is_known_by_its_first_bytes() {
        for (bytes, expected) in [
            (&b"BM\x46\0\0\0\0\0\0\0\x36\0"[..], Some("a BMP picture")),
            (b"BMW, a text", None),
            (b"P6\n2 2\n255\n", Some("a PNM picture (PPM, PGM, PBM)")),
            (b"P6x", None),
            (b"GIF89a", Some("a GIF picture")),
            (b"\0\0\0\x20ftypavif", Some("an AVIF picture")),
            (b"\0\0\0\x20ftypheic", Some("a HEIF picture")),
            (b"<html><body>", Some("a web page, perhaps of a download that failed")),
            (b"hello", None),
            (b"", None),
        ] {
            assert_eq!(kind(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
