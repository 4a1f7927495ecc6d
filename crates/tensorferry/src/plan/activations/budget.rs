//! The least memory with which a step can be carried out at all.

use super::profile::Profile;
use crate::plan::activations::simulate::{Course, Event};

/// The least budget under which everything can be offloaded: each tensor fits by itself while forward
/// saves it, and what backward uses at the same time fits together. The profile must hold together.
pub fn minimum_budget(profile: &Profile) -> u64 {
    let largest = profile.tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(0);
    let (mut used, mut most) = (0, largest);
    let mut is_used = vec![false; profile.tensors.len()];
    for step in Course::new(profile).steps() {
        match step.event {
            Event::Use(tensor) => {
                if !std::mem::replace(&mut is_used[tensor], true) {
                    used += profile.tensors[tensor].bytes;
                }
            }
            Event::Free(tensor) => used -= profile.tensors[tensor].bytes,
            Event::Save(_) | Event::Turn | Event::End => {}
        }
        most = most.max(used);
    }
    most
}
