//! The clock's own kernels: an empty one, and one that waits for a given time.

use crate::Result;
use crate::driver::{Driver, FunctionHandle, ModuleHandle, StreamHandle, cu};
use std::ffi::{CStr, c_void};
use std::ptr;

/// PTX, which the driver compiles for any device. `regatta_spin` waits by `%globaltimer`, the only
/// timer whose unit does not depend on the clock of the SMs.
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
";

/// The loaded kernels.
pub struct Kernels {
    driver: &'static Driver,
    module: ModuleHandle,
    null: FunctionHandle,
    spin: FunctionHandle,
}

impl Kernels {
    /// Loads the kernels into the current context.
    ///
    /// # Errors
    /// The driver's error, for example if it does not compile PTX.
    pub fn load(driver: &'static Driver) -> Result<Self> {
        let mut kernels = Self {
            driver,
            module: ptr::null_mut(),
            null: ptr::null_mut(),
            spin: ptr::null_mut(),
        };
        // SAFETY: PTX text and names end with a NUL. Out-pointers are to live fields.
        unsafe {
            cu!(
                driver,
                cuModuleLoadData(&raw mut kernels.module, PTX.as_ptr().cast())
            )?;
            for (function, name) in [
                (&raw mut kernels.null, c"regatta_null"),
                (&raw mut kernels.spin, c"regatta_spin"),
            ] {
                cu!(
                    driver,
                    cuModuleGetFunction(function, kernels.module, name.as_ptr())
                )?;
            }
        }
        Ok(kernels)
    }

    /// Queues the empty kernel.
    pub fn null(&self, stream: StreamHandle) -> Result<()> {
        self.launch(self.null, stream, &mut [])
    }

    /// Queues the kernel that waits.
    pub fn spin(&self, stream: StreamHandle, mut ns: u64) -> Result<()> {
        self.launch(self.spin, stream, &mut [(&raw mut ns).cast()])
    }

    fn launch(
        &self,
        function: FunctionHandle,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: the kernels take exactly these arguments, which the driver copies before it
        // returns. They write no memory.
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
            // SAFETY: loaded by `load`, and unloaded only here. A failure cannot be reported from
            // here.
            unsafe { (self.driver.cuModuleUnload)(self.module) };
        }
    }
}
