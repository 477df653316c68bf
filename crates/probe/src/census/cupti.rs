//! The functions of CUPTI's activity interface that the census needs, and the search for its
//! library.
//!
//! Reference: cupti_activity.h of CUDA 13.0. The census only uses records and no callbacks, because
//! CUPTI permits a single subscriber of callbacks in a process.

use super::calls::{CallClass, IDS, driver_class, runtime_class};
use crate::Error;
use crate::Result;
use crate::driver::{Library, check_by, functions};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable with places to search first for CUPTI's library: files or folders,
/// separated by colons.
pub const VARIABLE: &str = "REGATTA_CUPTI";

/// Names of the library, newest first. Both have the same kinds and layouts of records.
const NAMES: [&CStr; 2] = [c"libcupti.so.13", c"libcupti.so.12"];

/// `CUpti_ActivityKind`. The kind `KERNEL` would serialise kernels.
pub mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const DEVICE: u32 = 8;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const MARKER: u32 = 12;
    pub const MEMCPY_P2P: u32 = 22;
}

/// The status for the end of a buffer.
pub const MAX_LIMIT_REACHED: c_int = 12;
/// Flag of a flush that also returns buffers with incomplete records.
const FLUSH_FORCED: u32 = 1;

/// Requests an empty buffer: its address, its size, and the maximum number of records (0: any).
pub type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer: context, stream, buffer, its size, bytes that have records.
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

functions! {
    /// libcupti. All functions exist since CUDA 12.0.
    CuptiFunctions, c"libcupti.so.13", c_int;
    getVersion [c"cuptiGetVersion"] (*mut u32);
    getTimestamp [c"cuptiGetTimestamp"] (*mut u64);
    getResultString [c"cuptiGetResultString"] (c_int, *mut *const c_char);
    registerCallbacks [c"cuptiActivityRegisterCallbacks"] (Requested, Completed);
    enable [c"cuptiActivityEnable"] (u32);
    disable [c"cuptiActivityDisable"] (u32);
    flushAll [c"cuptiActivityFlushAll"] (u32);
    getNextRecord [c"cuptiActivityGetNextRecord"] (*mut u8, usize, *mut *mut u8);
    getNumDroppedRecords [c"cuptiActivityGetNumDroppedRecords"] (*mut c_void, u32, *mut usize);
}

/// `cuptiActivityEnableDriverApi` and `cuptiActivityEnableRuntimeApi`: callback id, on or off. An
/// older CUPTI does not have them, and records all functions or none.
type EnableApi = unsafe extern "C" fn(u32, u8) -> c_int;

/// `InitializeInjectionNvtx2`, which NVTX calls with the table of its functions (nvtxInit.h).
/// Returns 1 for success.
type TakeRanges = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The open library.
pub struct Cupti {
    pub functions: CuptiFunctions,
    /// The library, for functions of other interfaces.
    pub opened: Library,
    enable_driver_api: Option<EnableApi>,
    enable_runtime_api: Option<EnableApi>,
    /// Accepts the ranges of NVTX, if this CUPTI can.
    pub take_ranges: Option<TakeRanges>,
}

impl Cupti {
    /// CUPTI, opened once for the process. If the library is missing, the next call searches again,
    /// because a Python package that is imported later may have it.
    ///
    /// # Errors
    /// [`Error::NoCensus`] with the places that were searched.
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Cupti> = OnceLock::new();
        if let Some(open) = LIBRARY.get() {
            return Ok(open);
        }
        let variable = |name: &str| std::env::var_os(name);
        let opened = Self::first(&places(variable, python_folders()))?;
        Ok(LIBRARY.get_or_init(|| opened))
    }

    /// The library in one folder, without other places.
    #[cfg(test)]
    pub fn open_in(folder: &Path) -> Result<Self> {
        let mut places = Vec::new();
        in_folder(&mut places, folder);
        Self::first(&places)
    }

    fn first(places: &[CString]) -> Result<Self> {
        let mut places = places.iter();
        let library = places.find_map(|place| Library::open(place).ok());
        let library = library.ok_or_else(|| {
            Error::NoCensus(format!(
                "libcupti.so.13 is neither on the loader's path nor in a CUDA toolkit or Python \
                 package that was found; set {VARIABLE} to the folder that it is in, or install \
                 nvidia-cuda-cupti"
            ))
        })?;
        let functions =
            CuptiFunctions::find_in(library).map_err(|error| Error::NoCensus(error.to_string()))?;
        let selective = |name: &CStr| {
            let address = library.symbol(&[name]).ok()?;
            // SAFETY: both symbols have this signature in cupti_activity.h.
            Some(unsafe { std::mem::transmute::<*mut c_void, EnableApi>(address) })
        };
        let takes = library.symbol(&[c"InitializeInjectionNvtx2"]).ok();
        // SAFETY: the symbol has this signature in nvtxInit.h.
        let takes =
            takes.map(|address| unsafe { std::mem::transmute::<*mut c_void, TakeRanges>(address) });
        Ok(Self {
            take_ranges: takes,
            functions,
            opened: library,
            enable_driver_api: selective(c"cuptiActivityEnableDriverApi"),
            enable_runtime_api: selective(c"cuptiActivityEnableRuntimeApi"),
        })
    }

    /// Converts a code to a result; an error has the function and CUPTI's name for the code.
    ///
    /// # Errors
    /// The code is not 0.
    pub fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        // SAFETY: CUPTI writes a pointer to a static string, or leaves NULL.
        unsafe { check_by(self.functions.getResultString, function, code) }
    }

    /// Records the counted calls, from before the driver is initialised. Later, selecting functions
    /// has no effect (CUPTI 13.0), and only all functions of [`kind::DRIVER`] and [`kind::RUNTIME`]
    /// can be recorded.
    ///
    /// # Errors
    /// CUPTI's error.
    pub fn record_counted_calls(&self) -> Result<()> {
        type Classes = fn(u32) -> Option<CallClass>;
        let sets: [(Classes, _, _); 2] = [
            (driver_class, self.enable_driver_api, kind::DRIVER),
            (runtime_class, self.enable_runtime_api, kind::RUNTIME),
        ];
        for (class, choose, kind) in sets {
            let Some(choose) = choose else {
                self.switch(kind, true)?;
                continue;
            };
            for id in (0..IDS).filter(|id| class(*id).is_some()) {
                // An older CUPTI does not know every id, and does not record those functions.
                // SAFETY: no requirements.
                unsafe { choose(id, 1) };
            }
        }
        Ok(())
    }

    /// Starts or stops recording a kind of activity.
    ///
    /// # Errors
    /// CUPTI's error.
    pub fn switch(&self, kind: u32, on: bool) -> Result<()> {
        // SAFETY: no requirements.
        unsafe {
            if on {
                self.check("cuptiActivityEnable", (self.functions.enable)(kind))
            } else {
                self.check("cuptiActivityDisable", (self.functions.disable)(kind))
            }
        }
    }

    /// Makes CUPTI return its buffers: those with only complete records, or if `forced` all.
    pub fn flush(&self, forced: bool) {
        let flag = if forced { FLUSH_FORCED } else { 0 };
        // SAFETY: the callbacks are registered. A flush that fails returns no buffer; a later one
        // may.
        unsafe { (self.functions.flushAll)(flag) };
    }

    /// The number of records that CUPTI dropped since the last call of this function.
    pub fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: the pointer is to a live variable. Without a context, this is the global queue.
        unsafe { (self.functions.getNumDroppedRecords)(std::ptr::null_mut(), 0, &raw mut dropped) };
        dropped as u64
    }

    /// The present time in ns, on the clock of all records.
    pub fn now(&self) -> u64 {
        let mut now = 0;
        // SAFETY: a live variable.
        unsafe { (self.functions.getTimestamp)(&raw mut now) };
        now
    }

    /// The version in the form `13.0`; CUPTI reports 130001.
    pub fn version(&self) -> String {
        let mut version = 0;
        // SAFETY: a live variable.
        unsafe { (self.functions.getVersion)(&raw mut version) };
        named_version(version)
    }
}

/// CUPTI's version number as a version of CUDA (cupti_version.h). Since CUDA 13 the number contains
/// it (130001); before, it counted interfaces.
fn named_version(number: u32) -> String {
    match number {
        100_000.. => format!("{}.{}", number / 10_000, number / 100 % 100),
        19 => "12.0".to_owned(),
        20..=24 => format!("12.{}", number - 18),
        26 => "12.8".to_owned(),
        27 | 28 => "12.9".to_owned(),
        other => format!("interface {other}"),
    }
}

/// The places of the library, in search order: first the requested paths, then the loader's search,
/// then the usual places.
fn places(
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    python: Vec<PathBuf>,
) -> Vec<CString> {
    let mut places = Vec::new();
    let asked = variable(VARIABLE).unwrap_or_default();
    for place in std::env::split_paths(&asked).filter(|place| place.is_absolute()) {
        if place.is_file() {
            places.extend(CString::new(place.as_os_str().as_bytes()));
        } else {
            in_folder(&mut places, &place);
        }
    }
    places.extend(NAMES.map(CStr::to_owned));
    let roots = ["REGATTA_CUDA", "CUDA_HOME", "CUDA_PATH"].map(&variable);
    let roots = roots.into_iter().flatten().filter(|root| !root.is_empty());
    let usual = [PathBuf::from("/usr/local/cuda")];
    for root in roots.map(PathBuf::from).chain(usual) {
        for folder in ["extras/CUPTI/lib64", "lib64", "lib"] {
            in_folder(&mut places, &root.join(folder));
        }
    }
    for folder in python {
        in_folder(&mut places, &folder);
    }
    places
}

fn in_folder(found: &mut Vec<CString>, folder: &Path) {
    for name in NAMES {
        let path = folder.join(OsStr::from_bytes(name.to_bytes()));
        found.extend(CString::new(path.as_os_str().as_bytes()));
    }
}

/// Folders of CUDA's Python packages, found by their libraries that this process has loaded, as
/// programs with torch or JAX have. For each `.../nvidia`, the folders in which packages of CUDA 13
/// and 12 have CUPTI.
fn python_folders() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut folders: Vec<PathBuf> = Vec::new();
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    for path in paths {
        let root = match (path.find("/site-packages/"), path.find("/dist-packages/")) {
            (Some(at), _) | (None, Some(at)) => &path[..at + "/site-packages".len()],
            _ => continue,
        };
        for folder in ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"] {
            let folder = Path::new(root).join(folder);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_tried_before_the_loader_and_the_loader_before_the_usual() {
        let variable = |name: &str| match name {
            VARIABLE => Some("/asked:relative".into()),
            "CUDA_HOME" => Some("/opt/cuda".into()),
            _ => None,
        };
        let listed = places(variable, vec![PathBuf::from("/venv/nvidia/cu13/lib")]);
        let listed: Vec<&str> = listed.iter().map(|place| place.to_str().unwrap()).collect();
        let at = |wanted: &str| listed.iter().position(|place| *place == wanted).unwrap();
        assert_eq!(listed[0], "/asked/libcupti.so.13");
        assert!(at("libcupti.so.13") < at("/opt/cuda/extras/CUPTI/lib64/libcupti.so.13"));
        assert!(at("/opt/cuda/lib64/libcupti.so.12") < at("/usr/local/cuda/lib64/libcupti.so.13"));
        assert!(listed.contains(&"/venv/nvidia/cu13/lib/libcupti.so.13"));
        assert!(!listed.iter().any(|place| place.contains("relative")));
    }
}
