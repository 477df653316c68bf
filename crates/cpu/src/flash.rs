//! `flash`: tiles, an online softmax, and a task for each tile of queries.

use std::f32::consts::LN_2;
use std::ops::Range;

use rayon::prelude::*;

use super::kernel::{CpuKernel, Geometry, GradientTensors, Operands, SavedTensors, Tally, tiles};
use super::softmax;
use super::tensors::lend;
use super::tile::{KEYS, QUERIES, QuerySide, attend};
use regatta_worker::matrix::{Matrix, multiply};

/// The number of keys in a tile whose `dk` and `dv` one task sums.
const GRADIENT_KEYS: usize = 128;

/// The number of queries in a tile, for `rows` rows over all sequences and heads. Large tiles make
/// the products efficient; small ones give every thread at least two of them.
fn query_tile(rows: usize, threads: usize) -> usize {
    let mut tile = QUERIES;
    while tile > 32 && rows / tile < 2 * threads {
        tile /= 2;
    }
    tile
}

/// A tile of rows of one sequence and head.
struct Task {
    plane: (usize, usize),
    rows: Range<usize>,
}

/// Forward is parallel over batch × heads × query tiles. Backward computes `dk` and `dv` in
/// parallel over batch × key-value heads × key tiles, and then `dq` over query tiles. Scores are
/// computed once in each of these two passes, and no two tasks write the same element.
pub struct Flash {
    shape: Geometry,
    query_tiles: Vec<Task>,
    key_tiles: Vec<Task>,
}

impl Flash {
    /// The kernel for one problem.
    pub fn new(shape: Geometry) -> Flash {
        let tasks = |planes: &mut dyn Iterator<Item = (usize, usize)>, rows: &[_], size| {
            let mut tasks = Vec::new();
            for plane in planes {
                let rows: &super::tensors::Span = &rows[plane.0];
                tasks.extend(tiles(0..rows.len, size).map(|rows| Task { plane, rows }));
            }
            tasks
        };
        let rows_q: usize = shape.queries.iter().map(|span| span.len).sum();
        let query_tile = query_tile(rows_q * shape.heads, rayon::current_num_threads());
        let query_tiles = tasks(&mut shape.planes(), &shape.queries, query_tile);
        let key_tiles = tasks(&mut shape.kv_planes(), &shape.keys, GRADIENT_KEYS);
        Flash {
            shape,
            query_tiles,
            key_tiles,
        }
    }

    /// `dk` and `dv` of one tile of keys, summed over the query heads that read it.
    fn key_gradients(
        &self,
        x: &Operands,
        saved: &SavedTensors,
        task: &Task,
        sums: [&mut [f32]; 2],
    ) {
        let shape = &self.shape;
        let (sequence, kv_head) = task.plane;
        let (n, d, dv) = (task.rows.len(), shape.d, shape.dv);
        let [dk_sum, dv_sum] = sums;
        dk_sum.fill(0.0);
        dv_sum.fill(0.0);
        let queries = QUERIES.min(shape.queries[sequence].len);
        let [a, b, c] = QuerySide::scratch(shape, queries);
        let k = x.k.rows(sequence, kv_head, task.rows.clone());
        let v = x.v.rows(sequence, kv_head, task.rows.clone());
        let sizes = [queries * n, queries * n, a, b, c];
        lend(sizes, |[p, ds, q, lse, delta]| {
            for head in kv_head * shape.group()..(kv_head + 1) * shape.group() {
                for rows in tiles(0..shape.queries[sequence].len, QUERIES) {
                    if shape.keys_of(sequence, &rows, task.rows.clone()).is_empty() {
                        continue;
                    }
                    let m = rows.len();
                    let scratch = [&mut *q, &mut *lse, &mut *delta];
                    let side = QuerySide::load(x, saved, shape, (sequence, head), rows, scratch);
                    side.softmax_gradient(shape, (k, v), &task.rows, p, ds);
                    multiply(Matrix::new(p, m, n, n).t(), side.dout, 1.0, dv_sum, dv);
                    multiply(Matrix::new(ds, m, n, n).t(), side.q, 1.0, dk_sum, d);
                }
            }
            // `q` contains the factor log₂ e / √d; the gradient needs 1 / √d.
            softmax::scale(dk_sum, LN_2);
        });
    }

    /// `dq` of one tile of queries.
    fn query_gradients(&self, x: &Operands, saved: &SavedTensors, task: &Task, sum: &mut [f32]) {
        let shape = &self.shape;
        let (sequence, head) = task.plane;
        let (m, d) = (task.rows.len(), shape.d);
        let kv_head = head / shape.group();
        let keys = shape.keys_of(sequence, &task.rows, 0..shape.keys[sequence].len);
        let width = KEYS.min(keys.len());
        sum.fill(0.0);
        let [a, b, c] = QuerySide::scratch(shape, m);
        let sizes = [m * width, m * width, a, b, c];
        lend(sizes, |[p, ds, q, lse, delta]| {
            let scratch = [q, lse, delta];
            let side = QuerySide::load(x, saved, shape, task.plane, task.rows.clone(), scratch);
            for tile in tiles(keys, KEYS) {
                let n = tile.len();
                let k = x.k.rows(sequence, kv_head, tile.clone());
                let v = x.v.rows(sequence, kv_head, tile.clone());
                side.softmax_gradient(shape, (k, v), &tile, p, ds);
                multiply(Matrix::new(ds, m, n, n), k, 1.0, sum, d);
            }
            softmax::scale(sum, shape.scale);
        });
    }
}

impl CpuKernel for Flash {
    fn forward(&mut self, x: &Operands, saved: &mut SavedTensors, tally: &Tally) {
        let shape = &self.shape;
        let (out, lse) = (saved.out.writer(), saved.lse.writer());
        // Under a causal mask the last tiles take longest, so they come first.
        let tasks = self.query_tiles.par_iter().rev().with_max_len(1);
        tasks.for_each(|task| {
            tally.task();
            let (sequence, head) = task.plane;
            let keys = 0..shape.keys[sequence].len;
            let mut tile = vec![0.0; task.rows.len() * (shape.dv + 1)];
            let (rows, sums) = tile.split_at_mut(task.rows.len() * shape.dv);
            attend(x, shape, task.plane, task.rows.clone(), keys, rows, sums);
            // SAFETY: no other task has these rows of this sequence and head.
            unsafe {
                out.store(sequence, head, task.rows.clone(), rows);
                lse.store(sequence, head, task.rows.clone(), sums);
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
        let (d, dv) = (self.shape.d, self.shape.dv);
        let (dk, dv_out) = (gradients.dk.writer(), gradients.dv.writer());
        self.key_tiles.par_iter().with_max_len(1).for_each(|task| {
            tally.task();
            let mut tile = vec![0.0; task.rows.len() * (d + dv)];
            let (dk_sum, dv_sum) = tile.split_at_mut(task.rows.len() * d);
            self.key_gradients(x, saved, task, [dk_sum, dv_sum]);
            // SAFETY: no other task has these keys of this sequence and head.
            unsafe {
                dk.store(task.plane.0, task.plane.1, task.rows.clone(), dk_sum);
                dv_out.store(task.plane.0, task.plane.1, task.rows.clone(), dv_sum);
            }
        });
        let dq = gradients.dq.writer();
        let tasks = self.query_tiles.par_iter().rev().with_max_len(1);
        tasks.for_each(|task| {
            tally.task();
            let mut tile = vec![0.0; task.rows.len() * d];
            self.query_gradients(x, saved, task, &mut tile);
            // SAFETY: no other task has these queries of this sequence and head.
            unsafe { dq.store(task.plane.0, task.plane.1, task.rows.clone(), &tile) };
        });
    }
}
