//! The steps that are under way, and which of them saves and uses tensors now.
//!
//! A forward pass begins a new step, unless the last step was not used yet. One context may be around many
//! steps: then a step has begun when everything of the last one was used and the next tensor comes.
//!
//! A step stays as long as it has records. When the next one begins, those that are over are learned from, and
//! those without records are forgotten.

use std::collections::BTreeMap;

use super::operation::SavedTogether;
use super::plans::{PlanRequest, Plans};
use super::step::Step;
use super::store::Tensor;
use crate::error::Result;
use crate::plan::activations::{Place, Plan};

/// Steps by their number, and what was learned from those before.
pub(super) struct Steps {
    under_way: BTreeMap<u64, Step>,
    /// The step that saves tensors now.
    current: u64,
    /// The step that uses tensors now.
    backward: u64,
    /// Forward passes that are open: threads may have several.
    open: usize,
    plans: Plans,
}

impl Steps {
    pub fn new() -> Self {
        Self {
            under_way: BTreeMap::from([(0, Step::begin(0))]),
            current: 0,
            backward: 0,
            open: 0,
            plans: Plans::default(),
        }
    }

    // -- which step it is --

    /// A forward pass begins. Perhaps a plan is wanted now; `staging` is what the workers have beside it.
    pub fn begin_forward(&mut self, staging: u64) -> Option<PlanRequest> {
        self.open += 1;
        if self.open > 1 || !self.is_current_over() {
            return None;
        }
        self.next(staging)
    }

    /// A forward pass ends; `well` if nothing was raised in it.
    pub fn end_forward(&mut self, well: bool) {
        self.open = self.open.saturating_sub(1);
        self.current_mut().end_forward(well);
    }

    /// Whether the next tensor is of another step than the last one, although no forward pass has begun since.
    pub fn is_behind(&self) -> bool {
        let step = self.get(self.current);
        // The graph of a step that failed in backward may be there until the next one is whole.
        step.is_none_or(|step| match (step.is_used(), step.has_failed()) {
            (true, true) => true,
            (true, false) | (false, true) => step.live == 0,
            (false, false) => false,
        })
    }

    /// The next step begins.
    pub fn next(&mut self, staging: u64) -> Option<PlanRequest> {
        let request = self.learn(staging);
        self.current += 1;
        self.under_way.insert(self.current, Step::begin(self.current));
        let current = self.current;
        self.under_way.retain(|number, step| *number == current || step.live > 0);
        request
    }

    fn is_current_over(&self) -> bool {
        let step = self.get(self.current);
        step.is_none_or(|step| step.is_used() || step.live == 0 || step.has_failed())
    }

    pub fn current(&self) -> u64 {
        self.current
    }

    pub fn current_mut(&mut self) -> &mut Step {
        self.at(self.current)
    }

    /// The index of the next tensor in the current step.
    pub fn next_index(&self) -> usize {
        self.get(self.current).map_or(0, |step| step.entries.len())
    }

    pub fn get(&self, number: u64) -> Option<&Step> {
        self.under_way.get(&number)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Step> {
        self.under_way.get_mut(&number)
    }

    /// A step that has records, or is the current one.
    pub fn at(&mut self, number: u64) -> &mut Step {
        self.under_way.entry(number).or_insert_with(|| Step::begin(number))
    }

    /// So many bytes are in memory.
    pub fn note_bytes(&mut self, used: u64) {
        for step in self.under_way.values_mut() {
            step.peak_bytes = step.peak_bytes.max(used);
        }
    }

    // -- what went wrong --

    /// The fault of a step, as an error.
    pub fn check(&self, number: u64) -> Result<()> {
        let fault = self.get(number).and_then(|step| step.fault.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    pub fn is_refused(&self, number: u64) -> bool {
        self.get(number).is_some_and(|step| step.refused)
    }

    /// What uses most at once in a step that was refused for it.
    pub fn refused_for(&self, number: u64) -> Option<&SavedTogether> {
        self.get(number).filter(|step| step.refused)?.operations.largest()
    }

    // -- plans --

    /// Whether a step follows a plan.
    pub fn is_planned(&self, number: u64) -> bool {
        self.get(number).is_some_and(|step| step.plan().is_some())
    }

    /// What becomes of the next tensor of the current step, by its plan; nothing if no plan says it.
    pub fn choose(&mut self, tensor: &Tensor<'_>) -> Option<Place> {
        let index = self.next_index();
        let current = self.current;
        let step = self.under_way.entry(current).or_insert_with(|| Step::begin(current));
        let planned = |step: &Step| {
            let followed = step.plan()?;
            let expected = followed.profile.tensors.get(index)?;
            let fits = expected.bytes == tensor.bytes && expected.name == tensor.name;
            fits.then(|| followed.plan.choices[index].place)
        };
        planned(step).or_else(|| {
            self.plans.choose_for(step, Some((tensor.name, tensor.bytes)));
            planned(step)
        })
    }

    /// A tensor of this step is about to be used. With the first use, it is known what backward will want.
    pub fn begin_backward(&mut self, number: u64) {
        self.backward = number;
        let Some(step) = self.under_way.get_mut(&number).filter(|step| !step.is_used()) else {
            return;
        };
        if step.plan().is_some_and(|followed| !step.is_like(&followed.profile)) {
            // It began like another one.
            self.plans.choose_for(step, None);
        }
        step.begin_backward();
    }

    /// The step that uses tensors now.
    pub fn backward_mut(&mut self) -> Option<&mut Step> {
        self.under_way.get_mut(&self.backward)
    }

    /// Learns from steps that are over. Where no plan fits, one is requested.
    pub fn learn(&mut self, staging: u64) -> Option<PlanRequest> {
        let over: Vec<u64> = self
            .under_way
            .iter()
            .filter(|(_, step)| step.is_whole())
            .map(|(number, _)| *number)
            .collect();
        let mut request = None;
        for number in over {
            if let Some(step) = self.under_way.remove(&number) {
                request = self.plans.learn(&step, staging).or(request);
            }
        }
        request
    }

    /// A plan was made, or not.
    pub fn answer(&mut self, request: PlanRequest, plan: Result<Plan>) {
        self.plans.answer(request, plan);
    }

    /// What was learned.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::step::fixtures::operation;

    fn save(steps: &mut Steps, key: u64) {
        steps.current_mut().save(key, "a", 8, operation(key));
    }

    /// Uses and releases the only tensor of the current step.
    fn finish(steps: &mut Steps) {
        let current = steps.current();
        steps.begin_backward(current);
        steps.current_mut().used(0);
        steps.current_mut().released(0);
    }

    #[test]
    fn forward_passes_without_a_use_in_between_belong_to_one_step() {
        let mut steps = Steps::new();
        steps.begin_forward(0);
        save(&mut steps, 1);
        let current = steps.current();
        steps.end_forward(true);
        steps.begin_forward(0);
        assert_eq!(steps.current(), current);
        save(&mut steps, 2);
        steps.end_forward(true);
        steps.begin_backward(current);
        steps.begin_forward(0);
        assert_eq!(steps.current(), current + 1, "the last one is used");
        assert!(steps.get(current).is_some(), "and has records");
    }

    #[test]
    fn threads_that_have_a_forward_pass_each_share_a_step() {
        let mut steps = Steps::new();
        steps.begin_forward(0);
        let current = steps.current();
        steps.begin_forward(0);
        steps.end_forward(true);
        assert_eq!(steps.current(), current);
        assert!(!steps.is_behind());
    }

    #[test]
    fn one_context_around_many_steps_begins_the_next_one_when_all_of_the_last_was_used() {
        let mut steps = Steps::new();
        steps.begin_forward(0);
        save(&mut steps, 1);
        assert!(!steps.is_behind());
        finish(&mut steps);
        assert!(steps.is_behind());
        let request = steps.next(0);
        assert!(request.is_some(), "the first step of all is planned for");
        assert_eq!(steps.plans().steps, 1);
        assert!(!steps.is_behind());
    }

    #[test]
    fn a_step_whose_forward_raised_is_not_learned_from() {
        let mut steps = Steps::new();
        steps.begin_forward(0);
        save(&mut steps, 1);
        steps.end_forward(false);
        finish(&mut steps);
        assert!(steps.begin_forward(0).is_none());
        assert_eq!(steps.plans().steps, 0);
    }
}
