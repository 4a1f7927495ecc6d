//! Whether a step follows a plan.
//!
//! ```text
//!   Undecided ──begins like a known kind──► Plan ──unlike its profile──► Left
//!       └───────begins like none──────────► NoPlan
//! ```
//!
//! A step that has left a plan, or has none, follows none until its end.

use std::sync::Arc;

use super::plans::FollowedPlan;
use super::report::Mode;

/// The plan in force for a step.
#[derive(Debug, Default)]
pub(super) enum Following {
    /// Nothing was saved yet.
    #[default]
    Undecided,
    /// The plan of steps that it is like.
    Plan(Arc<FollowedPlan>),
    /// It is like no step that is known.
    NoPlan,
    /// It was like others, and then turned out to be like none.
    Left,
}

impl Following {
    /// The plan, as long as the step is as the plan foresaw.
    pub fn plan(&self) -> Option<&Arc<FollowedPlan>> {
        if let Self::Plan(plan) = self { Some(plan) } else { None }
    }

    /// The step is unlike all steps that are known.
    pub fn leave(&mut self) {
        *self = match self {
            Self::Undecided | Self::NoPlan => Self::NoPlan,
            Self::Plan(_) | Self::Left => Self::Left,
        };
    }

    /// Whether it is decided that no plan is followed.
    pub fn is_unlike(&self) -> bool {
        matches!(self, Self::NoPlan | Self::Left)
    }

    /// What a report calls it.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Plan(_) => Mode::Planned,
            Self::Left => Mode::Differed,
            Self::Undecided | Self::NoPlan => Mode::Profiled,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::activations::step::fixtures;

    #[test]
    fn a_step_that_never_had_a_plan_is_profiled_and_one_that_left_its_plan_differed() {
        let mut following = Following::default();
        assert!(!following.is_unlike() && following.mode() == Mode::Profiled);
        following.leave();
        assert!(following.is_unlike() && following.mode() == Mode::Profiled);

        let mut following = Following::Plan(fixtures::plan(1));
        assert!(following.plan().is_some() && following.mode() == Mode::Planned);
        for _ in 0..2 {
            following.leave();
            assert!(following.plan().is_none() && following.mode() == Mode::Differed);
        }
    }
}
