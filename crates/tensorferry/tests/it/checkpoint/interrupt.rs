//! What is left of a save or a load whose caller was interrupted, on a disk that takes for ever.

use std::cell::Cell;
use std::time::Duration;

use tensorferry::checkpoint::{Buffered, Direct, Options, Tool, Wanted, staging};
use tensorferry::io::{Effect, Fault, Faults, On};
use tensorferry::memory::Pool;
use tensorferry::{Kind, Result, interrupt};

use super::{Content, WINDOW, all, files_in, on_every_engine, quick};

const FOR_EVER: Duration = Duration::from_hours(1);

/// Interrupts `work` when it has asked once, while the disk moves nothing after so many transfers.
fn interrupted<T>(faults: &Faults, after: u64, work: impl FnOnce() -> Result<T>) {
    faults.calm();
    let delay = Fault::new(On::Any, Effect::Delay(FOR_EVER));
    faults.add(delay.after(after).times(u64::MAX));
    let asked = Cell::new(0);
    let ask = move || asked.replace(asked.get() + 1) > 0;
    let error = interrupt::heard(ask, work).err().expect("the disk takes for ever");
    assert_eq!(error.kind(), Kind::Closed, "{error}");
}

#[test]
fn a_save_that_is_interrupted_leaves_the_old_file_and_nothing_else() {
    on_every_engine(|setting, faults| {
        let old = Content::of_sizes(1, &[WINDOW, 5]);
        old.save(setting, &quick()).unwrap();
        let new = Content::of_sizes(2, &[7 * WINDOW + 3, WINDOW, 99]);
        for tool in [&Direct as &dyn Tool, &Buffered] {
            for after in [0, 1, 6, 20] {
                for behind in [false, true] {
                    // Behind its caller, four windows of memory hold it until something is written.
                    let options = Options { tool, staging: staging(0).unwrap(), ..quick() };
                    interrupted(faults, after, || new.save_either(setting, &options, behind));
                    assert_eq!(files_in(setting.directory.path()), ["model.ferry"]);
                    faults.calm();
                    setting.assert_only(&old);
                }
            }
        }
        new.save(setting, &quick()).unwrap();
        setting.assert_only(&new);
    });
}

#[test]
fn a_load_that_is_interrupted_can_be_done_again() {
    on_every_engine(|setting, faults| {
        let content = Content::of_sizes(3, &[9 * WINDOW, 5, 3 * WINDOW + 1]);
        content.save(setting, &quick()).unwrap();
        let checkpoint = setting.checkpoint().unwrap();
        for after in [0, 3] {
            interrupted(faults, after, || {
                checkpoint.load(all(&checkpoint))?;
                checkpoint.verify(&mut |_| ())
            });
        }
        faults.calm();
        content.assert_is(&setting.checkpoint().unwrap());
    });
}

#[test]
fn memory_of_the_callers_is_nobody_elses_when_an_interrupted_load_has_returned() {
    on_every_engine(|setting, faults| {
        let content = Content::of_sizes(4, &[8 * WINDOW]);
        content.save(setting, &quick()).unwrap();
        let checkpoint = setting.checkpoint().unwrap();
        let pool = Pool::new(8 * WINDOW as usize, 1).unwrap();
        let memory = pool.take().unwrap();
        // What was begun ends, a while later.
        let late = Fault::new(On::Read, Effect::Delay(Duration::from_secs(3)));
        faults.add(late.times(u64::MAX));
        let wanted = vec![Wanted { tensor: 0, into: Some(memory.into()) }];
        assert!(interrupt::heard(|| true, || checkpoint.load(wanted)).is_err());
        // The engine's thread lets go of it a moment later, reads that are under way in seconds.
        let memory = pool.take_within(Duration::from_secs(2));
        assert!(memory.is_ok(), "a read is still under way");
        faults.calm();
        content.assert_is(&setting.checkpoint().unwrap());
    });
}
