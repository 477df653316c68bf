//! `flash_wgmma.cu` and `flash_wgmma_backward.cu`: which tile, how many blocks, and the
//! order of the work.

use std::collections::BTreeMap;

use super::steps::{
    Arguments, Asked, Plan, Step, TILE_KEYS, exact, number, query_gradient_bytes, step,
};
use crate::kernels::contract::{Tile, contracts};
use regatta_worker::attention::{ParamValue, Problem};

const VARIANT: &str = "flash-wgmma";

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    if asked.limits.capability != (9, 0) {
        let (major, minor) = asked.limits.capability;
        return Err(format!(
            "cuda/flash-wgmma needs compute capability 9.0 (wgmma); this device has \
             {major}.{minor}"
        ));
    }
    let forward = &contracts().flash_wgmma.forward;
    let tile = tile(p, number(asked, TILE_KEYS))?;
    let planes = p.batch * p.heads;
    let tiles = u64::from(p.seq_q.div_ceil(tile.queries)) * u64::from(planes);
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
    let mut plan = Plan {
        forward: vec![Step {
            arguments: Arguments::Wgmma {
                tile_keys: tile.keys,
                heads_per_section: heads_per_section(p, asked.limits.l2_bytes),
            },
            ..step(p, forward, tile, [blocks, 1, 1])
        }],
        num_splits: 1,
        effective: BTreeMap::from([(TILE_KEYS.to_owned(), ParamValue::Int(tile.keys.into()))]),
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let tile = exact(p, &contracts().flash_wgmma_backward.backward, VARIANT)?;
        plan.backward = backward(p, tile);
        plan.workspace_bytes = workspace_bytes(p, tile);
    }
    Ok(plan)
}

fn backward(p: &Problem, tile: &Tile) -> Vec<Step> {
    let kernels = &contracts().flash_wgmma_backward;
    let queries = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    let keys = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
    let main = Step {
        arguments: Arguments::WgmmaBackward {
            tile_queries: tile.queries,
            tile_keys: tile.keys,
        },
        ..step(p, &kernels.backward, tile, keys)
    };
    vec![
        step(p, &kernels.prepare, tile, queries),
        main,
        step(p, &kernels.finish, tile, queries),
    ]
}

/// dQ in float32, and two figures of each query.
fn workspace_bytes(p: &Problem, tile: &Tile) -> u64 {
    let tiles = u64::from(p.seq_q.div_ceil(tile.queries)) * u64::from(p.batch) * u64::from(p.heads);
    (query_gradient_bytes(tile) + 8 * u64::from(tile.queries)) * tiles
}

/// The tile, by itself the narrowest: on an H200 it is the fastest for full and causal
/// masks alike, as `regatta run native` shows, because its queries stay in registers.
fn tile(p: &Problem, keys: Option<i64>) -> Result<&'static Tile, String> {
    let kernel = &contracts().flash_wgmma.forward;
    let first = exact(p, kernel, VARIANT)?;
    let compiled = || {
        kernel
            .tiles()
            .iter()
            .filter(|tile| tile.head_dim == first.head_dim)
    };
    let Some(keys) = keys else {
        return Ok(compiled().min_by_key(|tile| tile.keys).unwrap_or(first));
    };
    let found = compiled().find(|tile| i64::from(tile.keys) == keys);
    found.ok_or_else(|| {
        let known: Vec<String> = compiled().map(|tile| tile.keys.to_string()).collect();
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
