//! `flash_simt.cu`, and `split_key.cu` with `flash_simt`'s forward.

use std::collections::BTreeMap;

use super::steps::{Asked, NUM_SPLITS_KEY, Plan, Step, holding, number, step};
use crate::kernels::contract::{Kernel, contracts};
use regatta_worker::attention::{ParamValue, Problem};

pub fn flash(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let kernels = &contracts().flash_simt;
    let mut plan = Plan {
        forward: forward(p)?,
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let tile = holding(p, &kernels.backward, 4)?;
        let grid = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
        plan.backward = vec![
            prepare(p, &kernels.prepare),
            step(p, &kernels.backward, tile, grid),
        ];
    }
    Ok(plan)
}

pub fn split_key(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let kernels = &contracts().split_key;
    let tile = holding(p, &kernels.backward, 4)?;
    let splits = effective_splits(p, tile.keys, number(asked, NUM_SPLITS_KEY));
    let grid = [splits, p.kv_heads, p.batch];
    Ok(Plan {
        forward: forward(p)?,
        backward: vec![
            prepare(p, &kernels.prepare),
            step(p, &kernels.backward, tile, grid),
        ],
        num_splits: splits,
        effective: BTreeMap::from([(NUM_SPLITS_KEY.to_owned(), ParamValue::Int(splits.into()))]),
        ..Plan::default()
    })
}

/// How many blocks share the key axis, of which each takes a tile of keys at the least.
///
/// `None` is PyTorch's rule for float32: a block for each tile of keys, unless batch and
/// heads fill a device by themselves and there are few keys
/// (`_efficient_attention_backward` in ATen's attention_backward.cu). An explicit value
/// is taken at its word within what there is to split, as the kernel behind xFormers
/// issue 1176 took the `-1` that meant "choose for me": as 1.
fn effective_splits(p: &Problem, tile_keys: u32, asked: Option<i64>) -> u32 {
    let tiles = p.seq_k.div_ceil(tile_keys).max(1);
    match asked {
        Some(splits) => splits.clamp(1, tiles.into()) as u32,
        None if u64::from(p.batch) * u64::from(p.kv_heads) >= 256 && p.seq_k <= 128 => 1,
        None => tiles,
    }
}

fn forward(p: &Problem) -> Result<Vec<Step>, String> {
    let kernel = &contracts().flash_simt.forward;
    let tile = holding(p, kernel, 4)?;
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    Ok(vec![step(p, kernel, tile, grid)])
}

/// Clears `dq`, `dk`, `dv` and computes delta.
fn prepare(p: &Problem, kernel: &Kernel) -> Step {
    let tile = kernel.tile();
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    step(p, kernel, tile, grid)
}
