//! A source made slow: a bandwidth that all readers share, and a latency that each has for itself.
//!
//! It stands in for storage far away where there is none, in benches and tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Around, Source};
use crate::data::sample::Raw;
use crate::device::link::{Link, Speed};
use crate::error::{Error, Result};
use crate::sync::{Mutex, lock};

/// Any source behind a slow link.
pub struct Throttled {
    source: Arc<dyn Source>,
    link: Mutex<Link>,
    latency: Duration,
    since: Instant,
}

impl Throttled {
    /// Slows a source down.
    pub fn new(source: Arc<dyn Source>, bytes_per_second: u64, latency: Duration) -> Result<Self> {
        if bytes_per_second == 0 {
            return Err(Error::invalid("bytes_per_second is 0; nothing would ever arrive"));
        }
        // Requests wait for bytes one behind the other, and for the latency side by side.
        let link = Link::new(Speed { bytes_per_second, latency: Duration::ZERO });
        Ok(Self { source, link: Mutex::new(link), latency, since: Instant::now() })
    }
}

impl Around for Throttled {
    fn inner(&self) -> &dyn Source {
        &*self.source
    }

    fn is_remote_around(&self) -> bool {
        true
    }

    fn fetch_around(&self, index: usize) -> Result<Raw> {
        let raw = self.source.fetch(index)?;
        let slot = lock(&self.link).reserve(self.since.elapsed(), raw.bytes());
        let arrival = slot.done.saturating_add(self.latency);
        std::thread::sleep(arrival.saturating_sub(self.since.elapsed()));
        Ok(raw)
    }
}
