//! JPEG to pixels, and only the part of them that is asked for: libjpeg-turbo behind a safe door.
//!
//! # States
//!
//! A [`Decoder`] is made once a thread. [`Decoder::open`] reads a file's header and gives a
//! [`Picture`], which borrows decoder and bytes: what is decoded is what was measured, so that the
//! library can't write past the memory it gets.
//!
//! # What is exact
//!
//! Decoding is the library's accurate one (slow DCT, smooth upsampling of chroma), as Pillow's is.
//! [`Picture::decode`] takes a part that starts at a multiple of [`Picture::step`] and gives the
//! pixels of the whole picture, apart from columns within [`MARGIN`] of the part's own left and right
//! edges, for which the library smooths chroma with what it decoded alone. Rows below the part are not
//! read at all, so that damage there is not seen.
//!
//! # Damage
//!
//! The library repairs what it can and warns. Here a warning is an error, unless it concerns
//! bytes that change no pixel: invented pixels must not be trained on.

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;

use turbojpeg_sys as raw;

use crate::error::{Error, Kind, Result};

/// Columns at a part's left and right edges that may differ from the whole picture's.
pub const MARGIN: u32 = 2;

/// A progressive picture may say everything again in each scan, and a small file many of them.
const SCANS_MAX: i32 = 500;

/// Warnings after which every pixel is still what was encoded.
const HARMLESS: [&str; 4] =
    ["extraneous bytes before marker", "unknown JFIF revision", "Adobe color transform", "ICC"];

/// Reads pictures, one after the other.
pub struct Decoder {
    handle: NonNull<libc::c_void>,
    /// After an error in a header the library stays within that header: the next picture needs a new
    /// handle.
    spoiled: bool,
}

// SAFETY: the library keeps a picture's state in the handle. What it keeps for each thread is the text
// of the last error, which is read right after the call that failed, on the same thread.
unsafe impl Send for Decoder {}

/// What the numbers of a pixel mean in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One number.
    Grey,
    /// Red, green and blue, or what becomes them.
    Rgb,
    /// Four inks, or what becomes them.
    Cmyk,
}

impl Colour {
    /// Bytes of one pixel.
    pub const fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }

    const fn format(self) -> raw::TJPF {
        match self {
            Self::Grey => raw::TJPF_TJPF_GRAY,
            Self::Rgb => raw::TJPF_TJPF_RGB,
            Self::Cmyk => raw::TJPF_TJPF_CMYK,
        }
    }
}

/// A part of a picture, in pixels of the scaled picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Columns left of it.
    pub left: u32,
    /// Rows above it.
    pub top: u32,
    /// Its columns, at least one.
    pub width: u32,
    /// Its rows, at least one.
    pub height: u32,
}

/// A file whose header was read.
pub struct Picture<'a> {
    decoder: &'a mut Decoder,
    bytes: &'a [u8],
    width: u32,
    height: u32,
    colour: Colour,
    /// Columns of the blocks that are decoded at once; none if a part can't be decoded.
    block: Option<u32>,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> Result<Self> {
        // SAFETY: the function takes any number and gives null where it fails.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_DECOMPRESS as libc::c_int) };
        let handle = NonNull::new(handle)
            .ok_or_else(|| Error::new(Kind::OutOfMemory, "no memory for a JPEG decoder"))?;
        let decoder = Self { handle, spoiled: false };
        decoder.set(raw::TJPARAM_TJPARAM_SCANLIMIT, SCANS_MAX)?;
        // No colour profile is copied aside: nobody asks for it.
        decoder.set(raw::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(decoder)
    }

    /// Reads the header of the file with these bytes.
    pub fn open<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Picture<'a>> {
        if self.spoiled {
            *self = Self::new()?;
        }
        self.spoiled = true;
        // SAFETY: the handle lives, and the bytes are as many as is said.
        let result = unsafe {
            raw::tj3DecompressHeader(self.handle.as_ptr(), bytes.as_ptr(), bytes.len() as _)
        };
        self.check(result)?;
        let side = |parameter| u32::try_from(self.get(parameter)).ok().filter(|side| *side > 0);
        let width = side(raw::TJPARAM_TJPARAM_JPEGWIDTH);
        let height = side(raw::TJPARAM_TJPARAM_JPEGHEIGHT);
        let (Some(width), Some(height)) = (width, height) else {
            return Err(Error::new(Kind::Corrupt, "the JPEG file has no picture"));
        };
        if self.get(raw::TJPARAM_TJPARAM_PRECISION) != 8 {
            let bits = self.get(raw::TJPARAM_TJPARAM_PRECISION);
            let what = format!("a JPEG picture of {bits} bits; only 8 are supported");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (colour, block) = (self.colour(), self.block());
        self.spoiled = false;
        Ok(Picture { decoder: self, bytes, width, height, colour, block })
    }

    fn colour(&self) -> Colour {
        match self.get(raw::TJPARAM_TJPARAM_COLORSPACE) as raw::TJCS {
            raw::TJCS_TJCS_GRAY => Colour::Grey,
            raw::TJCS_TJCS_CMYK | raw::TJCS_TJCS_YCCK => Colour::Cmyk,
            _ => Colour::Rgb,
        }
    }

    fn block(&self) -> Option<u32> {
        if self.get(raw::TJPARAM_TJPARAM_LOSSLESS) != 0 {
            return None;
        }
        match self.get(raw::TJPARAM_TJPARAM_SUBSAMP) {
            raw::TJSAMP_TJSAMP_444
            | raw::TJSAMP_TJSAMP_GRAY
            | raw::TJSAMP_TJSAMP_440
            | raw::TJSAMP_TJSAMP_441 => Some(8),
            raw::TJSAMP_TJSAMP_422 | raw::TJSAMP_TJSAMP_420 => Some(16),
            raw::TJSAMP_TJSAMP_411 => Some(32),
            _ => None,
        }
    }

    fn get(&self, parameter: raw::TJPARAM) -> i32 {
        // SAFETY: the handle lives; unknown parameters give -1.
        unsafe { raw::tj3Get(self.handle.as_ptr(), parameter as libc::c_int) }
    }

    fn set(&self, parameter: raw::TJPARAM, value: i32) -> Result<()> {
        // SAFETY: the handle lives; the library checks what it is told.
        let result = unsafe { raw::tj3Set(self.handle.as_ptr(), parameter as _, value) };
        self.check(result)
    }

    /// Judges what a call of the library said.
    fn check(&self, result: i32) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the handle lives; the text is its own and ends with a zero.
        let text = unsafe { CStr::from_ptr(raw::tj3GetErrorStr(self.handle.as_ptr())) };
        let text = text.to_string_lossy().trim().to_owned();
        // SAFETY: the handle lives.
        let code = unsafe { raw::tj3GetErrorCode(self.handle.as_ptr()) };
        let warning = code == raw::TJERR_TJERR_WARNING as i32;
        if warning && HARMLESS.iter().any(|harmless| text.contains(harmless)) {
            return Ok(());
        }
        let kind = if text.contains("Premature end of JPEG file") {
            Kind::Truncated
        } else if text.contains("nsupported") {
            Kind::Unsupported
        } else {
            Kind::Corrupt
        };
        Err(Error::new(kind, format!("the JPEG file can't be decoded: {text}")))
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the handle lives, and nobody has it any more.
        unsafe { raw::tj3Destroy(self.handle.as_ptr()) }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder(JPEG)")
    }
}

impl Picture<'_> {
    /// Columns.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// What the file's numbers mean.
    pub fn colour(&self) -> Colour {
        self.colour
    }

    /// Columns and rows when each side is divided by `denominator`.
    pub fn scaled(&self, denominator: u32) -> (u32, u32) {
        (self.width.div_ceil(denominator), self.height.div_ceil(denominator))
    }

    /// Parts start at multiples of so many columns of the scaled picture; none if this picture is
    /// decoded as a whole or not at all.
    pub fn step(&self, denominator: u32) -> Option<u32> {
        self.block.map(|block| block.div_ceil(denominator))
    }

    /// Decodes a part of the picture, made smaller by `denominator` (1, 2, 4 or 8), into `into`, row
    /// by row without gaps; every byte of it is written.
    ///
    /// `colour` is the file's own, or [`Colour::Rgb`] for a grey one.
    pub fn decode(
        self,
        part: Part,
        denominator: u32,
        colour: Colour,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let (width, height) = self.scaled(denominator);
        let inside = |start: u32, length: u32, end: u32| {
            length > 0 && start.checked_add(length).is_some_and(|last| last <= end)
        };
        let fits = inside(part.left, part.width, width) && inside(part.top, part.height, height);
        if !fits || !matches!(denominator, 1 | 2 | 4 | 8) {
            return Err(Error::new(Kind::Internal, "the part lies outside of the JPEG picture"));
        }
        let whole = part == Part { left: 0, top: 0, width, height };
        self.choose(if whole { None } else { Some(part) }, denominator)?;
        let pitch = part.width as usize * colour.channels();
        into.resize(pitch * part.height as usize, 0);
        // SAFETY: the handle lives, the bytes are as many as is said and those whose header was read.
        // So the library writes `part.height` rows of `part.width` pixels, `pitch` bytes apart, and
        // `into` holds them all.
        let result = unsafe {
            raw::tj3Decompress8(
                self.decoder.handle.as_ptr(),
                self.bytes.as_ptr(),
                self.bytes.len() as _,
                into.as_mut_ptr(),
                pitch as libc::c_int,
                colour.format(),
            )
        };
        self.decoder.spoiled = result != 0;
        self.decoder.check(result)
    }

    /// Tells the library which part, at which size; none is the whole picture.
    fn choose(&self, part: Option<Part>, denominator: u32) -> Result<()> {
        let handle = self.decoder.handle.as_ptr();
        let none = raw::tjregion { x: 0, y: 0, w: 0, h: 0 };
        let region = part.map_or(none, |part| raw::tjregion {
            x: part.left as i32,
            y: part.top as i32,
            w: part.width as i32,
            h: part.height as i32,
        });
        let factor = raw::tjscalingfactor { num: 1, denom: denominator as i32 };
        // SAFETY: the handle lives; the library refuses regions and factors that it can't do. The
        // region of the last picture goes first, for it might not fit this one.
        let result = unsafe {
            raw::tj3SetCroppingRegion(handle, none)
                | raw::tj3SetScalingFactor(handle, factor)
                | raw::tj3SetCroppingRegion(handle, region)
        };
        if result == 0 { Ok(()) } else { self.decoder.check(result) }
    }
}
