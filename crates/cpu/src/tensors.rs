//! Tensors in memory, `[batch, seq, heads, dim]` or packed where lengths are ragged, which kernels
//! read and write a few rows at a time; and memory for tiles.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use regatta_worker::matrix::Matrix;

/// One sequence's rows of a packed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of all sequences before it.
    pub start: usize,
    /// The number of rows.
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

/// A tensor, contiguous.
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
    /// Offset of row `row` of a sequence and head.
    fn at(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((self.sequences[sequence].start + row) * self.heads + head) * self.dim
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

    /// Rows of one sequence and head.
    pub fn rows(&self, sequence: usize, head: usize, rows: Range<usize>) -> Matrix<'_> {
        let TensorShape { heads, dim, .. } = self.shape;
        let values = &self.values[self.shape.at(sequence, head, rows.start)..];
        Matrix::new(values, rows.len(), dim, heads * dim)
    }

    /// One row of one sequence and head.
    pub fn row(&self, sequence: usize, head: usize, row: usize) -> &[f32] {
        &self.values[self.shape.at(sequence, head, row)..][..self.shape.dim]
    }

    /// Copies rows of one sequence and head into `into`, one after the other.
    pub fn load(&self, sequence: usize, head: usize, rows: Range<usize>, into: &mut [f32]) {
        for (row, into) in rows.zip(into.chunks_exact_mut(self.shape.dim)) {
            into.copy_from_slice(self.row(sequence, head, row));
        }
    }

    /// Lets several threads write rows of this tensor at once.
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
/// Rows of one task lie apart in memory (heads interleave), so that slices cannot
/// express the division; the tasks' index ranges do.
pub struct RowWriter<'a> {
    values: *mut f32,
    shape: &'a TensorShape,
    tensor: PhantomData<&'a mut [f32]>,
}

// SAFETY: a writer has the tensor to itself, and what it hands out to several
// threads are stores whose callers promise that no two overlap.
unsafe impl Sync for RowWriter<'_> {}
// SAFETY: as above; the pointer is into plain memory of no particular thread.
unsafe impl Send for RowWriter<'_> {}

impl RowWriter<'_> {
    /// Writes `rows` of one sequence and head from `values`.
    ///
    /// # Safety
    /// No other thread writes any of these rows through this writer meanwhile.
    pub unsafe fn store(&self, sequence: usize, head: usize, rows: Range<usize>, values: &[f32]) {
        let TensorShape {
            sequences,
            heads,
            dim,
        } = self.shape;
        assert!(head < *heads && rows.end <= sequences[sequence].len);
        for (row, values) in rows.zip(values.chunks_exact(*dim)) {
            let at = self.shape.at(sequence, head, row);
            // SAFETY: the row is inside the tensor (checked above) and, by the
            // caller's promise, not shared.
            let into = unsafe { std::slice::from_raw_parts_mut(self.values.add(at), *dim) };
            into.copy_from_slice(values);
        }
    }
}

/// Memory that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not allocate {0} bytes")]
pub struct OutOfMemory(pub u128);

/// A vector of `len` copies of `value`, or the error of the allocation.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| OutOfMemory(len as u128 * size_of::<T>() as u128))?;
    values.resize(len, value);
    Ok(values)
}

// Memory for tiles, kept by each thread from one task to the next.
thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with one slice for each of `sizes`. Their contents are left over from
/// whatever used them last.
pub fn lend<const N: usize, R>(sizes: [usize; N], f: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    // Taken, not borrowed: a panic in `f` then costs the buffer, and no state.
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
