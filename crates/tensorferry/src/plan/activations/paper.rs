//! The two phases of the paper (section 3.3).
//!
//! Phase 1 selects tensors from the first on until the others fit. If the transfers take no longer than
//! forward, that is the plan. Otherwise phase 2 gives up the last selected tensor that can't be encoded,
//! selects those that get smallest instead until at least its bytes are replaced, and looks again; until
//! the transfers fit or nothing is left to exchange. A tensor that gets smaller is always encoded, and is
//! then taken to move in its time over its ratio.
//!
//! *Where the paper leaves a gap.* It compares sums, and in a run what is offloaded has to pass through
//! memory beside what is kept. Where that can't be carried out, the phases are repeated with room for the
//! largest moment of backward left free, and in the end everything goes.

use super::budget::minimum_budget;
use super::plan::{Choice, Place};
use super::profile::Profile;
use crate::plan::activations::simulate::Simulator;

/// What the paper would do, with its reasons. The budget is at least the minimum.
pub(super) fn choose(profile: &Profile, budget: u64, simulator: &mut Simulator) -> Vec<Choice> {
    let choices = |room| Selection::new(profile, room).choices();
    let reserve = budget - minimum_budget(profile);
    for room in [budget, reserve] {
        let choices = choices(room);
        let places: Vec<Place> = choices.iter().map(|choice| choice.place).collect();
        if simulator.predict(&places).is_some() {
            return choices;
        }
    }
    let all = |tensor| Choice {
        place: form(profile, tensor),
        why: "what is kept would leave no room for what passes through".into(),
    };
    (0..profile.tensors.len()).map(all).collect()
}

/// A tensor that gets smaller is encoded.
fn form(profile: &Profile, tensor: usize) -> Place {
    Place::Offload { encoded: profile.tensors[tensor].is_compressible() }
}

struct Selection<'a> {
    profile: &'a Profile,
    /// Why each selected tensor was.
    selected: Vec<Option<Why>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    First,
    Smaller,
}

impl<'a> Selection<'a> {
    fn new(profile: &'a Profile, room: u64) -> Self {
        let mut selection = Self { profile, selected: vec![None; profile.tensors.len()] };
        selection.take_first(room);
        if selection.plain_seconds() > profile.forward_seconds {
            while selection.encoded_seconds() > profile.forward_seconds && selection.exchange() {}
        }
        selection
    }

    fn take_first(&mut self, room: u64) {
        let mut left = self.profile.bytes();
        for (tensor, selected) in self.profile.tensors.iter().zip(&mut self.selected) {
            if left <= room {
                return;
            }
            *selected = Some(Why::First);
            left -= tensor.bytes;
        }
    }

    /// What phase 1 compares: offload times as they were measured, nothing encoded.
    fn plain_seconds(&self) -> f64 {
        self.chosen().map(|tensor| self.profile.write_seconds(tensor, false)).sum()
    }

    /// What phase 2 compares.
    fn encoded_seconds(&self) -> f64 {
        let seconds = |tensor: usize| {
            self.profile.write_seconds(tensor, false) / self.profile.tensors[tensor].ratio()
        };
        self.chosen().map(seconds).sum()
    }

    fn chosen(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.selected.len()).filter(|tensor| self.selected[*tensor].is_some())
    }

    /// One turn of phase 2; whether there was anything to exchange.
    fn exchange(&mut self) -> bool {
        let tensors = &self.profile.tensors;
        let Some(last) = self.chosen().rev().find(|id| !tensors[*id].is_compressible()) else {
            return false;
        };
        let mut smaller: Vec<usize> = (0..tensors.len())
            .filter(|id| self.selected[*id].is_none() && tensors[*id].is_compressible())
            .collect();
        smaller.sort_by(|a, b| tensors[*b].ratio().total_cmp(&tensors[*a].ratio()));
        let mut replaced = 0;
        let instead = smaller.iter().take_while(|id| {
            let wanted = replaced < tensors[last].bytes;
            replaced += if wanted { tensors[**id].bytes } else { 0 };
            wanted
        });
        let instead: Vec<usize> = instead.copied().collect();
        if instead.is_empty() || replaced < tensors[last].bytes {
            return false;
        }
        self.selected[last] = None;
        for id in instead {
            self.selected[id] = Some(Why::Smaller);
        }
        true
    }

    fn choices(&self) -> Vec<Choice> {
        let choice = |(tensor, why): (usize, &Option<Why>)| {
            let ratio = self.profile.tensors[tensor].ratio();
            let (place, why) = match why {
                None => (Place::Keep, "fits beside the others that are kept".into()),
                Some(Why::First) => (
                    form(self.profile, tensor),
                    "phase 1: among the first, until the rest fits".into(),
                ),
                Some(Why::Smaller) => {
                    let why = format!(
                        "phase 2: gets {ratio:.2} times smaller, instead of one that does not"
                    );
                    (form(self.profile, tensor), why)
                }
            };
            Choice { place, why }
        };
        self.selected.iter().enumerate().map(choice).collect()
    }
}
