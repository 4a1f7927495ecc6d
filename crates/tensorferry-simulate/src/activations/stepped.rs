//! The same rules once more, second by second and without any cleverness: the judge of the simulator.
//!
//! All times of the profile are whole seconds. Everything is worked out anew in each of them. A second of a
//! transfer's work that compute waits for is shorter by the speed of awaited ones. Tensors that were read too
//! early are dropped here, to see that it changes nothing.

use tensorferry::plan::activations::simulate::{Course, Event, Step};
use tensorferry::plan::activations::{Place, Prediction, Profile};

/// Seconds after which a plan is taken to have no end.
const PATIENCE: u64 = 100_000;

#[derive(Default, Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the judge must not share a state machine's mistakes"
)]
struct Saved {
    in_memory: bool,
    on_disk: bool,
    in_line: bool,
    was_used: bool,
    is_over: bool,
}

struct Machine<'a> {
    profile: &'a Profile,
    places: &'a [Place],
    budget: u64,
    needed: Vec<usize>,
    saved: Vec<Saved>,
    /// Tensor, whether it is read, and when it is done.
    busy: Option<(usize, bool, u64)>,
    turned: bool,
    came: Prediction,
}

/// What the step comes to; nothing if it never ends.
pub fn simulate(profile: &Profile, places: &[Place], budget: u64) -> Option<Prediction> {
    let course = Course::new(profile);
    let mut machine = Machine {
        profile,
        places,
        budget,
        needed: course.needed().to_vec(),
        saved: vec![Saved::default(); places.len()],
        busy: None,
        turned: false,
        came: Prediction::default(),
    };
    let mut steps = course.steps().iter().peekable();
    let mut clock = 0u64;
    for now in 0..PATIENCE {
        machine.finish(now);
        let mut needed = None;
        machine.start(now, needed);
        while let Some(step) = steps.next_if(|step| step.at as u64 == clock && machine.can(step)) {
            machine.act(step.event);
            machine.start(now, needed);
        }
        let Some(step) = steps.peek() else {
            machine.came.seconds = clock as f64 + machine.came.stall();
            return Some(machine.came);
        };
        if step.at as u64 > clock {
            clock += 1;
            continue;
        }
        if let Event::Use(tensor) = step.event {
            needed = Some(tensor);
        }
        machine.start(now, needed);
        let (turned, waited) = (machine.turned, machine.second_of_work());
        let came = &mut machine.came;
        *(if turned { &mut came.backward_stall } else { &mut came.forward_stall }) += waited;
    }
    None
}

impl Machine<'_> {
    fn held(&self) -> u64 {
        let tensors = self.profile.tensors.iter();
        tensors
            .zip(&self.saved)
            .filter(|(_, it)| it.in_memory)
            .map(|(tensor, _)| tensor.bytes)
            .sum()
    }

    fn fits(&self, tensor: usize) -> bool {
        self.held() + self.profile.tensors[tensor].bytes <= self.budget
    }

    /// What a second of work takes while compute waits.
    fn second_of_work(&self) -> f64 {
        let disk = &self.profile.disk;
        match self.busy {
            Some((_, true, _)) => 1.0 / disk.awaited_read_speedup,
            Some((_, false, _)) => 1.0 / disk.awaited_write_speedup,
            None => 1.0,
        }
    }

    fn is_moving(&self, tensor: usize) -> bool {
        self.busy.is_some_and(|(moving, ..)| moving == tensor)
    }

    fn can(&self, step: &Step) -> bool {
        match step.event {
            Event::Save(tensor) => self.fits(tensor),
            Event::Use(tensor) => {
                let reading = self.busy.is_some_and(|(moving, read, _)| moving == tensor && read);
                self.saved[tensor].in_memory && !reading
            }
            _ => true,
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Save(tensor) => {
                self.saved[tensor].in_memory = true;
                self.saved[tensor].in_line = self.places[tensor] != Place::Keep;
            }
            Event::Turn => self.turned = true,
            Event::Use(tensor) => {
                self.saved[tensor].was_used = true;
                self.saved[tensor].in_line = false;
            }
            Event::Free(tensor) => {
                self.saved[tensor].is_over = true;
                self.saved[tensor].in_memory = self.is_moving(tensor);
            }
            Event::End => {}
        }
        self.came.peak_bytes = self.came.peak_bytes.max(self.held());
    }

    fn finish(&mut self, now: u64) {
        let Some((tensor, is_read, _)) = self.busy.filter(|(.., done)| *done == now) else {
            return;
        };
        self.busy = None;
        let saved = &mut self.saved[tensor];
        if !is_read {
            saved.on_disk = true;
            saved.in_memory = saved.was_used && !saved.is_over;
        }
    }

    fn start(&mut self, now: u64, needed: Option<usize>) {
        if self.busy.is_some() {
            return;
        }
        let away = |it: &Saved| it.on_disk && !it.in_memory && !it.was_used;
        let next = self.needed.iter().copied().find(|tensor| away(&self.saved[*tensor]));
        if let Some(tensor) = next.filter(|_| self.turned) {
            while needed == Some(tensor) && !self.fits(tensor) && self.drop_one() {}
            if self.fits(tensor) {
                self.saved[tensor].in_memory = true;
                return self.begin(tensor, true, now);
            }
        }
        if let Some(tensor) = self.saved.iter().position(|it| it.in_line) {
            self.saved[tensor].in_line = false;
            self.begin(tensor, false, now);
        }
    }

    fn drop_one(&mut self) -> bool {
        let idle = |it: &Saved| it.on_disk && it.in_memory && !it.was_used;
        let last = self.needed.iter().rev().find(|tensor| idle(&self.saved[**tensor]));
        last.copied().map(|tensor| self.saved[tensor].in_memory = false).is_some()
    }

    fn begin(&mut self, tensor: usize, is_read: bool, now: u64) {
        let encoded = self.places[tensor] == Place::Offload { encoded: true };
        let bytes = self.profile.tensors[tensor].stored_bytes(encoded);
        let seconds = if is_read {
            self.came.read_bytes += bytes;
            self.profile.read_seconds(tensor, encoded)
        } else {
            self.came.written_bytes += bytes;
            self.profile.write_seconds(tensor, encoded)
        };
        self.busy = Some((tensor, is_read, now + seconds as u64));
        self.came.peak_bytes = self.came.peak_bytes.max(self.held());
    }
}
