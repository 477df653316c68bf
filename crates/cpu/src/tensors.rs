//! Tensors `[batch, seq, heads, dim]` (packed if lengths are ragged), which kernels read and write
//! a few rows at a time; and scratch memory for tiles.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use regatta_worker::matrix::Matrix;

/// The rows of one sequence in a packed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The number of rows of all earlier sequences.
    pub start: usize,
    /// The number of rows.
    pub len: usize,
}

/// Consecutive spans for sequences of these lengths.
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

/// A contiguous tensor.
pub struct HostTensor {
    /// The elements in logical order.
    pub values: Vec<f32>,
    shape: TensorShape,
}

#[derive(Clone)]
struct TensorShape {
    sequences: Arc<[Span]>,
    heads: usize,
    dim: usize,
}

impl TensorShape {
    /// The offset of a row of a sequence and head.
    fn at(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((self.sequences[sequence].start + row) * self.heads + head) * self.dim
    }
}

impl HostTensor {
    /// A tensor with `value` in every element.
    ///
    /// # Errors
    /// It does not fit into memory.
    pub fn filled(
        sequences: &Arc<[Span]>,
        heads: usize,
        dim: usize,
        value: f32,
    ) -> Result<HostTensor, OutOfMemory> {
        let rows = sequences.last().map_or(0, |last| last.start + last.len);
        let len = (rows as u128)
            .saturating_mul(heads as u128)
            .saturating_mul(dim as u128);
        let len = usize::try_from(len).map_err(|_| OutOfMemory(len))?;
        Ok(HostTensor {
            values: filled(len, value)?,
            shape: TensorShape {
                sequences: sequences.clone(),
                heads,
                dim,
            },
        })
    }

    /// Some rows of one sequence and head.
    pub fn rows(&self, sequence: usize, head: usize, rows: Range<usize>) -> Matrix<'_> {
        let TensorShape { heads, dim, .. } = self.shape;
        let values = &self.values[self.shape.at(sequence, head, rows.start)..];
        Matrix::new(values, rows.len(), dim, heads * dim)
    }

    /// One row of one sequence and head.
    pub fn row(&self, sequence: usize, head: usize, row: usize) -> &[f32] {
        &self.values[self.shape.at(sequence, head, row)..][..self.shape.dim]
    }

    /// Copies rows of one sequence and head into `into`, without gaps.
    pub fn load(&self, sequence: usize, head: usize, rows: Range<usize>, into: &mut [f32]) {
        for (row, into) in rows.zip(into.chunks_exact_mut(self.shape.dim)) {
            into.copy_from_slice(self.row(sequence, head, row));
        }
    }

    /// Lets several threads write rows of this tensor at the same time.
    pub fn writer(&mut self) -> RowWriter<'_> {
        RowWriter {
            values: self.values.as_mut_ptr(),
            shape: &self.shape,
            tensor: PhantomData,
        }
    }
}

/// Write access to a tensor for tasks that each own some of its rows.
///
/// The rows of one task are not contiguous (heads interleave), so slices cannot express the
/// division; the tasks' index ranges do.
pub struct RowWriter<'a> {
    values: *mut f32,
    shape: &'a TensorShape,
    tensor: PhantomData<&'a mut [f32]>,
}

// SAFETY: a writer borrows the tensor exclusively, and callers of `store` guarantee that no two
// stores overlap.
unsafe impl Sync for RowWriter<'_> {}
// SAFETY: as above. The pointer is to plain memory that belongs to no particular thread.
unsafe impl Send for RowWriter<'_> {}

impl RowWriter<'_> {
    /// Writes `values` to `rows` of one sequence and head.
    ///
    /// # Safety
    /// No other thread writes any of these rows through this writer at the same time.
    pub unsafe fn store(&self, sequence: usize, head: usize, rows: Range<usize>, values: &[f32]) {
        let TensorShape {
            sequences,
            heads,
            dim,
        } = self.shape;
        assert!(head < *heads && rows.end <= sequences[sequence].len);
        for (row, values) in rows.zip(values.chunks_exact(*dim)) {
            let at = self.shape.at(sequence, head, row);
            // SAFETY: the row is inside of the tensor (checked above), and the caller guarantees
            // that it is not shared.
            let into = unsafe { std::slice::from_raw_parts_mut(self.values.add(at), *dim) };
            into.copy_from_slice(values);
        }
    }
}

/// An allocation that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not allocate {0} bytes")]
pub struct OutOfMemory(pub u128);

/// A vector of `len` copies of `value`, or an error if it cannot be allocated.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| OutOfMemory(len as u128 * size_of::<T>() as u128))?;
    values.resize(len, value);
    Ok(values)
}

// Memory for tiles, which each thread keeps between tasks.
thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with one slice for each of `sizes`. Their contents are whatever an earlier use left.
pub fn lend<const N: usize, R>(sizes: [usize; N], f: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    // Taken, not borrowed, so that a panic in `f` only loses the buffer.
    let mut buffer = SCRATCH.take();
    let total = sizes.iter().sum();
    if buffer.len() < total {
        buffer.resize(total, 0.0);
    }
    let mut rest = buffer.as_mut_slice();
    let slices = sizes.map(|size| {
        let (slice, tail) = std::mem::take(&mut rest).split_at_mut(size);
        rest = tail;
        slice
    });
    let result = f(slices);
    SCRATCH.set(buffer);
    result
}
