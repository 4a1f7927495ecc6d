//! WebP files, lossy and lossless.

use webp::{BitstreamFeatures, Decoder};

use super::change::Size;
use super::decode::{Ask, Found, Tools};
use crate::error::{Error, Kind, Result};

/// Decodes the picture, as red, green and blue; alpha is left out, as Pillow's `convert("RGB")` does.
pub fn decode(bytes: &[u8], tools: &mut Tools, ask: Ask<'_>) -> Result<Found> {
    let damaged = || Error::new(Kind::Corrupt, "the WebP file is damaged or ends too early");
    let features = BitstreamFeatures::new(bytes).ok_or_else(damaged)?;
    if features.has_animation() {
        return Err(Error::new(Kind::Unsupported, "the WebP file is an animation, not a picture"));
    }
    let size = Size::new(features.width(), features.height());
    let view = ask(size)?;
    let picture = Decoder::new(bytes).decode().ok_or_else(damaged)?;
    tools.decoded.clear();
    if picture.is_alpha() {
        tools.decoded.resize(picture.len() / 4 * 3, 0);
        let targets = tools.decoded.as_chunks_mut::<3>().0.iter_mut();
        for (target, [red, green, blue, _]) in targets.zip(picture.as_chunks::<4>().0) {
            *target = [*red, *green, *blue];
        }
    } else {
        tools.decoded.extend_from_slice(&picture);
    }
    Ok(Found { size, view })
}
