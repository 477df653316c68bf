//! `split-key`: parallel over batch × heads × splits of the keys, and nothing else.
//!
//! It models a GPU kernel with the grid `(num_splits_key, heads, batch)`, such as the CUTLASS
//! backward of xFormers and PyTorch. With one head of one sequence, all parallelism comes from
//! `num_splits_key`.

use std::collections::BTreeMap;
use std::f32::consts::LN_2;
use std::ops::Range;

use rayon::prelude::*;

use super::kernel::{CpuKernel, Geometry, GradientTensors, Operands, SavedTensors, Tally, tiles};
use super::softmax;
use super::tensors::{OutOfMemory, RowWriter, filled, lend};
use super::tile::{KEYS, QUERIES, QuerySide, attend};
use regatta_worker::case::ParamValue;
use regatta_worker::matrix::{Matrix, multiply};

/// The parameter's name.
pub const NUM_SPLITS_KEY: &str = "num_splits_key";

/// The smallest number of keys in a split, that of xFormers' 64 × 64 tiles.
pub const SPLIT_TILE: usize = 64;

/// The effective value of `num_splits_key`.
///
/// `None` (automatic): enough splits for every thread, but no more than there are tiles. An
/// explicit value is clamped to `1..=tiles`: a sentinel such as -1, which means "choose for me" but
/// is passed on as a value, becomes **1**. That is the bug that this variant models (xFormers issue
/// #1176, fixed by its PR #1177): the kernel computed `min(tiles, value)` and then `max(1, ..)`
/// once its parameter had changed from an integer with a sentinel to an optional.
pub fn effective_splits(asked: Option<i64>, planes: usize, seq_k: usize, threads: usize) -> usize {
    let most = seq_k.div_ceil(SPLIT_TILE).max(1);
    match asked {
        Some(value) => value.clamp(1, most as i64) as usize,
        None => threads.div_ceil(planes.max(1)).clamp(1, most),
    }
}

/// One split of the keys of one sequence and query head, with its partial results.
struct Split {
    plane: (usize, usize),
    keys: Range<usize>,
    /// `seq_q × dv`: the output over only these keys.
    out: Vec<f32>,
    /// `seq_q`: the log-sum-exp over only these keys.
    lse: Vec<f32>,
    /// `seq_q × d`: the part of `dq` from these keys.
    dq: Vec<f32>,
    /// `keys × d` and `keys × dv`: this head's part of the gradients of these keys.
    dk: Vec<f32>,
    dv: Vec<f32>,
}

/// Forward merges the softmax of the splits by their log-sum-exp. In backward, each split computes
/// the gradients of its own keys, and the parts of `dq` are summed at the end.
pub struct SplitKey {
    shape: Geometry,
    has_backward: bool,
    splits: usize,
    tasks: Vec<Split>,
}

impl SplitKey {
    /// The kernel for one problem. `asked` is `num_splits_key`, with `None` for `auto`.
    pub fn new(shape: Geometry, asked: Option<i64>, has_backward: bool) -> SplitKey {
        let planes = shape.queries.len() * shape.heads;
        let longest = shape.keys.iter().map(|span| span.len).max().unwrap_or(0);
        let threads = rayon::current_num_threads();
        SplitKey {
            splits: effective_splits(asked, planes, longest, threads),
            shape,
            has_backward,
            tasks: Vec::new(),
        }
    }

    /// The keys of each split: whole tiles, divided evenly. A sequence with fewer tiles than splits
    /// leaves some splits empty.
    fn ranges(&self, seq_k: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (splits, tiles) = (self.splits, seq_k.div_ceil(SPLIT_TILE));
        let bound = move |i: usize| (i * tiles / splits * SPLIT_TILE).min(seq_k);
        (0..splits).map(move |i| bound(i)..bound(i + 1))
    }

    fn split(&self, plane: (usize, usize), keys: Range<usize>) -> Result<Split, OutOfMemory> {
        let (d, dv) = (self.shape.d, self.shape.dv);
        let queries = self.shape.queries[plane.0].len;
        let backward = usize::from(self.has_backward);
        Ok(Split {
            plane,
            out: filled(queries * dv, 0.0)?,
            lse: filled(queries, 0.0)?,
            dq: filled(queries * d * backward, 0.0)?,
            dk: filled(keys.len() * d * backward, 0.0)?,
            dv: filled(keys.len() * dv * backward, 0.0)?,
            keys,
        })
    }
}

impl Split {
    fn forward(&mut self, x: &Operands, shape: &Geometry) {
        for rows in tiles(0..self.lse.len(), QUERIES) {
            let out = &mut self.out[rows.start * shape.dv..];
            let lse = &mut self.lse[rows.start..];
            attend(x, shape, self.plane, rows, self.keys.clone(), out, lse);
        }
    }

    fn backward(&mut self, x: &Operands, saved: &SavedTensors, shape: &Geometry) {
        let (d, dv) = (shape.d, shape.dv);
        let (sequence, head) = self.plane;
        let kv_head = head / shape.group();
        for sum in [&mut self.dq, &mut self.dk, &mut self.dv] {
            sum.fill(0.0);
        }
        let (queries, width) = (QUERIES.min(self.lse.len()), KEYS.min(self.keys.len()));
        let [a, b, c] = QuerySide::scratch(shape, queries);
        let cells = queries * width;
        lend([cells, cells, a, b, c], |[p, ds, q, lse, delta]| {
            for rows in tiles(0..self.lse.len(), QUERIES) {
                let keys = shape.keys_of(sequence, &rows, self.keys.clone());
                let (m, first) = (rows.len(), rows.start);
                let scratch = [&mut *q, &mut *lse, &mut *delta];
                let side = QuerySide::load(x, saved, shape, self.plane, rows, scratch);
                for tile in tiles(keys, KEYS) {
                    let n = tile.len();
                    let k = x.k.rows(sequence, kv_head, tile.clone());
                    let v = x.v.rows(sequence, kv_head, tile.clone());
                    side.softmax_gradient(shape, (k, v), &tile, p, ds);
                    let (p, ds) = (Matrix::new(p, m, n, n), Matrix::new(ds, m, n, n));
                    let own = tile.start - self.keys.start;
                    multiply(p.t(), side.dout, 1.0, &mut self.dv[own * dv..], dv);
                    multiply(ds.t(), side.q, 1.0, &mut self.dk[own * d..], d);
                    multiply(ds, k, 1.0, &mut self.dq[first * d..], d);
                }
            }
        });
        softmax::scale(&mut self.dq, shape.scale);
        // `q` contains the factor log₂ e / √d; the gradient needs 1 / √d.
        softmax::scale(&mut self.dk, LN_2);
    }
}

/// Merges the splits of one sequence and head into its output and log-sum-exp. Each split has the
/// weight `exp(lse of the split - lse of all)`.
///
/// # Safety
/// No other thread writes this sequence and head through these writers.
unsafe fn merge(splits: &[Split], width: usize, out: &RowWriter, lse: &RowWriter) {
    let plane = splits[0].plane;
    let mut row = vec![0.0; width];
    for i in 0..splits[0].lse.len() {
        let max = splits
            .iter()
            .fold(f32::NEG_INFINITY, |max, split| max.max(split.lse[i]));
        row.fill(0.0);
        let mut sum = 0.0;
        if max > f32::NEG_INFINITY {
            for split in splits {
                let weight = (split.lse[i] - max).exp();
                sum += weight;
                add_scaled(&mut row, weight, &split.out[i * width..]);
            }
            softmax::scale(&mut row, sum.recip());
        }
        // SAFETY: required of the caller.
        unsafe {
            out.store(plane.0, plane.1, i..i + 1, &row);
            lse.store(plane.0, plane.1, i..i + 1, &[max + sum.ln()]);
        }
    }
}

fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

impl CpuKernel for SplitKey {
    fn workspace_bytes(&self) -> u64 {
        let (d, dv) = (self.shape.d as u128, self.shape.dv as u128);
        let (heads, splits) = (self.shape.heads as u128, self.splits as u128);
        let rows = |spans: &[super::tensors::Span]| -> u128 {
            spans.iter().map(|span| span.len as u128).sum()
        };
        let (rows_q, rows_k) = (rows(&self.shape.queries), rows(&self.shape.keys));
        let backward = u128::from(self.has_backward);
        let of_queries = rows_q * splits * (dv + 1 + backward * d);
        let of_keys = backward * rows_k * (d + dv);
        let floats = (of_queries + of_keys).saturating_mul(heads);
        u64::try_from(floats.saturating_mul(4)).unwrap_or(u64::MAX)
    }

    fn allocate(&mut self) -> Result<(), OutOfMemory> {
        let mut tasks = Vec::new();
        for plane in self.shape.planes() {
            for keys in self.ranges(self.shape.keys[plane.0].len) {
                tasks.push(self.split(plane, keys)?);
            }
        }
        self.tasks = tasks;
        Ok(())
    }

    fn effective(&self) -> BTreeMap<String, ParamValue> {
        let splits = ParamValue::Int(self.splits as i64);
        BTreeMap::from([(NUM_SPLITS_KEY.to_owned(), splits)])
    }

    fn forward(&mut self, x: &Operands, saved: &mut SavedTensors, tally: &Tally) {
        let shape = &self.shape;
        self.tasks.par_iter_mut().with_max_len(1).for_each(|split| {
            tally.task();
            split.forward(x, shape);
        });
        let (out, lse) = (saved.out.writer(), saved.lse.writer());
        self.tasks.par_chunks(self.splits).for_each(|splits| {
            // SAFETY: each chunk has the splits of one sequence and head.
            unsafe { merge(splits, shape.dv, &out, &lse) };
        });
    }

    fn backward(
        &mut self,
        x: &Operands,
        saved: &SavedTensors,
        gradients: &mut GradientTensors,
        tally: &Tally,
    ) {
        let shape = &self.shape;
        self.tasks.par_iter_mut().with_max_len(1).for_each(|split| {
            tally.task();
            split.backward(x, saved, shape);
        });
        let dq = gradients.dq.writer();
        self.tasks.par_chunks_mut(self.splits).for_each(|splits| {
            let Some((first, others)) = splits.split_first_mut() else {
                return;
            };
            for split in others {
                add_scaled(&mut first.dq, 1.0, &split.dq);
            }
            let rows = 0..first.lse.len();
            // SAFETY: each chunk has the splits of one sequence and head.
            unsafe { dq.store(first.plane.0, first.plane.1, rows, &first.dq) };
        });
        let (dk, dv) = (gradients.dk.writer(), gradients.dv.writer());
        let of_kv_head = self.tasks.par_chunks_mut(self.splits * shape.group());
        of_kv_head.for_each(|heads| {
            let (first, others) = heads.split_at_mut(self.splits);
            for head in others.chunks(self.splits) {
                for (sum, split) in first.iter_mut().zip(head) {
                    add_scaled(&mut sum.dk, 1.0, &split.dk);
                    add_scaled(&mut sum.dv, 1.0, &split.dv);
                }
            }
            for split in first {
                let (sequence, kv_head) = (split.plane.0, split.plane.1 / shape.group());
                // SAFETY: each chunk has the query heads of one key-value head, and its splits have
                // different keys.
                unsafe {
                    dk.store(sequence, kv_head, split.keys.clone(), &split.dk);
                    dv.store(sequence, kv_head, split.keys.clone(), &split.dv);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_the_issue() {
        // seq_k = 10 000 gives 157 tiles, the grid in the issue.
        assert_eq!(effective_splits(Some(1000), 1, 10_000, 8), 157);
        assert_eq!(effective_splits(Some(-1), 1, 10_000, 8), 1, "the bug");
        assert_eq!(effective_splits(Some(0), 1, 10_000, 8), 1);
        assert_eq!(effective_splits(Some(i64::MIN), 1, 10_000, 8), 1);
        assert_eq!(effective_splits(None, 1, 10_000, 8), 8);
        assert_eq!(effective_splits(None, 3, 10_000, 8), 3);
        assert_eq!(effective_splits(None, 100, 10_000, 8), 1);
        assert_eq!(effective_splits(None, 1, 65, 8), 2);
    }

    #[test]
    fn splits_cover_the_keys_once() {
        for (seq_k, asked) in [(1, 9), (64, 2), (200, 3), (1000, 16), (1000, 7)] {
            let problem = regatta_worker::attention::Attention::new(seq_k, 4);
            let kernel = SplitKey::new(Geometry::new(&problem), Some(asked), false);
            let mut end = 0;
            for range in kernel.ranges(seq_k as usize) {
                assert_eq!(range.start, end);
                end = range.end;
            }
            assert_eq!(end, seq_k as usize);
        }
    }
}
