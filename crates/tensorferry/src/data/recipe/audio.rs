//! Sound in `.wav` files.
//!
//! By default float32 from -1 to 1 of shape [channels, frames], as torchaudio loads it. With
//! [`Step::AsStored`], 16-bit sound stays what it is in the file: int16 of shape [frames, channels],
//! read straight into the batch.

use super::step::{Custom, Step};
use super::{Chain, Recipe, Scratch};
use crate::data::chance::Chance;
use crate::data::sample::{Field, Layout, Place};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// How sound is prepared.
#[derive(Debug)]
pub struct Sound {
    stored: bool,
    calls: Vec<Custom>,
}

impl Sound {
    /// As `chain` says, which may begin with [`Step::AsStored`]; then come functions.
    pub fn new(chain: &Chain) -> Result<Self> {
        let (stored, rest) = match chain.steps() {
            [Step::AsStored {}, rest @ ..] => (true, rest),
            all => (false, all),
        };
        Ok(Self { stored, calls: calls(rest, "sound")? })
    }
}

/// The functions that all of these steps are.
pub(super) fn calls(steps: &[Step], what: &str) -> Result<Vec<Custom>> {
    let calls = steps.iter().map(|step| match step {
        Step::Custom(custom) => Ok(custom.clone()),
        step => Err(Chain::refuse(step, what)),
    });
    calls.collect()
}

impl Recipe for Sound {
    fn prepare(
        &self,
        field: Field<'_>,
        _: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()> {
        let wave = Wave::of(field)?;
        let layout = if self.stored { wave.stored()? } else { wave.converted() };
        let mut fill = |into: &mut [u8]| {
            if self.stored {
                return field.read_at(wave.start, into);
            }
            scratch.rows.resize(wave.bytes as usize, 0);
            field.read_at(wave.start, &mut scratch.rows)?;
            wave.floats(&scratch.rows, into);
            Ok(())
        };
        if self.calls.is_empty() {
            return fill(place.array("", &layout)?);
        }
        let mut bytes = vec![0; layout.bytes().unwrap_or(0)];
        fill(&mut bytes)?;
        let mut array = (layout, bytes);
        for call in &self.calls {
            array = call.call(array.0, array.1)?;
        }
        place.array("", &array.0)?.copy_from_slice(&array.1);
        Ok(())
    }
}

/// What a sample of sound is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sample {
    U8,
    I16,
    I24,
    I32,
    F32,
}

impl Sample {
    const fn bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::I16 => 2,
            Self::I24 => 3,
            Self::I32 | Self::F32 => 4,
        }
    }
}

/// Sound in a file.
#[derive(Debug, PartialEq, Eq)]
struct Wave {
    sample: Sample,
    channels: usize,
    /// Where the samples start, and how many bytes they have.
    start: u64,
    bytes: u64,
}

/// A file has a handful of chunks; a damaged one must not be walked for long.
const CHUNKS_MAX: usize = 1024;

impl Wave {
    /// Reads the chunks of a file up to its sound.
    fn of(field: Field<'_>) -> Result<Self> {
        let mut riff = [0; 12];
        if field.len() < 12 {
            return Err(Error::new(Kind::Truncated, "the .wav file ends in its header"));
        }
        field.read_at(0, &mut riff)?;
        if riff[..4] != *b"RIFF" || riff[8..] != *b"WAVE" {
            return Err(corrupt("the file is no .wav file: it does not start as one"));
        }
        let (mut at, mut format) = (12, None);
        for _ in 0..CHUNKS_MAX {
            let mut chunk = [0; 8];
            field.read_at(at, &mut chunk)?;
            let length = u64::from(u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]));
            at += 8;
            match &chunk[..4] {
                b"fmt " => format = Some(Self::format(field, at, length)?),
                b"data" => {
                    let Some((sample, channels)) = format else {
                        return Err(corrupt("the .wav file does not say what its samples are"));
                    };
                    return Self { sample, channels, start: at, bytes: length }.checked(field);
                }
                _ => {}
            }
            at += length.next_multiple_of(2);
        }
        Err(corrupt("the .wav file has no sound"))
    }

    fn format(field: Field<'_>, at: u64, length: u64) -> Result<(Sample, usize)> {
        const EXTENSIBLE: u16 = 0xfffe;
        let mut bytes = [0; 26];
        if length < 16 {
            return Err(corrupt("the .wav file's format is too short"));
        }
        field.read_at(at, &mut bytes[..length.min(26) as usize])?;
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        // The real format stands where an extension says what channels are for.
        let code = if number(0) == EXTENSIBLE { number(24) } else { number(0) };
        let sample = match (code, number(14)) {
            (1, 8) => Sample::U8,
            (1, 16) => Sample::I16,
            (1, 24) => Sample::I24,
            (1, 32) => Sample::I32,
            (3, 32) => Sample::F32,
            (code, bits) => {
                let what = format!("a .wav file of format {code} with {bits} bits");
                let known = "PCM of 8, 16, 24 or 32 bits and float of 32 are supported";
                return Err(Error::new(Kind::Unsupported, format!("{what}; {known}")));
            }
        };
        match usize::from(number(2)) {
            0 => Err(corrupt("the .wav file has no channel")),
            channels => Ok((sample, channels)),
        }
    }

    fn checked(self, field: Field<'_>) -> Result<Self> {
        let has = field.len().saturating_sub(self.start);
        if self.bytes > has {
            let what = format!("the .wav file has {has} bytes of sound of {}", self.bytes);
            return Err(Error::new(Kind::Truncated, what));
        }
        if !self.bytes.is_multiple_of(self.sample.bytes() * self.channels as u64) {
            return Err(corrupt("the .wav file ends in the middle of a frame"));
        }
        Ok(self)
    }

    fn frames(&self) -> usize {
        (self.bytes / self.sample.bytes()) as usize / self.channels
    }

    fn converted(&self) -> Layout {
        Layout::new(Dtype::F32, [self.channels, self.frames()])
    }

    fn stored(&self) -> Result<Layout> {
        if self.sample == Sample::I16 {
            return Ok(Layout::new(Dtype::I16, [self.frames(), self.channels]));
        }
        let what = "only sound of 16 bits can be given as it is stored";
        Err(Error::new(Kind::Unsupported, what))
    }

    /// Samples, channel by channel in each frame, to floats, frame by frame in each channel.
    fn floats(&self, samples: &[u8], into: &mut [u8]) {
        match self.sample {
            Sample::U8 => self.spread(samples, into, |[byte]| (f32::from(byte) - 128.0) / 128.0),
            Sample::I16 => self.spread(samples, into, |two| scaled(i16::from_le_bytes(two), 16)),
            Sample::I24 => self.spread(samples, into, |[low, middle, high]: [u8; 3]| {
                scaled(i32::from_le_bytes([0, low, middle, high]), 32)
            }),
            Sample::I32 => self.spread(samples, into, |four| scaled(i32::from_le_bytes(four), 32)),
            Sample::F32 => self.spread(samples, into, f32::from_le_bytes),
        }
    }

    fn spread<const N: usize>(
        &self,
        samples: &[u8],
        into: &mut [u8],
        number: impl Fn([u8; N]) -> f32,
    ) {
        let samples = samples.as_chunks::<N>().0;
        let frames = self.frames();
        let channels = into.as_chunks_mut::<4>().0.chunks_mut(frames.max(1));
        for (channel, target) in channels.enumerate() {
            let of_channel = samples.iter().skip(channel).step_by(self.channels);
            for (target, sample) in target.iter_mut().zip(of_channel) {
                *target = number(*sample).to_le_bytes();
            }
        }
    }
}

/// A number of so many bits, from -1 to 1.
fn scaled(number: impl Into<i32>, bits: u32) -> f32 {
    number.into() as f32 / 2_f32.powi(bits as i32 - 1)
}

fn corrupt(message: &str) -> Error {
    Error::new(Kind::Corrupt, message)
}
