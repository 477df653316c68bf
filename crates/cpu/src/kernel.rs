//! Common parts of the three variants: the tensors of a call, the geometry of a problem, and a
//! count of tasks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::tensors::{HostTensor, OutOfMemory, Span, spans};
use regatta_worker::attention::inputs::Tensor;
use regatta_worker::attention::{Attention, Mask, fill};
use regatta_worker::case::{Dtype, ParamValue};

/// An implementation for one problem.
pub trait CpuKernel: Send {
    /// Bytes that it keeps between calls in addition to the caller's tensors.
    fn workspace_bytes(&self) -> u64 {
        0
    }

    /// Allocates the workspace. Called once, before the first call.
    ///
    /// # Errors
    /// It does not fit into memory.
    fn allocate(&mut self) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// The effective values of the variant's own parameters.
    fn effective(&self) -> BTreeMap<String, ParamValue> {
        BTreeMap::new()
    }

    /// Computes `saved` from `q, k, v`.
    fn forward(&mut self, x: &Operands, saved: &mut SavedTensors, tally: &Tally);

    /// Computes `gradients` from `q, k, v, dout` and the results of the forward pass in `saved`.
    fn backward(
        &mut self,
        x: &Operands,
        saved: &SavedTensors,
        gradients: &mut GradientTensors,
        tally: &Tally,
    );
}

/// The inputs of a call.
pub struct Operands {
    /// Queries.
    pub q: HostTensor,
    /// Keys.
    pub k: HostTensor,
    /// Values.
    pub v: HostTensor,
    /// Gradient of the output.
    pub dout: HostTensor,
}

/// The tensors that forward keeps for backward.
pub struct SavedTensors {
    /// The output.
    pub out: HostTensor,
    /// The natural log-sum-exp, one f32 for each row; -∞ if a query sees no key.
    pub lse: HostTensor,
}

/// The results of backward.
pub struct GradientTensors {
    /// The gradient of `q`.
    pub dq: HostTensor,
    /// The gradient of `k`.
    pub dk: HostTensor,
    /// The gradient of `v`.
    pub dv: HostTensor,
}

/// The tensors of a call.
pub struct CallBuffers {
    /// The inputs.
    pub operands: Operands,
    /// Written by forward, and read by backward.
    pub saved: SavedTensors,
    /// Written by backward.
    pub gradients: GradientTensors,
}

impl CallBuffers {
    /// Inputs of zeros and poisoned results (NaN). Tensors that a forward call does not need have
    /// no rows.
    ///
    /// # Errors
    /// They do not fit into memory.
    pub fn new(problem: &Attention, shape: &Geometry) -> Result<CallBuffers, OutOfMemory> {
        let empty = spans(std::iter::empty());
        let (q_rows, k_rows) = (&shape.queries, &shape.keys);
        let (q_gradient, k_gradient) = if problem.direction.has_backward() {
            (q_rows, k_rows)
        } else {
            (&empty, &empty)
        };
        let (heads, kv_heads, d, dv) = (shape.heads, shape.kv_heads, shape.d, shape.dv);
        let nan = f32::NAN;
        Ok(CallBuffers {
            operands: Operands {
                q: HostTensor::filled(q_rows, heads, d, 0.0)?,
                k: HostTensor::filled(k_rows, kv_heads, d, 0.0)?,
                v: HostTensor::filled(k_rows, kv_heads, dv, 0.0)?,
                dout: HostTensor::filled(q_gradient, heads, dv, 0.0)?,
            },
            saved: SavedTensors {
                out: HostTensor::filled(q_rows, heads, dv, nan)?,
                lse: HostTensor::filled(q_rows, heads, 1, nan)?,
            },
            gradients: GradientTensors {
                dq: HostTensor::filled(q_gradient, heads, d, nan)?,
                dk: HostTensor::filled(k_gradient, kv_heads, d, nan)?,
                dv: HostTensor::filled(k_gradient, kv_heads, dv, nan)?,
            },
        })
    }

    /// Writes the inputs of a seed.
    pub fn randomise(&mut self, seed: u64) {
        let x = &mut self.operands;
        for (of, tensor) in [
            (Tensor::Q, &mut x.q),
            (Tensor::K, &mut x.k),
            (Tensor::V, &mut x.v),
            (Tensor::Dout, &mut x.dout),
        ] {
            fill(&mut tensor.values, seed, of, Dtype::F32);
        }
    }
}

/// The sizes of a problem.
#[derive(Clone)]
pub struct Geometry {
    /// Rows of `q` of each sequence.
    pub queries: Arc<[Span]>,
    /// Rows of `k` and `v` of each sequence.
    pub keys: Arc<[Span]>,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Elements of a query or key.
    pub d: usize,
    /// Elements of a value.
    pub dv: usize,
    /// The keys that a query sees.
    pub mask: Mask,
    /// `1 / √d`.
    pub scale: f32,
}

impl Geometry {
    /// The geometry of a problem.
    pub fn new(problem: &Attention) -> Geometry {
        let sequences = problem.sequences();
        Geometry {
            queries: spans(sequences.iter().map(|lengths| lengths.0)),
            keys: spans(sequences.iter().map(|lengths| lengths.1)),
            heads: problem.heads as usize,
            kv_heads: problem.kv_heads as usize,
            d: problem.head_dim as usize,
            dv: problem.head_dim_v as usize,
            mask: problem.mask,
            scale: (problem.head_dim as f32).sqrt().recip(),
        }
    }

    /// The number of query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Every sequence and query head.
    pub fn planes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        pairs(self.queries.len(), self.heads)
    }

    /// Every sequence and key-value head.
    pub fn kv_planes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        pairs(self.keys.len(), self.kv_heads)
    }

    /// The keys in `within` that query `i` of a sequence sees, counted from the start of `within`.
    pub fn visible(&self, sequence: usize, i: usize, within: &Range<usize>) -> Range<usize> {
        let seen = self
            .mask
            .visible(i, self.queries[sequence].len, self.keys[sequence].len);
        let start = seen.start.clamp(within.start, within.end);
        let end = seen.end.clamp(start, within.end);
        start - within.start..end - within.start
    }

    /// The keys in `within` that any of these queries sees. Both ends of the mask's band only move
    /// in one direction, so the first and the last row determine them.
    pub fn keys_of(
        &self,
        sequence: usize,
        rows: &Range<usize>,
        within: Range<usize>,
    ) -> Range<usize> {
        let first = self.visible(sequence, rows.start, &within).start;
        let end = self.visible(sequence, rows.end - 1, &within).end;
        within.start + first..within.start + end.max(first)
    }
}

fn pairs(outer: usize, inner: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..outer).flat_map(move |i| (0..inner).map(move |j| (i, j)))
}

/// Splits a range into pieces of at most `size`.
pub fn tiles(range: Range<usize>, size: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(size)
        .map(move |first| first..(first + size).min(end))
}

/// Counts the tasks and threads of a call.
pub struct Tally {
    threads: Vec<AtomicBool>,
    tasks: AtomicU64,
}

impl Default for Tally {
    /// Nothing counted yet.
    fn default() -> Tally {
        // One place for each thread of the pool, and one for callers outside of it.
        let places = rayon::current_num_threads() + 1;
        Tally {
            threads: (0..places).map(|_| AtomicBool::new(false)).collect(),
            tasks: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// Counts a task, an independent piece of work, for the calling thread.
    pub fn task(&self) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let outside = self.threads.len() - 1;
        let place = rayon::current_thread_index().unwrap_or(outside);
        self.threads[place.min(outside)].store(true, Ordering::Relaxed);
    }

    /// The number of distinct threads that ran a task.
    pub fn threads(&self) -> u64 {
        let busy = self.threads.iter();
        busy.filter(|busy| busy.load(Ordering::Relaxed)).count() as u64
    }

    /// The number of tasks.
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Ordering::Relaxed)
    }
}
