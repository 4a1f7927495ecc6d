//! What compute does in a step, in order, whatever the plan.

use std::cmp::Ordering;

use crate::plan::activations::Profile;

/// Something that compute comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Compute seconds since the start of forward, stalls not counted.
    pub at: f64,
    /// What happens.
    pub event: Event,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Forward saves a tensor.
    Save(usize),
    /// Forward is over, backward begins.
    Turn,
    /// Backward uses a tensor.
    Use(usize),
    /// A tensor was used for the last time and its memory is free.
    Free(usize),
    /// Backward is over.
    End,
}

/// All steps, by time.
#[derive(Debug, Clone)]
pub struct Course {
    steps: Vec<Step>,
    /// Tensors in the order of their first uses.
    needed: Vec<usize>,
}

impl Course {
    /// The course of a profile that holds together.
    pub fn new(profile: &Profile) -> Self {
        let turn = profile.forward_seconds;
        let saved = profile.tensors.iter().enumerate();
        let mut steps: Vec<Step> = saved
            .map(|(id, tensor)| Step { at: tensor.saved_at, event: Event::Save(id) })
            .collect();
        steps.push(Step { at: turn, event: Event::Turn });
        let (backward, needed) = backward(profile);
        steps.extend(backward.into_iter().map(|(at, event)| Step { at: turn + at, event }));
        steps.push(Step { at: turn + profile.backward_seconds, event: Event::End });
        Self { steps, needed }
    }

    /// By time; at one time in the order in which they happen.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Tensors that backward uses, in the order of their first uses.
    pub fn needed(&self) -> &[usize] {
        &self.needed
    }
}

/// Uses and frees by time, and who is needed in which order.
///
/// At one time memory is freed before the next use wants some, but never before its own last use.
fn backward(profile: &Profile) -> (Vec<(f64, Event)>, Vec<usize>) {
    // For each tensor: its last use, and when its memory is free.
    let mut last: Vec<Option<(usize, f64)>> = vec![None; profile.tensors.len()];
    let mut needed = Vec::new();
    let mut events = Vec::with_capacity(profile.uses.len() + profile.tensors.len());
    for (number, use_) in profile.uses.iter().enumerate() {
        events.push((use_.at, 2 * number + 1, Event::Use(use_.tensor)));
        let until = match last[use_.tensor] {
            None => {
                needed.push(use_.tensor);
                use_.until
            }
            Some((_, until)) => until.max(use_.until),
        };
        last[use_.tensor] = Some((number, until));
    }
    for (tensor, last) in last.into_iter().enumerate() {
        let Some((number, until)) = last else { continue };
        let rank = if until > profile.uses[number].at { 0 } else { 2 * number + 2 };
        events.push((until, rank, Event::Free(tensor)));
    }
    events.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1)));
    (events.into_iter().map(|(at, _, event)| (at, event)).collect(), needed)
}
