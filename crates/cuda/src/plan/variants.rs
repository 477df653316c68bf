//! What each variant launches for a problem: `flash_mma.cu`, `naive.cu`, `flash_simt.cu` and
//! `split_key.cu`, `split_kv.cu`, `flash_wgmma.cu`.

use std::collections::BTreeMap;

use regatta_worker::attention::{Dtype, ParamValue, Problem};

use super::{
    Given, Limits, NUM_SPLITS, NUM_SPLITS_KEY, Plan, PlanRequest, PlannedLaunch, Pointer,
    TILE_KEYS, exact, holding, number, query_gradient_bytes, step,
};
use crate::argument::DeviceProblem;
use crate::kernels::contract::{Kernel, Naive, Tile, contracts};

pub fn mma(asked: &PlanRequest) -> Result<Plan, String> {
    let p = asked.problem;
    let forward = &contracts().flash_mma.forward;
    let tile = holding(p, forward, 8)?;
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    let mut plan = Plan {
        forward: vec![step(p, forward, tile, grid)],
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let kernels = &contracts().flash_mma_backward;
        let tile = holding(p, &kernels.backward, 8)?;
        let query_tiles = p.seq_q.div_ceil(tile.queries);
        let queries = [query_tiles, p.heads, p.batch];
        let keys = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
        plan.backward = vec![
            step(p, &kernels.prepare, tile, queries),
            step(p, &kernels.backward, tile, keys),
            step(p, &kernels.finish, tile, queries),
        ];
        plan.workspace_bytes = query_gradient_bytes(tile)
            * u64::from(p.batch)
            * u64::from(p.heads)
            * u64::from(query_tiles);
    }
    Ok(plan)
}

/// Grid y and z.
const NAIVE_LONGEST: u32 = 1 << 16;

pub fn naive(asked: &PlanRequest) -> Result<Plan, String> {
    let p = asked.problem;
    for (axis, length) in [("seq_q", p.seq_q), ("seq_k", p.seq_k)] {
        if length >= NAIVE_LONGEST {
            return Err(format!(
                "{axis} = {length}; cuda/naive takes less than 65536"
            ));
        }
    }
    let backward = p.direction.has_backward();
    let planes = u64::from(p.batch) * u64::from(p.heads);
    let pairs = planes * u64::from(p.seq_q) * u64::from(p.seq_k);
    Ok(Plan {
        forward: naive_forward(p),
        backward: if backward {
            naive_gradients(p)
        } else {
            Vec::new()
        },
        // Scores; with gradients, probabilities and score gradients.
        workspace_bytes: pairs * if backward { 8 } else { 4 },
        num_splits: 1,
        ..Plan::default()
    })
}

fn naive_forward(p: &Problem) -> Vec<PlannedLaunch> {
    let planes = p.batch * p.heads;
    let Naive {
        scores,
        softmax,
        out,
        ..
    } = &contracts().naive;
    let keys = p.seq_k.div_ceil(scores.tile().keys);
    let columns = p.head_dim_v.div_ceil(out.tile().columns);
    vec![
        launch(p, scores, [keys, p.seq_q, planes]),
        launch(p, softmax, [p.seq_q, 1, planes]),
        launch(p, out, [columns, p.seq_q, planes]),
    ]
}

fn naive_gradients(p: &Problem) -> Vec<PlannedLaunch> {
    let planes = p.batch * p.heads;
    let widest = p.head_dim.max(p.head_dim_v);
    let Naive {
        delta,
        score_grads,
        query_grads,
        key_grads,
        ..
    } = &contracts().naive;
    let keys = p.seq_k.div_ceil(score_grads.tile().keys);
    let columns = p.head_dim.div_ceil(query_grads.tile().columns);
    let widest = widest.div_ceil(key_grads.tile().columns);
    vec![
        launch(p, delta, [p.seq_q, 1, planes]),
        launch(p, score_grads, [keys, p.seq_q, planes]),
        launch(p, query_grads, [columns, p.seq_q, planes]),
        launch(p, key_grads, [widest, p.seq_k, p.batch * p.kv_heads]),
    ]
}

fn launch(p: &Problem, kernel: &Kernel, grid: [u32; 3]) -> PlannedLaunch {
    step(p, kernel, kernel.tile(), grid)
}

pub fn simt(asked: &PlanRequest) -> Result<Plan, String> {
    let p = asked.problem;
    let kernels = &contracts().flash_simt;
    let mut plan = Plan {
        forward: simt_forward(p)?,
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let tile = holding(p, &kernels.backward, 4)?;
        let grid = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
        plan.backward = vec![
            simt_prepare(p, &kernels.prepare),
            step(p, &kernels.backward, tile, grid),
        ];
    }
    Ok(plan)
}

pub fn split_key(asked: &PlanRequest) -> Result<Plan, String> {
    let p = asked.problem;
    let kernels = &contracts().split_key;
    let tile = holding(p, &kernels.backward, 4)?;
    let splits = effective_splits(p, tile.keys, number(asked, NUM_SPLITS_KEY));
    let grid = [splits, p.kv_heads, p.batch];
    Ok(Plan {
        forward: simt_forward(p)?,
        backward: vec![
            simt_prepare(p, &kernels.prepare),
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

fn simt_forward(p: &Problem) -> Result<Vec<PlannedLaunch>, String> {
    let kernel = &contracts().flash_simt.forward;
    let tile = holding(p, kernel, 4)?;
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    Ok(vec![step(p, kernel, tile, grid)])
}

/// Clears `dq`, `dk`, `dv` and computes delta.
fn simt_prepare(p: &Problem, kernel: &Kernel) -> PlannedLaunch {
    let tile = kernel.tile();
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    step(p, kernel, tile, grid)
}

const MOST_SPLITS: u32 = 65_535;

pub fn split_kv(asked: &PlanRequest) -> Result<Plan, String> {
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

const WGMMA: &str = "flash-wgmma";

pub fn wgmma(asked: &PlanRequest) -> Result<Plan, String> {
    let p = asked.problem;
    if asked.limits.capability != (9, 0) {
        let (major, minor) = asked.limits.capability;
        return Err(format!(
            "cuda/flash-wgmma needs compute capability 9.0 (wgmma); this device has \
             {major}.{minor}"
        ));
    }
    let forward = &contracts().flash_wgmma.forward;
    let tile = wgmma_tile(p, number(asked, TILE_KEYS))?;
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
        forward: vec![PlannedLaunch {
            arguments: wgmma_arguments(p, tile, heads_per_section(p, asked.limits.l2_bytes)),
            ..step(p, forward, tile, [blocks, 1, 1])
        }],
        num_splits: 1,
        effective: BTreeMap::from([(TILE_KEYS.to_owned(), ParamValue::Int(tile.keys.into()))]),
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let tile = exact(p, &contracts().flash_wgmma_backward.backward, WGMMA)?;
        plan.backward = wgmma_backward(p, tile);
        plan.workspace_bytes = wgmma_workspace_bytes(p, tile);
    }
    Ok(plan)
}

/// As `flash_wgmma.cu` lists them.
fn wgmma_arguments(p: &Problem, tile: &Tile, heads_per_section: u32) -> Vec<Given> {
    // A consumer warpgroup's queries.
    const ROWS: u32 = 64;
    let figures = DeviceProblem::sized(p, 1);
    let (low, high) = figures.band();
    let mut arguments = vec![
        Given::Map(Pointer::Q, ROWS),
        Given::Map(Pointer::K, tile.keys),
        Given::Map(Pointer::V, tile.keys),
        Given::Map(Pointer::Out, ROWS),
        Given::Pointer(Pointer::Lse),
    ];
    let numbers = [
        figures.batch,
        figures.heads,
        figures.kv_heads,
        figures.seq_q,
        figures.seq_k,
        low,
        high,
        heads_per_section as i32,
    ];
    arguments.extend(numbers.map(Given::Int));
    arguments.push(Given::Float(figures.scale * std::f32::consts::LOG2_E));
    arguments
}

fn wgmma_backward(p: &Problem, tile: &Tile) -> Vec<PlannedLaunch> {
    let kernels = &contracts().flash_wgmma_backward;
    let queries = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    let keys = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
    let main = PlannedLaunch {
        // As `flash_wgmma_backward.cu` lists them.
        arguments: vec![
            Given::Map(Pointer::Q, tile.queries),
            Given::Map(Pointer::K, tile.keys),
            Given::Map(Pointer::V, tile.keys),
            Given::Map(Pointer::Dout, tile.queries),
            Given::Problem,
        ],
        ..step(p, &kernels.backward, tile, keys)
    };
    vec![
        step(p, &kernels.prepare, tile, queries),
        main,
        step(p, &kernels.finish, tile, queries),
    ]
}

/// dQ in float32, and two figures of each query.
fn wgmma_workspace_bytes(p: &Problem, tile: &Tile) -> u64 {
    let tiles = u64::from(p.seq_q.div_ceil(tile.queries)) * u64::from(p.batch) * u64::from(p.heads);
    (query_gradient_bytes(tile) + 8 * u64::from(tile.queries)) * tiles
}

/// The tile, by itself the narrowest: on an H200 it is the fastest for full and causal
/// masks alike, as `regatta run native` shows, because its queries stay in registers.
fn wgmma_tile(p: &Problem, keys: Option<i64>) -> Result<&'static Tile, String> {
    let kernel = &contracts().flash_wgmma.forward;
    let first = exact(p, kernel, WGMMA)?;
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
