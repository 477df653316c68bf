//! The clock's own kernels: one that does nothing, and one that waits for a given time.

use crate::Error;
use crate::Result;
use crate::driver::{DevicePointer, Driver, FunctionHandle, ModuleHandle, StreamHandle, cu};
use std::ffi::{CStr, c_void};
use std::ptr;

/// PTX, which the driver compiles for any device. `regatta_spin` waits by
/// `%globaltimer`, the one timer whose unit does not depend on the clock of the SMs;
/// `regatta_timer` notes each value that this timer takes.
const PTX: &CStr = c".version 6.0
.target sm_70
.address_size 64
.visible .entry regatta_null() { ret; }
.visible .entry regatta_spin(.param .u64 ns) {
  .reg .u64 %begin, %now, %ns;
  .reg .pred %more;
  mov.u64 %begin, %globaltimer;
  ld.param.u64 %ns, [ns];
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %ns;
  @%more bra again;
  ret;
}
.visible .entry regatta_timer(.param .u64 values, .param .u32 count) {
  .reg .u64 %at, %now, %last;
  .reg .u32 %left;
  .reg .pred %same;
  ld.param.u64 %at, [values];
  ld.param.u32 %left, [count];
  mov.u64 %last, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  setp.eq.u64 %same, %now, %last;
  @%same bra again;
  st.global.u64 [%at], %now;
  mov.u64 %last, %now;
  add.u64 %at, %at, 8;
  sub.u32 %left, %left, 1;
  setp.eq.u32 %same, %left, 0;
  @!%same bra again;
  ret;
}
";

/// Values of the device's timer that are looked at.
const TIMER_VALUES: usize = 1024;

/// The kernels, loaded.
pub struct Kernels {
    driver: &'static Driver,
    module: ModuleHandle,
    null: FunctionHandle,
    spin: FunctionHandle,
    timer: FunctionHandle,
}

impl Kernels {
    /// Loads them into the current context.
    ///
    /// # Errors
    /// The driver's, where it does not compile PTX.
    pub fn load(driver: &'static Driver) -> Result<Self> {
        let mut kernels = Self {
            driver,
            module: ptr::null_mut(),
            null: ptr::null_mut(),
            spin: ptr::null_mut(),
            timer: ptr::null_mut(),
        };
        // SAFETY: PTX text and names end with a NUL; out-pointers are to live fields.
        unsafe {
            cu!(
                driver,
                cuModuleLoadData(&raw mut kernels.module, PTX.as_ptr().cast())
            )?;
            for (function, name) in [
                (&raw mut kernels.null, c"regatta_null"),
                (&raw mut kernels.spin, c"regatta_spin"),
                (&raw mut kernels.timer, c"regatta_timer"),
            ] {
                cu!(
                    driver,
                    cuModuleGetFunction(function, kernels.module, name.as_ptr())
                )?;
            }
        }
        Ok(kernels)
    }

    /// Queues the kernel that does nothing.
    pub fn null(&self, stream: StreamHandle) -> Result<()> {
        self.launch(self.null, stream, &mut [])
    }

    /// Queues the kernel that waits.
    pub fn spin(&self, stream: StreamHandle, mut ns: u64) -> Result<()> {
        self.launch(self.spin, stream, &mut [(&raw mut ns).cast()])
    }

    /// Smallest step of `%globaltimer` in nanoseconds, by noting values of it. Waits for
    /// the device.
    pub fn timer_step_ns(&self, stream: StreamHandle) -> Result<u64> {
        let mut values = [0u64; TIMER_VALUES];
        let bytes = size_of_val(&values);
        let mut at: DevicePointer = 0;
        let mut count = TIMER_VALUES as u32;
        // SAFETY: `at` is a live out-pointer.
        unsafe { cu!(self.driver, cuMemAlloc(&raw mut at, bytes))? };
        let arguments = &mut [(&raw mut at).cast(), (&raw mut count).cast()];
        let noted = self.launch(self.timer, stream, arguments).and_then(|()| {
            // SAFETY: both sides hold `bytes`; the copy waits for the stream before it.
            unsafe {
                cu!(self.driver, cuCtxSynchronize())?;
                cu!(
                    self.driver,
                    cuMemcpyDtoH(values.as_mut_ptr().cast(), at, bytes)
                )
            }
        });
        // SAFETY: ours, and the kernel has ended or the context is lost.
        unsafe { (self.driver.cuMemFree)(at) };
        noted?;
        let steps = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        steps
            .min()
            .ok_or_else(|| Error::Unavailable("the timer does not move".to_owned()))
    }

    fn launch(
        &self,
        function: FunctionHandle,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: the kernels take exactly these arguments, which the driver copies
        // before it returns, and write no memory but that of `timer_step_ns`.
        unsafe {
            let (driver, arguments, none) = (self.driver, arguments.as_mut_ptr(), ptr::null_mut());
            cu!(
                driver,
                cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, none)
            )
        }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: ours, unloaded once. A failure has nobody to tell.
            unsafe { (self.driver.cuModuleUnload)(self.module) };
        }
    }
}
