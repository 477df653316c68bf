//! The CUDA driver as this worker uses it: one device, one stream, memory and code.

use std::collections::HashMap;
use std::ffi::{CString, c_int};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute, CUresult};

use super::plan::Limits;
use crate::kernels::arch::Arch;
use crate::kernels::compile::{self, BuildError, Compiler};
use crate::kernels::contract;

/// What keeps a case from running.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "no CUDA driver on this machine (libcuda.so.1 not found); suites on cpu/ variants, \
         such as quick, need none"
    )]
    NoDriver,
    /// The driver finds no device it can use.
    #[error("no CUDA device: {0}")]
    NoDevice(String),
    /// A function of the driver failed.
    #[error("{function} failed: {name} ({code})")]
    Call {
        /// Its name, as in cuda.h.
        function: &'static str,
        /// The driver's word for the code.
        name: String,
        /// The `CUresult`.
        code: u32,
    },
    /// Device memory is short.
    #[error("out of device memory: {wanted_mib} MiB more are needed, {free_mib} MiB are free")]
    OutOfMemory {
        /// Asked for at once, in MiB.
        wanted_mib: usize,
        /// Free before.
        free_mib: usize,
    },
    /// The clock cannot do what is asked of it.
    #[error("{0}")]
    Clock(String),
    /// A kernel could not be made.
    #[error("{0}")]
    Build(String),
}

impl CudaError {
    /// As the clock has errors, for a call that it makes.
    pub fn into_probe(self) -> regatta_probe::Error {
        match self {
            CudaError::Call {
                function,
                name,
                code,
            } => regatta_probe::Error::Cuda {
                function,
                code: code as i32,
                name,
            },
            other => regatta_probe::Error::Call(other.to_string()),
        }
    }

    /// True when the context is gone for good: every later call in this process fails
    /// with the same error, and only a new process can go on.
    ///
    /// The CUDA driver's reference says so of each of these codes ("the context cannot
    /// be used anymore"), and of an uncorrectable memory error.
    pub fn is_lost(&self) -> bool {
        use CUresult as R;
        let lost = [
            R::CUDA_ERROR_ECC_UNCORRECTABLE,
            R::CUDA_ERROR_ILLEGAL_ADDRESS,
            R::CUDA_ERROR_LAUNCH_TIMEOUT,
            R::CUDA_ERROR_ASSERT,
            R::CUDA_ERROR_HARDWARE_STACK_ERROR,
            R::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            R::CUDA_ERROR_MISALIGNED_ADDRESS,
            R::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            R::CUDA_ERROR_INVALID_PC,
            R::CUDA_ERROR_LAUNCH_FAILED,
            R::CUDA_ERROR_DEVICE_UNAVAILABLE,
            R::CUDA_ERROR_UNKNOWN,
        ];
        matches!(self, CudaError::Call { code, .. } if lost.iter().any(|l| *l as u32 == *code))
    }
}

impl From<BuildError> for CudaError {
    fn from(error: BuildError) -> CudaError {
        CudaError::Build(error.to_string())
    }
}

impl From<regatta_probe::Error> for CudaError {
    fn from(error: regatta_probe::Error) -> CudaError {
        match error {
            regatta_probe::Error::Cuda {
                function,
                code,
                name,
            } => CudaError::Call {
                function,
                name,
                code: code.unsigned_abs(),
            },
            other => CudaError::Clock(other.to_string()),
        }
    }
}

/// A byte that makes a NaN of every storage type, written everywhere.
pub const NAN_IN_EVERY_TYPE: u8 = 0xFF;

/// Names the driver function whose result this is.
pub fn checked<T>(function: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::Call {
        function,
        // The error's own Display opens the driver a second time; see cudarc 0.19.
        name: error.error_name().map_or_else(
            |_| "unknown error".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        code: error.0 as u32,
    })
}

/// Device 0 as CUDA counts, in its primary context, and one stream.
pub struct Device {
    device: sys::CUdevice,
    stream: sys::CUstream,
    arch: Arch,
    compiler: Compiler,
    /// What plans depend on.
    pub limits: Limits,
    functions: HashMap<String, Function>,
    modules: HashMap<&'static str, (sys::CUmodule, u32)>,
}

/// An entry point, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub(super) handle: sys::CUfunction,
    /// How its blocks are launched.
    pub block: contract::Block,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// Local memory of a thread in bytes: spills, and arrays that are indexed.
    pub local_bytes: u32,
    /// Blocks that one multiprocessor holds at once.
    pub blocks_per_sm: u32,
    /// CRC-32 of the cubin that it comes from.
    pub code: u32,
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// No driver, no device, or one that does not answer.
    pub fn open(compiler: Compiler) -> Result<Device, CudaError> {
        // Asked first: without a driver every other function of cudarc panics.
        // SAFETY: only opens a library, as every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let none = |error: CudaError| CudaError::NoDevice(error.to_string());
        checked("cuInit", result::init()).map_err(none)?;
        let device = checked("cuDeviceGet", result::device::get(0)).map_err(none)?;
        // SAFETY: the device is the driver's own. The primary context is kept until the
        // process ends, as the clock does.
        unsafe {
            let context = checked(
                "cuDevicePrimaryCtxRetain",
                result::primary_ctx::retain(device),
            )?;
            checked("cuCtxSetCurrent", result::ctx::set_current(context))?;
        }
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = checked("cuStreamCreate", stream)?;
        let attribute = |attribute| attribute_of(device, attribute);
        use CUdevice_attribute as A;
        let limits = Limits {
            capability: (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            sms: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        Ok(Device {
            device,
            stream,
            arch: Arch::of_device(limits.capability.0, limits.capability.1),
            compiler,
            limits,
            functions: HashMap::new(),
            modules: HashMap::new(),
        })
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Its marketing name.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(&self) -> Result<String, CudaError> {
        checked("cuDeviceGetName", result::device::get_name(self.device))
    }

    /// All of its memory, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory_bytes(&self) -> Result<u64, CudaError> {
        // SAFETY: the device is the driver's own.
        let bytes = unsafe { result::device::total_mem(self.device) };
        Ok(checked("cuDeviceTotalMem", bytes)? as u64)
    }

    /// What of it is free now, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = checked("cuMemGetInfo", result::mem_get_info())?;
        Ok(free as u64)
    }

    /// The version of CUDA that the driver speaks: `13.0`.
    ///
    /// # Errors
    /// The driver's.
    pub fn cuda_version(&self) -> Result<String, CudaError> {
        let mut version: c_int = 0;
        // SAFETY: writes one integer.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        checked("cuDriverGetVersion", asked.result())?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Waits until the stream is done.
    ///
    /// # Errors
    /// What went wrong on it: a kernel's fault shows here.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is ours and open.
        let done = unsafe { result::stream::synchronize(self.stream) };
        checked("cuStreamSynchronize", done)
    }

    /// Memory for `bytes` bytes, of any content.
    ///
    /// # Errors
    /// When there is not enough.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, CudaError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(16);
        // SAFETY: the memory is freed once, by its owner.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(pointer) => Ok(Memory { pointer, bytes }),
            Err(error) if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, _) = checked("cuMemGetInfo", result::mem_get_info())?;
                Err(CudaError::OutOfMemory {
                    wanted_mib: bytes >> 20,
                    free_mib: free >> 20,
                })
            }
            Err(error) => checked("cuMemAlloc", Err(error)),
        }
    }

    /// An entry point of a kernel file, compiled and loaded when first asked for.
    ///
    /// # Errors
    /// No compiler, a kernel that does not compile, or one that this device refuses.
    pub fn function(&mut self, file: &'static str, entry: &str) -> Result<Function, CudaError> {
        if let Some(function) = self.functions.get(entry) {
            return Ok(*function);
        }
        let block = contract::block(file, entry)
            .ok_or_else(|| CudaError::Build(format!("{file}.cu has no kernel `{entry}`")))?;
        let (module, code) = self.module(file)?;
        let name = CString::new(entry)
            .map_err(|_| CudaError::Build(format!("`{entry}` is no kernel's name")))?;
        // SAFETY: the module is loaded and never unloaded.
        let function = unsafe {
            let handle = checked(
                "cuModuleGetFunction",
                result::module::get_function(module, name),
            )?;
            loaded(handle, block, code)?
        };
        self.functions.insert(entry.to_owned(), function);
        Ok(function)
    }

    /// Who compiles, as cases are told apart by it: `nvrtc 13.0`; `none` where there is no
    /// compiler, and each case says why.
    pub fn compiler_version(&self) -> String {
        let image = compile::compiled("inputs", self.arch, self.compiler);
        image.map_or_else(|_| "none".to_owned(), |image| image.compiler)
    }

    /// The module of a file, and the CRC-32 of its cubin.
    fn module(&mut self, file: &'static str) -> Result<(sys::CUmodule, u32), CudaError> {
        if let Some(module) = self.modules.get(file) {
            return Ok(*module);
        }
        let image = compile::compiled(file, self.arch, self.compiler)?;
        // SAFETY: a whole cubin, as the compiler wrote it.
        let module = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) };
        let module = checked("cuModuleLoadData", module)?;
        let module = (module, crc32fast::hash(&image.cubin));
        self.modules.insert(file, module);
        Ok(module)
    }
}

fn attribute_of(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<u32, CudaError> {
    // SAFETY: the device is the driver's own.
    let value = unsafe { result::device::get_attribute(device, attribute) };
    Ok(checked("cuDeviceGetAttribute", value)?.unsigned_abs())
}

/// Allows the block its shared memory, and reads what the code needs.
///
/// # Safety
/// The function is loaded.
unsafe fn loaded(
    handle: sys::CUfunction,
    block: contract::Block,
    code: u32,
) -> Result<Function, CudaError> {
    use CUfunction_attribute as A;
    // SAFETY: as demanded.
    unsafe {
        let allowed = result::function::set_function_attribute(
            handle,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            block.shared_bytes as c_int,
        );
        checked("cuFuncSetAttribute", allowed)?;
        let attribute = |attribute| {
            let value = result::function::get_function_attribute(handle, attribute);
            Ok::<u32, CudaError>(checked("cuFuncGetAttribute", value)?.unsigned_abs())
        };
        let blocks = result::occupancy::max_active_block_per_multiprocessor(
            handle,
            block.threads as c_int,
            block.shared_bytes as usize,
        );
        Ok(Function {
            code,
            handle,
            block,
            registers: attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: attribute(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: attribute(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            blocks_per_sm: checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", blocks)?
                .unsigned_abs(),
        })
    }
}

/// Device memory, freed when dropped.
#[derive(Debug)]
pub struct Memory {
    pointer: sys::CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// Where it starts, as kernels are told.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Writes one byte everywhere.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&mut self, byte: u8, stream: sys::CUstream) -> Result<(), CudaError> {
        // SAFETY: the memory is ours and this large.
        let filled = unsafe { result::memset_d8_async(self.pointer, byte, self.bytes, stream) };
        checked("cuMemsetD8Async", filled)
    }

    /// Copies the first elements to the host, once the stream is done.
    ///
    /// # Errors
    /// The driver's.
    pub fn read<T: Copy + Default>(&self, from: u64, count: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::default(); count];
        let end = from as usize + size_of_val(values.as_slice());
        assert!(end <= self.bytes, "reads beyond device memory");
        // SAFETY: inside the memory, as just checked; any bits are a T for the number
        // types this is used with.
        let read = unsafe { result::memcpy_dtoh_sync(&mut values, self.pointer + from) };
        checked("cuMemcpyDtoH", read)?;
        Ok(values)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours, freed once. After a fault this fails and nobody can help it.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}
