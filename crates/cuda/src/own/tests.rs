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

fn own() -> Own {
    Own {
        name: "my".to_owned(),
        contract: contract::parse(CONTRACT).unwrap(),
        source: Source::embedded("naive").unwrap(),
    }
}

/// A refusal's kind is in its words: those of an unsupported case begin with it.
fn plan_with(problem: &str, params: &Params) -> Result<Plan, String> {
    let problem: Problem = problem.parse().unwrap();
    let asked = Asked {
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
    let Arguments::Listed(given) = &step.arguments else {
        panic!("{step:?}");
    };
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
    params.set("tile", ParamValue::Int(0));
    assert!(
        plan_with("s130,d64", &params)
            .unwrap_err()
            .contains("divides by 0")
    );
    params.set("tile", ParamValue::from("wide"));
    assert!(
        plan_with("s130,d64", &params)
            .unwrap_err()
            .contains("not `wide`")
    );
    params = Params::default();
    params.set("tiles", ParamValue::Int(1));
    assert!(
        plan_with("s8,d8", &params)
            .unwrap_err()
            .contains("no parameter `tiles`")
    );
}

#[test]
fn what_it_does_not_take_is_said() {
    for (problem, words) in [
        ("s8,d8,bf16", "my/mine does not take bf16"),
        ("s8,d8,dv4", "my/mine requires head_dim == head_dim_v"),
        ("h8,kv2,s8,d8", "requires heads == kv_heads"),
        ("s8,d8,window-2-1", "does not take the mask window-2-1"),
        ("s8,sk9,d8,causal-br", "does not take the mask causal-br"),
        ("v5+7,d8", "ragged"),
        // 2 bytes for each of 64 x 2048.
        ("s8,d2048,f16", "262144 bytes of shared memory"),
    ] {
        let error = plan(problem).unwrap_err();
        assert!(error.contains(words), "{problem}: {error}");
        let fits = error.contains("bytes of shared");
        assert!(fits || error.starts_with("unsupported: "), "{error}");
    }
    assert!(plan("s8,d8,causal,bhsd").is_ok());
    assert!(plan("s8,sk9,d8").is_ok());
}

#[test]
fn grids_are_held_to_what_a_device_takes() {
    let with = |from: &str, to: &str| {
        let mut own = own();
        assert!(CONTRACT.contains(from));
        own.contract = contract::parse(&CONTRACT.replacen(from, to, 1)).unwrap();
        let problem: Problem = "s8,d8".parse().unwrap();
        let params = Params::default();
        let asked = Asked {
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
            "\"heads\", \"batch\"",
            "\"9223372036854775807 * seq_q\"",
            "[variants.mine] forward 1, grid: `9223372036854775807 * seq_q`: the value is too large",
        ),
        (
            "4 * batch * heads * seq_q",
            "1 - seq_q",
            "[variants.mine] workspace_bytes: `1 - seq_q` is -7",
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

#[test]
fn a_file_is_compiled_with_the_options_of_the_contract_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, beside) = (folder.path().join("a.cu"), folder.path().join("a.toml"));
    std::fs::write(&file, "// nothing").unwrap();
    assert!(source(&file).unwrap().options.is_empty());
    std::fs::write(&beside, format!("options = [\"-DTILE=64\"]\n{CONTRACT}")).unwrap();
    assert_eq!(source(&file).unwrap().options, ["-DTILE=64"]);
    std::fs::write(&beside, "nonsense = 1").unwrap();
    let error = source(&file).unwrap_err();
    assert!(
        error.contains("a.toml") && error.contains("nonsense"),
        "{error}"
    );
}

#[test]
fn a_variant_is_described() {
    let [described] = &own().variants()[..] else {
        panic!();
    };
    assert_eq!(described.directions, Direction::ALL);
    assert_eq!(described.parameters["tile"], Parameter::INTEGER);
    assert!(own().remembers_forward("mine"));
    assert_eq!(own().worker(), "my");
}
