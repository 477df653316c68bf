//! Matrix products on f32 tiles, and memory for tiles.

use std::cell::Cell;

/// A strided f32 matrix in someone else's memory.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `columns` elements that start `stride` apart.
    ///
    /// # Panics
    /// When `values` is too short for that.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Matrix<'a> {
        assert!(columns <= stride || rows <= 1, "rows overlap");
        assert!(rows == 0 || (rows - 1) * stride + columns <= values.len());
        Matrix {
            values,
            rows,
            columns,
            row_stride: stride,
            column_stride: 1,
        }
    }

    /// The transpose, in place.
    pub fn t(self) -> Matrix<'a> {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `c = beta · c + a b`, where `c` has rows of `stride` elements.
///
/// With `beta` 0, `c` is not read.
///
/// # Panics
/// When the shapes do not fit each other.
pub fn multiply(a: Matrix, b: Matrix, beta: f32, c: &mut [f32], stride: usize) {
    assert_eq!(a.columns, b.rows);
    let (m, n) = (a.rows, b.columns);
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= stride && (m - 1) * stride + n <= c.len());
    // SAFETY: `Matrix::new` and the assertion above checked that every element
    // addressed by these sizes and strides lies inside the three slices; `c` is
    // borrowed mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        matrixmultiply::sgemm(
            m,
            a.columns,
            n,
            1.0,
            a.values.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            b.values.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            beta,
            c.as_mut_ptr(),
            stride as isize,
            1,
        );
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_and_strides() {
        // [1 2; 3 4] in rows of 3, times its transpose.
        let a = Matrix::new(&[1.0, 2.0, 9.0, 3.0, 4.0], 2, 2, 3);
        let mut c = [f32::NAN; 7];
        c[2..5].fill(7.0);
        multiply(a, a.t(), 0.0, &mut c, 5);
        assert_eq!(c, [5.0, 11.0, 7.0, 7.0, 7.0, 11.0, 25.0]);
    }
}
