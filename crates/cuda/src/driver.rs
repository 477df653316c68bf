//! The worker's use of the CUDA driver: one device, one stream, code and memory for them, and
//! launches that are not timed.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint};

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute, CUresult};
use regatta_worker::attention::Attention;

use super::argument::ArgumentList;
use super::contract::{Numbers, ours};
use super::error::{CudaError, checked};
use super::plan::{BlockShape, Limits, PlannedLaunch};
use super::reference::ReferencePointers;
use crate::kernels::arch::Arch;
use crate::kernels::compile::{self, Compiler, Image};
use crate::kernels::source::KernelSource;

/// CUDA's device 0 in its primary context, with one stream.
pub struct CudaDevice {
    device: sys::CUdevice,
    /// The stream of all work.
    pub stream: sys::CUstream,
    arch: Arch,
    compiler: Compiler,
    /// The device's limits, which plans depend on.
    pub limits: Limits,
    /// The worker's own kernel file.
    own: Option<KernelSource>,
    functions: HashMap<(Option<String>, String, BlockShape), LoadedKernel>,
    modules: HashMap<Option<String>, LoadedModule>,
}

/// A kernel file's code, loaded.
struct LoadedModule {
    handle: sys::CUmodule,
    /// CRC-32 of its cubin.
    code: u32,
    /// The entry points, as the compiler reported them.
    entries: Vec<String>,
}

/// A loaded entry point.
#[derive(Clone, Copy, Debug)]
pub struct LoadedKernel {
    pub(super) handle: sys::CUfunction,
    /// The shape of its blocks.
    pub shape: BlockShape,
    /// Registers of each thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// Local memory of each thread in bytes: spilled registers, and arrays that are indexed
    /// dynamically.
    pub local_bytes: u32,
    /// The number of blocks that one multiprocessor holds at the same time.
    pub blocks_per_sm: u32,
    /// CRC-32 of its cubin.
    pub code: u32,
}

const NO_DRIVER: &str = "no CUDA driver on this machine (libcuda.so.1 not found); suites on cpu/ \
    variants, such as quick, need none";

impl LoadedKernel {
    /// Queues a launch.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The arguments are laid out as the kernel's file declares them, and the memory that they
    /// point to is alive.
    pub unsafe fn launch(
        &self,
        [x, y, z]: [u32; 3],
        stream: sys::CUstream,
        arguments: &mut ArgumentList,
    ) -> Result<(), CudaError> {
        let [across, down, deep] = self.shape.block;
        // SAFETY: the function is loaded; the rest is demanded.
        let launched = unsafe {
            result::launch_kernel(
                self.handle,
                (x, y, z),
                (across, down, deep),
                self.shape.shared_bytes as c_uint,
                stream,
                &mut arguments.pointers,
            )
        };
        checked("cuLaunchKernel", launched)
    }
}

impl CudaDevice {
    /// Opens the device, for kernels of the binary or of a file.
    ///
    /// # Errors
    /// The machine has no driver or no device, or the device does not answer.
    pub fn open(compiler: Compiler, own: Option<KernelSource>) -> Result<CudaDevice, CudaError> {
        // Checked first, because without a driver every other function of cudarc panics.
        // SAFETY: only opens a library, as every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::Unavailable(NO_DRIVER.to_owned()));
        }
        let unavailable =
            |error: CudaError| CudaError::Unavailable(format!("no CUDA device: {error}"));
        checked("cuInit", result::init()).map_err(unavailable)?;
        let device = checked("cuDeviceGet", result::device::get(0)).map_err(unavailable)?;
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
        Ok(CudaDevice {
            device,
            stream,
            arch: Arch::of_device(limits.capability.0, limits.capability.1),
            compiler,
            limits,
            own,
            functions: HashMap::new(),
            modules: HashMap::new(),
        })
    }

    /// The device's total memory in bytes.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory_bytes(&self) -> Result<u64, CudaError> {
        // SAFETY: the device is the driver's own.
        let bytes = unsafe { result::device::total_mem(self.device) };
        Ok(checked("cuDeviceTotalMem", bytes)? as u64)
    }

    /// The free memory in bytes.
    ///
    /// # Errors
    /// The driver's error.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = checked("cuMemGetInfo", result::mem_get_info())?;
        Ok(free as u64)
    }

    /// The version of CUDA that the driver supports: `13.0`.
    ///
    /// # Errors
    /// The driver's error.
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
    /// Earlier work on the stream failed: a kernel's fault is reported here.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is ours and open.
        let done = unsafe { result::stream::synchronize(self.stream) };
        checked("cuStreamSynchronize", done)
    }

    /// Allocates `bytes` bytes, uninitialised.
    ///
    /// # Errors
    /// Not enough memory is free, or the driver's error.
    pub fn allocate(&self, bytes: u64) -> Result<Memory, CudaError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(16);
        // SAFETY: the memory is freed once, by its owner.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(pointer) => Ok(Memory { pointer, bytes }),
            Err(error) if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(CudaError::Unavailable(format!(
                    "out of device memory: {} MiB more are needed, {} MiB are free",
                    bytes >> 20,
                    self.free_bytes()? >> 20
                )))
            }
            Err(error) => checked("cuMemAlloc", Err(error)),
        }
    }

    /// Returns an entry point of a kernel file. Compiles and loads it on first use.
    ///
    /// # Errors
    /// The compiler is missing, the kernel does not compile, or this device refuses it.
    pub fn function(&mut self, launch: &PlannedLaunch) -> Result<LoadedKernel, CudaError> {
        let (entry, shape) = (launch.entry.as_str(), launch.shape);
        let key = (launch.file.clone(), entry.to_owned(), shape);
        if let Some(function) = self.functions.get(&key) {
            return Ok(*function);
        }
        let module = self.module(&launch.file)?;
        let listed = !module.entries.is_empty();
        if listed && !module.entries.iter().any(|known| known == entry) {
            return Err(no_entry(entry, &module.entries));
        }
        let (handle, code) = (module.handle, module.code);
        let name = CString::new(entry)
            .map_err(|_| CudaError::Other(format!("`{entry}` is not a valid kernel name")))?;
        // SAFETY: the module is loaded and never unloaded.
        let function = unsafe {
            let handle = checked(
                "cuModuleGetFunction",
                result::module::get_function(handle, name),
            )?;
            loaded(handle, shape, code)?
        };
        self.functions.insert(key, function);
        Ok(function)
    }

    /// The compiler's name and version, by which cases are distinguished: `nvrtc 13.0`. `none`
    /// without a compiler; each case then reports the reason.
    pub fn compiler_version(&self) -> String {
        let image = compile::compiled("inputs", self.arch, self.compiler);
        image.map_or_else(|_| "none".to_owned(), |image| image.compiler)
    }

    fn image(&self, file: Option<&str>) -> Result<Image, CudaError> {
        Ok(match (file, &self.own) {
            (Some(name), _) => compile::compiled(name, self.arch, self.compiler)?,
            (None, Some(source)) => compile::image(source, self.arch, self.compiler, false)?,
            (None, None) => {
                return Err(CudaError::Other("this worker has no CUDA file".to_owned()));
            }
        })
    }

    /// The module of a file, loaded on first use.
    fn module(&mut self, file: &Option<String>) -> Result<&LoadedModule, CudaError> {
        if !self.modules.contains_key(file) {
            let image = self.image(file.as_deref())?;
            // SAFETY: the cubin is complete, as the compiler wrote it.
            let handle = unsafe { result::module::load_data(image.cubin.as_ptr().cast()) };
            let resources = image.resources.iter();
            let module = LoadedModule {
                handle: checked("cuModuleLoadData", handle)?,
                code: crc32fast::hash(&image.cubin),
                entries: resources.map(|one| one.name.clone()).collect(),
            };
            self.modules.insert(file.clone(), module);
        }
        let module = self.modules.get(file);
        module.ok_or_else(|| CudaError::Other("a module is not there".to_owned()))
    }
}

fn no_entry(entry: &str, entries: &[String]) -> CudaError {
    CudaError::Other(format!(
        "the CUDA file has no entry point `{entry}`; it has {}. Name one of them in `entry`, or \
         leave the problem out by `requires`",
        entries.join(", ")
    ))
}

/// An attribute of a device.
///
/// # Errors
/// The driver's error.
pub fn attribute_of(
    device: sys::CUdevice,
    attribute: CUdevice_attribute,
) -> Result<u32, CudaError> {
    // SAFETY: the device is the driver's own.
    let value = unsafe { result::device::get_attribute(device, attribute) };
    Ok(checked("cuDeviceGetAttribute", value)?.unsigned_abs())
}

/// Reserves the block's shared memory, and reads the code's resources.
///
/// # Safety
/// The function is loaded.
unsafe fn loaded(
    handle: sys::CUfunction,
    shape: BlockShape,
    code: u32,
) -> Result<LoadedKernel, CudaError> {
    use CUfunction_attribute as A;
    // SAFETY: required of the caller.
    unsafe {
        let attribute = |attribute| {
            let value = result::function::get_function_attribute(handle, attribute);
            Ok::<u32, CudaError>(checked("cuFuncGetAttribute", value)?.unsigned_abs())
        };
        // Only raised, because another launch of the same code may need more.
        let most = A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if attribute(most)? < shape.shared_bytes {
            let bytes = shape.shared_bytes as c_int;
            let allowed = result::function::set_function_attribute(handle, most, bytes);
            checked("cuFuncSetAttribute", allowed)?;
        }
        let blocks = result::occupancy::max_active_block_per_multiprocessor(
            handle,
            shape.threads() as c_int,
            shape.shared_bytes as usize,
        );
        Ok(LoadedKernel {
            code,
            handle,
            shape,
            registers: attribute(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: attribute(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: attribute(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            blocks_per_sm: checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", blocks)?
                .unsigned_abs(),
        })
    }
}

/// Memory that is filled with this byte has a NaN in every element, for every storage type.
pub const NAN_IN_EVERY_TYPE: u8 = 0xFF;

/// Device memory, freed when dropped.
#[derive(Debug)]
pub struct Memory {
    /// The address that kernels get.
    pub pointer: sys::CUdeviceptr,
    /// The size in bytes.
    pub bytes: usize,
}

impl Memory {
    /// Writes `byte` to all of the memory.
    ///
    /// # Errors
    /// The driver's error.
    pub fn fill(&mut self, byte: u8, stream: sys::CUstream) -> Result<(), CudaError> {
        // SAFETY: this memory is live and has this size.
        let filled = unsafe { result::memset_d8_async(self.pointer, byte, self.bytes, stream) };
        checked("cuMemsetD8Async", filled)
    }

    /// Waits for the stream, and copies the first `count` elements to the host.
    ///
    /// # Errors
    /// The driver's error.
    pub fn read<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::default(); count];
        let size = size_of_val(values.as_slice());
        assert!(size <= self.bytes, "reads beyond device memory");
        // SAFETY: inside of the memory, as just checked. Any bits are a valid T for the number
        // types used here.
        let read = unsafe { result::memcpy_dtoh_sync(&mut values, self.pointer) };
        checked("cuMemcpyDtoH", read)?;
        Ok(values)
    }
}

/// Queues a copy of `count` runs of `bytes` bytes, which start `pitch` bytes apart. The copies are
/// contiguous.
///
/// # Errors
/// The driver's error.
pub fn copy_runs(
    stream: sys::CUstream,
    (from, to): (sys::CUdeviceptr, sys::CUdeviceptr),
    [bytes, count, pitch]: [u64; 3],
) -> Result<(), CudaError> {
    use std::ptr::{null, null_mut};
    let on_device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: on_device,
        srcHost: null(),
        srcDevice: from,
        srcArray: null_mut(),
        srcPitch: pitch as usize,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: on_device,
        dstHost: null_mut(),
        dstDevice: to,
        dstArray: null_mut(),
        dstPitch: bytes as usize,
        WidthInBytes: bytes as usize,
        Height: count as usize,
    };
    // SAFETY: source and destination are live device memory of at least this size.
    let queued = unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, stream) };
    checked("cuMemcpy2DAsync", queued.result())
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: freed only here. It fails after a fault of the device, which cannot be handled.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Launches as a CUDA graph, which can be replayed.
pub struct Graph(sys::CUgraphExec);

impl Graph {
    /// Captures the work that `call` queues on a stream. It does not run.
    ///
    /// # Errors
    /// An error of the call, or of the driver: a graph cannot contain the call's work.
    pub fn capture(
        stream: sys::CUstream,
        call: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live. The graph is destroyed once, after its last use.
        unsafe {
            let begun = result::stream::begin_capture(stream, mode);
            checked("cuStreamBeginCapture", begun)?;
            let called = call();
            // Ended even after a failure, because a stream cannot be used while it captures.
            let graph = result::stream::end_capture(stream);
            called?;
            let graph = checked("cuStreamEndCapture", graph)?;
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            checked("cuGraphDestroy", result::graph::destroy(graph))?;
            Ok(Graph(checked("cuGraphInstantiateWithFlags", exec)?))
        }
    }

    /// Queues a replay of the graph.
    ///
    /// # Errors
    /// The driver's error.
    pub fn launch(&self, stream: sys::CUstream) -> Result<(), CudaError> {
        // SAFETY: the graph is instantiated, and the stream is live.
        let queued = unsafe { result::graph::launch(self.0, stream) };
        checked("cuGraphLaunch", queued)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: destroyed only here; the driver lets running replays finish. A failure cannot be
        // reported from here.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// Launches a kernel of the checks, by its name in the contract.
///
/// # Errors
/// An error of the driver or the compiler.
pub fn launch<T: Copy + 'static>(
    device: &mut CudaDevice,
    check: &str,
    problem: &Attention,
    argument: T,
    second: Option<ReferencePointers>,
) -> Result<(), CudaError> {
    let contract = ours().checks.get(check);
    let contract = contract.ok_or_else(|| CudaError::Other(format!("unknown check `{check}`")))?;
    let planned = contract.planned(problem, device.limits, &Numbers::new());
    let planned = planned.map_err(|error| CudaError::Other(error.to_string()))?;
    let function = device.function(&planned)?;
    let mut arguments = ArgumentList::default().push(argument);
    if let Some(results) = second {
        arguments = arguments.push(results);
    }
    // SAFETY: the arguments are laid out as the kernel's file declares them, and the driver copies
    // them before it returns. The memory that they point to lives until the next wait.
    unsafe { function.launch(planned.grid, device.stream, &mut arguments) }
}
