//! `naive`: stores the whole score matrix, and makes one pass over it for each step.

use std::f32::consts::LOG2_E;

use rayon::prelude::*;

use super::kernel::{CpuKernel, Geometry, GradientTensors, Operands, SavedTensors, Tally, tiles};
use super::softmax;
use super::tensors::{OutOfMemory, filled, lend};
use regatta_worker::matrix::{Matrix, multiply};

/// The number of queries whose score gradients are in memory at the same time.
const GRADIENT_QUERIES: usize = 64;

/// Forward is parallel over batch × heads. Backward is parallel over batch × key-value heads, so
/// that one task sums the query heads that share keys. It uses the probabilities that forward
/// stored.
pub struct Naive {
    shape: Geometry,
    /// `seq_q × seq_k` for each sequence and head.
    scores: Vec<Vec<f32>>,
}

impl Naive {
    /// The kernel for one problem.
    pub fn new(shape: Geometry) -> Naive {
        Naive {
            shape,
            scores: Vec::new(),
        }
    }

    fn rows(&self, sequence: usize) -> (usize, usize) {
        (
            self.shape.queries[sequence].len,
            self.shape.keys[sequence].len,
        )
    }

    /// Adds one query head's part to `dk` and `dv`, and computes its `dq`.
    fn head_gradients(
        &self,
        x: &Operands,
        saved: &SavedTensors,
        (sequence, head): (usize, usize),
        [dq, dk, dv_sum]: [&mut [f32]; 3],
    ) {
        let shape = &self.shape;
        let (d, dv) = (shape.d, shape.dv);
        let (seq_q, seq_k) = self.rows(sequence);
        let kv_head = head / shape.group();
        let probabilities = &self.scores[sequence * shape.heads + head];
        let tile = GRADIENT_QUERIES.min(seq_q);
        let k = x.k.rows(sequence, kv_head, 0..seq_k);
        let v = x.v.rows(sequence, kv_head, 0..seq_k);
        lend([tile * seq_k], |[ds]| {
            for rows in tiles(0..seq_q, GRADIENT_QUERIES) {
                let m = rows.len();
                let p = &probabilities[rows.start * seq_k..rows.end * seq_k];
                let dout = x.dout.rows(sequence, head, rows.clone());
                let q = x.q.rows(sequence, head, rows.clone());
                multiply(dout, v.t(), 0.0, ds, seq_k);
                for (i, row) in rows.clone().enumerate() {
                    let (out, dout) = (&saved.out, &x.dout);
                    let [out, dout] = [out, dout].map(|tensor| tensor.row(sequence, head, row));
                    let delta = softmax::dot(out, dout);
                    let cells = i * seq_k..(i + 1) * seq_k;
                    for (ds, p) in ds[cells.clone()].iter_mut().zip(&p[cells]) {
                        *ds = p * (*ds - delta) * shape.scale;
                    }
                }
                let (p, ds) = (
                    Matrix::new(p, m, seq_k, seq_k),
                    Matrix::new(ds, m, seq_k, seq_k),
                );
                multiply(p.t(), dout, 1.0, dv_sum, dv);
                multiply(ds.t(), q, 1.0, dk, d);
                multiply(ds, k, 0.0, &mut dq[rows.start * d..], d);
            }
        });
    }
}

/// `softmax(mask(q kᵀ scale)) v` for one sequence and head. `scores` keeps the probabilities.
fn attend(
    x: &Operands,
    shape: &Geometry,
    (sequence, head): (usize, usize),
    scores: &mut [f32],
    [out, lse]: [&mut [f32]; 2],
) {
    let dv = shape.dv;
    let (seq_q, seq_k) = (shape.queries[sequence].len, shape.keys[sequence].len);
    let kv_head = head / shape.group();
    let q = x.q.rows(sequence, head, 0..seq_q);
    let k = x.k.rows(sequence, kv_head, 0..seq_k);
    let v = x.v.rows(sequence, kv_head, 0..seq_k);
    multiply(q, k.t(), 0.0, scores, seq_k);
    softmax::scale(scores, shape.scale * LOG2_E);
    for (i, row) in scores.chunks_exact_mut(seq_k).enumerate() {
        let seen = shape.visible(sequence, i, &(0..seq_k));
        row[..seen.start].fill(0.0);
        row[seen.end..].fill(0.0);
        let row = &mut row[seen];
        let max = softmax::maximum(row);
        let sum = softmax::exponentiate(row, max);
        softmax::scale(row, sum.recip());
        // Without a visible key, this is -∞ + ln 0.
        lse[i] = max / LOG2_E + sum.ln();
    }
    multiply(Matrix::new(scores, seq_q, seq_k, seq_k), v, 0.0, out, dv);
}

impl CpuKernel for Naive {
    fn workspace_bytes(&self) -> u64 {
        let sequences = 0..self.shape.queries.len();
        let cells: u128 = sequences
            .map(|sequence| self.rows(sequence))
            .map(|(seq_q, seq_k)| seq_q as u128 * seq_k as u128)
            .sum();
        let bytes = cells.saturating_mul(self.shape.heads as u128 * 4);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn allocate(&mut self) -> Result<(), OutOfMemory> {
        let scores = self.shape.planes().map(|(sequence, _)| {
            let (seq_q, seq_k) = self.rows(sequence);
            filled(seq_q * seq_k, 0.0)
        });
        self.scores = scores.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn forward(&mut self, x: &Operands, saved: &mut SavedTensors, tally: &Tally) {
        let shape = &self.shape;
        let (out, lse) = (saved.out.writer(), saved.lse.writer());
        let scores = self.scores.par_iter_mut().enumerate().with_max_len(1);
        scores.for_each(|(plane, scores)| {
            tally.task();
            let (sequence, head) = (plane / shape.heads, plane % shape.heads);
            let seq_q = shape.queries[sequence].len;
            let mut results = vec![0.0; seq_q * (shape.dv + 1)];
            let (rows, sums) = results.split_at_mut(seq_q * shape.dv);
            attend(x, shape, (sequence, head), scores, [rows, sums]);
            // SAFETY: no other task has this sequence and head.
            unsafe {
                out.store(sequence, head, 0..seq_q, rows);
                lse.store(sequence, head, 0..seq_q, sums);
            }
        });
    }

    fn backward(
        &mut self,
        x: &Operands,
        saved: &SavedTensors,
        gradients: &mut GradientTensors,
        tally: &Tally,
    ) {
        let (d, dv, group) = (self.shape.d, self.shape.dv, self.shape.group());
        let (dq, dk) = (gradients.dq.writer(), gradients.dk.writer());
        let dv_out = gradients.dv.writer();
        let planes: Vec<_> = self.shape.kv_planes().collect();
        let tasks = planes.into_par_iter().with_max_len(1);
        tasks.for_each(|(sequence, kv_head)| {
            tally.task();
            let (seq_q, seq_k) = self.rows(sequence);
            let mut sums = vec![0.0; seq_q * d + seq_k * (d + dv)];
            let (dq_rows, rest) = sums.split_at_mut(seq_q * d);
            let (dk_sum, dv_sum) = rest.split_at_mut(seq_k * d);
            for head in kv_head * group..(kv_head + 1) * group {
                let sums = [&mut *dq_rows, &mut *dk_sum, &mut *dv_sum];
                self.head_gradients(x, saved, (sequence, head), sums);
                // SAFETY: no other task has this sequence and query head.
                unsafe { dq.store(sequence, head, 0..seq_q, dq_rows) };
            }
            // SAFETY: no other task has this sequence and key-value head.
            unsafe {
                dk.store(sequence, kv_head, 0..seq_k, dk_sum);
                dv_out.store(sequence, kv_head, 0..seq_k, dv_sum);
            }
        });
    }
}
