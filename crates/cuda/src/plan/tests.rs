use super::*;
use crate::kernels::contract;
use regatta_worker::attention::{ParamValue, Params};

const H200: Limits = Limits {
    capability: (9, 0),
    sms: 132,
    l2_bytes: 60 << 20,
    shared_bytes: 232_448,
};

fn plan_on(variant: &str, problem: &str, params: &Params, limits: Limits) -> Result<Plan, String> {
    let problem: Problem = problem.parse().unwrap();
    let asked = PlanRequest {
        problem: &problem,
        params,
        limits,
    };
    let plan = Ours.plan(variant, &asked).map_err(|why| why.to_string())?;
    plan.fits(&problem, limits)?;
    Ok(plan)
}

fn plan(variant: &str, problem: &str) -> Result<Plan, String> {
    plan_on(variant, problem, &Params::default(), H200)
}

fn with(name: &str, value: i64) -> Params {
    let mut params = Params::default();
    params.set(name, ParamValue::Int(value));
    params
}

fn shown(steps: &[PlannedLaunch]) -> Vec<String> {
    let line = |step: &PlannedLaunch| {
        let [x, y, z] = step.grid;
        format!("{} {x}x{y}x{z}", step.entry)
    };
    steps.iter().map(line).collect()
}

#[test]
fn every_step_is_an_entry_point_of_its_file() {
    for variant in Ours.variants() {
        for dtype in variant.dtypes {
            for direction in &variant.directions {
                let text = format!(
                    "b2,h8,kv2,s200,sk300,d64,{dtype},causal-br,{}",
                    direction.short()
                );
                // Forward is the default and has no token of its own.
                let text = text.trim_end_matches(",fwd").replace(",f32", "");
                let plan = plan(&variant.name, &text).unwrap();
                assert!(!plan.forward.is_empty(), "{}", variant.name);
                assert_eq!(plan.backward.is_empty(), !direction.has_backward());
                for step in plan.forward.iter().chain(&plan.backward) {
                    let Code::Ours(file) = step.code else {
                        panic!("{step:?}");
                    };
                    let block = contract::block(file, &step.entry);
                    assert_eq!(block, Some(step.shape), "{step:?}");
                    assert!(step.grid.iter().all(|&n| n > 0), "{step:?}");
                }
            }
        }
    }
}

/// The case the project exists for: 157 blocks, and 1.
#[test]
fn split_key_launches_a_block_for_each_split() {
    let report = "s10000,d32,bwd";
    let auto = plan("split-key", report).unwrap();
    assert_eq!(
        shown(&auto.backward),
        ["split_key_prepare 1250x1x1", "split_key_f32_d32 157x1x1"]
    );
    assert_eq!(auto.effective[NUM_SPLITS_KEY], ParamValue::Int(157));
    for (asked, grid) in [(1, 1), (-1, 1), (16, 16), (10_000, 157)] {
        let plan = plan_on("split-key", report, &with(NUM_SPLITS_KEY, asked), H200).unwrap();
        assert_eq!(plan.backward[1].grid, [grid, 1, 1], "asked for {asked}");
        assert_eq!(plan.num_splits, grid);
    }
}

#[test]
fn wgmma_chooses_its_grid_by_the_mask() {
    let full = plan("flash-wgmma", "h16,s8192,d128,bf16").unwrap();
    assert_eq!(
        shown(&full.forward),
        ["flash_wgmma_bf16_d128_m128_n128 132x1x1"]
    );
    let causal = plan("flash-wgmma", "h16,s8192,d128,bf16,causal").unwrap();
    assert_eq!(
        shown(&causal.forward),
        ["flash_wgmma_bf16_d128_m128_n128 1024x1x1"]
    );
    let error = plan_on("flash-wgmma", "s8192,d128,bf16", &with(TILE_KEYS, 64), H200);
    assert_eq!(
        error.unwrap_err(),
        "unsupported: tile_keys = 64: with head_dim = 128 it is 128 or 176"
    );
}

#[test]
fn decode_splits_until_the_device_is_full() {
    // 8 tiles on 264 slots: one block each would use a thirty-third of it.
    let plan = plan("split-kv", "h32,kv8,s1,sk32768,d128,bf16").unwrap();
    assert!((28..=33).contains(&plan.num_splits), "{}", plan.num_splits);
    assert_eq!(plan.forward[0].grid, [plan.num_splits, 1, 8]);
    assert_eq!(plan.forward[1].grid, [32, 1, 1]);
    let full = plan_on(
        "split-kv",
        "b64,h32,kv8,s1,sk4096,d128,bf16",
        &Params::default(),
        H200,
    );
    assert_eq!(full.unwrap().num_splits, 1);
}
