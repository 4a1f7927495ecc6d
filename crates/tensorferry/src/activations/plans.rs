//! What was learned from steps: their profiles, and the plans that are followed.
//!
//! Steps that save the same tensors in the same order are *alike*, of one *kind*. Batches of two shapes take
//! turns, the last batch of an epoch is smaller: so each kind of step has a profile and a plan of its own, which
//! are found again when a step begins like it. The [`KINDS_MAX`] kinds that came last are kept.
//!
//! Planning takes a while, and everybody who saves or fetches wants the lock. So a step that is over leaves at
//! most a *request*, with a copy of its profile. Whoever made the step known plans without the lock, while
//! others go on as before, and brings the answer back. A step has one [`FollowedPlan`] at a time, which no
//! answer changes. An answer is dropped if a later step has made its request void, by using its tensors in
//! another order, or if a later request was answered before.
//!
//! A plan is requested after the first step of all, and otherwise when a kind of step was seen twice: what
//! never comes again needs none.
//!
//! What was predicted when a plan was made grows old: disks are faster in one step than in the next. So what
//! a step is *expected* to come to is worked out again after each, by one run of the simulator with the
//! latest profile. Whether to plan anew is judged by what was predicted with the plan.

use std::sync::Arc;

use super::report::StepReport;
use super::step::Step;
use super::worker;
use crate::error::Result;
use crate::plan::activations::{Plan, Prediction, Profile};

/// A planned step that stalls longer than predicted, by this share of its time, is planned anew.
const SURPRISE: f64 = 0.10;

/// How many steps a plan is followed at least, once it was refined.
const PLAN_STEPS_MIN: u64 = 10;

/// Kinds of steps that are remembered.
const KINDS_MAX: usize = 32;

/// What was learned from steps.
#[derive(Default)]
pub(super) struct Plans {
    pub steps: u64,
    pub last: Option<StepReport>,
    /// The kind of the last step is the last.
    kinds: Vec<StepKind>,
    /// Requests so far.
    requests: u64,
}

/// Steps that are alike.
struct StepKind {
    profile: Profile,
    plan: Option<Arc<FollowedPlan>>,
    /// What the next one should come to.
    expected: Option<Prediction>,
    unplanned: Option<String>,
    /// Steps that followed the present plan, and whether it was made anew for its times.
    followed: u64,
    refined: bool,
    /// The latest request for them, until it is answered or void.
    requested: Option<u64>,
}

/// A plan, and the profile that it was made from.
#[derive(Debug)]
pub(super) struct FollowedPlan {
    pub plan: Plan,
    pub profile: Profile,
    /// Tensors in the order of their first uses.
    pub order: Vec<usize>,
}

/// What is to be planned, without the lock.
pub(super) struct PlanRequest {
    pub profile: Profile,
    number: u64,
}

impl FollowedPlan {
    pub fn new(plan: Plan, profile: Profile) -> Self {
        let mut is_new = vec![true; profile.tensors.len()];
        let uses = profile.uses.iter().map(|used| used.tensor);
        let order = uses.filter(|tensor| std::mem::take(&mut is_new[*tensor])).collect();
        Self { plan, profile, order }
    }
}

impl Plans {
    /// A step is over; perhaps a plan is wanted now. `staging` is what workers have beside it.
    pub fn learn(&mut self, step: &Step, staging: u64) -> Option<PlanRequest> {
        self.steps += 1;
        self.last = Some(step.report(staging));
        let position = self.kinds.iter().position(|kind| step.is_like(&kind.profile));
        let latest = self.kinds.last().map(|kind| kind.profile.clone());
        let before = position.map(|position| self.kinds.remove(position));
        let profile = step.profile(
            before.as_ref().map(|kind| &kind.profile),
            latest.as_ref(),
            worker::THREADS,
        );
        let mut kind = match before {
            Some(kind) => kind,
            None => StepKind::new(profile.clone()),
        };
        let is_first = latest.is_none();
        let is_due = kind.learn(step, profile, position.is_some(), is_first);
        let request = is_due.then(|| {
            self.requests += 1;
            kind.requested = Some(self.requests);
            PlanRequest { profile: kind.profile.clone(), number: self.requests }
        });
        if self.kinds.len() >= KINDS_MAX {
            self.kinds.remove(0);
        }
        self.kinds.push(kind);
        request
    }

    /// A request was answered: with a plan, or with the reason why there is none.
    pub fn answer(&mut self, request: PlanRequest, plan: Result<Plan>) {
        let is_of = |kind: &&mut StepKind| kind.requested == Some(request.number);
        let Some(kind) = self.kinds.iter_mut().find(is_of) else { return };
        kind.requested = None;
        match plan {
            Ok(plan) => {
                kind.expected = Some(plan.predicted);
                kind.plan = Some(Arc::new(FollowedPlan::new(plan, request.profile)));
                kind.unplanned = None;
            }
            Err(why) => (kind.plan, kind.unplanned) = (None, Some(why.to_string())),
        }
    }

    /// Has a step follow the plan of a kind that began like it and went on with the `next` tensor; of several,
    /// the one that came last. Nothing is next once all are saved.
    pub fn choose_for(&self, step: &mut Step, next: Option<(&str, u64)>) {
        if step.following.is_unlike() {
            return;
        }
        let fits = |kind: &&StepKind| {
            let expected = kind.profile.tensors.get(step.entries.len());
            let expected = expected.map(|tensor| (tensor.name.as_str(), tensor.bytes));
            kind.plan.is_some() && expected == next && step.began_like(&kind.profile)
        };
        match self.kinds.iter().rev().find(fits) {
            Some(StepKind { plan: Some(plan), expected, .. }) => {
                step.follow(Arc::clone(plan), *expected);
            }
            _ => step.following.leave(),
        }
    }

    /// What was measured last.
    pub fn profile(&self) -> Option<&Profile> {
        Some(&self.kinds.last()?.profile)
    }

    /// The plan for steps like the last one.
    pub fn plan(&self) -> Option<&Plan> {
        Some(&self.kinds.last()?.plan.as_ref()?.plan)
    }

    /// The plan in words.
    pub fn explain(&self) -> Option<String> {
        let followed = self.kinds.last()?.plan.as_ref()?;
        Some(followed.plan.explain(&followed.profile))
    }

    /// Why there is no plan for steps like the last one.
    pub fn unplanned(&self) -> Option<String> {
        self.kinds.last()?.unplanned.clone()
    }
}

impl StepKind {
    fn new(profile: Profile) -> Self {
        Self {
            profile,
            plan: None,
            expected: None,
            unplanned: None,
            followed: 0,
            refined: false,
            requested: None,
        }
    }

    /// Learns from another step; whether a plan is due.
    fn learn(&mut self, step: &Step, profile: Profile, is_known: bool, is_first: bool) -> bool {
        let is_steady = is_used_alike(&self.profile, &profile);
        let surprised = self.plan.as_ref().is_some_and(|followed| {
            let predicted = followed.plan.predicted.stall();
            step.clock.stall() - predicted > SURPRISE * step.clock.age()
        });
        self.followed += 1;
        self.profile = profile;
        if !is_steady {
            // Whatever comes next is measured; two that are used alike are planned for.
            (self.plan, self.expected, self.requested, self.refined) = (None, None, None, false);
            return false;
        }
        let is_due = match &self.plan {
            None => is_known || is_first,
            // The first step of a process is slower than the others: what was planned from it is
            // planned once more.
            Some(_) => !self.refined || (surprised && self.followed > PLAN_STEPS_MIN),
        };
        if is_due {
            self.refined = self.plan.is_some();
            self.followed = 0;
        }
        let foreseen = self.plan.as_ref().and_then(|followed| followed.plan.foresee(&self.profile));
        self.expected = foreseen.or(self.expected);
        is_due
    }
}

/// Whether two steps that saved the same tensors used them in the same order.
fn is_used_alike(one: &Profile, other: &Profile) -> bool {
    let uses = |profile: &Profile| profile.uses.iter().map(|used| used.tensor).collect::<Vec<_>>();
    uses(one) == uses(other)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::Operation;
    use crate::error::Error;
    use crate::plan::activations::{self, Planner};

    /// A step that saved so many bytes, twice, and used both.
    fn step(bytes: u64) -> Step {
        let mut step = Step::begin(1);
        for number in 0..2 {
            step.save(number, "a", bytes, Operation { thread: 0, number });
        }
        step.begin_backward();
        step.used(1);
        step.used(0);
        step
    }

    fn planned(request: &PlanRequest) -> Result<Plan> {
        activations::plan(&request.profile, 1 << 30, Planner::Timeline)
    }

    /// Whether a step that begins with these bytes is guided.
    fn is_guided(plans: &Plans, bytes: u64) -> bool {
        let mut step = Step::begin(2);
        plans.choose_for(&mut step, Some(("a", bytes)));
        step.plan().is_some()
    }

    #[test]
    fn what_is_expected_follows_the_steps_and_not_what_the_plan_predicted() {
        let mut plans = Plans::default();
        let first = plans.learn(&step(1), 0).unwrap();
        let plan = planned(&first).unwrap();
        let predicted = Prediction { backward_stall: 7.0, ..plan.predicted };
        plans.answer(first, Ok(Plan { predicted, ..plan }));
        let reported: Vec<_> = (0..2)
            .map(|_| {
                let mut step = step(1);
                plans.choose_for(&mut step, None);
                plans.learn(&step, 0);
                plans.last.as_ref().unwrap().predicted.unwrap().backward_stall.to_string()
            })
            .collect();
        assert_eq!(reported, ["7", "0"]);
        assert_eq!(plans.plan().unwrap().predicted, predicted);
    }

    #[test]
    fn steps_that_take_turns_keep_their_plans() {
        let mut plans = Plans::default();
        for bytes in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
            if let Some(request) = plans.learn(&step(bytes), 0) {
                let plan = planned(&request);
                plans.answer(request, plan);
            }
        }
        assert_eq!([1, 2, 3, 4].map(|bytes| is_guided(&plans, bytes)), [true, true, true, false]);
    }

    #[test]
    fn what_never_comes_again_is_not_planned_for_and_the_oldest_is_forgotten() {
        let mut plans = Plans::default();
        let requests = (1..=100).filter_map(|bytes| plans.learn(&step(bytes), 0)).count();
        assert_eq!((requests, plans.kinds.len()), (1, KINDS_MAX));
        assert!(plans.learn(&step(100), 0).is_some(), "seen twice");
        assert!(plans.learn(&step(1), 0).is_none(), "forgotten");
    }

    #[test]
    fn the_answer_to_a_later_request_is_not_undone_by_an_earlier_one() {
        let mut plans = Plans::default();
        let earlier = plans.learn(&step(1), 0).unwrap();
        let later = plans.learn(&step(1), 0).unwrap();
        plans.answer(later, Err(Error::invalid("the later")));
        plans.answer(earlier, Err(Error::invalid("the earlier")));
        assert_eq!(plans.unplanned().as_deref(), Some("the later"));
    }

    #[test]
    fn tensors_that_are_used_in_another_order_are_not_planned_for_until_that_is_seen_again() {
        let mut plans = Plans::default();
        let request = plans.learn(&step(1), 0).unwrap();
        let plan = planned(&request);
        let other = || {
            let mut step = step(1);
            step.used(1);
            step
        };
        assert!(plans.learn(&other(), 0).is_none());
        plans.answer(request, plan);
        assert!(!is_guided(&plans, 1), "the answer was void");
        assert!(plans.learn(&other(), 0).is_some());
    }
}
