//! Plans of somebody's contract.

use super::*;
use crate::plan::{Given, Limits, Pointer};
use regatta_worker::attention::Params;

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

fn own() -> OwnKernels {
    OwnKernels {
        name: "my".to_owned(),
        contract: contract::parse(CONTRACT).unwrap(),
        source: KernelSource::embedded("naive").unwrap(),
    }
}

/// A refusal's kind is in its words: those of an unsupported case begin with it.
fn plan_with(problem: &str, params: &Params) -> Result<Plan, String> {
    let problem: Problem = problem.parse().unwrap();
    let asked = PlanRequest {
        problem: &problem,
        params,
        limits: H200,
    };
    let plan = own().plan("mine", &asked).map_err(|why| why.to_string())?;
    plan.fits(&problem, H200)?;
    Ok(plan)
}

fn plan(problem: &str) -> Result<Plan, String> {
    plan_with(problem, &Params::default())
}

#[test]
fn a_contract_becomes_a_plan() {
    let found = plan("b2,h8,s130,d64,f16").unwrap();
    let [step] = &found.forward[..] else {
        panic!("{found:?}");
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
    assert_eq!(found.workspace_bytes, 4 * 2 * 8 * 130);
    assert_eq!(found.effective["tile"], ParamValue::Int(64));
    assert!(found.backward.is_empty());
    let both = plan("s8,d8,both").unwrap();
    assert_eq!(both.backward[0].entry, "mine_backward");
}

#[test]
fn a_parameter_is_what_is_asked_for() {
    let mut params = Params::default();
    params.set("tile", ParamValue::Int(32));
    let found = plan_with("s130,d64", &params).unwrap();
    assert_eq!(found.forward[0].grid[0], 5);
    assert_eq!(found.effective["tile"], ParamValue::Int(32));
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
        let problem: Problem = "s8,d8".parse().unwrap();
        let params = Params::default();
        let asked = PlanRequest {
            problem: &problem,
            params: &params,
            limits: H200,
        };
        let plan = own.plan("mine", &asked).map_err(|why| why.to_string())?;
        plan.fits(&problem, H200)
    };
    assert!(
        with("\"heads\", \"batch\"", "70000")
            .unwrap_err()
            .contains("grid")
    );
    assert!(
        with("[32, 4]", "[32, 64]")
            .unwrap_err()
            .contains("2048 threads")
    );
    // A mistake in the contract is none of the cases that `requires` leaves out.
    for (from, to, expected) in [
        (
            "\"heads\", \"batch\"",
            "\"heads - 1\"",
            "[variants.mine] forward 1, grid: `heads - 1` is 0; it is 1 or more",
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
        assert_eq!(with(from, to).unwrap_err(), expected);
    }
}
