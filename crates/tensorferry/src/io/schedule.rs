//! Which operation's next piece starts now: a pure state machine without a clock.
//!
//! Each priority has a lane of operations that still have pieces to start. Lanes share the disk by
//! *virtual time*: a lane's clock advances by the bytes it started divided by its weight, and the
//! lane with the smallest clock goes next. So a lane with work gets at least its share of a
//! saturated disk, whatever the others do, and nobody starves. A lane that was idle takes up the
//! clock of the busiest lane behind, so that it can't save up time and then shut the others out.
//!
//! Bytes and transfers in flight are bounded. The other lanes together fill at most three quarters
//! of the window: a consumer that stands still never queues behind a window full of background
//! work. They are bounded by what *they* have in flight, not by what all have: otherwise consumers
//! that keep the window full would starve them.

use std::collections::VecDeque;

use super::priority::Priority;

/// Bounds on what is in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub bytes_max: u64,
    pub transfers_max: usize,
}

#[derive(Debug)]
pub(super) struct Schedule {
    limits: Limits,
    lanes: [Lane; 4],
    /// In flight, in all lanes.
    bytes: u64,
    transfers: usize,
    /// In flight, in all lanes but that of [`Priority::Waiting`].
    patient_bytes: u64,
}

#[derive(Debug, Default)]
struct Lane {
    /// Operations with pieces to start, in order of arrival.
    operations: VecDeque<usize>,
    /// Bytes started, scaled by the weight.
    clock: u64,
}

/// Multiplied into clocks so that the division by a weight loses nothing that matters.
const CLOCK_SCALE: u64 = 16;

impl Schedule {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, lanes: Default::default(), bytes: 0, transfers: 0, patient_bytes: 0 }
    }

    /// An operation has work to start.
    pub(super) fn enqueue(&mut self, priority: Priority, operation: usize) {
        self.catch_up(priority);
        self.lanes[priority as usize].operations.push_back(operation);
    }

    /// An operation that had been taken out has work again and keeps its place in front.
    pub(super) fn enqueue_first(&mut self, priority: Priority, operation: usize) {
        self.catch_up(priority);
        self.lanes[priority as usize].operations.push_front(operation);
    }

    /// The operation whose next piece should start, if anything may start now.
    pub(super) fn next(&self) -> Option<(Priority, usize)> {
        if self.transfers >= self.limits.transfers_max || self.bytes >= self.limits.bytes_max {
            return None;
        }
        let patient_max = (self.limits.bytes_max / 4 * 3).max(1);
        Priority::ALL
            .into_iter()
            .filter(|priority| *priority == Priority::Waiting || self.patient_bytes < patient_max)
            .filter_map(|priority| {
                let lane = &self.lanes[priority as usize];
                lane.operations.front().map(|operation| (lane.clock, priority, *operation))
            })
            .min_by_key(|(clock, priority, _)| (*clock, *priority as usize))
            .map(|(_, priority, operation)| (priority, operation))
    }

    /// A piece of the operation in front of this lane has started; `exhausted`: it was the last.
    pub(super) fn started(&mut self, priority: Priority, bytes: u64, exhausted: bool) {
        let lane = &mut self.lanes[priority as usize];
        lane.clock += (bytes * CLOCK_SCALE / priority.weight()).max(1);
        if exhausted {
            lane.operations.pop_front();
        }
        self.bytes += bytes;
        self.patient_bytes += if priority == Priority::Waiting { 0 } else { bytes };
        self.transfers += 1;
    }

    /// The operation in front of this lane has nothing to start after all.
    pub(super) fn dismiss(&mut self, priority: Priority) {
        self.lanes[priority as usize].operations.pop_front();
    }

    /// A piece that had started has ended.
    pub(super) fn ended(&mut self, priority: Priority, bytes: u64) {
        self.bytes -= bytes;
        self.patient_bytes -= if priority == Priority::Waiting { 0 } else { bytes };
        self.transfers -= 1;
    }

    fn catch_up(&mut self, priority: Priority) {
        if self.lanes[priority as usize].operations.is_empty() {
            let busy = self.lanes.iter().filter(|lane| !lane.operations.is_empty());
            let behind = busy.map(|lane| lane.clock).min().unwrap_or(0);
            let lane = &mut self.lanes[priority as usize];
            lane.clock = lane.clock.max(behind);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const LIMITS: Limits = Limits { bytes_max: 16 * MIB, transfers_max: 64 };

    /// Starts and ends pieces, one at a time on a saturated disk, and counts bytes per lane.
    fn serve(schedule: &mut Schedule, piece: [u64; 4], rounds: usize) -> [u64; 4] {
        let mut served = [0; 4];
        let mut in_flight = VecDeque::new();
        for _ in 0..rounds {
            while let Some((priority, _)) = schedule.next() {
                let bytes = piece[priority as usize];
                schedule.started(priority, bytes, false);
                in_flight.push_back((priority, bytes));
                served[priority as usize] += bytes;
            }
            let (priority, bytes) = in_flight.pop_front().unwrap();
            schedule.ended(priority, bytes);
        }
        served
    }

    #[test]
    fn a_saturated_disk_is_shared_by_weight_and_nobody_starves() {
        let mut schedule = Schedule::new(LIMITS);
        for (operation, priority) in Priority::ALL.into_iter().enumerate() {
            schedule.enqueue(priority, operation);
        }
        let served = serve(&mut schedule, [MIB; 4], 10_000);
        let unit = served[3];
        assert!(unit > 400 * MIB);
        for (priority, served) in Priority::ALL.into_iter().zip(served) {
            assert!(served.abs_diff(priority.weight() * unit) <= 20 * MIB, "{priority:?}");
        }
    }

    #[test]
    fn a_waiting_consumer_starts_at_once_in_a_window_full_of_background_work() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.enqueue(Priority::Background, 0);
        while let Some((priority, _)) = schedule.next() {
            schedule.started(priority, MIB, false);
        }
        schedule.enqueue(Priority::Waiting, 1);
        assert_eq!(schedule.next(), Some((Priority::Waiting, 1)));
    }

    #[test]
    fn an_idle_lane_saves_up_no_time() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.enqueue(Priority::Prefetch, 0);
        serve(&mut schedule, [MIB; 4], 1000);
        schedule.enqueue(Priority::Background, 1);
        let served = serve(&mut schedule, [MIB; 4], 100);
        assert!(served[1] >= 3 * served[3] && served[3] > 0, "{served:?}");
    }

    #[test]
    fn one_piece_larger_than_the_window_still_starts_alone() {
        let mut schedule = Schedule::new(Limits { bytes_max: 1, transfers_max: 4 });
        schedule.enqueue(Priority::Background, 0);
        assert!(schedule.next().is_some());
        schedule.started(Priority::Background, MIB, false);
        assert!(schedule.next().is_none());
        schedule.ended(Priority::Background, MIB);
        assert!(schedule.next().is_some());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_every_lane_with_work_is_served_soon(
            lanes in prop::collection::vec(0usize..4, 1..8),
            pieces in prop::array::uniform4(1u64..=MIB),
        ) {
            let mut schedule = Schedule::new(LIMITS);
            for (operation, lane) in lanes.iter().enumerate() {
                schedule.enqueue(Priority::ALL[*lane], operation);
            }
            let mut in_flight = VecDeque::new();
            let mut served = [0u64; 4];
            for _ in 0..2000 {
                while let Some((priority, _)) = schedule.next() {
                    let bytes = pieces[priority as usize];
                    schedule.started(priority, bytes, false);
                    in_flight.push_back((priority, bytes));
                    served[priority as usize] += bytes;
                    prop_assert!(in_flight.iter().map(|(_, bytes)| bytes).sum::<u64>() < LIMITS.bytes_max + MIB);
                    prop_assert!(in_flight.len() <= LIMITS.transfers_max);
                }
                let (priority, bytes) = in_flight.pop_front().unwrap();
                schedule.ended(priority, bytes);
            }
            let total: u64 = served.iter().sum();
            for lane in lanes {
                let share = Priority::ALL[lane].weight() * total / 23;
                prop_assert!(served[lane] + 16 * MIB >= share, "{served:?}");
            }
        }
    }
}
