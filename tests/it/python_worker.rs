//! The Python worker on a real library: JAX on the processor.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has it; CI makes one from
//! `python/requirements-jax-cpu.txt`.

use std::time::Duration;

use crate::common::Place;
use regatta_core::record::types::Outcome;
use regatta_measure::worker::host::WorkerProcess;
use regatta_measure::worker::{Conversation, WorkerSpec};
use regatta_worker::attention::reference::whole;
use regatta_worker::attention::tolerance::{Expected, limit, probes_agree, results};
use regatta_worker::attention::{Align, Direction, Layout, Mask, Params, Problem};
use regatta_worker::protocol::{
    Cache, Checked, Measure, Measured, Prepare, ReplyBody, RequestBody,
};

const SUITE: &str = "description = \"JAX\"\n\
    [measure]\ninvocations = 2\nsamples = 3\nbudget_ms = 100\ncache = \"hot\"\n\
    [[sweep]]\nvariants = [\"jax/xla\", \"jax/cudnn\"]\n\
    shapes = [\n\
      { heads = 2, seq = 64, head_dim = 32 },\n\
      { batch = 2, heads = 4, kv_heads = 2, seq_q = 48, seq_k = 80, head_dim = 16, mask = \"causal-br\" },\n\
      { heads = 2, seq = 64, head_dim = 32, dtype = \"bf16\", mask = \"causal\", layout = \"bhsd\" },\n\
    ]\ndirection = [\"forward\", \"backward\", \"both\"]\n";

fn python() -> String {
    std::env::var("REGATTA_TEST_PYTHON").expect("REGATTA_TEST_PYTHON names a Python with JAX")
}

#[test]
#[ignore = "needs JAX"]
fn jax_is_measured_and_what_it_cannot_do_is_unsupported() {
    let python = python();
    let place = Place::new();
    place.write("jax.toml", SUITE);
    let (code, _, stderr) = place.ran_with(
        &["run", "./jax.toml"],
        &[("REGATTA_PYTHON", &python), ("JAX_PLATFORMS", "cpu")],
    );
    assert_eq!(code, 0, "{stderr}");
    let run = place.run("jax");
    assert_eq!(run.entries.len(), 18 * 2);
    for entry in &run.entries {
        match (&entry.outcome, entry.case.0.starts_with("jax/xla")) {
            (Outcome::Measured(_), true) => {}
            (Outcome::Unsupported { reason }, false) => {
                assert!(reason.to_lowercase().contains("cudnn"), "{reason}");
            }
            (other, _) => panic!("{}: {other:?}", entry.case),
        }
    }
    assert!(run.header.workers[0].versions.contains_key("jax"));
}

#[test]
#[ignore = "needs JAX"]
fn an_environment_chooses_the_interpreter() {
    let python = python();
    let place = Place::new();
    let environment = format!(
        "[environments.pinned]\npython = {python:?}\nenv = {{ JAX_PLATFORMS = \"cpu\" }}\n"
    );
    place.write("regatta.toml", &environment);
    place.write(
        "jax.toml",
        &SUITE.replace("\"jax/xla\", \"jax/cudnn\"", "\"jax/xla@pinned\""),
    );
    let filter = "*:h2,s64,d32";
    exits!(place, 0, ["run", "./jax.toml", "--filter", filter]);
    let run = place.run("jax");
    assert_eq!(run.header.plan[0].0, "jax/xla@pinned:h2,s64,d32");
}

#[test]
#[ignore = "needs JAX"]
fn functions_are_counted_once_a_case_and_what_is_not_there_is_not_zero() {
    let python = python();
    let place = Place::new();
    let counts = [
        "regatta_worker.libraries.jax:_Case.call",
        "jax:no_such.function",
    ]
    .map(|name| {
        format!(
            "[[expect]]\ncase = {{ worker = \"jax\" }}\nmetric = \"calls:{name}\"\nat_most = 1\n"
        )
    });
    let counts = counts.concat();
    place.write("jax.toml", &format!("{SUITE}{counts}"));
    let filter = "jax/xla:h2,s64,d32";
    let (code, _, stderr) = place.ran_with(
        &["run", "./jax.toml", "--filter", filter],
        &[("REGATTA_PYTHON", &python), ("JAX_PLATFORMS", "cpu")],
    );
    // What is not there cannot be held to its limit.
    assert_eq!(code, 3, "{stderr}");
    for entry in &place.run("jax").entries {
        let Outcome::Measured(measured) = &entry.outcome else {
            panic!("{entry:?}")
        };
        assert_eq!(measured.structure.is_some(), entry.invocation == 0);
        let Some(structure) = &measured.structure else {
            continue;
        };
        assert_eq!(structure.counts["calls._Case.call"], 1);
        assert_eq!(structure.counts["calls.jax_compile"], 0);
        assert!(!structure.counts.contains_key("calls.no_such.function"));
        let reason = "jax:no_such.function is not there: ";
        assert!(
            structure.uncounted["calls.no_such.function"].starts_with(reason),
            "{structure:?}"
        );
    }
}

/// A JAX whose compiled functions give for ever what they gave first.
const KEEPS_ITS_RESULTS: &str = "\
import jax.stages

compute, kept = jax.stages.Compiled.__call__, {}


def call(compiled, *given):
    if id(compiled) in kept:
        return kept[id(compiled)][1]
    results = compute(compiled, *given)
    # Attention's are several, or one in a tuple; what makes the inputs gives an array.
    if isinstance(results, tuple):
        # With the function itself, or another could get its number.
        kept[id(compiled)] = compiled, results
    return results


jax.stages.Compiled.__call__ = call
";
const LIMIT: Duration = Duration::from_secs(120);
const SEED: u64 = u64::MAX;

/// What the Python worker says of one case, taken on three sets of inputs.
fn on_three_sets(worker: &mut WorkerProcess, problem: &Problem) -> Measured {
    let prepare = RequestBody::Prepare(Prepare {
        variant: "xla".to_owned(),
        problem: problem.clone(),
        params: Params::default(),
        seed: SEED,
        counters: Vec::new(),
        input_sets: 3,
        draw: Some(5),
    });
    let prepared = match worker.ask(prepare, LIMIT).unwrap() {
        ReplyBody::Prepared(prepared) => prepared,
        other => panic!("{other:?}"),
    };
    for (tensor, error) in &prepared.errors {
        assert!(error.relative_l2.unwrap() < 1e-5, "{tensor}: {error:?}");
    }
    let measure = RequestBody::Measure(Measure {
        warmup: 1,
        samples: 4,
        min_samples: 2,
        budget_ms: 100,
        cache: Cache::Hot,
        graph: false,
    });
    match worker.ask(measure, LIMIT).unwrap() {
        ReplyBody::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// Holds the probes of the last timed call to regatta's own float64.
fn agree(problem: &Problem, checked: &Checked) -> Result<(), String> {
    let tensors = whole(problem, checked.seed).unwrap();
    for &(tensor, direction) in results(problem.direction) {
        let limit = limit(problem.dtype, false, direction);
        let probes = &checked.probes[tensor];
        let expected = Expected::from_tensor(&tensors[tensor], probes.len(), checked.draw);
        probes_agree(tensor, probes, &expected, limit)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs JAX"]
fn the_last_timed_call_is_checked_on_inputs_of_its_own() {
    let python = python();
    let place = Place::new();
    place.write("sitecustomize.py", KEEPS_ITS_RESULTS);
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/python/regatta_worker");
    let started = |path: &str| {
        let spec = WorkerSpec {
            name: "jax".to_owned(),
            program: python.clone().into(),
            args: [worker, "--library", "jax"].map(String::from).to_vec(),
            env: vec![
                ("JAX_PLATFORMS".to_owned(), "cpu".to_owned()),
                ("PYTHONPATH".to_owned(), path.to_owned()),
            ],
            directory: None,
            fix: String::new(),
            forking: Default::default(),
        };
        WorkerProcess::start(&spec, &place.path().join("jax.log"), LIMIT).unwrap()
    };
    let mut right = started("");
    let mut keeping = started(place.path().to_str().unwrap());
    for direction in [Direction::Forward, Direction::Backward, Direction::Both] {
        let problem = Problem {
            batch: 2,
            heads: 4,
            kv_heads: 2,
            seq_k: 40,
            mask: Mask::causal(Align::BottomRight),
            layout: Layout::Bhsd,
            direction,
            ..Problem::new(33, 16)
        };
        let measured = on_three_sets(&mut right, &problem);
        assert!(measured.input_sets >= 3, "{measured:?}");
        let checked = measured.checked.unwrap();
        assert_eq!(checked.seed, SEED.wrapping_add(1));
        agree(&problem, &checked).unwrap();
        for (tensor, error) in &checked.errors {
            assert!(error.relative_l2.unwrap() < 1e-5, "{tensor}: {error:?}");
        }
        let checked = on_three_sets(&mut keeping, &problem).checked.unwrap();
        agree(&problem, &checked).unwrap_err();
        for (tensor, error) in &checked.errors {
            assert!(error.relative_l2.unwrap() > 0.5, "{tensor}: {error:?}");
        }
    }
}

const NUMPY: &str = "\
import os
import time
import numpy as np


def plan():
    time.sleep(0.02)


def attention(q, k, v, problem):
    if os.environ.get(\"PLANS\"):
        plan()
    s = np.einsum(\"bqhd,bkhd->bhqk\", q, k) * np.float32(problem.scale)
    s = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.einsum(\"bhqk,bkhd->bqhd\", s / s.sum(axis=-1, keepdims=True), v)
";

/// On a processor the host does the work: a function more is found by how often each is called.
#[test]
#[ignore = "needs JAX"]
fn a_function_that_was_added_is_named() {
    // JAX stands on NumPy.
    let python = python();
    let place = Place::new();
    place.write("bench.py", NUMPY);
    place.write(
        "s.toml",
        "description = \"s\"\n[measure]\nsamples = 5\n\
         [workers]\nmine = \"bench.py:attention\"\n\
         [[sweep]]\nvariants = [\"mine/attention\"]\nseq = 32\nhead_dim = 16\n",
    );
    let asked = |words: &[&str], plans: &str| {
        let output = place
            .regatta(words)
            .env("REGATTA_PYTHON", &python)
            .env("PLANS", plans)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(asked(&["run", "./s.toml"], "").0, Some(0));
    assert_eq!(asked(&["baseline", "save", "s"], "").0, Some(0));
    let (code, stdout) = asked(&["gate", "./s.toml"], "yes");
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("functions 0 → 1 of bench:plan"), "{stdout}");
}
