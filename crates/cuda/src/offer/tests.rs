//! Plans of a user's contract, and of regatta's own.

use super::*;
use crate::plan::{Given, Limits, Pointer};
use regatta_worker::case::Params;

const CONTRACT: &str = r#"
[variants.mine]
dtypes = ["f32", "f16"]
layouts = ["bshd", "bhsd"]
masks = ["full", "causal"]
requires = ["head_dim == head_dim_v", "heads == kv_heads"]
parameters = { tile = 64 }
workspace_bytes = "4 * batch * heads * seq_q"

[[variants.mine.forward]]
entry = "mine_{dtype}_d{head_dim}"
arguments = ["q", "k", "v", "out", "workspace", "seq_q", "long q.seq", "scale"]
grid = ["ceil_div(seq_q, tile)", "heads", "batch"]
block = [32, 4]
shared_bytes = "element_bytes * tile * head_dim"

[[variants.mine.backward]]
entry = "mine_backward"
arguments = ["problem", "dq"]
grid = 1
block = 32
"#;

const H200: Limits = Limits {
    capability: (9, 0),
    sms: 132,
    l2_bytes: 60 << 20,
    shared_bytes: 232_448,
};

fn own() -> Offer {
    Offer {
        name: "my".to_owned(),
        contract: contract::parse(CONTRACT).unwrap(),
        source: KernelSource::embedded("naive"),
    }
}

/// The kind of a refusal shows in its text: that of an unsupported case begins with the word.
fn planned(offer: &Offer, variant: &str, problem: &str, params: &Params) -> Result<Plan, String> {
    let problem: Attention = problem.parse().unwrap();
    let asked = PlanRequest {
        problem: &problem,
        params,
        limits: H200,
    };
    offer.plan(variant, &asked).map_err(|why| why.to_string())
}

fn plan_with(problem: &str, params: &Params) -> Result<Plan, String> {
    planned(&own(), "mine", problem, params)
}

fn plan(problem: &str) -> Result<Plan, String> {
    plan_with(problem, &Params::default())
}

#[test]
fn a_contract_becomes_a_plan() {
    let planned = plan("b2,h8,s130,d64,f16").unwrap();
    let [step] = &planned.forward[..] else {
        panic!("{planned:?}");
    };
    assert_eq!(step.entry, "mine_f16_d64");
    assert_eq!(step.grid, [3, 8, 2]);
    assert_eq!(step.shape.block, [32, 4, 1]);
    assert_eq!(step.shape.shared_bytes, 2 * 64 * 64);
    let given = &step.arguments;
    assert_eq!(
        given[4..],
        [
            Given::Pointer(Pointer::Workspace),
            Given::Int(130),
            Given::Long(8 * 64),
            Given::Float(0.125)
        ]
    );
    assert_eq!(planned.workspace_bytes, 4 * 2 * 8 * 130);
    assert_eq!(planned.effective["tile"], ParamValue::Int(64));
    assert!(planned.backward.is_empty());
    let both = plan("s8,d8,both").unwrap();
    assert_eq!(both.backward[0].entry, "mine_backward");
}

#[test]
fn a_parameter_is_what_is_asked_for() {
    let mut params = Params::default();
    params.set("tile", ParamValue::Int(32));
    let plan = plan_with("s130,d64", &params).unwrap();
    assert_eq!(plan.forward[0].grid[0], 5);
    assert_eq!(plan.effective["tile"], ParamValue::Int(32));
    for (name, value, words) in [
        ("tile", ParamValue::Int(0), "divides by 0"),
        ("tile", ParamValue::from("wide"), "not `wide`"),
        ("tiles", ParamValue::Int(1), "no parameter `tiles`"),
    ] {
        params = Params::default();
        params.set(name, value);
        let error = plan_with("s130,d64", &params).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn grids_are_held_to_what_a_device_takes() {
    let with = |from: &str, to: &str| {
        let mut own = own();
        assert!(CONTRACT.contains(from));
        own.contract = contract::parse(&CONTRACT.replacen(from, to, 1)).unwrap();
        planned(&own, "mine", "s8,d8", &Params::default()).unwrap_err()
    };
    assert!(with("\"heads\", \"batch\"", "70000").contains("grid"));
    assert!(with("[32, 4]", "[32, 64]").contains("2048 threads"));
    // A mistake in the contract is not reported as an unsupported case.
    for (from, to, expected) in [
        (
            "\"heads\", \"batch\"",
            "\"heads - 1\"",
            "[variants.mine] forward 1, grid: `heads - 1` is 0; it must be 1 or more",
        ),
        (
            "heads == kv_heads",
            "heads / (batch - 1) == 1",
            "[variants.mine] requires: `heads / (batch - 1) == 1`: this divides by 0",
        ),
        (
            "\"seq_q\", \"long",
            "\"unsigned seq_q - 9\", \"long",
            "[variants.mine] forward 1, arguments: `seq_q - 9` is -1, which its type does not \
             hold; write `long ...`",
        ),
    ] {
        assert_eq!(with(from, to), expected);
    }
}

fn plan_of_ours(variant: &str, problem: &str, params: &Params) -> Result<Plan, String> {
    planned(&Offer::ours(), variant, problem, params)
}

fn ours(variant: &str, problem: &str) -> Result<Plan, String> {
    plan_of_ours(variant, problem, &Params::default())
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
    for variant in Offer::ours().variants() {
        for dtype in variant.dtypes {
            for direction in &variant.directions {
                let text = format!(
                    "b2,h8,kv2,s200,sk300,d64,{dtype},causal-br,{}",
                    direction.short()
                );
                // Forward is the default, and so has no token in an id.
                let text = text.trim_end_matches(",fwd").replace(",f32", "");
                let plan = ours(&variant.name, &text).unwrap();
                assert!(!plan.forward.is_empty(), "{}", variant.name);
                assert_eq!(plan.backward.is_empty(), !direction.has_backward());
                for step in plan.forward.iter().chain(&plan.backward) {
                    let file = step.file.as_deref().unwrap();
                    let block = contract::block(file, &step.entry);
                    assert_eq!(block, Some(step.shape), "{step:?}");
                    assert!(step.grid.iter().all(|&n| n > 0), "{step:?}");
                }
            }
        }
    }
}

/// The case for which the project exists: 157 blocks, and 1.
#[test]
fn split_key_launches_a_block_for_each_split() {
    let report = "s10000,d32,bwd";
    let auto = ours("split-key", report).unwrap();
    assert_eq!(
        shown(&auto.backward),
        ["split_key_prepare 1250x1x1", "split_key_f32_d32 157x1x1"]
    );
    assert_eq!(auto.effective["num_splits_key"], ParamValue::Int(157));
    for (asked, grid) in [(1, 1), (-1, 1), (16, 16), (10_000, 157)] {
        let plan = plan_of_ours("split-key", report, &with("num_splits_key", asked)).unwrap();
        assert_eq!(plan.backward[1].grid, [grid, 1, 1], "asked for {asked}");
        assert_eq!(plan.num_splits, grid);
    }
}

#[test]
fn wgmma_chooses_its_grid_by_the_mask() {
    let full = ours("flash-wgmma", "h16,s8192,d128,bf16").unwrap();
    assert_eq!(
        shown(&full.forward),
        ["flash_wgmma_bf16_d128_m128_n128 132x1x1"]
    );
    let causal = ours("flash-wgmma", "h16,s8192,d128,bf16,causal").unwrap();
    assert_eq!(
        shown(&causal.forward),
        ["flash_wgmma_bf16_d128_m128_n128 1024x1x1"]
    );
    let error = plan_of_ours("flash-wgmma", "s8192,d128,bf16", &with("tile_keys", 64));
    assert_eq!(
        error.unwrap_err(),
        "unsupported: cuda/flash-wgmma has no tile_keys = 64 for this head_dim; it is 128 or 176"
    );
}

#[test]
fn decode_splits_until_the_device_is_full() {
    // 8 tiles on 264 slots: with one block each they would use a thirty-third of the device.
    let plan = ours("split-kv", "h32,kv8,s1,sk32768,d128,bf16").unwrap();
    assert!((28..=33).contains(&plan.num_splits), "{}", plan.num_splits);
    assert_eq!(plan.forward[0].grid, [plan.num_splits, 1, 8]);
    assert_eq!(plan.forward[1].grid, [32, 1, 1]);
    let full = ours("split-kv", "b64,h32,kv8,s1,sk4096,d128,bf16").unwrap();
    assert_eq!(full.num_splits, 1);
}
