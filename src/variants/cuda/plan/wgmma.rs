//! `flash_wgmma.cu` and `flash_wgmma_backward.cu`: which tile, how many blocks, and the
//! order of the work.

use std::collections::BTreeMap;

use super::{Arguments, Asked, Plan, Step, TILE_KEYS, number, step};
use crate::attention::{ParamValue, Problem};
use crate::kernels::contract::WGMMA_TILES;

const BACKWARD: &str = "flash_wgmma_backward";

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    if asked.limits.capability != (9, 0) {
        let (major, minor) = asked.limits.capability;
        return Err(format!(
            "cuda/flash-wgmma needs compute capability 9.0 (wgmma); this device has \
             {major}.{minor}"
        ));
    }
    let (d, dv) = (p.head_dim, p.head_dim_v);
    if d != dv || ![64, 128].contains(&d) {
        return Err(format!(
            "head_dim = {d}, head_dim_v = {dv}: cuda/flash-wgmma takes 64 or 128, both alike"
        ));
    }
    let [_, queries, keys] = tile(p, number(asked, TILE_KEYS))?;
    let planes = p.batch * p.heads;
    let tiles = u64::from(p.seq_q.div_ceil(queries)) * u64::from(planes);
    let Ok(tiles @ 1..0x4000_0000) = u32::try_from(tiles) else {
        return Err(format!(
            "{tiles} tiles of queries; the kernel takes fewer than 2^30"
        ));
    };
    // One block a multiprocessor hides each tile's beginning and end behind its
    // neighbours; one a tile balances tiles of unequal length.
    let blocks = match p.mask.is_full() {
        true => tiles.min(asked.limits.sms),
        false => tiles,
    };
    let gradients = match p.direction.has_backward() {
        true => backward(p),
        false => Vec::new(),
    };
    Ok(Plan {
        workspace_bytes: if gradients.is_empty() {
            0
        } else {
            workspace_bytes(p)
        },
        backward: gradients,
        forward: vec![Step {
            file: "flash_wgmma",
            entry: format!("flash_wgmma_{}_d{d}_m{queries}_n{keys}", p.dtype),
            grid: [blocks, 1, 1],
            arguments: Arguments::Wgmma {
                tile_keys: keys,
                heads_per_section: heads_per_section(p, asked.limits.l2_bytes),
            },
        }],
        num_splits: 1,
        effective: BTreeMap::from([(TILE_KEYS.to_owned(), ParamValue::Int(keys.into()))]),
    })
}

/// Queries of a tile of the backward.
fn tile_queries(p: &Problem) -> u32 {
    8192 / p.head_dim
}

fn backward(p: &Problem) -> Vec<Step> {
    let tile_queries = tile_queries(p);
    let name = |kernel: &str| format!("flash_wgmma_{kernel}_{}_d{}", p.dtype, p.head_dim);
    let queries = [p.seq_q.div_ceil(tile_queries), p.heads, p.batch];
    let main = Step {
        arguments: Arguments::WgmmaBackward { tile_queries },
        ..step(
            BACKWARD,
            name("backward"),
            [p.seq_k.div_ceil(128), p.kv_heads, p.batch],
        )
    };
    vec![
        step(BACKWARD, name("prepare"), queries),
        main,
        step(BACKWARD, name("finish"), queries),
    ]
}

/// dQ in float32, and two figures of each query.
fn workspace_bytes(p: &Problem) -> u64 {
    let queries = tile_queries(p);
    let tiles = u64::from(p.seq_q.div_ceil(queries)) * u64::from(p.batch) * u64::from(p.heads);
    (32_768 + 8 * u64::from(queries)) * tiles
}

/// The tile: `[head_dim, queries, keys]`. By itself the narrowest: on an H200 it is the
/// fastest for full and causal masks alike, as `regatta run native` shows, because its
/// queries stay in registers.
fn tile(p: &Problem, keys: Option<i64>) -> Result<[u32; 3], String> {
    let compiled = || WGMMA_TILES.into_iter().filter(|tile| tile[0] == p.head_dim);
    let Some(keys) = keys else {
        let chosen = compiled().min_by_key(|tile| tile[2]);
        return chosen.ok_or_else(|| format!("no tile for head_dim = {}", p.head_dim));
    };
    let found = compiled().find(|tile| i64::from(tile[2]) == keys);
    found.ok_or_else(|| {
        let known: Vec<String> = compiled().map(|tile| tile[2].to_string()).collect();
        format!(
            "{TILE_KEYS} = {keys}: with head_dim = {} it is {}",
            p.head_dim,
            known.join(" or ")
        )
    })
}

/// As many heads as have their keys and values in half of the level-2 cache together.
/// With a full mask all tiles are alike: one head at a time, whose keys all blocks share.
fn heads_per_section(p: &Problem, l2_bytes: u64) -> u32 {
    if p.mask.is_full() {
        return 1;
    }
    let group = p.heads / p.kv_heads;
    let keys_and_values = 2 * u64::from(p.seq_k) * u64::from(p.head_dim) * p.dtype.bytes();
    let fitting = (l2_bytes / 2 / keys_and_values.max(1)).max(1);
    let heads = fitting.saturating_mul(group.into());
    heads.min(u64::from(p.batch) * u64::from(p.heads)) as u32
}
