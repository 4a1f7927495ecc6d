//! Arrays of any type to floats, and floats to the types that a chain can give.

use super::step::Number;
use crate::codec::half::{self, Format};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// Every element as float32, after `change`, into `into`.
pub fn each(
    dtype: Dtype,
    bytes: &[u8],
    change: impl Fn(f32) -> f32,
    into: &mut Vec<f32>,
) -> Result<()> {
    match dtype {
        Dtype::U8 => fill(bytes, into, |[byte]| change(f32::from(byte))),
        Dtype::Bool => fill(bytes, into, |[byte]| change(f32::from(u8::from(byte != 0)))),
        Dtype::I8 => fill(bytes, into, |byte| change(f32::from(i8::from_le_bytes(byte)))),
        Dtype::U16 => fill(bytes, into, |byte| change(f32::from(u16::from_le_bytes(byte)))),
        Dtype::I16 => fill(bytes, into, |byte| change(f32::from(i16::from_le_bytes(byte)))),
        Dtype::U32 => fill(bytes, into, |byte| change(u32::from_le_bytes(byte) as f32)),
        Dtype::I32 => fill(bytes, into, |byte| change(i32::from_le_bytes(byte) as f32)),
        Dtype::U64 => fill(bytes, into, |byte| change(u64::from_le_bytes(byte) as f32)),
        Dtype::I64 => fill(bytes, into, |byte| change(i64::from_le_bytes(byte) as f32)),
        Dtype::F32 => fill(bytes, into, |byte| change(f32::from_le_bytes(byte))),
        Dtype::F64 => fill(bytes, into, |byte| change(f64::from_le_bytes(byte) as f32)),
        Dtype::F16 => fill(bytes, into, |byte| change(widen(Format::F16, byte))),
        Dtype::Bf16 => fill(bytes, into, |byte| change(widen(Format::Bf16, byte))),
        other => {
            let what = format!("an array of {} can't be made float32", other.name());
            return Err(Error::new(Kind::Unsupported, what));
        }
    }
    Ok(())
}

fn widen(format: Format, bytes: [u8; 2]) -> f32 {
    half::widen_one(format, u16::from_le_bytes(bytes))
}

fn fill<const N: usize>(bytes: &[u8], into: &mut Vec<f32>, of: impl Fn([u8; N]) -> f32) {
    into.clear();
    into.extend(bytes.as_chunks::<N>().0.iter().map(|element| of(*element)));
}

/// The floats in a type that a chain can give, into a slot of the right size. Bytes are cut off at 0
/// and 255.
pub fn narrow_into(number: Number, floats: &[f32], into: &mut [u8]) -> Result<()> {
    if into.len() != floats.len() * number.dtype().bytes() as usize {
        return Err(Error::new(Kind::Internal, "the slot of an array has another size"));
    }
    match number {
        Number::Float32 => {
            for (target, number) in into.as_chunks_mut::<4>().0.iter_mut().zip(floats) {
                *target = number.to_le_bytes();
            }
        }
        Number::Float16 => halves(Format::F16, floats, into),
        Number::Bfloat16 => halves(Format::Bf16, floats, into),
        Number::Uint8 => {
            for (target, number) in into.iter_mut().zip(floats) {
                *target = *number as u8;
            }
        }
    }
    Ok(())
}

/// Through a small buffer of bytes, which the fast kernels take.
fn halves(format: Format, floats: &[f32], into: &mut [u8]) {
    const PIECE: usize = 1024;
    let mut piece = [0; PIECE * 4];
    for (floats, into) in floats.chunks(PIECE).zip(into.chunks_mut(PIECE * 2)) {
        let piece = &mut piece[..floats.len() * 4];
        for (target, number) in piece.as_chunks_mut::<4>().0.iter_mut().zip(floats) {
            *target = number.to_le_bytes();
        }
        let lengths_fit = half::narrow(format, piece, into).is_ok();
        debug_assert!(lengths_fit, "a piece has twice the bytes of its halves");
    }
}

/// What integers of a type are divided by to be from 0 to 1; floats are as they are.
pub const fn largest(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::U8 => u8::MAX as f32,
        Dtype::I8 => i8::MAX as f32,
        Dtype::U16 => u16::MAX as f32,
        Dtype::I16 => i16::MAX as f32,
        Dtype::U32 => u32::MAX as f32,
        Dtype::I32 => i32::MAX as f32,
        Dtype::U64 => u64::MAX as f32,
        Dtype::I64 => i64::MAX as f32,
        _ => 1.0,
    }
}
