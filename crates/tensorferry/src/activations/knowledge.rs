//! What was learned from steps: profiles, and plans that are followed.
//!
//! Steps that save the same tensors in the same order are *alike*. Batches of two shapes take turns, the last
//! one is smaller: so each kind of step has a profile and a plan of its own, which are found again when one
//! begins like it. The [`KNOWN_MAX`] kinds that came last are kept.
//!
//! Planning takes a while, and everybody who saves or fetches wants the lock. So a step that is over
//! leaves at most a *question*, with a copy of its profile. Whoever made the step known answers it
//! without the lock, while others go on as before, and brings the answer back. A step follows one
//! [`Guide`] at a time, which it has for itself: an answer confuses nobody. One to a question that a later
//! step has made void, by being unlike, is dropped, and so is one that comes after the answer to a later
//! question.
//!
//! A plan is asked for after the first step of all, and otherwise when a kind of step was seen twice: what
//! never comes again needs none.
//!
//! What a plan foretold when it was made grows old: disks are faster in one step than in the next. So
//! what a step is *expected* to come to is worked out again after each, by one run of the simulator with
//! the latest profile. Whether to plan anew is judged by what the plan itself had foretold.

use std::sync::Arc;

use super::report::StepReport;
use super::step::Step;
use super::work;
use crate::error::Result;
use crate::plan::activations::{Plan, Prediction, Profile};

/// A planned step that stalls longer than predicted, by this share of its time, is planned anew.
const SURPRISE: f64 = 0.10;

/// How many steps a plan is followed at least, once it was refined.
const PLAN_STEPS_MIN: u64 = 10;

/// Kinds of steps that are remembered.
const KNOWN_MAX: usize = 32;

/// What was learned from steps.
#[derive(Default)]
pub(super) struct Knowledge {
    pub steps: u64,
    pub last: Option<StepReport>,
    /// The one of the last step is the last.
    known: Vec<Known>,
    /// Questions so far.
    asked: u64,
}

/// Steps that are alike.
struct Known {
    profile: Profile,
    guide: Option<Arc<Guide>>,
    /// What the next one should come to.
    expected: Option<Prediction>,
    unplanned: Option<String>,
    /// Steps that followed the present plan, and whether it was made anew for its times.
    followed: u64,
    refined: bool,
    /// The latest question about them, until it is answered or void.
    open: Option<u64>,
}

/// A plan, and the profile that it was made from.
#[derive(Debug)]
pub(super) struct Guide {
    pub plan: Plan,
    pub profile: Profile,
    /// Tensors in the order of their first uses.
    pub order: Vec<usize>,
}

/// What is to be planned, without the lock.
pub(super) struct Question {
    pub profile: Profile,
    number: u64,
}

impl Guide {
    pub fn new(plan: Plan, profile: Profile) -> Self {
        let mut is_new = vec![true; profile.tensors.len()];
        let uses = profile.uses.iter().map(|used| used.tensor);
        let order = uses.filter(|tensor| std::mem::take(&mut is_new[*tensor])).collect();
        Self { plan, profile, order }
    }
}

impl Knowledge {
    /// A step is over; perhaps a plan is wanted now. `staging` is what workers have beside it.
    pub fn learn(&mut self, step: &Step, staging: u64) -> Option<Question> {
        self.steps += 1;
        self.last = Some(step.report(staging));
        let position = self.known.iter().position(|known| step.is_like(&known.profile));
        let latest = self.known.last().map(|known| known.profile.clone());
        let before = position.map(|position| self.known.remove(position));
        let profile = step.profile(
            before.as_ref().map(|known| &known.profile),
            latest.as_ref(),
            work::THREADS,
        );
        let mut known = match before {
            Some(known) => known,
            None => Known::new(profile.clone()),
        };
        let is_first = latest.is_none();
        let is_due = known.learn(step, profile, position.is_some(), is_first);
        let question = is_due.then(|| {
            self.asked += 1;
            known.open = Some(self.asked);
            Question { profile: known.profile.clone(), number: self.asked }
        });
        if self.known.len() >= KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(known);
        question
    }

    /// A question was answered.
    pub fn answer(&mut self, question: Question, plan: Result<Plan>) {
        let asked = |known: &&mut Known| known.open == Some(question.number);
        let Some(known) = self.known.iter_mut().find(asked) else { return };
        known.open = None;
        match plan {
            Ok(plan) => {
                known.expected = Some(plan.predicted);
                known.guide = Some(Arc::new(Guide::new(plan, question.profile)));
                known.unplanned = None;
            }
            Err(why) => (known.guide, known.unplanned) = (None, Some(why.to_string())),
        }
    }

    /// Has a step follow what is known of those that began like it and went on with the `next` tensor; the one
    /// that came last of them. Nothing is next once all are saved.
    pub fn guide(&self, step: &mut Step, next: Option<(&str, u64)>) {
        if step.is_unlike() {
            return;
        }
        let fits = |known: &&Known| {
            let told = known.profile.tensors.get(step.entries.len());
            let told = told.map(|tensor| (tensor.name.as_str(), tensor.bytes));
            known.guide.is_some() && told == next && step.began_like(&known.profile)
        };
        match self.known.iter().rev().find(fits) {
            Some(Known { guide: Some(guide), expected, .. }) => {
                step.follow(Arc::clone(guide), *expected);
            }
            _ => step.leave_plan(),
        }
    }

    /// What was measured last.
    pub fn profile(&self) -> Option<&Profile> {
        Some(&self.known.last()?.profile)
    }

    /// The plan for steps like the last one.
    pub fn plan(&self) -> Option<&Plan> {
        Some(&self.known.last()?.guide.as_ref()?.plan)
    }

    /// The plan in words.
    pub fn explain(&self) -> Option<String> {
        let guide = self.known.last()?.guide.as_ref()?;
        Some(guide.plan.explain(&guide.profile))
    }

    /// Why there is no plan for steps like the last one.
    pub fn unplanned(&self) -> Option<String> {
        self.known.last()?.unplanned.clone()
    }
}

impl Known {
    fn new(profile: Profile) -> Self {
        Self {
            profile,
            guide: None,
            expected: None,
            unplanned: None,
            followed: 0,
            refined: false,
            open: None,
        }
    }

    /// Learns from another step; whether a plan is due.
    fn learn(&mut self, step: &Step, profile: Profile, is_known: bool, is_first: bool) -> bool {
        let is_steady = is_used_alike(&self.profile, &profile);
        let surprised = self.guide.as_ref().is_some_and(|guide| {
            let predicted = guide.plan.predicted.stall();
            step.stall() - predicted > SURPRISE * step.age()
        });
        self.followed += 1;
        self.profile = profile;
        if !is_steady {
            // Whatever comes next is measured; two that are used alike are planned for.
            (self.guide, self.expected, self.open, self.refined) = (None, None, None, false);
            return false;
        }
        let is_due = match &self.guide {
            None => is_known || is_first,
            // The first step of a process is slower than the others: what was planned from it is
            // planned once more.
            Some(_) => !self.refined || (surprised && self.followed > PLAN_STEPS_MIN),
        };
        if is_due {
            self.refined = self.guide.is_some();
            self.followed = 0;
        }
        let foreseen = self.guide.as_ref().and_then(|guide| guide.plan.foresee(&self.profile));
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

    fn planned(question: &Question) -> Result<Plan> {
        activations::plan(&question.profile, 1 << 30, Planner::Timeline)
    }

    /// Whether a step that begins with these bytes is guided.
    fn is_guided(knowledge: &Knowledge, bytes: u64) -> bool {
        let mut step = Step::begin(2);
        knowledge.guide(&mut step, Some(("a", bytes)));
        step.guide().is_some()
    }

    #[test]
    fn what_is_expected_follows_the_steps_and_not_what_the_plan_foretold() {
        let mut knowledge = Knowledge::default();
        let first = knowledge.learn(&step(1), 0).unwrap();
        let plan = planned(&first).unwrap();
        let foretold = Prediction { backward_stall: 7.0, ..plan.predicted };
        knowledge.answer(first, Ok(Plan { predicted: foretold, ..plan }));
        let told: Vec<_> = (0..2)
            .map(|_| {
                let mut step = step(1);
                knowledge.guide(&mut step, None);
                knowledge.learn(&step, 0);
                knowledge.last.as_ref().unwrap().predicted.unwrap().backward_stall.to_string()
            })
            .collect();
        assert_eq!(told, ["7", "0"]);
        assert_eq!(knowledge.plan().unwrap().predicted, foretold);
    }

    #[test]
    fn steps_that_take_turns_keep_their_plans() {
        let mut knowledge = Knowledge::default();
        for bytes in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
            if let Some(question) = knowledge.learn(&step(bytes), 0) {
                let plan = planned(&question);
                knowledge.answer(question, plan);
            }
        }
        assert_eq!(
            [1, 2, 3, 4].map(|bytes| is_guided(&knowledge, bytes)),
            [true, true, true, false]
        );
    }

    #[test]
    fn what_never_comes_again_is_not_planned_for_and_the_oldest_is_forgotten() {
        let mut knowledge = Knowledge::default();
        let asked = (1..=100).filter_map(|bytes| knowledge.learn(&step(bytes), 0)).count();
        assert_eq!((asked, knowledge.known.len()), (1, KNOWN_MAX));
        assert!(knowledge.learn(&step(100), 0).is_some(), "seen twice");
        assert!(knowledge.learn(&step(1), 0).is_none(), "forgotten");
    }

    #[test]
    fn the_answer_to_a_later_question_is_not_undone_by_an_earlier_one() {
        let mut knowledge = Knowledge::default();
        let earlier = knowledge.learn(&step(1), 0).unwrap();
        let later = knowledge.learn(&step(1), 0).unwrap();
        knowledge.answer(later, Err(Error::invalid("the later")));
        knowledge.answer(earlier, Err(Error::invalid("the earlier")));
        assert_eq!(knowledge.unplanned().as_deref(), Some("the later"));
    }

    #[test]
    fn tensors_that_are_used_in_another_order_are_not_planned_for_until_that_is_seen_again() {
        let mut knowledge = Knowledge::default();
        let question = knowledge.learn(&step(1), 0).unwrap();
        let plan = planned(&question);
        let other = || {
            let mut step = step(1);
            step.used(1);
            step
        };
        assert!(knowledge.learn(&other(), 0).is_none());
        knowledge.answer(question, plan);
        assert!(!is_guided(&knowledge, 1), "the answer was void");
        assert!(knowledge.learn(&other(), 0).is_some());
    }
}
