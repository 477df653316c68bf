//! Shared libraries opened at run time, so that nothing has to be there at build time.

use crate::Error;
use crate::Result;
use std::ffi::{CStr, c_char, c_int, c_void};

// Part of the C library on every Unix; declared here rather than through a crate,
// see Cargo.toml.
unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// An open shared library. Never closed: function pointers into it outlive every owner.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: a handle that stays open, which dlsym may be given by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by its plain name, through the loader's usual search.
    pub fn open(name: &CStr) -> Result<Self> {
        // SAFETY: the name ends with a NUL; constructors of the driver's libraries are
        // what every CUDA program runs.
        let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return Err(Error::Unavailable(last_error(name)));
        }
        Ok(Self(library))
    }

    /// Address of the first of these symbols that the library has.
    pub fn symbol(&self, names: &[&CStr]) -> Result<*mut c_void> {
        for name in names {
            // SAFETY: the library is open for good, the name ends with a NUL.
            let address = unsafe { dlsym(self.0, name.as_ptr()) };
            if !address.is_null() {
                return Ok(address);
            }
        }
        let wanted = names.first().map_or(c"?", |name| name);
        Err(Error::Unavailable(last_error(wanted)))
    }
}

/// The loader's own words for its last failure.
fn last_error(about: &CStr) -> String {
    // SAFETY: dlerror gives NULL or a string of this thread, copied before the next call.
    let words = unsafe {
        let words = dlerror();
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
    };
    words.unwrap_or_else(|| format!("{} not found", about.to_string_lossy()))
}

/// A table of functions of one library: a struct with a pointer for each, and `load`.
///
/// After the name come the symbols to try, best first: the driver keeps an old
/// interface under the plain name and puts the present one behind `_v2`.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident, $file:literal, $status:ty;
     $($name:ident [$($symbol:literal),+] ($($argument:ty),* $(,)?);)+) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub struct $table { $(pub $name: unsafe extern "C" fn($($argument),*) -> $status,)+ }

        impl $table {
            /// Opens the library and finds every function.
            #[allow(dead_code)]
            pub fn load() -> $crate::Result<Self> {
                Self::of($crate::library::Library::open($file)?)
            }

            /// Finds every function in a library that is open.
            pub fn of(library: $crate::library::Library) -> $crate::Result<Self> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol(&[$($symbol),+])?;
                        // SAFETY: the symbol is this function, with the signature that
                        // NVIDIA's header gives it and keeps for as long as the name.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($argument),*) -> $status,
                            >(address)
                        }
                    },)+
                })
            }
        }
    };
}
pub(crate) use functions;
