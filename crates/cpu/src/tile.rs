//! Attention on tiles: the steps of the fused variants.
//!
//! Scores are in units of log₂ (`q` is scaled by `log₂ e / √d` when it is loaded), so that the
//! softmax only needs `exp2`.

use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use super::kernel::{Geometry, Operands, SavedTensors, tiles};
use super::softmax;
use super::tensors::lend;
use regatta_worker::matrix::{Matrix, multiply};

/// The largest number of queries in a tile. With as many keys, a tile of scores has 256 KiB, which
/// fits into a core's second-level cache.
pub const QUERIES: usize = 256;
/// The number of keys in a tile.
pub const KEYS: usize = 256;

/// Attention of the queries `rows` over only the keys `keys`, as an online softmax (Milakov and
/// Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135).
///
/// Writes the normalised output to `out` (`rows × dv`), and the natural log-sum-exp to `lse`
/// (`rows`); 0 and -∞ for a query that sees none of these keys.
pub fn attend(
    x: &Operands,
    shape: &Geometry,
    (sequence, head): (usize, usize),
    rows: Range<usize>,
    keys: Range<usize>,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let (n, d, dv) = (rows.len(), shape.d, shape.dv);
    let (out, sum) = (&mut out[..n * dv], &mut lse[..n]);
    let kv_head = head / shape.group();
    let keys = shape.keys_of(sequence, &rows, keys);
    out.fill(0.0);
    sum.fill(0.0);
    let width = KEYS.min(keys.len());
    lend([n * d, n * width, n], |[q, scores, max]| {
        x.q.load(sequence, head, rows.clone(), q);
        softmax::scale(q, shape.scale * LOG2_E);
        max.fill(f32::NEG_INFINITY);
        let q = Matrix::new(q, n, d, d);
        for tile in tiles(keys, KEYS) {
            let k = x.k.rows(sequence, kv_head, tile.clone());
            let v = x.v.rows(sequence, kv_head, tile.clone());
            let width = tile.len();
            multiply(q, k.t(), 0.0, scores, width);
            for (i, row) in scores.chunks_exact_mut(width).take(n).enumerate() {
                let seen = shape.visible(sequence, rows.start + i, &tile);
                let out = &mut out[i * dv..(i + 1) * dv];
                online_softmax(row, seen, &mut max[i], &mut sum[i], out);
            }
            multiply(Matrix::new(scores, n, width, width), v, 1.0, out, dv);
        }
        for (i, sum) in sum.iter_mut().enumerate() {
            // A query that sees no key has a sum of 0 and rows of 0.
            if *sum != 0.0 {
                softmax::scale(&mut out[i * dv..(i + 1) * dv], sum.recip());
            }
            *sum = max[i] * LN_2 + sum.ln();
        }
    });
}

/// Turns a row of scores into weights relative to the running maximum, and rescales the sums that
/// were accumulated with the previous maximum.
fn online_softmax(
    row: &mut [f32],
    seen: Range<usize>,
    max: &mut f32,
    sum: &mut f32,
    out: &mut [f32],
) {
    row[..seen.start].fill(0.0);
    row[seen.end..].fill(0.0);
    if seen.is_empty() {
        return;
    }
    let row = &mut row[seen];
    let before = *max;
    let highest = softmax::maximum(row);
    if highest > before {
        *max = highest;
        // Before the first key the maximum is -∞, and the factor exp2(-∞) = 0.
        let shrink = (before - highest).exp2();
        *sum *= shrink;
        softmax::scale(out, shrink);
    }
    *sum += softmax::exponentiate(row, *max);
}

/// The queries' part of backward, for a tile of queries.
pub struct QuerySide<'a> {
    rows: Range<usize>,
    sequence: usize,
    /// Scaled by `log₂ e / √d`.
    pub q: Matrix<'a>,
    /// Gradient of the output.
    pub dout: Matrix<'a>,
    lse: &'a [f32],
    delta: &'a [f32],
}

impl<'a> QuerySide<'a> {
    /// Sizes of the scratch memory that [`QuerySide::load`] needs for `n` queries.
    pub fn scratch(shape: &Geometry, n: usize) -> [usize; 3] {
        [n * shape.d, n, n]
    }

    /// Loads queries, and computes `δ = dout · out` for each.
    pub fn load(
        x: &'a Operands,
        saved: &SavedTensors,
        shape: &Geometry,
        (sequence, head): (usize, usize),
        rows: Range<usize>,
        [q, lse, delta]: [&'a mut [f32]; 3],
    ) -> QuerySide<'a> {
        let (n, d) = (rows.len(), shape.d);
        let q = &mut q[..n * d];
        for (row, delta) in rows.clone().zip(&mut *delta) {
            let [out, dout] = [&saved.out, &x.dout].map(|tensor| tensor.row(sequence, head, row));
            *delta = softmax::dot(out, dout);
        }
        x.q.load(sequence, head, rows.clone(), q);
        softmax::scale(q, shape.scale * LOG2_E);
        saved.lse.load(sequence, head, rows.clone(), &mut lse[..n]);
        softmax::scale(&mut lse[..n], LOG2_E);
        QuerySide {
            q: Matrix::new(q, n, d, d),
            dout: x.dout.rows(sequence, head, rows.clone()),
            rows,
            sequence,
            lse: &lse[..n],
            delta: &delta[..n],
        }
    }

    /// `p` and `ds` (`rows × keys` each) for these queries and the keys `tile`.
    pub fn softmax_gradient(
        &self,
        shape: &Geometry,
        (k, v): (Matrix, Matrix),
        tile: &Range<usize>,
        p: &mut [f32],
        ds: &mut [f32],
    ) {
        let width = tile.len();
        multiply(self.q, k.t(), 0.0, p, width);
        multiply(self.dout, v.t(), 0.0, ds, width);
        let rows = p.chunks_exact_mut(width).zip(ds.chunks_exact_mut(width));
        for (i, (p, ds)) in rows.take(self.rows.len()).enumerate() {
            let seen = shape.visible(self.sequence, self.rows.start + i, tile);
            for row in [&mut *p, &mut *ds] {
                row[..seen.start].fill(0.0);
                row[seen.end..].fill(0.0);
            }
            let (p, ds) = (&mut p[seen.clone()], &mut ds[seen]);
            softmax::softmax_gradient(p, ds, self.lse[i], self.delta[i]);
        }
    }
}
