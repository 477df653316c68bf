//! Memory on the device.

use cudarc::driver::{result, sys};

use super::error::{CudaError, checked};

/// A byte that makes a NaN of every storage type, written everywhere.
pub const NAN_IN_EVERY_TYPE: u8 = 0xFF;

/// Device memory, freed when dropped.
#[derive(Debug)]
pub struct Memory {
    pub(super) pointer: sys::CUdeviceptr,
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
