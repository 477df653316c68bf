//! Tensors as a caller would hold them: typed storage, two physical orders, ragged
//! batches. Kernels read and write them a few rows at a time, in f32.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::gemm::Matrix;
use regatta_worker::attention::{Dtype, Layout, inputs};

/// One sequence's rows of a packed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of all sequences before it.
    pub start: usize,
    /// Its rows.
    pub len: usize,
}

/// Spans of sequences of these lengths, one after the other.
pub fn spans(lengths: impl Iterator<Item = usize>) -> Arc<[Span]> {
    let mut start = 0;
    lengths
        .map(|len| {
            let span = Span { start, len };
            start += len;
            span
        })
        .collect()
}

/// `[batch, seq, heads, dim]` or `[batch, heads, seq, dim]`, contiguous.
pub struct HostTensor {
    storage: Storage,
    shape: TensorShape,
}

#[derive(Clone)]
struct TensorShape {
    sequences: Arc<[Span]>,
    heads: usize,
    dim: usize,
    layout: Layout,
}

impl TensorShape {
    fn rows(&self) -> usize {
        self.sequences
            .last()
            .map_or(0, |last| last.start + last.len)
    }

    fn row_stride(&self) -> usize {
        match self.layout {
            Layout::Bshd => self.heads * self.dim,
            Layout::Bhsd => self.dim,
        }
    }

    /// Offset of row `row` of a sequence and head.
    fn at(&self, sequence: usize, head: usize, row: usize) -> usize {
        let Span { start, len } = self.sequences[sequence];
        let head_stride = match self.layout {
            Layout::Bshd => self.dim,
            Layout::Bhsd => len * self.dim,
        };
        start * self.heads * self.dim + head * head_stride + row * self.row_stride()
    }
}

impl HostTensor {
    /// A tensor with every element at `value`.
    ///
    /// # Errors
    /// When it does not fit into memory.
    pub fn filled(
        sequences: &Arc<[Span]>,
        heads: usize,
        dim: usize,
        dtype: Dtype,
        layout: Layout,
        value: f32,
    ) -> Result<HostTensor, OutOfMemory> {
        let shape = TensorShape {
            sequences: sequences.clone(),
            heads,
            dim,
            layout,
        };
        let len = (shape.rows() as u128)
            .saturating_mul(heads as u128)
            .saturating_mul(dim as u128);
        let storage = usize::try_from(len)
            .map_err(|_| OutOfMemory(len))
            .and_then(|len| Storage::filled(len, dtype, value))?;
        Ok(HostTensor { storage, shape })
    }

    /// Writes the inputs that `seed` defines, rounded to the storage type.
    pub fn randomise(&mut self, seed: u64, tensor: inputs::Tensor) {
        let shape = self.shape.clone();
        let writer = self.writer();
        each_plane(&shape, |sequence, head| {
            let Span { start, len } = shape.sequences[sequence];
            let mut values = vec![0.0; shape.dim];
            for row in 0..len {
                let index = ((start + row) * shape.heads + head) * shape.dim;
                for (x, value) in values.iter_mut().enumerate() {
                    *value = inputs::element(seed, tensor, (index + x) as u64) as f32;
                }
                // SAFETY: each row of each plane is visited once.
                unsafe { writer.store(sequence, head, row..row + 1, &values) };
            }
        });
    }

    /// Rows of one sequence and head as an f32 matrix: the tensor itself where it
    /// stores f32, else converted into `scratch`.
    pub fn rows<'a>(
        &'a self,
        sequence: usize,
        head: usize,
        rows: Range<usize>,
        scratch: &'a mut [f32],
    ) -> Matrix<'a> {
        let dim = self.shape.dim;
        if let Storage::F32(values) = &self.storage {
            let stride = self.shape.row_stride();
            let values = &values[self.shape.at(sequence, head, rows.start)..];
            return Matrix::new(values, rows.len(), dim, stride);
        }
        let scratch = &mut scratch[..rows.len() * dim];
        self.load(sequence, head, rows.clone(), scratch);
        Matrix::new(scratch, rows.len(), dim, dim)
    }

    /// Reads rows of one sequence and head into `into`, one after the other.
    pub fn load(&self, sequence: usize, head: usize, rows: Range<usize>, into: &mut [f32]) {
        for (row, into) in rows.zip(into.chunks_exact_mut(self.shape.dim)) {
            self.storage.read(self.shape.at(sequence, head, row), into);
        }
    }

    /// Every element in logical order: `[batch, seq, heads, dim]`.
    pub fn to_logical(&self) -> Vec<f32> {
        let shape = &self.shape;
        let mut values = vec![0.0; shape.rows() * shape.heads * shape.dim];
        for (sequence, span) in shape.sequences.iter().enumerate() {
            let width = shape.heads * shape.dim;
            let rows = &mut values[span.start * width..][..span.len * width];
            rows.par_chunks_mut(shape.dim)
                .enumerate()
                .for_each(|(at, into)| {
                    let (row, head) = (at / shape.heads, at % shape.heads);
                    self.storage.read(shape.at(sequence, head, row), into);
                });
        }
        values
    }

    /// Elements of one row.
    pub fn dim(&self) -> usize {
        self.shape.dim
    }

    /// Lets several threads write rows of this tensor at once.
    pub fn writer(&mut self) -> RowWriter<'_> {
        RowWriter {
            target: self.storage.target(),
            shape: &self.shape,
            tensor: PhantomData,
        }
    }
}

/// Runs `f(sequence, head)` for each, in parallel.
fn each_plane(shape: &TensorShape, f: impl Fn(usize, usize) + Sync) {
    let planes = shape.sequences.len() * shape.heads;
    (0..planes)
        .into_par_iter()
        .for_each(|plane| f(plane / shape.heads, plane % shape.heads));
}

/// Write access to a tensor for tasks that each own some of its rows.
///
/// Rows of one task lie apart in memory (heads interleave), so that slices cannot
/// express the division; the tasks' index ranges do.
pub struct RowWriter<'a> {
    target: RawStorage,
    shape: &'a TensorShape,
    tensor: PhantomData<&'a mut Storage>,
}

// SAFETY: a writer has the tensor to itself, and what it hands out to several
// threads are stores whose callers promise that no two overlap.
unsafe impl Sync for RowWriter<'_> {}
// SAFETY: as above; the pointer is into plain memory of no particular thread.
unsafe impl Send for RowWriter<'_> {}

impl RowWriter<'_> {
    /// Writes `rows` of one sequence and head from `values`, rounded to the
    /// storage type.
    ///
    /// # Safety
    /// No other thread writes any of these rows through this writer meanwhile.
    pub unsafe fn store(&self, sequence: usize, head: usize, rows: Range<usize>, values: &[f32]) {
        self.check(sequence, head, &rows);
        let dim = self.shape.dim;
        for (row, values) in rows.zip(values.chunks_exact(dim)) {
            let at = self.shape.at(sequence, head, row);
            // SAFETY: the row is inside the tensor (checked above) and, by the
            // caller's promise, nobody else's.
            unsafe { self.target.store(at, values) };
        }
    }

    fn check(&self, sequence: usize, head: usize, rows: &Range<usize>) {
        assert!(head < self.shape.heads && rows.end <= self.shape.sequences[sequence].len);
    }
}

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
enum Storage {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Storage {
    fn filled(len: usize, dtype: Dtype, value: f32) -> Result<Storage, OutOfMemory> {
        Ok(match dtype {
            Dtype::F32 => Storage::F32(filled(len, value)?),
            Dtype::F16 => Storage::F16(filled(len, f16::from_f32(value))?),
            Dtype::Bf16 => Storage::Bf16(filled(len, bf16::from_f32(value))?),
        })
    }

    fn read(&self, at: usize, into: &mut [f32]) {
        let range = at..at + into.len();
        match self {
            Storage::F32(values) => into.copy_from_slice(&values[range]),
            Storage::F16(values) => values[range].convert_to_f32_slice(into),
            Storage::Bf16(values) => values[range].convert_to_f32_slice(into),
        }
    }

    /// Where the elements lie, for several threads to write to.
    fn target(&mut self) -> RawStorage {
        match self {
            Storage::F32(values) => RawStorage::F32(values.as_mut_ptr()),
            Storage::F16(values) => RawStorage::F16(values.as_mut_ptr()),
            Storage::Bf16(values) => RawStorage::Bf16(values.as_mut_ptr()),
        }
    }
}

/// Elements that several threads write, each some of them.
#[derive(Clone, Copy)]
enum RawStorage {
    F32(*mut f32),
    F16(*mut f16),
    Bf16(*mut bf16),
}

impl RawStorage {
    /// Writes values, rounded to the storage type.
    ///
    /// # Safety
    /// They lie inside the storage from `at` on, and nobody else reads or writes there
    /// meanwhile.
    #[inline]
    unsafe fn store(self, at: usize, values: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                RawStorage::F32(base) => slice_mut(base, at, values.len()).copy_from_slice(values),
                RawStorage::F16(base) => {
                    slice_mut(base, at, values.len()).convert_from_f32_slice(values)
                }
                RawStorage::Bf16(base) => {
                    slice_mut(base, at, values.len()).convert_from_f32_slice(values)
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_hold_the_same_elements() {
        let sequences = spans([3, 2].into_iter());
        for dtype in Dtype::ALL {
            let new =
                |layout| HostTensor::filled(&sequences, 2, 5, dtype, layout, f32::NAN).unwrap();
            let (mut a, mut b) = (new(Layout::Bshd), new(Layout::Bhsd));
            a.randomise(9, inputs::Tensor::K);
            b.randomise(9, inputs::Tensor::K);
            let expected: Vec<f64> = (0..50)
                .map(|i| inputs::rounded(inputs::element(9, inputs::Tensor::K, i), dtype))
                .collect();
            for tensor in [&a, &b] {
                let found: Vec<f64> = tensor.to_logical().into_iter().map(f64::from).collect();
                assert_eq!(found, expected);
            }
            let mut row = [0.0; 5];
            b.load(1, 1, 1..2, &mut row);
            assert_eq!(f64::from(row[0]), expected[4 * 10 + 5]);
        }
    }
}
