//! Who goes first when the disk is busy.

use serde::Serialize;

/// Why bytes are moved, and so how urgent they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// A consumer stands still until the bytes are there.
    Waiting,
    /// Somebody will need the bytes soon.
    Prefetch,
    /// The bytes make room by leaving.
    Offload,
    /// Nobody is in a hurry: steps aside while somebody waits for a disk.
    Background,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Prefetch, Self::Offload, Self::Background];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Prefetch => "prefetch",
            Self::Offload => "offload",
            Self::Background => "background",
        }
    }

    /// The share of a saturated disk, relative to the other priorities that have work.
    pub(super) const fn weight(self) -> u64 {
        match self {
            Self::Waiting => 16,
            Self::Prefetch => 4,
            Self::Offload => 2,
            Self::Background => 1,
        }
    }
}

impl std::str::FromStr for Priority {
    type Err = crate::error::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|priority| priority.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            crate::error::Error::invalid(format!("{text:?} is no priority; choose one of {names}"))
        })
    }
}
