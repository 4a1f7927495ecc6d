//! Policies, as ranks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::moment::{Copies, Use};
use crate::error::{Error, Result};

/// How a node chooses what to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The sample that was not used for the longest time goes.
    Lru,
    /// The tier is filled once and stays as it is.
    NeverEvict,
    /// Each node keeps what it uses most often in the whole run. It settles on the placement that is
    /// known from the seed, and keeps what is less often used as long as there is room.
    #[serde(rename = "nopfs")]
    NoPfs,
    /// Reuse count and reuse distance, as published: what the node never uses again goes, unless it is
    /// the only copy; what it does not use in the next epoch goes; then the farthest next use.
    Lobster,
    /// The sample whose next use lies the most epochs ahead goes.
    Belady,
}

/// The highest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Rank(u32, u32);

/// Second copies rank above all only ones.
const SECOND: u32 = 1 << 31;

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 5] =
        [Self::Lru, Self::NeverEvict, Self::NoPfs, Self::Lobster, Self::Belady];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::NeverEvict => "never-evict",
            Self::NoPfs => "nopfs",
            Self::Lobster => "lobster",
            Self::Belady => "belady",
        }
    }

    /// Whether it has to know exact positions of next uses in this and the next epoch.
    pub const fn needs_positions(self) -> bool {
        matches!(self, Self::Lobster)
    }

    /// The rank of a sample after this use; `None` if it should not be kept.
    pub(super) fn rank(self, use_: &Use) -> Option<Rank> {
        match self {
            Self::Lru => Some(Rank(!use_.now.epoch, !use_.now.position)),
            Self::NeverEvict => Some(Rank::default()),
            Self::NoPfs => Some(Rank(!use_.uses, 0)),
            Self::Lobster => lobster(use_),
            Self::Belady => Some(belady(use_)),
        }
    }

    /// The rank of a kept sample after another use. With Belady, who answers for the only copy goes on
    /// doing so although others copied it meanwhile.
    pub(super) fn rank_again(self, before: Rank, use_: &Use) -> Option<Rank> {
        let answers = self == Self::Belady && use_.copies != Copies::Private && before == ONLY;
        if answers { Some(before) } else { self.rank(use_) }
    }
}

const ONLY: Rank = Rank(0, 0);

fn lobster(use_: &Use) -> Option<Rank> {
    let Some(next) = use_.next else {
        // Used up. The only copy stays for the others, and is the first to go when room is needed.
        return (use_.copies == Copies::Only).then_some(Rank(u32::MAX, u32::MAX));
    };
    // More than 2I - h iterations ahead of iteration h: not in the next epoch.
    (next.epoch <= use_.now.epoch + 1).then_some(Rank(next.epoch, next.position))
}

fn belady(use_: &Use) -> Rank {
    let epoch = use_.next.map_or(SECOND - 1, |next| next.epoch.min(SECOND - 2));
    match use_.copies {
        Copies::Private => Rank(epoch, 0),
        Copies::Only => ONLY,
        Copies::Several => Rank(SECOND | epoch, 0),
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let choices = "lru, never-evict, nopfs, lobster or belady";
            Error::invalid(format!("{name:?} is no policy; choose {choices}"))
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::plan::data::eviction::Moment;

    fn at(epoch: u32, position: u32) -> Moment {
        Moment { epoch, position }
    }

    fn next(policy: Policy, next: Option<Moment>, copies: Copies) -> Option<Rank> {
        policy.rank(&Use { now: at(3, 50), next, uses: 1, copies })
    }

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse::<Policy>().unwrap(), policy);
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{:?}", policy.name()));
        }
        let error = "fifo".parse::<Policy>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"fifo\" is no policy; choose lru, never-evict, nopfs, lobster or belady"
        );
    }

    #[test]
    fn lobster_drops_what_the_next_epoch_does_not_use() {
        let rank = |moment, copies| next(Policy::Lobster, moment, copies);
        for copies in [Copies::Private, Copies::Only, Copies::Several] {
            assert_eq!(rank(Some(at(5, 0)), copies), None);
            assert!(rank(Some(at(4, 1000)), copies).is_some());
            assert!(rank(Some(at(4, 10)), copies) < rank(Some(at(4, 11)), copies));
        }
    }

    #[test]
    fn lobster_drops_what_is_used_up_unless_it_is_the_only_copy() {
        assert_eq!(next(Policy::Lobster, None, Copies::Private), None);
        assert_eq!(next(Policy::Lobster, None, Copies::Several), None);
        assert!(next(Policy::Lobster, None, Copies::Only).is_some());
    }

    #[test]
    fn belady_looks_at_epochs_and_never_lets_a_second_copy_replace_an_only_one() {
        let rank = |epoch, copies| next(Policy::Belady, Some(at(epoch, 7)), copies);
        assert!(rank(4, Copies::Private) < rank(5, Copies::Private));
        assert!(rank(900, Copies::Private) < next(Policy::Belady, None, Copies::Private));
        assert!(rank(900, Copies::Only) < rank(4, Copies::Several));
        assert!(rank(4, Copies::Several) < rank(5, Copies::Several));
        assert_eq!(rank(4, Copies::Only), rank(9, Copies::Only));
    }

    #[test]
    fn who_answers_for_the_only_copy_goes_on_although_others_copied_it() {
        let copied = Use { now: at(3, 0), next: None, uses: 0, copies: Copies::Several };
        assert_eq!(Policy::Belady.rank_again(ONLY, &copied), Some(ONLY));
        let second = Policy::Belady.rank(&copied).unwrap();
        assert_eq!(Policy::Belady.rank_again(second, &copied), Some(second));
    }
}
