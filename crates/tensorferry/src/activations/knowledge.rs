//! What was learned from steps: a profile, and the plan that is followed.
//!
//! Planning takes a while, and everybody who saves or fetches wants the lock. So a step that is over
//! leaves at most a *question*, with a copy of its profile. Whoever made the step known answers it
//! without the lock, while others go on as before, and brings the answer back. A step follows one plan
//! or none: an answer takes effect at once where nothing was saved meanwhile, and with the next step
//! otherwise. One to a question that a later step has made void, by being unlike, is dropped, and so
//! is one that comes after the answer to a later question.
//!
//! What a plan foretold when it was made grows old: disks are faster in one step than in the next. So
//! what a step is *expected* to come to is worked out again after each, by one run of the simulator with
//! the latest profile. Whether to plan anew is judged by what the plan itself had foretold.

use super::report::StepReport;
use super::step::Step;
use super::work;
use crate::error::Result;
use crate::plan::offload::{Plan, Prediction, Profile};

/// A planned step that stalls longer than predicted, by this share of its time, is planned anew.
const SURPRISE: f64 = 0.10;

/// How many steps a plan is followed at least, once it was refined.
const PLAN_STEPS_MIN: u64 = 10;

/// What was learned from steps.
#[derive(Default)]
pub(super) struct Knowledge {
    pub steps: u64,
    pub profile: Option<Profile>,
    /// The plan of the step under way.
    pub plan: Option<Plan>,
    /// What that was made from.
    made_from: Option<Profile>,
    /// What that step should come to.
    expected: Option<Prediction>,
    pub unplanned: Option<String>,
    pub last: Option<StepReport>,
    /// An answer that waits for the next step.
    next: Option<Result<(Plan, Profile), String>>,
    /// Steps that followed the present plan, and whether it was made anew for its times.
    followed: u64,
    refined: bool,
    /// Steps alike are of one era.
    era: u64,
    asked: u64,
    answered: u64,
}

/// What is to be planned, without the lock.
pub(super) struct Question {
    pub profile: Profile,
    era: u64,
    number: u64,
}

impl Knowledge {
    /// A step is over; perhaps a plan is wanted now. `staging` is what workers have beside it.
    pub fn learn(&mut self, step: &Step, staging: u64) -> Option<Question> {
        self.steps += 1;
        self.last = Some(step.report(staging, self.expected));
        let profile = step.profile(self.profile.as_ref(), work::THREADS);
        let steady = self.profile.as_ref().is_none_or(|before| are_alike(before, &profile));
        let surprised = self.plan.as_ref().is_some_and(|plan| {
            let predicted = plan.predicted.forward_stall + plan.predicted.backward_stall;
            step.stall() - predicted > SURPRISE * step.age()
        });
        self.followed += 1;
        let due = !self.refined || (surprised && self.followed > PLAN_STEPS_MIN);
        let question = if !steady {
            // Whatever comes next is profiled; two steps alike are planned for.
            (self.plan, self.next, self.refined) = (None, None, false);
            self.era += 1;
            None
        } else if self.plan.is_none() || due {
            // The first step of a process is slower than the others: what was planned from it is
            // planned once more.
            self.refined = self.plan.is_some();
            Some(self.ask(profile.clone()))
        } else {
            None
        };
        let foreseen = |plan: &Plan| plan.foresee(&profile).or(self.expected);
        self.expected = self.plan.as_ref().and_then(foreseen);
        self.profile = Some(profile);
        question
    }

    /// The plan in words.
    pub fn explain(&self) -> Option<String> {
        Some(self.plan.as_ref()?.explain(self.made_from.as_ref()?))
    }

    fn ask(&mut self, profile: Profile) -> Question {
        self.followed = 0;
        self.asked += 1;
        Question { profile, era: self.era, number: self.asked }
    }

    /// A question was answered; `at_once` if no step is under way that another plan would confuse.
    pub fn answer(&mut self, question: &Question, plan: Result<Plan>, at_once: bool) {
        if question.era != self.era || question.number < self.answered {
            return;
        }
        self.answered = question.number;
        let plan = plan.map(|plan| (plan, question.profile.clone()));
        self.next = Some(plan.map_err(|error| error.to_string()));
        if at_once {
            self.turn();
        }
    }

    /// A step begins: an answer that waited for it takes effect.
    pub fn turn(&mut self) {
        match self.next.take() {
            Some(Ok((plan, profile))) => {
                self.expected = Some(plan.predicted);
                (self.plan, self.made_from, self.unplanned) = (Some(plan), Some(profile), None);
            }
            Some(Err(why)) => (self.plan, self.unplanned) = (None, Some(why)),
            None => {}
        }
    }
}

/// Whether two steps saved and used the same tensors in the same order.
fn are_alike(one: &Profile, other: &Profile) -> bool {
    let tensors = |profile: &Profile| {
        profile.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.bytes)).collect::<Vec<_>>()
    };
    let uses = |profile: &Profile| profile.uses.iter().map(|used| used.tensor).collect::<Vec<_>>();
    tensors(one) == tensors(other) && uses(one) == uses(other)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::plan::offload::{self, Codec, Disk, Planner, VERSION};

    fn question(number: u64) -> Question {
        let profile = Profile {
            version: VERSION,
            tensors: Vec::new(),
            uses: Vec::new(),
            forward_seconds: 0.0,
            backward_seconds: 0.0,
            disk: Disk {
                write_bytes_per_second: 1.0,
                read_bytes_per_second: 1.0,
                seconds_per_transfer: 0.0,
                awaited_write_speedup: 1.0,
                awaited_read_speedup: 1.0,
            },
            codec: Codec { encode_bytes_per_second: 1.0, decode_bytes_per_second: 1.0 },
        };
        Question { profile, era: 0, number }
    }

    #[test]
    fn an_answer_waits_for_the_step_after_the_one_under_way() {
        let mut knowledge = Knowledge::default();
        knowledge.answer(&question(1), Err(Error::invalid("no plan")), false);
        assert_eq!(knowledge.unplanned, None);
        knowledge.turn();
        assert_eq!(knowledge.unplanned.as_deref(), Some("no plan"));
    }

    #[test]
    fn what_is_expected_follows_the_steps_and_not_what_the_plan_foretold() {
        let mut knowledge = Knowledge::default();
        let mut step = Step::begin(1, true);
        step.save(1, "a", 1);
        step.begin_backward(None);
        step.used(0);
        let first = knowledge.learn(&step, 0).unwrap();
        let plan = offload::plan(&first.profile, 1, Planner::Timeline).unwrap();
        let foretold = Prediction { backward_stall: 7.0, ..plan.predicted };
        knowledge.answer(&first, Ok(Plan { predicted: foretold, ..plan }), true);
        let told: Vec<_> = (0..2)
            .map(|_| {
                knowledge.learn(&step, 0);
                knowledge.last.as_ref().unwrap().predicted.unwrap().backward_stall.to_string()
            })
            .collect();
        assert_eq!(told, ["7", "0"]);
        assert_eq!(knowledge.plan.unwrap().predicted, foretold);
    }

    #[test]
    fn the_answer_to_a_later_question_is_not_undone_by_an_earlier_one() {
        let mut knowledge = Knowledge::default();
        knowledge.answer(&question(2), Err(Error::invalid("the later")), true);
        knowledge.answer(&question(1), Err(Error::invalid("the earlier")), true);
        assert_eq!(knowledge.unplanned.as_deref(), Some("the later"));
    }
}
