//! Where a loaded library keeps the addresses of functions that it imports.
//!
//! The dynamic linker fills one slot for each imported function, and calls go through it. The
//! library's dynamic section says where: relocations, each with the place of a slot and the name of a
//! symbol. These are the tables of the ELF standard, the same for every library.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

/// The linker puts an address into the slot: when a function is first called, or at once.
#[cfg(target_arch = "x86_64")]
const SLOTS: [u32; 2] = [7, 6];
#[cfg(target_arch = "aarch64")]
const SLOTS: [u32; 2] = [1026, 1025];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SLOTS: [u32; 0] = [];

/// A place for the address of a function.
pub struct Slot {
    address: usize,
    /// Made read-only once it was filled.
    sealed: bool,
    /// What it held before it was redirected.
    original: AtomicPtr<()>,
}

impl Slot {
    /// The address of what calls go to.
    pub fn function(&self) -> usize {
        self.place().load(Ordering::Relaxed).addr()
    }

    /// Has calls go to `function`, which takes and returns what the imported one does; whether it could
    /// be done.
    pub fn redirect(&self, function: *const ()) -> bool {
        let original = self.place().load(Ordering::Relaxed);
        if original.cast_const() == function {
            return true;
        }
        self.original.store(original, Ordering::Relaxed);
        self.replace(original, function.cast_mut())
    }

    /// Has calls go where they went before, unless somebody else has replaced `function`.
    pub fn restore(&self, function: *const ()) {
        self.replace(function.cast_mut(), self.original.load(Ordering::Relaxed));
    }

    /// Whether it holds `new` in place of `old`.
    fn replace(&self, old: *mut (), new: *mut ()) -> bool {
        if self.sealed && !self.protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let replaced = self.place().compare_exchange(old, new, success, failure).is_ok();
        // Where it fails, what may be written to stays so.
        let _ = self.sealed && self.protect(libc::PROT_READ);
        replaced
    }

    fn place(&self) -> &AtomicPtr<()> {
        let place = std::ptr::with_exposed_provenance_mut::<AtomicPtr<()>>(self.address);
        // SAFETY: a slot of a library that is never unloaded, of the size and alignment of an
        // address, which is read as a whole by who calls through it.
        unsafe { &*place }
    }

    fn protect(&self, protection: c_int) -> bool {
        let page = page_size();
        let start = self.address / page * page;
        // SAFETY: the page is the library's table, of which readers see what they saw before.
        unsafe {
            libc::mprotect(std::ptr::with_exposed_provenance_mut(start), page, protection) == 0
        }
    }
}

fn page_size() -> usize {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096)
}

/// The slots in which the library with this file name keeps the address of a function; none if it is
/// not loaded or does not import it.
pub fn of(library: &str, function: &CStr) -> Vec<Slot> {
    let mut search = Search { library, function, slots: Vec::new() };
    // SAFETY: the callback gets what it expects: the search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.slots
}

struct Search<'a> {
    library: &'a str,
    function: &'a CStr,
    slots: Vec<Slot>,
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: both are valid for the time of the call, by the contract of `dl_iterate_phdr` and of
    // `of`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the linker's name of the library, which ends with zero.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
    if name.rsplit('/').next() != Some(search.library) {
        return 0;
    }
    // SAFETY: a loaded library, whose tables are as the standard says.
    search.slots = unsafe { Library::of(info).slots(search.function) };
    1
}

/// Tables of a loaded library.
struct Library<'a> {
    base: usize,
    headers: &'a [Elf64_Phdr],
}

/// An entry of the dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// A relocation with an addend.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

impl<'a> Library<'a> {
    /// # Safety
    /// `info` is the linker's description of a library that stays loaded.
    unsafe fn of(info: &'a dl_phdr_info) -> Self {
        // SAFETY: the linker says where the headers are and how many.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        Self { base: info.dlpi_addr as usize, headers }
    }

    fn header(&self, kind: u32) -> Option<&Elf64_Phdr> {
        self.headers.iter().find(|header| header.p_type == kind)
    }

    /// # Safety
    /// The library's tables are as the standard says.
    unsafe fn slots(&self, function: &CStr) -> Vec<Slot> {
        const PLTRELSZ: i64 = 2;
        const STRTAB: i64 = 5;
        const SYMTAB: i64 = 6;
        const RELA: i64 = 7;
        const RELASZ: i64 = 8;
        const JMPREL: i64 = 23;
        // SAFETY: the promise of this function.
        let value = |tag| unsafe { self.dynamic(tag) };
        let (Some(strings), Some(symbols)) = (value(STRTAB), value(SYMTAB)) else {
            return Vec::new();
        };
        let (strings, symbols) = (self.absolute(strings), self.absolute(symbols));
        let mut slots = Vec::new();
        for (table, bytes) in [(JMPREL, PLTRELSZ), (RELA, RELASZ)] {
            let (Some(table), Some(bytes)) = (value(table), value(bytes)) else { continue };
            // SAFETY: a table of so many bytes of relocations.
            let relocations = unsafe {
                let start = std::ptr::with_exposed_provenance(self.absolute(table));
                std::slice::from_raw_parts::<Relocation>(start, bytes / size_of::<Relocation>())
            };
            let wanted = |relocation: &&Relocation| {
                // SAFETY: relocations of these kinds name a symbol, and symbols a string.
                SLOTS.contains(&(relocation.info as u32))
                    && unsafe { name(symbols, strings, relocation) } == function
            };
            slots.extend(relocations.iter().filter(wanted).map(|found| self.slot(found)));
        }
        slots
    }

    fn slot(&self, relocation: &Relocation) -> Slot {
        let sealed = self.header(libc::PT_GNU_RELRO).is_some_and(|sealed| {
            let start = sealed.p_vaddr as usize;
            (start..start + sealed.p_memsz as usize).contains(&relocation.offset)
        });
        let original = AtomicPtr::default();
        Slot { address: self.base + relocation.offset, sealed, original }
    }

    /// The value of a tag in the dynamic section.
    ///
    /// # Safety
    /// The section is there as the standard says, with a zero at its end.
    unsafe fn dynamic(&self, tag: i64) -> Option<usize> {
        let section = self.header(libc::PT_DYNAMIC)?;
        let start = self.base + section.p_vaddr as usize;
        let mut entry = std::ptr::with_exposed_provenance::<Dynamic>(start);
        loop {
            // SAFETY: entries follow one another until the one whose tag is zero.
            let found = unsafe { &*entry };
            match found.tag {
                0 => return None,
                found_tag if found_tag == tag => return Some(found.value),
                // SAFETY: this was not the last one.
                _ => entry = unsafe { entry.add(1) },
            }
        }
    }

    /// Some linkers replace offsets in the dynamic section by addresses.
    fn absolute(&self, value: usize) -> usize {
        if value < self.base { self.base + value } else { value }
    }
}

/// The name of a relocation's symbol.
///
/// # Safety
/// Both tables are those of the relocation's library.
unsafe fn name<'a>(symbols: usize, strings: usize, relocation: &Relocation) -> &'a CStr {
    let index = (relocation.info >> 32) as usize;
    // SAFETY: the index of a symbol in its table, and of its name among the strings.
    unsafe {
        let symbol = &*std::ptr::with_exposed_provenance::<Elf64_Sym>(symbols).add(index);
        CStr::from_ptr(std::ptr::with_exposed_provenance(strings + symbol.st_name as usize))
    }
}
