//! The bandit's memory as it is kept in JSON: lists, judged when they come back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::alarm::{Alarm, STREAK};
use super::ledger::Ledger;
use super::opinions::Opinions;
use super::track::Track;
use super::{Bandit, Key};
use crate::error::{Error, Kind, Result};
use crate::plan::checkpoint::ask::Situation;
use crate::plan::checkpoint::class::SizeClass;
use crate::plan::checkpoint::tool::Tool;

/// Operations that a state may have counted: far more than any run has, far less than overflows.
const TICKS_MAX: u64 = 1 << 52;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    ticks: [u64; 4],
    fields: Vec<(Situation, Opinions)>,
    tracks: Vec<(Situation, Tool, SizeClass, Track)>,
    alarms: Vec<(Situation, Tool, Alarm)>,
    ledgers: Vec<(Situation, SizeClass, Ledger)>,
}

impl From<Bandit> for State {
    fn from(bandit: Bandit) -> Self {
        let track = |((situation, tool, class), track)| (situation, tool, class, track);
        let alarm = |((situation, tool), alarm)| (situation, tool, alarm);
        let ledger = |((situation, class), ledger)| (situation, class, ledger);
        Self {
            ticks: bandit.ticks,
            fields: bandit.fields.into_iter().collect(),
            tracks: bandit.tracks.into_iter().map(track).collect(),
            alarms: bandit.alarms.into_iter().map(alarm).collect(),
            ledgers: bandit.ledgers.into_iter().map(ledger).collect(),
        }
    }
}

impl TryFrom<State> for Bandit {
    type Error = Error;

    fn try_from(state: State) -> Result<Self> {
        if state.ticks.iter().any(|ticks| *ticks > TICKS_MAX) {
            return Err(Error::new(Kind::Corrupt, "more operations than can have been"));
        }
        Ok(Self {
            fields: fields(state.fields)?,
            tracks: tracks(state.tracks, state.ticks)?,
            alarms: alarms(state.alarms)?,
            ledgers: ledgers(state.ledgers)?,
            ticks: state.ticks,
        })
    }
}

fn fields(listed: Vec<(Situation, Opinions)>) -> Result<BTreeMap<Situation, Opinions>> {
    let mut fields = BTreeMap::new();
    for (position, (situation, field)) in listed.into_iter().enumerate() {
        let at = |error: Error| error.with("field", position);
        field.check().map_err(at)?;
        if fields.insert(situation, field).is_some() {
            return Err(at(Error::new(Kind::Corrupt, "a field stands twice")));
        }
    }
    Ok(fields)
}

fn tracks(
    listed: Vec<(Situation, Tool, SizeClass, Track)>,
    ticks: [u64; 4],
) -> Result<BTreeMap<Key, Track>> {
    let mut tracks = BTreeMap::new();
    for (position, (situation, tool, class, track)) in listed.into_iter().enumerate() {
        let at = |error: Error| error.with("track", position);
        track.check(ticks[situation as usize]).map_err(at)?;
        if !situation.admits(tool) {
            return Err(at(Error::new(Kind::Corrupt, format!("{tool} does not write"))));
        }
        if tracks.insert((situation, tool, class), track).is_some() {
            return Err(at(Error::new(Kind::Corrupt, "a track stands twice")));
        }
    }
    Ok(tracks)
}

fn ledgers(
    listed: Vec<(Situation, SizeClass, Ledger)>,
) -> Result<BTreeMap<(Situation, SizeClass), Ledger>> {
    let mut ledgers = BTreeMap::new();
    for (position, (situation, class, ledger)) in listed.into_iter().enumerate() {
        let at = |error: Error| error.with("ledger", position);
        ledger.check().map_err(at)?;
        if ledgers.insert((situation, class), ledger).is_some() {
            return Err(at(Error::new(Kind::Corrupt, "a ledger stands twice")));
        }
    }
    Ok(ledgers)
}

fn alarms(listed: Vec<(Situation, Tool, Alarm)>) -> Result<BTreeMap<(Situation, Tool), Alarm>> {
    let mut alarms = BTreeMap::new();
    for (position, (situation, tool, alarm)) in listed.into_iter().enumerate() {
        let at = |error: Error| error.with("alarm", position);
        alarm.check(STREAK).map_err(at)?;
        if alarms.insert((situation, tool), alarm).is_some() {
            return Err(at(Error::new(Kind::Corrupt, "an alarm stands twice")));
        }
    }
    Ok(alarms)
}
