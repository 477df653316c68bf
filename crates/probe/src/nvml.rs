//! The device's state as NVML reports it.
//!
//! Reference: <https://docs.nvidia.com/deploy/nvml-api/>.

use crate::Error;
use crate::Result;
use crate::driver::functions;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

type Handle = *mut c_void;

const CLOCK_SM: c_uint = 1;
const CLOCK_MEM: c_uint = 2;
const TEMPERATURE_GPU: c_uint = 0;
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;

/// `nvmlProcessInfo_t` of the functions `_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ProcessInfo {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

functions! {
    NvmlFunctions, c"libnvidia-ml.so.1", c_int;
    nvmlInit [c"nvmlInit_v2"] ();
    nvmlDeviceGetHandleByPciBusId [c"nvmlDeviceGetHandleByPciBusId_v2"] (*const c_char, *mut Handle);
    nvmlDeviceGetClockInfo [c"nvmlDeviceGetClockInfo"] (Handle, c_uint, *mut c_uint);
    // Renamed from throttle to event reasons in 2023; the old name stays exported.
    nvmlDeviceGetCurrentClocksThrottleReasons
        [c"nvmlDeviceGetCurrentClocksThrottleReasons", c"nvmlDeviceGetCurrentClocksEventReasons"]
        (Handle, *mut c_ulonglong);
    nvmlDeviceGetPowerUsage [c"nvmlDeviceGetPowerUsage"] (Handle, *mut c_uint);
    nvmlDeviceGetTemperature [c"nvmlDeviceGetTemperature"] (Handle, c_uint, *mut c_uint);
    nvmlSystemGetDriverVersion [c"nvmlSystemGetDriverVersion"] (*mut c_char, c_uint);
    nvmlDeviceGetPowerManagementLimit [c"nvmlDeviceGetPowerManagementLimit"] (Handle, *mut c_uint);
    nvmlDeviceGetMigMode [c"nvmlDeviceGetMigMode"] (Handle, *mut c_uint, *mut c_uint);
    nvmlDeviceGetComputeRunningProcesses
        [c"nvmlDeviceGetComputeRunningProcesses_v3", c"nvmlDeviceGetComputeRunningProcesses_v2"]
        (Handle, *mut c_uint, *mut ProcessInfo);
}

/// The device's state besides the call, as evidence for judging samples later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NvmlState {
    /// Clock of the SMs.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_mhz: Option<u32>,
    /// Bits `nvmlClocksThrottleReason*`: 0x1 idle, 0x4 software power cap, ...
    pub throttle_reasons: Option<u64>,
    /// Power drawn by the board.
    pub power_mw: Option<u32>,
    /// Temperature of the chip.
    pub temperature_c: Option<u32>,
    /// The number of other processes that compute on the device.
    pub other_processes: Option<u32>,
}

/// The device's properties that CUDA does not report: part of a machine's fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvmlFacts {
    /// Version of the driver: `580.159.04`.
    pub driver: Option<String>,
    /// The board's power limit.
    pub power_limit_mw: Option<u32>,
    /// True if the device is in MIG mode; `None` if it does not support MIG.
    pub mig: Option<bool>,
}

/// A device in NVML.
#[derive(Clone, Copy)]
pub struct Nvml {
    functions: &'static NvmlFunctions,
    handle: Handle,
}

impl Nvml {
    /// Finds a device by its PCI bus id, because `CUDA_VISIBLE_DEVICES` renumbers devices for CUDA
    /// and not for NVML.
    pub fn by_bus_id(bus_id: &CStr) -> Result<Self> {
        static FUNCTIONS: OnceLock<Result<NvmlFunctions>> = OnceLock::new();
        let functions = FUNCTIONS.get_or_init(|| {
            let functions = NvmlFunctions::load()?;
            // SAFETY: no requirements. It is never shut down, because a framework may use it too.
            let status = unsafe { (functions.nvmlInit)() };
            check("nvmlInit", status)?;
            Ok(functions)
        });
        let functions = functions.as_ref().map_err(Clone::clone)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the bus id ends with a NUL, `handle` outlives the call.
        let status =
            unsafe { (functions.nvmlDeviceGetHandleByPciBusId)(bus_id.as_ptr(), &raw mut handle) };
        check("nvmlDeviceGetHandleByPciBusId", status)?;
        Ok(Self { functions, handle })
    }

    /// The present clock of the SMs.
    pub fn sm_mhz(&self) -> Option<u32> {
        self.clock(CLOCK_SM)
    }

    fn clock(&self, which: c_uint) -> Option<u32> {
        // SAFETY: here and below the handle is valid for the life of the process and
        // the pointer that is passed on is to a live variable of the right type.
        number(|value| unsafe {
            (self.functions.nvmlDeviceGetClockInfo)(self.handle, which, value)
        })
    }

    /// The whole state. Fields that this device does not report are `None`.
    pub fn state(&self) -> NvmlState {
        let f = self.functions;
        // SAFETY: as in `clock`.
        unsafe {
            NvmlState {
                sm_mhz: self.clock(CLOCK_SM),
                memory_mhz: self.clock(CLOCK_MEM),
                throttle_reasons: number(|value| {
                    (f.nvmlDeviceGetCurrentClocksThrottleReasons)(self.handle, value)
                }),
                power_mw: number(|value| (f.nvmlDeviceGetPowerUsage)(self.handle, value)),
                temperature_c: number(|value| {
                    (f.nvmlDeviceGetTemperature)(self.handle, TEMPERATURE_GPU, value)
                }),
                other_processes: self.other_processes(),
            }
        }
    }

    /// The properties that are constant while a process runs.
    pub fn facts(&self) -> NvmlFacts {
        let f = self.functions;
        let mut text: [c_char; 96] = [0; 96];
        // SAFETY: as in `clock`; NVML writes at most the given number of characters,
        // the last of them a NUL.
        unsafe {
            let known =
                (f.nvmlSystemGetDriverVersion)(text.as_mut_ptr(), text.len() as c_uint) == SUCCESS;
            let driver = known.then(|| CStr::from_ptr(text.as_ptr()));
            // The mode after the next reset, which does not matter.
            let mut pending = 0;
            NvmlFacts {
                driver: driver.map(|text| text.to_string_lossy().into_owned()),
                power_limit_mw: number(|value| {
                    (f.nvmlDeviceGetPowerManagementLimit)(self.handle, value)
                }),
                mig: number(|mode| (f.nvmlDeviceGetMigMode)(self.handle, mode, &raw mut pending))
                    .map(|mode: c_uint| mode != 0),
            }
        }
    }

    fn other_processes(&self) -> Option<u32> {
        let mut processes = [ProcessInfo::default(); 64];
        let mut count = processes.len() as c_uint;
        // SAFETY: `count` says how many entries the array has.
        let status = unsafe {
            (self.functions.nvmlDeviceGetComputeRunningProcesses)(
                self.handle,
                &raw mut count,
                processes.as_mut_ptr(),
            )
        };
        match status {
            // One of these is this process, which has a context. It is subtracted from the count,
            // because in a container NVML may report process ids of the host. If NVML does not even
            // list this process, it does not see others either.
            SUCCESS => count.checked_sub(1),
            INSUFFICIENT_SIZE => Some(count.max(processes.len() as c_uint)),
            _ => None,
        }
    }
}

fn number<T: Default>(ask: impl FnOnce(*mut T) -> c_int) -> Option<T> {
    let mut value = T::default();
    (ask(&raw mut value) == SUCCESS).then_some(value)
}

fn check(function: &str, status: c_int) -> Result<()> {
    if status == SUCCESS {
        return Ok(());
    }
    Err(Error::Unavailable(format!("{function} failed ({status})")))
}
