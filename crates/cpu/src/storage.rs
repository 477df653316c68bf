//! Elements in the type a problem stores them in, read and written as f32.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use regatta_worker::attention::Dtype;

/// Memory that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not allocate {0} bytes")]
pub struct OutOfMemory(pub u128);

/// A vector of `len` copies of `value`, or the reason there is none.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| OutOfMemory(len as u128 * size_of::<T>() as u128))?;
    values.resize(len, value);
    Ok(values)
}

/// Elements in the type a problem stores them in.
pub(super) enum Storage {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Storage {
    pub(super) fn filled(len: usize, dtype: Dtype, value: f32) -> Result<Storage, OutOfMemory> {
        Ok(match dtype {
            Dtype::F32 => Storage::F32(filled(len, value)?),
            Dtype::F16 => Storage::F16(filled(len, f16::from_f32(value))?),
            Dtype::Bf16 => Storage::Bf16(filled(len, bf16::from_f32(value))?),
        })
    }

    /// Takes the elements of one of the same type and length.
    pub(super) fn replace(&mut self, from: &Storage) {
        match (self, from) {
            (Storage::F32(to), Storage::F32(from)) => copy(to, from),
            (Storage::F16(to), Storage::F16(from)) => copy(to, from),
            (Storage::Bf16(to), Storage::Bf16(from)) => copy(to, from),
            _ => unreachable!("contents have the type of their place"),
        }
    }

    pub(super) fn all_finite(&self) -> bool {
        match self {
            Storage::F32(values) => values.par_iter().all(|value| value.is_finite()),
            Storage::F16(values) => values.par_iter().all(|value| value.is_finite()),
            Storage::Bf16(values) => values.par_iter().all(|value| value.is_finite()),
        }
    }

    pub(super) fn get(&self, at: usize) -> f32 {
        match self {
            Storage::F32(values) => values[at],
            Storage::F16(values) => values[at].to_f32(),
            Storage::Bf16(values) => values[at].to_f32(),
        }
    }

    pub(super) fn read(&self, at: usize, into: &mut [f32]) {
        let range = at..at + into.len();
        match self {
            Storage::F32(values) => into.copy_from_slice(&values[range]),
            Storage::F16(values) => values[range].convert_to_f32_slice(into),
            Storage::Bf16(values) => values[range].convert_to_f32_slice(into),
        }
    }

    pub(super) fn dtype(&self) -> Dtype {
        match self {
            Storage::F32(_) => Dtype::F32,
            Storage::F16(_) => Dtype::F16,
            Storage::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Where the elements lie, for several threads to write to.
    pub(super) fn target(&mut self) -> Target {
        match self {
            Storage::F32(values) => Target::F32(values.as_mut_ptr()),
            Storage::F16(values) => Target::F16(values.as_mut_ptr()),
            Storage::Bf16(values) => Target::Bf16(values.as_mut_ptr()),
        }
    }
}

/// Copies in shares of a page and more, so that small tensors stay on one thread.
fn copy<T: Copy + Send + Sync>(to: &mut [T], from: &[T]) {
    const SHARE: usize = 1 << 16;
    let shares = to.par_chunks_mut(SHARE).zip(from.par_chunks(SHARE));
    shares.for_each(|(to, from)| to.copy_from_slice(from));
}

/// Elements that several threads write, each some of them.
#[derive(Clone, Copy)]
pub(super) enum Target {
    F32(*mut f32),
    F16(*mut f16),
    Bf16(*mut bf16),
}

impl Target {
    /// Writes values, rounded to the storage type.
    ///
    /// # Safety
    /// They lie inside the storage from `at` on, and nobody else reads or writes there
    /// meanwhile.
    #[inline]
    pub(super) unsafe fn store(self, at: usize, values: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Target::F32(base) => slice_mut(base, at, values.len()).copy_from_slice(values),
                Target::F16(base) => {
                    slice_mut(base, at, values.len()).convert_from_f32_slice(values)
                }
                Target::Bf16(base) => {
                    slice_mut(base, at, values.len()).convert_from_f32_slice(values)
                }
            }
        }
    }

    /// Copies elements from a storage of the same type.
    ///
    /// # Safety
    /// As for [`Target::store`].
    #[inline]
    pub(super) unsafe fn copy(self, at: usize, from: &Storage, source: Range<usize>) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self, from) {
                (Target::F32(base), Storage::F32(values)) => {
                    slice_mut(base, at, source.len()).copy_from_slice(&values[source]);
                }
                (Target::F16(base), Storage::F16(values)) => {
                    slice_mut(base, at, source.len()).copy_from_slice(&values[source]);
                }
                (Target::Bf16(base), Storage::Bf16(values)) => {
                    slice_mut(base, at, source.len()).copy_from_slice(&values[source]);
                }
                _ => unreachable!("a copy has the type of its original"),
            }
        }
    }
}

/// # Safety
/// `at..at + len` lies inside the allocation at `base`, and no other reference
/// to it is alive.
unsafe fn slice_mut<'a, T>(base: *mut T, at: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(base.add(at), len) }
}
