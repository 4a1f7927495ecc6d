//! A source that fails on demand, for the tests of what reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Around, Source};
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};
use crate::sync::{Condvar, Mutex, lock, wait};

/// What goes wrong with a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every fetch fails in this way.
    Fail(Kind),
    /// So many fetches fail with [`Kind::Io`]; the next ones succeed.
    Times(usize),
    /// Only so many bytes of it come.
    Cut(usize),
    /// Its bytes are noise.
    Noise,
    /// A fetch doesn't come back until [`Faulty::release`].
    Hang,
}

/// Any source, with faults at chosen samples.
pub struct Faulty {
    source: Arc<dyn Source>,
    faults: Mutex<BTreeMap<usize, Fault>>,
    released: Condvar,
}

impl Faulty {
    /// A source without faults so far.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, faults: Mutex::new(BTreeMap::new()), released: Condvar::new() }
    }

    /// Lets a sample fail from now on.
    pub fn fault(&self, index: usize, fault: Fault) {
        lock(&self.faults).insert(index, fault);
    }

    /// Mends all samples; fetches that hang go on.
    pub fn release(&self) {
        lock(&self.faults).clear();
        self.released.notify_all();
    }

    /// What is to happen with a fetch; waits if it is to hang.
    fn meet(&self, index: usize) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        while faults.get(&index) == Some(&Fault::Hang) {
            faults = wait(&self.released, faults, None).0;
        }
        let fault = *faults.get(&index)?;
        match fault {
            Fault::Times(0 | 1) => faults.remove(&index),
            Fault::Times(left) => faults.insert(index, Fault::Times(left - 1)),
            _ => None,
        };
        Some(fault)
    }
}

impl Around for Faulty {
    fn inner(&self) -> &dyn Source {
        &*self.source
    }

    fn fetch_around(&self, index: usize) -> Result<Raw> {
        let failed =
            |kind| Error::new(kind, "a fault was asked for").with("sample", self.name(index));
        let raw = || self.source.fetch(index).and_then(|raw| raw.in_memory());
        match self.meet(index) {
            None | Some(Fault::Times(0)) => self.source.fetch(index),
            Some(Fault::Fail(kind)) => Err(failed(kind)),
            Some(Fault::Times(_) | Fault::Hang) => Err(failed(Kind::Io).retryable(true)),
            Some(Fault::Cut(bytes)) => changed(&raw()?, |old| old.truncate(bytes)),
            Some(Fault::Noise) => changed(&raw()?, |old| {
                let noise = |(at, byte): (usize, &mut u8)| *byte ^= 0x55 ^ at as u8;
                old.iter_mut().enumerate().for_each(noise);
            }),
        }
    }
}

/// The sample with other bytes; fields that they don't reach are empty.
fn changed(raw: &Raw, change: impl FnOnce(&mut Vec<u8>)) -> Result<Raw> {
    let mut bytes = raw.as_memory().unwrap_or_default().to_vec();
    change(&mut bytes);
    let ends = raw.ends().iter().map(|end| (*end).min(bytes.len() as u64)).collect();
    Raw::fields(bytes, ends)
}
