//! A dictionary as it is kept: JSON with a version, judged when it comes back.

use serde::{Deserialize, Serialize};

use super::{Dictionary, Mode};
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::report::Tally;

/// Of the state; another one is refused, because its numbers mean something else.
pub const VERSION: u32 = 5;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State<M, T> {
    version: u32,
    mode: M,
    update_every: Option<u64>,
    since_flush: u64,
    tally: T,
}

/// What is looked at before the rest, which another version may have changed.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Dictionary {
    /// All that is known, as a document.
    pub fn to_json(&self) -> Result<String> {
        let state = State {
            version: VERSION,
            mode: &self.mode,
            update_every: self.update_every,
            since_flush: self.since_flush,
            tally: &self.tally,
        };
        serde_json::to_string(&state).map_err(|error| {
            Error::new(Kind::Internal, "can't write a dictionary's state").caused_by(error)
        })
    }

    /// What [`to_json`](Self::to_json) wrote.
    pub fn from_json(json: &str) -> Result<Self> {
        let corrupt = |error: serde_json::Error| {
            Error::new(Kind::Corrupt, "this is no dictionary's state").caused_by(error)
        };
        let Versioned { version } = serde_json::from_str(json).map_err(corrupt)?;
        if version != VERSION {
            let message = "the state is of another version; start a new dictionary";
            let error = Error::new(Kind::Unsupported, message);
            return Err(error.with("version", version).with("known", VERSION));
        }
        let state: State<Mode, Tally> = serde_json::from_str(json).map_err(corrupt)?;
        if let Mode::Paper { memory, .. } = &state.mode {
            memory.check()?;
        }
        let State { mode, update_every, since_flush, tally, .. } = state;
        let dictionary = Self { mode, update_every: None, since_flush, tally };
        dictionary.update_every(update_every)
    }
}
