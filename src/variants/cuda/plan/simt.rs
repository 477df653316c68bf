//! `flash_simt.cu`, and `split_key.cu` with `flash_simt`'s forward.

use std::collections::BTreeMap;

use super::{Asked, NUM_SPLITS_KEY, Plan, Step, bucket, number, step};
use crate::attention::{ParamValue, Problem};

const HEAD_DIMS: [u32; 3] = [32, 64, 128];
/// Keys of a tile: what a split takes at the least.
const TILE: u32 = 64;

pub fn flash(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let d = bucket(p, &HEAD_DIMS, 4)?;
    let mut plan = Plan {
        forward: forward(p, d),
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let grid = [p.seq_k.div_ceil(TILE), p.kv_heads, p.batch];
        let main = format!("flash_simt_backward_f32_d{d}");
        plan.backward = vec![prepare(p, "flash_simt"), step("flash_simt", main, grid)];
    }
    Ok(plan)
}

pub fn split_key(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let d = bucket(p, &HEAD_DIMS, 4)?;
    let splits = effective_splits(p, number(asked, NUM_SPLITS_KEY));
    let main = format!("split_key_f32_d{d}");
    Ok(Plan {
        forward: forward(p, d),
        backward: vec![
            prepare(p, "split_key"),
            step("split_key", main, [splits, p.kv_heads, p.batch]),
        ],
        num_splits: splits,
        effective: BTreeMap::from([(NUM_SPLITS_KEY.to_owned(), ParamValue::Int(splits.into()))]),
        ..Plan::default()
    })
}

/// How many blocks share the key axis.
///
/// `None` is PyTorch's rule for float32: a block for each tile of keys, unless batch and
/// heads fill a device by themselves and there are few keys
/// (`_efficient_attention_backward` in ATen's attention_backward.cu). An explicit value
/// is taken at its word within what there is to split, as the kernel behind xFormers
/// issue 1176 took the `-1` that meant "choose for me": as 1.
fn effective_splits(p: &Problem, asked: Option<i64>) -> u32 {
    let tiles = p.seq_k.div_ceil(TILE).max(1);
    match asked {
        Some(splits) => splits.clamp(1, tiles.into()) as u32,
        None if u64::from(p.batch) * u64::from(p.kv_heads) >= 256 && p.seq_k <= 128 => 1,
        None => tiles,
    }
}

fn forward(p: &Problem, d: u32) -> Vec<Step> {
    let grid = [p.seq_q.div_ceil(128), p.heads, p.batch];
    vec![step(
        "flash_simt",
        format!("flash_simt_forward_f32_d{d}"),
        grid,
    )]
}

/// Clears `dq`, `dk`, `dv` and computes delta.
fn prepare(p: &Problem, file: &'static str) -> Step {
    let grid = [p.seq_q.div_ceil(8), p.heads, p.batch];
    step(file, format!("{file}_prepare"), grid)
}
