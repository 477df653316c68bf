//! The GPU clock (`crates/probe/`) as a shared library, for workers in other languages.

use std::io;
use std::path::PathBuf;

use regatta_core::cache;

/// Environment variable that names the library for a worker. Set by the user it is left
/// alone: another path is another build, an empty value switches the clock off.
pub const VARIABLE: &str = "REGATTA_PROBE";

/// What the build script compiled; empty where it could not.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libregatta_probe.so"));

/// Writes the library into the user's cache and gives its path; `None` when this
/// regatta was built without.
///
/// # Errors
/// When the cache cannot be written.
pub fn install() -> io::Result<Option<PathBuf>> {
    if LIBRARY.is_empty() {
        return Ok(None);
    }
    const NAME: &str = "libregatta_probe.so";
    let folder = cache::install("probe", &[(NAME, LIBRARY)])?;
    Ok(Some(folder.join(NAME)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString, c_char, c_int, c_void};

    unsafe extern "C" {
        fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    }

    #[test]
    fn the_library_in_the_binary_is_the_clock_of_this_version() {
        let path = install().unwrap().expect("built with the clock");
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors, and a function of the signature that
        // crates/probe/src/capi.rs gives it.
        let version = unsafe {
            let library = dlopen(path.as_ptr(), 2);
            assert!(!library.is_null(), "{path:?} cannot be loaded");
            let version = dlsym(library, c"regatta_probe_version".as_ptr());
            assert!(!version.is_null());
            let version: extern "C" fn() -> *const c_char = std::mem::transmute(version);
            CStr::from_ptr(version())
        };
        assert_eq!(version.to_str(), Ok(regatta_probe::VERSION));
    }
}
