//! Which operation's next piece starts now: a pure state machine that is told what time it is.
//!
//! Each priority has a lane of operations that still have pieces to start. Lanes share the disk by
//! *virtual time*: a lane's clock advances by the bytes it started divided by its weight, and the
//! lane with the smallest clock goes next. So a lane with work gets at least its share of a
//! saturated disk, whatever the others do, and nobody starves. The clock of the lane served last is
//! the schedule's *now*; a lane that was idle starts from now, so that it can neither save up time
//! and shut the others out, nor be shut out for what it did long ago.
//!
//! Bytes and transfers in flight are bounded; bytes by less than one piece more than the limit,
//! since a piece starts while any of the window is free. The lanes other than
//! [`Priority::Waiting`] together fill at most three quarters of either: a consumer that stands still never queues behind a window full of background
//! work. They are bounded by what *they* have in flight, not by what all have: otherwise consumers
//! that keep the window full would starve them.
//!
//! Lanes share what the *disk* does only as far as it does one thing after the other. It has a queue of
//! its own, in which a read stands behind every write that was started before; and most reads of a loader
//! go past the lanes. So while somebody waits for the disk, background work is held to a [`Pace`].

use std::collections::VecDeque;
use std::time::Duration;

use super::pace::{self, Pace};
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
    /// The clock of the lane that was served last, before it was served.
    now: u64,
    /// In all lanes.
    in_flight: Load,
    /// In all lanes but that of [`Priority::Waiting`].
    patient: Load,
    /// Of background work while somebody waits for the disk.
    pace: Pace,
    moment: Moment,
}

/// What was told last.
#[derive(Debug, Default)]
struct Moment {
    time: Duration,
    somebody_waits: bool,
}

/// What is in flight.
#[derive(Debug, Default)]
struct Load {
    bytes: u64,
    transfers: usize,
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

/// What a transfer costs at least on its lane's clock: syncs move no bytes and still take time.
const TRANSFER_COST_MIN: u64 = 4096;

impl Schedule {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: Default::default(),
            now: 0,
            in_flight: Load::default(),
            patient: Load::default(),
            pace: Pace::default(),
            moment: Moment::default(),
        }
    }

    /// Says what time it is, counted from any fixed moment, whether somebody waits for the disk, and for how
    /// long somebody has waited so far.
    pub(super) fn tell(&mut self, time: Duration, somebody_waits: bool, waited: Duration) {
        self.pace.tell(time, somebody_waits, waited);
        self.moment = Moment { time, somebody_waits };
    }

    /// How long background work that could start has to wait for its pace.
    pub(super) fn pause(&self) -> Option<Duration> {
        let has_work = !self.lanes[Priority::Background as usize].operations.is_empty();
        let may_start = has_work && self.has_room() && self.patient_may();
        may_start.then(|| self.pace_pause()).flatten()
    }

    /// The longest piece that may start in this lane, of usually so many bytes.
    pub(super) fn piece_max(&self, priority: Priority, usual: usize) -> usize {
        let aside = self.pace.steps_aside(self.moment.somebody_waits);
        match priority {
            Priority::Background if aside => usual.min(pace::PIECE_BYTES),
            _ => usual,
        }
    }

    fn pace_pause(&self) -> Option<Duration> {
        self.pace.pause(self.moment.time, self.moment.somebody_waits)
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

    /// The operation whose next piece should start, if anything may start now. Lanes that are `held`
    /// wait for something else than the schedule.
    pub(super) fn next(&self, held: [bool; 4]) -> Option<(Priority, usize)> {
        if !self.has_room() {
            return None;
        }
        let (patient_may, is_paused) = (self.patient_may(), self.pace_pause().is_some());
        Priority::ALL
            .into_iter()
            .filter(|priority| *priority == Priority::Waiting || patient_may)
            .filter(|priority| !held[*priority as usize])
            .filter(|priority| *priority != Priority::Background || !is_paused)
            .filter_map(|priority| {
                let lane = &self.lanes[priority as usize];
                lane.operations.front().map(|operation| (lane.clock, priority, *operation))
            })
            .min_by_key(|(clock, priority, _)| (*clock, *priority as usize))
            .map(|(_, priority, operation)| (priority, operation))
    }

    /// A piece of the operation in front of this lane has started; `exhausted`: it was the last.
    pub(super) fn started(&mut self, priority: Priority, bytes: u64, exhausted: bool) {
        let patient_may = self.patient_may();
        let lane = &mut self.lanes[priority as usize];
        self.now = lane.clock;
        lane.clock += bytes.max(TRANSFER_COST_MIN) * CLOCK_SCALE / priority.weight();
        if exhausted {
            lane.operations.pop_front();
        }
        if !patient_may {
            // Who had to stand aside earns no credit for it, to be paid back at consumers' cost.
            for lane in &mut self.lanes {
                lane.clock = lane.clock.max(self.now);
            }
        }
        for load in self.loads(priority) {
            load.bytes += bytes;
            load.transfers += 1;
        }
        if priority == Priority::Background {
            self.pace.started(self.moment.time, bytes, self.moment.somebody_waits);
        }
    }

    /// The operation in front of this lane has nothing to start after all.
    pub(super) fn dismiss(&mut self, priority: Priority) {
        self.lanes[priority as usize].operations.pop_front();
    }

    /// A piece that had started has ended.
    pub(super) fn ended(&mut self, priority: Priority, bytes: u64) {
        for load in self.loads(priority) {
            load.bytes -= bytes;
            load.transfers -= 1;
        }
        if priority == Priority::Background {
            self.pace.ended(self.moment.time, bytes, self.moment.somebody_waits);
        }
    }

    /// Whether anything may start at all.
    fn has_room(&self) -> bool {
        let Limits { bytes_max, transfers_max } = self.limits;
        self.in_flight.is_below(bytes_max, transfers_max)
    }

    /// Whether lanes other than that of [`Priority::Waiting`] may start something.
    fn patient_may(&self) -> bool {
        let Limits { bytes_max, transfers_max } = self.limits;
        self.patient.is_below(bytes_max / 4 * 3, transfers_max * 3 / 4)
    }

    /// Where a transfer of this priority counts.
    fn loads(&mut self, priority: Priority) -> impl Iterator<Item = &mut Load> {
        let patient = (priority != Priority::Waiting).then_some(&mut self.patient);
        std::iter::once(&mut self.in_flight).chain(patient)
    }

    fn catch_up(&mut self, priority: Priority) {
        let lane = &mut self.lanes[priority as usize];
        if lane.operations.is_empty() {
            lane.clock = lane.clock.max(self.now);
        }
    }
}

impl Load {
    /// Whether another transfer may start; one may always start alone.
    fn is_below(&self, bytes_max: u64, transfers_max: usize) -> bool {
        self.bytes < bytes_max.max(1) && self.transfers < transfers_max.max(1)
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
            while let Some((priority, _)) = schedule.next([false; 4]) {
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
        while let Some((priority, _)) = schedule.next([false; 4]) {
            schedule.started(priority, MIB, false);
        }
        schedule.enqueue(Priority::Waiting, 1);
        assert_eq!(schedule.next([false; 4]), Some((Priority::Waiting, 1)));
    }

    #[test]
    fn background_work_steps_aside_while_somebody_waits_for_the_disk_and_no_other_does() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.enqueue(Priority::Background, 0);
        // So many bytes show how fast the disk is.
        for moment in 1..=100 {
            while let Some((priority, _)) = schedule.next([false; 4]) {
                assert_eq!(schedule.piece_max(priority, MIB as usize), MIB as usize);
                schedule.started(priority, MIB, false);
            }
            assert_eq!(schedule.pause(), None, "the window is full");
            schedule.tell(Duration::from_millis(moment), false, Duration::ZERO);
            schedule.ended(Priority::Background, MIB);
        }
        schedule.tell(Duration::from_millis(101), true, Duration::ZERO);
        schedule.ended(Priority::Background, MIB);
        assert!(schedule.next([false; 4]).is_none() && schedule.pause().is_some());
        assert!(schedule.piece_max(Priority::Background, MIB as usize) < MIB as usize);
        for (operation, priority) in Priority::ALL.into_iter().enumerate().take(3) {
            schedule.enqueue(priority, operation);
            assert_eq!(schedule.next([false; 4]), Some((priority, operation)));
            assert_eq!(schedule.piece_max(priority, MIB as usize), MIB as usize);
            schedule.dismiss(priority);
        }
        schedule.tell(Duration::from_millis(102), false, Duration::ZERO);
        assert_eq!(schedule.next([false; 4]), Some((Priority::Background, 0)));
        assert_eq!(schedule.pause(), None);
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

    /// Operations of one piece leave their lane empty while they are in flight; that once made a
    /// lane with a long past start from a clock of zero, and the others wait for terabytes.
    #[test]
    fn a_long_past_neither_helps_nor_hurts_a_lane() {
        for (past, fresh) in [
            (Priority::Prefetch, Priority::Background),
            (Priority::Background, Priority::Prefetch),
            (Priority::Waiting, Priority::Offload),
            (Priority::Offload, Priority::Waiting),
        ] {
            let mut schedule = Schedule::new(LIMITS);
            for _ in 0..100_000 {
                schedule.enqueue(past, 0);
                let (priority, _) = schedule.next([false; 4]).unwrap();
                schedule.started(priority, MIB, true);
                schedule.ended(priority, MIB);
            }
            schedule.enqueue(fresh, 1);
            schedule.enqueue(past, 0);
            let served = serve(&mut schedule, [MIB; 4], 2300);
            let total = past.weight() + fresh.weight();
            for priority in [past, fresh] {
                let share = 2300 * MIB * priority.weight() / total;
                let got = served[priority as usize];
                assert!(got + 40 * MIB >= share, "{past:?} then {fresh:?}: {served:?}");
            }
        }
    }

    #[test]
    fn consumers_have_a_slot_even_among_transfers_without_bytes() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.enqueue(Priority::Background, 0);
        while let Some((priority, _)) = schedule.next([false; 4]) {
            schedule.started(priority, 0, false);
        }
        schedule.enqueue(Priority::Waiting, 1);
        assert_eq!(schedule.next([false; 4]), Some((Priority::Waiting, 1)));
    }

    #[test]
    fn one_piece_larger_than_the_window_still_starts_alone() {
        let mut schedule = Schedule::new(Limits { bytes_max: 1, transfers_max: 4 });
        schedule.enqueue(Priority::Background, 0);
        assert!(schedule.next([false; 4]).is_some());
        schedule.started(Priority::Background, MIB, false);
        assert!(schedule.next([false; 4]).is_none());
        schedule.ended(Priority::Background, MIB);
        assert!(schedule.next([false; 4]).is_some());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_every_lane_with_work_is_served_soon(
            lanes in prop::collection::vec(0usize..4, 1..8),
            pieces in prop::array::uniform4(TRANSFER_COST_MIN..=MIB),
        ) {
            // Slots enough that bytes are what is scarce: who is short of slots gets fewer bytes.
            let limits = Limits { transfers_max: 1 << 14, ..LIMITS };
            let mut schedule = Schedule::new(limits);
            for (operation, lane) in lanes.iter().enumerate() {
                schedule.enqueue(Priority::ALL[*lane], operation);
            }
            let mut in_flight = VecDeque::new();
            let mut served = [0u64; 4];
            for _ in 0..20_000 {
                while let Some((priority, _)) = schedule.next([false; 4]) {
                    let bytes = pieces[priority as usize];
                    schedule.started(priority, bytes, false);
                    in_flight.push_back((priority, bytes));
                    served[priority as usize] += bytes;
                    prop_assert!(schedule.in_flight.bytes < LIMITS.bytes_max + MIB);
                    prop_assert!(in_flight.len() <= limits.transfers_max);
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
