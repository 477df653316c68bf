//! NVRTC, CUDA's compiler as a library.
//!
//! It is opened by absolute path and called through a table of its own, because a name such as
//! `libnvrtc.so` may give the loader another version than the one whose headers were found.
//! Reference: <https://docs.nvidia.com/cuda/nvrtc/>.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;

use libloading::Library;

use super::arch::Arch;
use super::compile::{BuildError, Compiled};
use super::source::KernelSource;
use super::toolkit::Toolkit;

type ProgramHandle = *mut c_void;
type Text = *const c_char;

const COMPILATION: c_int = 6;
const INVALID_OPTION: c_int = 5;
const BUILTIN_OPERATION_FAILURE: c_int = 7;

/// The functions of nvrtc.h that are used. A status is a C enum, but declared as a number here,
/// because a newer library may return an unknown one.
#[derive(Clone, Copy)]
struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> Text,
    create: unsafe extern "C" fn(
        *mut ProgramHandle,
        Text,
        Text,
        c_int,
        *const Text,
        *const Text,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut ProgramHandle) -> c_int,
    compile: unsafe extern "C" fn(ProgramHandle, c_int, *const Text) -> c_int,
    cubin_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
}

/// Options of every compilation, in addition to architecture and include folders.
pub const OPTIONS: [&str; 3] = ["-std=c++17", "-lineinfo", "--ptxas-options=-v"];

/// Turns NVRTC's own cache off. Versions without a cache do not know this option.
const NO_CACHE: &str = "--no-cache";

/// Compiles a kernel file to a cubin. Can be called from several threads at the same time.
///
/// # Errors
/// The library cannot be used, or refuses the architecture or the source.
pub fn compile(
    toolkit: &Toolkit,
    source: &KernelSource,
    arch: Arch,
) -> Result<Compiled, BuildError> {
    let nvrtc = open(toolkit).map_err(BuildError::NoCompiler)?;
    nvrtc.compile(toolkit, source, arch)
}

/// Opens a toolkit's library once for the process, and never closes it.
fn open(toolkit: &Toolkit) -> Result<Nvrtc, String> {
    static OPEN: Mutex<BTreeMap<PathBuf, Nvrtc>> = Mutex::new(BTreeMap::new());
    let mut there = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(nvrtc) = there.get(&toolkit.program) {
        return Ok(*nvrtc);
    }
    // NVRTC opens this library by its file name, which the loader resolves to the open one.
    if let Some(builtins) = &toolkit.builtins {
        std::mem::forget(load(builtins)?);
    }
    let nvrtc = Nvrtc::load(&toolkit.program)?;
    there.insert(toolkit.program.clone(), nvrtc);
    Ok(nvrtc)
}

fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: every program that uses NVIDIA's library runs its initialisers.
    let opened = unsafe { Library::new(path) };
    opened.map_err(|error| format!("NVRTC cannot be opened: {}", words(&error)))
}

/// The loader's message, which the error has as its source.
fn words(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

impl Nvrtc {
    fn load(path: &Path) -> Result<Nvrtc, String> {
        let library = load(path)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the symbol is this function, with the signature in nvrtc.h. The library
                // is never closed.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|error| format!("this library is not NVRTC: {}", words(&error)))?
            };
        }
        let nvrtc = Nvrtc {
            version: function!("nvrtcVersion"),
            error_string: function!("nvrtcGetErrorString"),
            create: function!("nvrtcCreateProgram"),
            destroy: function!("nvrtcDestroyProgram"),
            compile: function!("nvrtcCompileProgram"),
            cubin_size: function!("nvrtcGetCUBINSize"),
            cubin: function!("nvrtcGetCUBIN"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
        };
        std::mem::forget(library);
        Ok(nvrtc)
    }

    fn version(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both variables are written before the call returns.
        unsafe { (self.version)(&raw mut major, &raw mut minor) };
        format!("nvrtc {major}.{minor}")
    }

    fn compile(
        &self,
        toolkit: &Toolkit,
        source: &KernelSource,
        arch: Arch,
    ) -> Result<Compiled, BuildError> {
        // An image from NVRTC's own cache has no log, and so no resources of entry points.
        match self.compile_with(toolkit, source, arch, &[NO_CACHE]) {
            Err(BuildError::Unsupported { why, .. }) if why.contains(NO_CACHE) => {
                self.compile_with(toolkit, source, arch, &[])
            }
            found => found,
        }
    }

    fn compile_with(
        &self,
        toolkit: &Toolkit,
        source: &KernelSource,
        arch: Arch,
        more: &[&str],
    ) -> Result<Compiled, BuildError> {
        let rejected = |log: String| BuildError::Rejected {
            file: source.file_name(),
            arch,
            log,
        };
        let nul = |_| rejected("it holds a zero byte".to_owned());
        let text = CString::new(source.text.as_bytes()).map_err(nul)?;
        let name = CString::new(source.file_name()).map_err(nul)?;
        let headers =
            strings(source.headers.iter().map(|(_, text)| text.as_bytes())).map_err(nul)?;
        let names = strings(source.headers.iter().map(|(name, _)| name.as_bytes())).map_err(nul)?;
        let mut options = vec![format!("-arch={arch}")];
        options.extend(OPTIONS.iter().chain(more).map(|&option| option.to_owned()));
        options.extend(source.options.iter().cloned());
        for folder in &toolkit.includes {
            options.push(format!("-I{}", folder.display()));
        }
        let options = strings(options.iter().map(String::as_bytes)).map_err(nul)?;

        let mut handle: ProgramHandle = ptr::null_mut();
        // SAFETY: every text ends with a zero byte and lives until the program is destroyed. Both
        // lists have the given length.
        let status = unsafe {
            (self.create)(
                &raw mut handle,
                text.as_ptr(),
                name.as_ptr(),
                count(&headers),
                pointers(&headers).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        if status != 0 {
            return Err(rejected(self.words(status)));
        }
        let program = Owned {
            nvrtc: self,
            handle,
        };
        // SAFETY: the program is alive, and the list has the given length.
        let status =
            unsafe { (self.compile)(handle, count(&options), pointers(&options).as_ptr()) };
        let log = program.log();
        match status {
            0 => {}
            COMPILATION => return Err(rejected(log)),
            INVALID_OPTION => {
                return Err(BuildError::Unsupported {
                    file: source.file_name(),
                    arch,
                    why: format!("{} says: {}", self.version(), log.trim()),
                });
            }
            BUILTIN_OPERATION_FAILURE => {
                return Err(BuildError::NoCompiler(format!(
                    "{} does not find its libnvrtc-builtins: {}",
                    toolkit.program.display(),
                    log.trim()
                )));
            }
            status => return Err(rejected(format!("{log}{}", self.words(status)))),
        }
        let cubin = program.bytes(self.cubin_size, self.cubin);
        Ok(Compiled {
            cubin: cubin.map_err(|status| rejected(self.words(status)))?,
            compiler: self.version(),
            log,
        })
    }

    fn words(&self, status: c_int) -> String {
        // SAFETY: the library returns a static text for any number.
        let words = unsafe { (self.error_string)(status) };
        if words.is_null() {
            return format!("NVRTC's status {status}");
        }
        // SAFETY: it ends with a zero byte.
        let words = unsafe { CStr::from_ptr(words) };
        words.to_string_lossy().into_owned()
    }
}

/// A program, destroyed when dropped.
struct Owned<'a> {
    nvrtc: &'a Nvrtc,
    handle: ProgramHandle,
}

impl Owned<'_> {
    fn log(&self) -> String {
        let bytes = self
            .bytes(self.nvrtc.log_size, self.nvrtc.log)
            .unwrap_or_default();
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The bytes of which one function returns the size, and another writes them.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
        write: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, c_int> {
        let mut length = 0;
        // SAFETY: the program is alive. The length is written before the call returns.
        let status = unsafe { size(self.handle, &raw mut length) };
        if status != 0 {
            return Err(status);
        }
        let mut bytes = vec![0u8; length];
        // SAFETY: the buffer has the size that the library returned.
        match unsafe { write(self.handle, bytes.as_mut_ptr().cast()) } {
            0 => Ok(bytes),
            status => Err(status),
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created, and not destroyed yet.
        unsafe { (self.nvrtc.destroy)(&raw mut self.handle) };
    }
}

fn strings<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Result<Vec<CString>, std::ffi::NulError> {
    texts.map(CString::new).collect()
}

fn pointers(texts: &[CString]) -> Vec<Text> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn count(texts: &[CString]) -> c_int {
    c_int::try_from(texts.len()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_cannot_be_used_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("libnvrtc.so.13");
        std::fs::write(&program, "not a library").unwrap();
        let toolkit = Toolkit {
            program: program.clone(),
            ..Toolkit::default()
        };
        let source = KernelSource::embedded("inputs").unwrap();
        let error = compile(&toolkit, &source, Arch::SM_80).unwrap_err();
        let BuildError::NoCompiler(why) = &error else {
            panic!("{error}");
        };
        let path = program.display().to_string();
        assert!(why.contains(&path), "{why}");
        assert!(
            why.len() > path.len() + "NVRTC cannot be opened: : ".len(),
            "{why}"
        );
    }
}
