//! Where the time of threads goes.
//!
//! What a recipe is given may still lie in a file, and a step may be a user's function: reads and calls
//! happen deep inside of preparing, and are neither. So each thread notes them as they happen
//! ([`reading`], [`calling`]), and whoever times the whole asks for them afterwards ([`noted`]).

use std::cell::Cell;
use std::ops::AddAssign;
use std::time::Instant;

/// Seconds that threads spent, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// On waiting for storage.
    pub storage: f64,
    /// On decoding and transforms.
    pub prepare: f64,
    /// In functions of the user's.
    pub functions: f64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.storage += other.storage;
        self.prepare += other.prepare;
        self.functions += other.functions;
    }
}

const NOTHING: Spent = Spent { storage: 0.0, prepare: 0.0, functions: 0.0 };

thread_local! {
    static NOTED: Cell<Spent> = const { Cell::new(NOTHING) };
}

/// Does `work`, all of which is waiting for storage.
pub(super) fn reading<T>(work: impl FnOnce() -> T) -> T {
    timed(work, |spent| &mut spent.storage)
}

/// Does `work`, all of which is a user's function.
pub(super) fn calling<T>(work: impl FnOnce() -> T) -> T {
    timed(work, |spent| &mut spent.functions)
}

/// What this thread noted since it was last asked.
pub(super) fn noted() -> Spent {
    NOTED.take()
}

/// A function may read samples: what is noted inside belongs to the outer kind.
fn timed<T>(work: impl FnOnce() -> T, kind: fn(&mut Spent) -> &mut f64) -> T {
    let (mut spent, began) = (NOTED.get(), Instant::now());
    let done = work();
    *kind(&mut spent) += began.elapsed().as_secs_f64();
    NOTED.set(spent);
    done
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_inside_of_a_function_are_the_functions() {
        noted();
        let pause = || sleep(Duration::from_millis(1));
        calling(|| reading(pause));
        let spent = noted();
        assert!(spent.functions > 0.0);
        assert_eq!((spent.storage, spent.prepare), (0.0, 0.0));
        reading(pause);
        assert!(noted().storage > 0.0);
        assert_eq!(noted(), Spent::default());
    }
}
