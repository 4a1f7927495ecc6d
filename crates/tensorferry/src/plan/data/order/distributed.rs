//! `torch.utils.data.DistributedSampler`.

use super::mt19937::Mt19937;
use super::permutation::{check, randperm};
use crate::error::{Error, Result};

/// Which samples one rank uses in each epoch, and in which order.
///
/// The whole order is extended by its own beginning, or cut, until every rank gets as many; rank `r`
/// takes every `world_size`-th from the `r`-th on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distributed {
    /// Samples of the dataset.
    pub len: u64,
    /// Ranks that share it.
    pub world_size: u32,
    /// Which of them.
    pub rank: u32,
    /// The same on every rank; epoch `e` is shuffled by `seed + e`.
    pub seed: u64,
    /// In order of the dataset, if not.
    pub shuffle: bool,
    /// Whether the rest that can't be shared evenly is left out, instead of filled up.
    pub drop_last: bool,
}

impl Distributed {
    /// The samples of the rank in that epoch, in order.
    pub fn epoch(&self, epoch: u64) -> Result<Vec<u32>> {
        self.check()?;
        let whole = self.whole(epoch)?;
        let share = self.share()?;
        let from = (0..share).map(|turn| turn * u64::from(self.world_size) + u64::from(self.rank));
        // A dataset without samples has shares without samples.
        Ok(from.map(|place| whole[(place % self.len) as usize]).collect())
    }

    /// The order of the dataset in that epoch, before it is shared out.
    pub fn whole(&self, epoch: u64) -> Result<Vec<u32>> {
        if self.shuffle {
            randperm(self.len, &mut Mt19937::new(self.seed.wrapping_add(epoch)))
        } else {
            Ok((0..check(self.len)?).collect())
        }
    }

    /// How many samples each rank uses in an epoch.
    pub fn share(&self) -> Result<u64> {
        self.check()?;
        let world_size = u64::from(self.world_size);
        Ok(if self.drop_last { self.len / world_size } else { self.len.div_ceil(world_size) })
    }

    fn check(&self) -> Result<()> {
        let Self { world_size, rank, .. } = *self;
        if rank >= world_size {
            return Err(Error::invalid(format!(
                "there is no rank {rank} in a world of {world_size}; ranks count from 0"
            )));
        }
        check(self.len).map(drop)
    }
}
