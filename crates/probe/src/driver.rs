//! Opens shared libraries at run time, so that none is needed at build time; and the CUDA driver's
//! functions that the clock needs.
//!
//! Reference: <https://docs.nvidia.com/cuda/cuda-driver-api/>.

use crate::Error;
use crate::Result;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

// Part of the C library on every Unix. They are declared here and not taken from a crate (see
// Cargo.toml), because other processes load this library, and a build script compiles it with one
// call of rustc. For the same reason the driver's binding is this table, and not cudarc, which the
// `cuda` worker uses.
unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// An open shared library. It is never closed, because function pointers into it outlive all
/// owners.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: the handle stays open, and any thread may pass it to dlsym.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by its plain name, through the loader's usual search.
    pub fn open(name: &CStr) -> Result<Self> {
        // SAFETY: the name ends with a NUL. Every CUDA program runs the constructors of the
        // driver's libraries.
        let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return Err(Error::Unavailable(last_error(name)));
        }
        Ok(Self(library))
    }

    /// The address of the first of these symbols that the library has.
    pub fn symbol(&self, names: &[&CStr]) -> Result<*mut c_void> {
        for name in names {
            // SAFETY: the library is never closed, and the name ends with a NUL.
            let address = unsafe { dlsym(self.0, name.as_ptr()) };
            if !address.is_null() {
                return Ok(address);
            }
        }
        let wanted = names.first().map_or(c"?", |name| name);
        Err(Error::Unavailable(last_error(wanted)))
    }
}

/// The loader's message about its last failure.
fn last_error(about: &CStr) -> String {
    // SAFETY: dlerror returns NULL or a string of this thread, which is copied before the next
    // call.
    let words = unsafe {
        let words = dlerror();
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
    };
    words.unwrap_or_else(|| format!("{} not found", about.to_string_lossy()))
}

/// A table of functions of one library: a struct with a pointer for each, and `load`.
///
/// After each name come the symbols to try, best first: the driver keeps an old interface under the
/// plain name, and has the present one under `_v2`.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident, $file:literal, $status:ty;
     $($name:ident [$($symbol:literal),+] ($($argument:ty),* $(,)?);)+) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub struct $table { $(pub $name: unsafe extern "C" fn($($argument),*) -> $status,)+ }

        impl $table {
            /// Opens the library and looks up every function.
            #[allow(dead_code)]
            pub fn load() -> $crate::Result<Self> {
                Self::find_in($crate::driver::Library::open($file)?)
            }

            /// Looks up every function in an open library.
            pub fn find_in(library: $crate::driver::Library) -> $crate::Result<Self> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol(&[$($symbol),+])?;
                        // SAFETY: the symbol is this function, with the signature in NVIDIA's
                        // header, which does not change for a name.
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

/// Opaque pointers of cuda.h.
pub type Context = *mut c_void;
pub type StreamHandle = *mut c_void;
pub type EventHandle = *mut c_void;
pub type ModuleHandle = *mut c_void;
pub type FunctionHandle = *mut c_void;
/// Address in the device's memory.
pub type DevicePointer = u64;

pub const L2_CACHE_SIZE: c_int = 38;
pub const MAX_PERSISTING_L2_CACHE_SIZE: c_int = 108;
const LIMIT_PERSISTING_L2: c_uint = 6;
const UNSUPPORTED_LIMIT: c_int = 215;
const NOT_SUPPORTED: c_int = 801;
pub const MEM_HOST_ALLOC_PORTABLE: c_uint = 1;
pub const MEM_HOST_ALLOC_DEVICEMAP: c_uint = 2;
pub const STREAM_WAIT_VALUE_GEQ: c_uint = 0;
pub const EVENT_DEFAULT: c_uint = 0;

functions! {
    /// libcuda. Functions have the names in cuda.h without version suffixes.
    Driver, c"libcuda.so.1", c_int;
    cuInit [c"cuInit"] (c_uint);
    cuGetErrorName [c"cuGetErrorName"] (c_int, *mut *const c_char);
    cuDeviceGet [c"cuDeviceGet"] (*mut c_int, c_int);
    cuDeviceGetName [c"cuDeviceGetName"] (*mut c_char, c_int, c_int);
    cuDeviceGetAttribute [c"cuDeviceGetAttribute"] (*mut c_int, c_int, c_int);
    cuDeviceGetPCIBusId [c"cuDeviceGetPCIBusId"] (*mut c_char, c_int, c_int);
    cuDevicePrimaryCtxRetain [c"cuDevicePrimaryCtxRetain"] (*mut Context, c_int);
    cuCtxGetCurrent [c"cuCtxGetCurrent"] (*mut Context);
    cuCtxSetCurrent [c"cuCtxSetCurrent"] (Context);
    cuCtxGetDevice [c"cuCtxGetDevice"] (*mut c_int);
    cuCtxSynchronize [c"cuCtxSynchronize"] ();
    cuMemAlloc [c"cuMemAlloc_v2"] (*mut DevicePointer, usize);
    cuMemFree [c"cuMemFree_v2"] (DevicePointer);
    cuMemHostAlloc [c"cuMemHostAlloc"] (*mut *mut c_void, usize, c_uint);
    cuMemFreeHost [c"cuMemFreeHost"] (*mut c_void);
    cuMemHostGetDevicePointer [c"cuMemHostGetDevicePointer_v2"] (*mut DevicePointer, *mut c_void, c_uint);
    cuMemsetD32Async [c"cuMemsetD32Async"] (DevicePointer, c_uint, usize, StreamHandle);
    cuStreamWaitValue32 [c"cuStreamWaitValue32_v2", c"cuStreamWaitValue32"] (StreamHandle, DevicePointer, u32, c_uint);
    cuEventCreate [c"cuEventCreate"] (*mut EventHandle, c_uint);
    cuEventRecord [c"cuEventRecord"] (EventHandle, StreamHandle);
    cuEventSynchronize [c"cuEventSynchronize"] (EventHandle);
    cuEventElapsedTime [c"cuEventElapsedTime"] (*mut f32, EventHandle, EventHandle);
    cuEventDestroy [c"cuEventDestroy_v2"] (EventHandle);
    cuModuleLoadData [c"cuModuleLoadData"] (*mut ModuleHandle, *const c_void);
    cuModuleGetFunction [c"cuModuleGetFunction"] (*mut FunctionHandle, ModuleHandle, *const c_char);
    cuModuleUnload [c"cuModuleUnload"] (ModuleHandle);
    cuLaunchKernel [c"cuLaunchKernel"] (
        FunctionHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamHandle,
        *mut *mut c_void, *mut *mut c_void,
    );
}

functions! {
    /// Functions for the persisting part of the L2 cache, which drivers before CUDA 11 do not have.
    PersistingCache, c"libcuda.so.1", c_int;
    cuCtxResetPersistingL2Cache [c"cuCtxResetPersistingL2Cache"] ();
    cuCtxSetLimit [c"cuCtxSetLimit"] (c_uint, usize);
}

impl PersistingCache {
    /// Returns lines that persist in the L2 cache to normal use, and reserves nothing for
    /// persisting ones. A flush only writes through the rest of the cache: keys and values that a
    /// call had made persistent were read from L2 by the next call, in 0.81 to 0.88 of the time on
    /// an H100.
    pub fn release(&self, check: impl Fn(&'static str, c_int) -> Result<()>) -> Result<()> {
        // SAFETY: both use the current context, which the caller has entered.
        let (reset, limit) = unsafe {
            (
                (self.cuCtxResetPersistingL2Cache)(),
                (self.cuCtxSetLimit)(LIMIT_PERSISTING_L2, 0),
            )
        };
        for (function, code) in [
            ("cuCtxResetPersistingL2Cache", reset),
            ("cuCtxSetLimit", limit),
        ] {
            // Not supported before compute capability 8.0, under MPS, and in some MIG instances.
            if code != NOT_SUPPORTED && code != UNSUPPORTED_LIMIT {
                check(function, code)?;
            }
        }
        Ok(())
    }
}

impl Driver {
    /// The driver, loaded and initialised once for the process.
    pub fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| {
            let driver = Self::load()?;
            // SAFETY: no requirements.
            driver.check("cuInit", unsafe { (driver.cuInit)(0) })?;
            Ok(driver)
        });
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Converts a code to a result; an error has the function and the driver's name for the code.
    pub fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        // SAFETY: the driver writes a pointer to a static string, or leaves NULL.
        unsafe { check_by(self.cuGetErrorName, function, code) }
    }
}

/// Converts a code to a result; an error has the function and the library's name for the code.
///
/// # Safety
/// `name_of` writes a pointer to a static string, or leaves NULL.
pub unsafe fn check_by(
    name_of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    function: &'static str,
    code: c_int,
) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut name: *const c_char = ptr::null();
    // SAFETY: required of the caller.
    let name = unsafe {
        name_of(code, &raw mut name);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    Err(Error::Cuda {
        function,
        code,
        name: name.unwrap_or_else(|| "unknown error".to_owned()),
    })
}

/// Calls a driver function by name and converts its status to a `Result`.
macro_rules! cu {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let driver: &$crate::driver::Driver = $driver;
        driver.check(stringify!($function), (driver.$function)($($argument),*))
    }};
}
pub(crate) use cu;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Calls of the table, and the status that each returns.
    static CALLS: Mutex<(Vec<String>, [c_int; 2])> = Mutex::new((Vec::new(), [0; 2]));

    unsafe extern "C" fn reset() -> c_int {
        let mut calls = CALLS.lock().unwrap();
        calls.0.push("reset".to_owned());
        calls.1[0]
    }

    unsafe extern "C" fn limit(which: c_uint, bytes: usize) -> c_int {
        let mut calls = CALLS.lock().unwrap();
        calls.0.push(format!("limit {which} = {bytes}"));
        calls.1[1]
    }

    #[test]
    fn the_persisting_cache_is_reset_and_nothing_is_set_aside() {
        let cache = PersistingCache {
            cuCtxResetPersistingL2Cache: reset,
            cuCtxSetLimit: limit,
        };
        let check = |function: &'static str, code: c_int| match code {
            0 => Ok(()),
            _ => Err(Error::Unavailable(format!("{function} {code}"))),
        };
        for (codes, ends_well) in [
            ([0, 0], true),
            ([NOT_SUPPORTED, UNSUPPORTED_LIMIT], true),
            ([700, 0], false),
            ([0, 700], false),
        ] {
            *CALLS.lock().unwrap() = (Vec::new(), codes);
            assert_eq!(cache.release(check).is_ok(), ends_well, "{codes:?}");
            assert_eq!(CALLS.lock().unwrap().0, ["reset", "limit 6 = 0"]);
        }
    }
}
