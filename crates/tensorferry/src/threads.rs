//! Work that a few threads do side by side.

use std::sync::LazyLock;
use std::thread;

use crate::error::Result;
use crate::interrupt::Token;

/// More threads than this only wait for memory.
const THREADS_MAX: usize = 4;

/// Asked once: the answer takes a dozen system calls.
static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

/// How many threads are worth their start for so many pieces of work.
pub(crate) fn threads_for(pieces: usize) -> usize {
    pieces.min(*CORES).clamp(1, THREADS_MAX)
}

/// Runs `work` on this thread and on others beside it; what each gave, or the first failure.
pub(crate) fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn() -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let caller = Token::current();
        // Who waits for the caller's interruption here hears of it there.
        let help = move || match caller.clone() {
            Some(caller) => caller.help(work),
            None => work(),
        };
        // Where the system gives no more threads, those that there are do all the work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, help.clone()).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut results = vec![work()];
        results.extend(
            others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
        );
        results.into_iter().collect()
    })
}
