//! One sample, without a crew.

use std::sync::Arc;

use super::config::Config;
use super::work::Work;
use crate::data::batch::{Batch, Making};
use crate::data::recipe::{Recipe, Scratch};
use crate::data::source::Source;
use crate::error::{Error, Result};
use crate::plan::data::eviction::Moment;

/// A batch of one sample, loaded and prepared by the thread that asks.
///
/// No thread of a crew is waited for: the caller may be one of them, in a user's function, and so may
/// be all others.
pub fn alone(source: Arc<dyn Source>, recipes: Vec<Box<dyn Recipe>>, index: u32) -> Result<Batch> {
    let len = source.len();
    if index as usize >= len {
        return Err(Error::invalid(format!("sample {index} is asked for, and there are {len}")));
    }
    let work = Work::new(source, recipes, Config::default())?;
    let now = Moment { epoch: 0, position: 0 };
    let (making, loaded) = (Making::new(1), work.load(index, now)?);
    work.prepare((index, now), &loaded, (&making, 0), &mut Scratch::default()).0?;
    let labels = vec![work.source.label(index as usize)];
    let columns = making.finish(&[true], &|_| work.source.name(index as usize))?;
    Ok(Batch { indices: vec![index], labels, columns })
}
