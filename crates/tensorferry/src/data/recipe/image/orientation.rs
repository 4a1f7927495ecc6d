//! How the camera was held: a number from 1 to 8 among the properties that travel with a picture.

use super::change::Size;
use super::jpeg::Segments;

/// What must be done to see the picture upright: columns and rows exchanged, then flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orientation {
    transpose: bool,
    flip_x: bool,
    flip_y: bool,
}

impl Orientation {
    /// What a picture file says; upright if it says nothing that makes sense.
    pub fn of(bytes: &[u8]) -> Self {
        let properties = jpeg(bytes).or_else(|| png(bytes)).or_else(|| webp(bytes));
        let number = properties.and_then(orientation).unwrap_or(1);
        let (transpose, flip_x, flip_y) = match number {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self { transpose, flip_x, flip_y }
    }

    /// Whether there is nothing to do.
    pub fn is_upright(self) -> bool {
        self == Self::default()
    }

    /// The size after the turn.
    pub const fn size(self, size: Size) -> Size {
        if self.transpose { Size::new(size.height, size.width) } else { size }
    }

    /// Turns pixels of three bytes.
    pub fn apply(self, pixels: &[u8], size: Size, into: &mut Vec<u8>) {
        let turned = self.size(size);
        let (width, height) = (turned.width as usize, turned.height as usize);
        into.resize(pixels.len(), 0);
        let pixels = pixels.as_chunks::<3>().0;
        let across = size.width as usize;
        for (y, row) in into.as_chunks_mut::<3>().0.chunks_exact_mut(width).enumerate() {
            let y = if self.flip_y { height - 1 - y } else { y };
            for (x, target) in row.iter_mut().enumerate() {
                let x = if self.flip_x { width - 1 - x } else { x };
                let (x, y) = if self.transpose { (y, x) } else { (x, y) };
                *target = pixels[y * across + x];
            }
        }
    }
}

fn jpeg(bytes: &[u8]) -> Option<&[u8]> {
    const APP1: u8 = 0xe1;
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return None;
    }
    let mut segments = Segments::of(bytes);
    segments
        .find_map(|(marker, content)| content.strip_prefix(b"Exif\0\0").filter(|_| marker == APP1))
}

fn png(bytes: &[u8]) -> Option<&[u8]> {
    const CHECKSUM: usize = 4;
    let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let content = after.get(..length)?;
        if name == b"eXIf" {
            return Some(content);
        }
        rest = after.get(length + CHECKSUM..)?;
    }
}

fn webp(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(b"RIFF")?.get(8..)?;
    loop {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let content = after.get(..length)?;
        if name == b"EXIF" {
            return Some(content.strip_prefix(b"Exif\0\0").unwrap_or(content));
        }
        rest = after.get(length.next_multiple_of(2)..)?;
    }
}

/// The entry of that name in the first directory of a TIFF file.
fn orientation(tiff: &[u8]) -> Option<u16> {
    const ORIENTATION: u16 = 0x0112;
    const ENTRY: usize = 12;
    let little = match tiff.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let start = tiff.get(4..8)?.try_into().ok()?;
    let start = if little { u32::from_le_bytes(start) } else { u32::from_be_bytes(start) } as usize;
    let entries = usize::from(short(start)?);
    let mut places = (0..entries).map(|at| start + 2 + at * ENTRY);
    let entry = places.find(|entry| short(*entry) == Some(ORIENTATION))?;
    short(entry + 8)
}
