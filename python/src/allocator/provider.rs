//! Which library a function is from.

use std::ffi::{CStr, c_void};

/// A library, as the dynamic linker knows it.
#[derive(PartialEq, Eq)]
struct Library {
    base: usize,
    path: String,
}

/// The function that everybody gets under this name: the C library's, or that of what was loaded before
/// it.
pub fn function(name: &CStr) -> *const () {
    // SAFETY: looks a name up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast_const().cast()
}

/// Whether an address is in the library with this file name.
pub fn is_in(address: usize, name: &str) -> bool {
    library(address).is_some_and(|library| library.path.rsplit('/').next() == Some(name))
}

/// The library that an address is in, unless that is the C library.
pub fn not_the_c_library(address: usize) -> Option<String> {
    // Of all its functions, nobody replaces this one.
    let c_library = library(libc::getpid as *const () as usize);
    let library = library(address)?;
    (Some(&library) != c_library.as_ref()).then_some(library.path)
}

fn library(address: usize) -> Option<Library> {
    let address: *const c_void = std::ptr::with_exposed_provenance(address);
    // SAFETY: only pointers and numbers, for which zero is valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks an address up, whatever it is, and writes to `info`.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's name of a loaded library, which ends with zero.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    Some(Library { base: info.dli_fbase.addr(), path })
}
