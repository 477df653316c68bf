//! `split_kv.cu`: parts of the key axis, then their join.

use std::collections::BTreeMap;

use super::steps::{Asked, Limits, NUM_SPLITS, Plan, exact, number, step};
use crate::kernels::contract::{Tile, contracts};
use regatta_worker::attention::{Dtype, ParamValue, Problem};

const MOST_SPLITS: u32 = 65_535;

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let kernels = &contracts().split_kv;
    let part = match p.dtype {
        Dtype::F32 => &kernels.part_f32,
        Dtype::F16 | Dtype::Bf16 => &kernels.part,
    };
    let tile = exact(p, part, "split-kv")?;
    let rows = row_tiles(p, tile);
    let Ok(row_tiles @ 1..=65_535) = u32::try_from(rows) else {
        return Err(format!(
            "{rows} tiles of {} queries a group: cuda/split-kv is for decoding, and takes \
             at most 65535",
            tile.queries
        ));
    };
    let splits = match number(asked, NUM_SPLITS) {
        Some(splits) => splits.clamp(1, MOST_SPLITS.into()) as u32,
        None => automatic(p, asked.limits, tile),
    };
    let all_rows = u64::from(p.batch) * u64::from(p.heads) * u64::from(p.seq_q);
    let Ok(joins) = i32::try_from(all_rows) else {
        return Err(format!(
            "{all_rows} rows of output are too many for one grid"
        ));
    };
    Ok(Plan {
        forward: vec![
            step(p, part, tile, [splits, row_tiles, p.batch * p.kv_heads]),
            step(p, &kernels.join, tile, [joins as u32, 1, 1]),
        ],
        workspace_bytes: 4 * u64::from(splits) * all_rows * (u64::from(p.head_dim) + 1),
        num_splits: splits,
        effective: BTreeMap::from([(NUM_SPLITS.to_owned(), ParamValue::Int(splits.into()))]),
        ..Plan::default()
    })
}

/// The queries of all heads of a group are the rows of one tile.
fn row_tiles(p: &Problem, tile: &Tile) -> u64 {
    let rows = u64::from(p.heads / p.kv_heads) * u64::from(p.seq_q);
    rows.div_ceil(tile.queries.into())
}

/// The fewest splits whose last wave is at least 85 % as full as the best's: each split
/// more is another row of workspace (FlashAttention's rule, on this kernel's blocks a
/// multiprocessor; see the head of `split_kv.cu`).
fn automatic(p: &Problem, limits: Limits, tile: &Tile) -> u32 {
    let slots = f64::from(blocks_per_sm(limits, tile) * limits.sms);
    let tiles = row_tiles(p, tile) as f64 * f64::from(p.batch * p.kv_heads);
    let most = p.seq_k.div_ceil(256).clamp(1, 128);
    let fullness = |splits: u32| {
        let waves = f64::from(splits) * tiles / slots;
        waves / waves.ceil()
    };
    let best = (1..=most).map(fullness).fold(0.0, f64::max);
    let enough = (1..=most).find(|&splits| fullness(splits) >= 0.85 * best);
    enough.unwrap_or(1)
}

/// Shared memory alone limits these blocks. A multiprocessor has what it lends one block,
/// and 1 KiB more; each block takes 1 KiB for itself (CUDA C++ Programming Guide,
/// "Compute Capability 8.x" and "9.0").
fn blocks_per_sm(limits: Limits, tile: &Tile) -> u32 {
    const OF_THE_SYSTEM: u32 = 1024;
    let block = tile.block().shared_bytes;
    ((limits.shared_bytes + OF_THE_SYSTEM) / (block + OF_THE_SYSTEM)).max(1)
}
