//! Products of strided matrices, for f32 kernels and the float64 reference.

/// A strided matrix in borrowed memory.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix whose rows have `columns` elements and start `stride` apart.
    ///
    /// # Panics
    /// `values` is too short.
    pub fn new(values: &'a [T], rows: usize, columns: usize, stride: usize) -> Matrix<'a, T> {
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

    /// The transpose, without copying.
    pub fn t(self) -> Matrix<'a, T> {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `matrixmultiply`'s function for a type: `c = alpha · a b + beta · c`, by sizes and strides.
#[rustfmt::skip]
type Gemm<T> = unsafe fn(
    usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize,
);

/// A type of elements.
pub trait Element: Copy {
    /// 1.
    const ONE: Self;
    /// Multiplies.
    const GEMM: Gemm<Self>;
}

impl Element for f32 {
    const ONE: f32 = 1.0;
    const GEMM: Gemm<f32> = matrixmultiply::sgemm;
}

impl Element for f64 {
    const ONE: f64 = 1.0;
    const GEMM: Gemm<f64> = matrixmultiply::dgemm;
}

/// `c = beta · c + a b`, where the rows of `c` are `stride` elements apart.
///
/// With `beta` 0, `c` is not read.
///
/// # Panics
/// The shapes do not match.
pub fn multiply<T: Element>(a: Matrix<T>, b: Matrix<T>, beta: T, c: &mut [T], stride: usize) {
    assert_eq!(a.columns, b.rows);
    let (m, n) = (a.rows, b.columns);
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= stride && (m - 1) * stride + n <= c.len());
    // SAFETY: `Matrix::new` and the assertion above checked that all elements addressed by these
    // sizes and strides are inside of the three slices. `c` is borrowed mutably, so it overlaps
    // neither `a` nor `b`.
    unsafe {
        T::GEMM(
            m,
            a.columns,
            n,
            T::ONE,
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
