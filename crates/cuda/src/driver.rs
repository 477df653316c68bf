//! The CUDA driver as this worker uses it: one device, one stream, code and memory for them, and
//! launches that are not timed.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint};
use std::ptr;

use regatta_probe::driver::{self, Driver, L2_CACHE_SIZE, Stream, cu};
use regatta_worker::attention::Dtype;

use super::argument::{ArgumentList, ReferencePointers};
use super::error::CudaError;
use super::plan::{Code, DeviceLimits};
use crate::kernels::arch::Arch;
use crate::kernels::compile::{self, Image};
use crate::kernels::contract::{BlockShape, Kernel};
use crate::kernels::source::Source;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
pub const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
pub const CAPABILITY_MINOR: c_int = 76;
const MULTIPROCESSOR_COUNT: c_int = 16;
const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
const STREAM_NON_BLOCKING: c_uint = 1;
const OUT_OF_MEMORY: c_int = 2;

/// Device 0 as CUDA counts, in its primary context, and one stream.
pub struct Device {
    driver: &'static Driver,
    device: c_int,
    stream: Stream,
    arch: Arch,
    /// What plans depend on.
    pub limits: DeviceLimits,
    /// Of `Code::Own`.
    own: Option<Source>,
    functions: HashMap<(Code, String, BlockShape), Function>,
    modules: HashMap<Code, Module>,
}

/// The code of a file, loaded.
struct Module {
    handle: driver::Module,
    /// CRC-32 of its cubin.
    code: u32,
    /// Its entry points, as the compiler told them.
    entries: Vec<String>,
}

/// An entry point, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub(super) handle: driver::Function,
    /// How its blocks are launched.
    pub shape: BlockShape,
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
    /// Opens the device; `own` is the file of [`Code::Own`].
    ///
    /// # Errors
    /// No driver, no device, or one that does not answer.
    pub fn open(own: Option<Source>) -> Result<Device, CudaError> {
        let driver = Driver::get().map_err(|error| match error {
            regatta_probe::Error::Unavailable(why) if !why.contains("undefined symbol") => {
                CudaError::NoDriver
            }
            other => CudaError::NoDevice(other.to_string()),
        })?;
        let (mut device, mut context, mut stream) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: here and below every out-pointer is to a live variable of the type that
        // cuda.h gives. The primary context is kept until the process ends, as the clock does.
        unsafe {
            cu!(driver, cuDeviceGet(&raw mut device, 0))
                .map_err(|error| CudaError::NoDevice(error.to_string()))?;
            cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            cu!(driver, cuCtxSetCurrent(context))?;
            cu!(driver, cuStreamCreate(&raw mut stream, STREAM_NON_BLOCKING))?;
        }
        let attribute = |attribute| attribute_of(driver, device, attribute);
        let limits = DeviceLimits {
            capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
            sms: attribute(MULTIPROCESSOR_COUNT)?,
            l2_bytes: attribute(L2_CACHE_SIZE)?.into(),
            shared_bytes: attribute(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        Ok(Device {
            driver,
            device,
            stream,
            arch: Arch::of_device(limits.capability.0, limits.capability.1),
            limits,
            own,
            functions: HashMap::new(),
            modules: HashMap::new(),
        })
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// All of its memory, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory_bytes(&self) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: as in `open`.
        unsafe { cu!(self.driver, cuDeviceTotalMem(&raw mut bytes, self.device))? };
        Ok(bytes as u64)
    }

    /// What of it is free now, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        let (mut free, mut all) = (0, 0);
        // SAFETY: as in `open`.
        unsafe { cu!(self.driver, cuMemGetInfo(&raw mut free, &raw mut all))? };
        Ok(free as u64)
    }

    /// The version of CUDA that the driver speaks: `13.0`.
    ///
    /// # Errors
    /// The driver's.
    pub fn cuda_version(&self) -> Result<String, CudaError> {
        let mut version = 0;
        // SAFETY: as in `open`.
        unsafe { cu!(self.driver, cuDriverGetVersion(&raw mut version))? };
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Waits until the stream is done.
    ///
    /// # Errors
    /// What went wrong on it: a kernel's fault shows here.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is ours and open.
        unsafe { cu!(self.driver, cuStreamSynchronize(self.stream)) }.map_err(CudaError::from)
    }

    /// Memory for `bytes` bytes, of any content.
    ///
    /// # Errors
    /// When there is not enough.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, CudaError> {
        let (driver, mut pointer) = (self.driver, 0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(16);
        // SAFETY: as in `open`; the memory is freed once, by its owner.
        match unsafe { cu!(driver, cuMemAlloc(&raw mut pointer, bytes)) } {
            Ok(()) => Ok(Memory {
                driver,
                pointer,
                bytes,
            }),
            Err(regatta_probe::Error::Cuda { code, .. }) if code == OUT_OF_MEMORY => {
                Err(CudaError::OutOfMemory {
                    wanted_mib: bytes >> 20,
                    free_mib: (self.free_bytes()? >> 20) as usize,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An entry point of a kernel file, compiled and loaded when first asked for.
    ///
    /// # Errors
    /// No compiler, a kernel that does not compile, or one that this device refuses.
    pub fn function(
        &mut self,
        file: Code,
        entry: &str,
        shape: BlockShape,
    ) -> Result<Function, CudaError> {
        let key = (file, entry.to_owned(), shape);
        if let Some(function) = self.functions.get(&key) {
            return Ok(*function);
        }
        let module = self.module(file)?;
        let told = !module.entries.is_empty();
        if told && !module.entries.iter().any(|known| known == entry) {
            return Err(no_entry(entry, &module.entries));
        }
        let (handle, code) = (module.handle, module.code);
        let name = CString::new(entry)
            .map_err(|_| CudaError::Build(format!("`{entry}` is no kernel's name")))?;
        let (driver, mut function) = (self.driver, ptr::null_mut());
        // SAFETY: as in `open`; the module is loaded and never unloaded.
        let function = unsafe {
            cu!(
                driver,
                cuModuleGetFunction(&raw mut function, handle, name.as_ptr())
            )?;
            loaded(driver, function, shape, code)?
        };
        self.functions.insert(key, function);
        Ok(function)
    }

    /// Who compiles, as cases are told apart by it: `nvrtc 13.0.88`; `none` where there is no
    /// compiler, and each case says why.
    pub fn compiler_version(&self) -> String {
        let image = compile::compiled("inputs", self.arch);
        image.map_or_else(|_| "none".to_owned(), |image| image.compiler)
    }

    fn image(&self, file: Code) -> Result<Image, CudaError> {
        let image = match (file, &self.own) {
            (Code::Ours(name), _) => compile::compiled(name, self.arch)?,
            (Code::Own, Some(source)) => compile::image(source, self.arch, false)?,
            (Code::Own, None) => {
                return Err(CudaError::Build("this worker has no CUDA file".to_owned()));
            }
        };
        Ok(image)
    }

    /// The module of a file, loaded when first asked for.
    fn module(&mut self, file: Code) -> Result<&Module, CudaError> {
        if !self.modules.contains_key(&file) {
            let image = self.image(file)?;
            let (driver, mut handle) = (self.driver, ptr::null_mut());
            let cubin = image.cubin.as_ptr().cast();
            // SAFETY: as in `open`; a whole cubin, as the compiler wrote it.
            unsafe { cu!(driver, cuModuleLoadData(&raw mut handle, cubin))? };
            let resources = image.resources.iter();
            let module = Module {
                handle,
                code: crc32fast::hash(&image.cubin),
                entries: resources.map(|one| one.name.clone()).collect(),
            };
            self.modules.insert(file, module);
        }
        let found = self.modules.get(&file);
        found.ok_or_else(|| CudaError::Build("a module is not there".to_owned()))
    }
}

fn no_entry(entry: &str, entries: &[String]) -> CudaError {
    CudaError::Build(format!(
        "the CUDA file has no entry point `{entry}`; it has {}. Name one of them in `entry`, or \
         leave the problem out by `requires`",
        entries.join(", ")
    ))
}

/// A `CUdevice_attribute` of a device.
///
/// # Errors
/// The driver's.
pub fn attribute_of(driver: &Driver, device: c_int, attribute: c_int) -> Result<u32, CudaError> {
    let mut value = 0;
    // SAFETY: a live variable; the device is the driver's own.
    unsafe {
        cu!(
            driver,
            cuDeviceGetAttribute(&raw mut value, attribute, device)
        )?;
    }
    Ok(value.unsigned_abs())
}

/// Allows the block its shared memory, and reads what the code needs.
///
/// # Safety
/// The function is loaded.
unsafe fn loaded(
    driver: &Driver,
    handle: driver::Function,
    shape: BlockShape,
    code: u32,
) -> Result<Function, CudaError> {
    // `CUfunction_attribute`.
    const SHARED_SIZE_BYTES: c_int = 1;
    const LOCAL_SIZE_BYTES: c_int = 3;
    const NUM_REGS: c_int = 4;
    const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
    let attribute = |attribute: c_int| {
        let mut value = 0;
        // SAFETY: a live variable; the function is as demanded.
        unsafe {
            cu!(
                driver,
                cuFuncGetAttribute(&raw mut value, attribute, handle)
            )?
        };
        Ok::<u32, CudaError>(value.unsigned_abs())
    };
    // Raised, never lowered: another launch of the same code may have more.
    if attribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)? < shape.shared_bytes {
        let bytes = shape.shared_bytes as c_int;
        // SAFETY: as demanded.
        unsafe {
            cu!(
                driver,
                cuFuncSetAttribute(handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
            )?;
        }
    }
    let (mut blocks, threads) = (0, shape.count() as c_int);
    let shared = shape.shared_bytes as usize;
    // SAFETY: a live variable; the function is as demanded.
    unsafe {
        cu!(
            driver,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, handle, threads, shared)
        )?;
    }
    Ok(Function {
        code,
        handle,
        shape,
        registers: attribute(NUM_REGS)?,
        static_shared_bytes: attribute(SHARED_SIZE_BYTES)?,
        local_bytes: attribute(LOCAL_SIZE_BYTES)?,
        blocks_per_sm: blocks.unsigned_abs(),
    })
}

impl Function {
    /// Queues a launch.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The arguments are laid out as the kernel's file says, and the memory that they point to
    /// is alive until the stream is done.
    pub unsafe fn launch(
        &self,
        stream: Stream,
        [x, y, z]: [u32; 3],
        arguments: &mut ArgumentList,
    ) -> Result<(), CudaError> {
        let driver = Driver::get()?;
        let [across, down, deep] = self.shape.threads;
        let shared = self.shape.shared_bytes;
        let pointers = arguments.pointers().as_mut_ptr();
        // SAFETY: the function is loaded; the rest is the caller's.
        unsafe {
            cu!(
                driver,
                cuLaunchKernel(
                    self.handle,
                    x,
                    y,
                    z,
                    across,
                    down,
                    deep,
                    shared,
                    stream,
                    pointers,
                    ptr::null_mut()
                )
            )?;
        }
        Ok(())
    }
}

/// A byte that makes a NaN of every storage type, written everywhere.
pub const NAN_IN_EVERY_TYPE: u8 = 0xFF;

/// Device memory, freed when dropped.
pub struct Memory {
    driver: &'static Driver,
    pub(super) pointer: driver::DevicePointer,
    pub(super) bytes: usize,
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
    pub fn fill(&mut self, byte: u8, stream: Stream) -> Result<(), CudaError> {
        let (driver, pointer, bytes) = (self.driver, self.pointer, self.bytes);
        // SAFETY: the memory is ours and this large.
        unsafe { cu!(driver, cuMemsetD8Async(pointer, byte, bytes, stream)) }
            .map_err(CudaError::from)
    }

    /// Copies the first elements to the host, once the stream is done.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(&self, count: usize) -> Result<Vec<f64>, CudaError> {
        let mut values = vec![0.0; count];
        assert!(
            size_of_val(values.as_slice()) <= self.bytes,
            "reads beyond device memory"
        );
        // SAFETY: inside the memory, as just checked; any bits are a number.
        unsafe { read(&mut values, self.pointer)? };
        Ok(values)
    }
}

/// Copies from the device to the host.
///
/// # Errors
/// The driver's.
///
/// # Safety
/// So much of device memory is alive there, and any bits are a `T`.
pub unsafe fn read<T>(into: &mut [T], from: u64) -> Result<(), CudaError> {
    let (driver, bytes) = (Driver::get()?, size_of_val(into));
    let into = into.as_mut_ptr().cast();
    // SAFETY: the caller's.
    unsafe { cu!(driver, cuMemcpyDtoH(into, from, bytes)) }.map_err(CudaError::from)
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours, freed once. After a fault this fails and nobody can help it.
        let _ = unsafe { cu!(self.driver, cuMemFree(self.pointer)) };
    }
}

/// Launches a kernel of the checks.
///
/// # Errors
/// The driver's, or the compiler's.
pub fn launch<T: Copy + 'static>(
    device: &mut Device,
    kernel: &Kernel,
    dtype: Dtype,
    grid: [u32; 3],
    argument: T,
    second: Option<ReferencePointers>,
) -> Result<(), CudaError> {
    let entry = kernel.entry(dtype.name(), kernel.tile());
    let shape = kernel.tile().block();
    let function = device.function(Code::Ours(kernel.file), &entry, shape)?;
    let mut arguments = ArgumentList::default().push(argument);
    if let Some(results) = second {
        arguments = arguments.push(results);
    }
    // SAFETY: the arguments are laid out as the kernel's file says, and the driver copies
    // them before it returns; the memory they point to is alive until the next wait.
    unsafe { function.launch(device.stream(), grid, &mut arguments) }
}
