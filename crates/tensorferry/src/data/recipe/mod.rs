//! Stored bytes to numbers.
//!
//! A recipe prepares one field of a sample. It is a pure function of the bytes and of the sample's
//! [`Chance`]; it runs on many threads at once, each with a [`Scratch`] of its own. What is done is a
//! [`Chain`] of [`Step`]s with torchvision's names; a field's ending says which recipe it needs
//! ([`for_suffix`]).
//!
//! | file | fields | gives |
//! |---|---|---|
//! | `image` | JPEG, PNG, WebP | float32 [channels, height, width] |
//! | [`mod@array`] | `.npy`, `.npz` | what is stored |
//! | [`audio`] | `.wav` | float32 [channels, frames] |
//! | [`int`] | `.cls` | int64 |
//! | [`bytes`] | all others | bytes |

pub mod array;
pub mod audio;
pub mod bytes;
pub mod chain;
#[cfg(feature = "images")]
pub mod image;
pub mod int;
mod numbers;
pub mod step;

pub use chain::Chain;
pub use step::{Custom, Step};

use super::chance::Chance;
use super::sample::{Field, Place, Raw};
use super::source::{Source, ending};
use crate::error::Result;

/// How one field of every sample is prepared.
pub trait Recipe: Send + Sync {
    /// Prepares `field` and writes the result to `place`.
    fn prepare(
        &self,
        field: Field<'_>,
        chance: Chance,
        scratch: &mut Scratch,
        place: &mut dyn Place,
    ) -> Result<()>;

    /// The part of the work that is the same in every epoch (decoding), if that is worth keeping:
    /// bytes that `prepare` takes in place of the stored ones.
    fn decode(&self, field: Field<'_>, scratch: &mut Scratch) -> Result<Option<Raw>> {
        let _ = (field, scratch);
        Ok(None)
    }
}

/// Memory and decoders that a thread uses again for every sample.
#[derive(Default)]
pub struct Scratch {
    #[cfg(feature = "images")]
    image: image::workspace::Workspace,
    /// Stored bytes on their way.
    rows: Vec<u8>,
    /// Elements on their way.
    floats: Vec<f32>,
}

/// Endings of files with pictures; their content says which format they have.
pub const PICTURES: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// The recipes for the samples of a source, as [`for_fields`]. An error names one of them.
pub fn for_source(source: &dyn Source, chain: &Chain) -> Result<Vec<Box<dyn Recipe>>> {
    for_fields(source.fields(), chain).map_err(|error| {
        let is_plain = |at: &usize| !is_transformed(&ending(source.name(*at).as_bytes()));
        let first = (0..source.len()).find(is_plain).unwrap_or(0);
        if source.is_empty() { error } else { error.with("file", source.name(first)) }
    })
}

/// The recipes for the fields of a sample. The chain is for what can be transformed: pictures, arrays
/// and sound; classes and bytes beside them stay as they are.
pub fn for_fields(endings: &[String], chain: &Chain) -> Result<Vec<Box<dyn Recipe>>> {
    let plain = Chain::default();
    let alone = endings.len() == 1;
    let recipe = |ending: &String| {
        let chain = if alone || is_transformed(ending) { chain } else { &plain };
        for_suffix(ending, chain)
    };
    endings.iter().map(recipe).collect()
}

fn is_transformed(ending: &str) -> bool {
    let last = ending.rsplit('.').next().unwrap_or_default();
    PICTURES.contains(&last) || matches!(last, "npy" | "npz" | "wav")
}

/// The recipe for fields with this ending (`jpg`, `npy`, ...), in lower or upper case. Steps of
/// `chain` that have no meaning for such a field are an error.
pub fn for_suffix(suffix: &str, chain: &Chain) -> Result<Box<dyn Recipe>> {
    let suffix = suffix.trim_start_matches('.').to_ascii_lowercase();
    // Endings may be long, as those of shards are: `left.seg.png`.
    let last = suffix.rsplit('.').next().unwrap_or_default();
    Ok(match last {
        picture if PICTURES.contains(&picture) => self::picture(chain)?,
        "npy" => Box::new(array::Array::new(chain, false)?),
        "npz" => Box::new(array::Array::new(chain, true)?),
        "wav" => Box::new(audio::Sound::new(chain)?),
        "cls" => Box::new(int::Int::new(chain)?),
        // Whoever decodes says that they are pictures, whatever they are called.
        _ if matches!(chain.steps().first(), Some(Step::Decode(_))) => picture(chain)?,
        _ => Box::new(bytes::Bytes::new(chain)?),
    })
}

#[cfg(feature = "images")]
fn picture(chain: &Chain) -> Result<Box<dyn Recipe>> {
    Ok(Box::new(image::Picture::new(chain)?))
}

#[cfg(not(feature = "images"))]
fn picture(_: &Chain) -> Result<Box<dyn Recipe>> {
    use crate::error::{Error, Kind};
    let what = "this build can't decode pictures";
    Err(Error::new(Kind::Unsupported, format!("{what}: build it with the feature \"images\"")))
}
