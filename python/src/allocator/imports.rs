//! When torch's two functions are redirected, and when they are its own again.
//!
//! ```text
//!   posix_memalign   its own ── a Redirection that recycles ──► ours ── the last of those ends ──► its own
//!   free             its own ── a Redirection ────────────────► ours ── the last ends, and torch
//!                                                                       has no spare block ──► its own
//! ```
//!
//! `free` is redirected first and restored last. A spare block that torch still has when the last
//! offload goes is freed by ours, whenever that is; with the last of them the import is restored. So
//! no block reaches a `free` that does not know it: blocks are counted under the lock under which
//! it is decided to restore.
//!
//! A thread that has loaded an address just before it was replaced calls the other function, which does
//! the right thing at any time: ours pass on what is not for them, and are never unloaded.
//!
//! *Others.* Where one of the functions is not the C library's, nothing is redirected. An import that
//! somebody else has replaced since is left to them: their function calls ours, which passes on
//! everything while nobody offloads.
//!
//! *Threads.* One lock for a few instructions, which whoever forks takes first. The dynamic linker, which
//! has locks of its own, is not called under it.

use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;

use tensorferry::memory::{SpareBlocks, Spin};

use super::slots::{self, Slot};
use super::{LOANS, give as free, provider, take as posix_memalign};

/// The library that takes and frees the memory of torch's CPU tensors.
const LIBRARY: &str = "libc10.so";

static STATE: Spin<State> = Spin::new(State::new());
static IMPORTS: OnceLock<Result<Imports, String>> = OnceLock::new();

/// For as long as this exists, torch's frees are seen; and, if it recycles, its large blocks used again.
pub struct Redirection {
    recycles: bool,
}

struct State {
    /// Redirections.
    all: usize,
    /// Those of them that recycle.
    recycling: usize,
    /// Of the spare blocks, which torch has.
    blocks: usize,
    sees_frees: bool,
    gives_blocks: bool,
}

struct Imports {
    posix_memalign: Vec<Slot>,
    free: Vec<Slot>,
}

impl Redirection {
    /// Redirects what is not redirected yet, if that can be done.
    pub fn begin(recycles: bool) -> Self {
        let imports = imports();
        let mut state = STATE.lock();
        state.all += 1;
        state.recycling += usize::from(recycles);
        state.settle(imports);
        Self { recycles }
    }

    /// Why blocks are not used again, though they should be.
    pub fn refusal(&self) -> Option<String> {
        if !self.recycles {
            return None;
        }
        if SpareBlocks::of_process().is_none() {
            return Some("addresses for it can't be reserved".to_owned());
        }
        let failed = || format!("{LIBRARY}'s table of imports can't be written");
        match imports() {
            Ok(_) => (!STATE.lock().gives_blocks).then(failed),
            Err(why) => Some(why.clone()),
        }
    }
}

impl Clone for Redirection {
    fn clone(&self) -> Self {
        Self::begin(self.recycles)
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        let mut state = STATE.lock();
        state.all -= 1;
        state.recycling -= usize::from(self.recycles);
        state.settle(imports());
    }
}

/// A spare block for torch, while blocks are used again.
pub(super) fn take(size: usize) -> Option<NonNull<u8>> {
    let spare_blocks = SpareBlocks::of_process()?;
    if !STATE.lock().count_block() {
        return None;
    }
    let block = spare_blocks.take(size);
    if block.is_none() {
        STATE.lock().forget_block();
    }
    block
}

/// Takes a block back that [`take`] gave; `false` if it is another's.
///
/// # Safety
/// Nobody uses the block any more.
pub(super) unsafe fn give(start: NonNull<u8>) -> bool {
    let spare_blocks =
        SpareBlocks::of_process().filter(|spare_blocks| spare_blocks.owns(start.addr().get()));
    let Some(spare_blocks) = spare_blocks else { return false };
    // SAFETY: the promise of this function.
    unsafe { spare_blocks.give(start) };
    STATE.lock().forget_block();
    true
}

/// What the imports lead to now.
pub(super) fn addresses() -> HashMap<&'static str, Vec<usize>> {
    let now = |name| slots::of(LIBRARY, name).iter().map(Slot::function).collect();
    HashMap::from([("posix_memalign", now(c"posix_memalign")), ("free", now(c"free"))])
}

impl State {
    const fn new() -> Self {
        Self { all: 0, recycling: 0, blocks: 0, sees_frees: false, gives_blocks: false }
    }

    /// Has the imports lead where they should.
    fn settle(&mut self, imports: &Result<Imports, String>) {
        let Ok(imports) = imports else { return };
        if self.all > 0 && !self.sees_frees {
            self.sees_frees = redirect(&imports.free, free as *const ());
        }
        let recycles = self.recycling > 0 && self.sees_frees && SpareBlocks::of_process().is_some();
        if recycles && !self.gives_blocks {
            self.gives_blocks = redirect(&imports.posix_memalign, posix_memalign as *const ());
        }
        if self.recycling == 0 && self.gives_blocks {
            self.gives_blocks = !restore(&imports.posix_memalign, posix_memalign as *const ());
        }
        if self.all == 0 && self.blocks == 0 && self.sees_frees && !self.gives_blocks {
            self.sees_frees = !restore(&imports.free, free as *const ());
        }
    }

    /// Whether torch may get one more.
    fn count_block(&mut self) -> bool {
        let may = self.recycling > 0 && self.gives_blocks;
        self.blocks += usize::from(may);
        may
    }

    fn forget_block(&mut self) {
        self.blocks -= 1;
        if self.blocks == 0 && self.all == 0 {
            self.settle(imports());
        }
    }
}

/// Whether all slots lead to `function` now; otherwise none does.
fn redirect(slots: &[Slot], function: *const ()) -> bool {
    let done = slots.iter().all(|slot| slot.redirect(function));
    if !done {
        for slot in slots {
            slot.restore(function);
        }
    }
    done
}

/// Whether no slot leads to `function` any more; if somebody else has replaced it in one, all stay as they
/// are.
fn restore(slots: &[Slot], function: *const ()) -> bool {
    let is_ours = slots.iter().all(|slot| slot.function() == function.addr());
    if is_ours {
        for slot in slots {
            slot.restore(function);
        }
    }
    is_ours
}

/// The imports, or why they stay as they are.
fn imports() -> &'static Result<Imports, String> {
    IMPORTS.get_or_init(find)
}

fn find() -> Result<Imports, String> {
    let (posix_memalign, free) = (import(c"posix_memalign")?, import(c"free")?);
    // SAFETY: the three functions take and return nothing, and are there as long as the process.
    if unsafe { libc::pthread_atfork(Some(freeze), Some(thaw), Some(thaw)) } != 0 {
        return Err("there is no memory to prepare for forks".to_owned());
    }
    Ok(Imports { posix_memalign, free })
}

/// The slots of a function that is the C library's.
fn import(name: &CStr) -> Result<Vec<Slot>, String> {
    let slots = slots::of(LIBRARY, name);
    if slots.is_empty() {
        return Err(format!("this torch has no {LIBRARY} that imports {}", name.to_string_lossy()));
    }
    let function = provider::function(name);
    let led_to = slots.iter().map(Slot::function).filter(|now| !provider::is_in(*now, LIBRARY));
    if let Some(library) = led_to.chain([function.addr()]).find_map(provider::not_the_c_library) {
        return Err(format!("the process has another allocator, {library}, which is respected"));
    }
    // Until a function is first called, its slot leads to a stub that has the linker fill it. The linker
    // would do so over what is redirected, so it is done before.
    if slots
        .iter()
        .all(|slot| !provider::is_in(slot.function(), LIBRARY) || slot.redirect(function))
    {
        Ok(slots)
    } else {
        Err(format!("{LIBRARY}'s table of imports can't be written"))
    }
}

unsafe extern "C" fn freeze() {
    LOANS.freeze();
    if let Some(spare_blocks) = SpareBlocks::of_process() {
        spare_blocks.freeze();
    }
    std::mem::forget(STATE.lock());
}

unsafe extern "C" fn thaw() {
    // SAFETY: called after `freeze`, by the thread that called it, in the parent and in the child.
    unsafe { STATE.unlock() };
    if let Some(spare_blocks) = SpareBlocks::of_process() {
        // SAFETY: as above.
        unsafe { spare_blocks.thaw() };
    }
    // SAFETY: as above.
    unsafe { LOANS.thaw() };
}
