//! The JSON Schema of a suite and of `regatta.toml`, for editors that check TOML.
//!
//! Suites are read by hand, with positions, so this is written by hand too; what is a table
//! elsewhere (axes, kinds of structure) is taken from there, and the tests below hold every
//! key to the reader.

mod parts;

use serde_json::{Value, json};

use super::callable::Framework;
use super::start::Start;
use super::structural::Kind;
use parts::{
    action, at, axes, by_name, described, list, named, one_or_more, scalar, share, structure,
    table, text, texts, truth, whole, word, words,
};

/// The schema of a suite, `suites/NAME.toml`, with its definitions under `$defs`.
pub fn suite() -> Value {
    json!({
        "type": "object",
        "required": ["schema", "description"],
        "properties": {
            "schema": { "const": 1, "description": "Version of the format of suites." },
            "description": text("One line: what it is for."),
            "extends": text("A suite, built in or beside this one, whose cases and rules it starts from."),
            "measure": at("Measure", "How it measures; all of it may be left out."),
            "policy": at("Policy", "How it judges."),
            "sweep": list(at("Sweep", ""), "Cases: each sweep is the product of its lists."),
            "expect": list(at("Expect", ""), "Relations between times inside one run, which need no baseline."),
            "limit": list(at("Limit", ""), "Limits on the structure of one call, or on a build, which need no baseline."),
            "count": list(at("Count", ""), "Functions of a worker's process whose calls are counted."),
            "override": list(at("Override", ""), "Parameters that are handed over otherwise than their case says."),
            "build": at("Build", "How the code under test is built."),
            "environments": by_name(at("Environment", ""), "Where workers run."),
            "workers": by_name(at("Worker", ""), "Workers of its own."),
        },
        "additionalProperties": false,
        "$defs": definitions(),
    })
}

/// The schema of `regatta.toml`, which has environments and workers for every suite.
pub fn config() -> Value {
    json!({
        "type": "object",
        "properties": {
            "environments": by_name(at("Environment", ""), "Where workers run."),
            "workers": by_name(at("Worker", ""), "Workers for every suite."),
        },
        "additionalProperties": false,
        "$defs": definitions(),
    })
}

fn definitions() -> Value {
    json!({
        "Measure": table(&[], json!({
            "invocations": whole(1, 1000, 5, "Starts of each worker process: the replicates."),
            "warmup": whole(0, 100_000, 3, "Untimed calls."),
            "samples": whole(1, 100_000, 20, "Most timed calls of a case in an invocation."),
            "min_samples": whole(1, 100_000, 5, "Timed calls that are made whatever they cost."),
            "budget_ms": whole(1, 3_600_000, 500, "Milliseconds; past `min_samples`, no further sample begins after this."),
            "cache": word(&["cold", "hot"], "The last-level cache before each sample; by default cold."),
            "graph": truth("Time replays of a CUDA graph of the call; by default false."),
            "peak": truth("Measure first what each device reaches at the most; by default false."),
            "instructions": truth("Count the instructions that each kernel executes, by hardware counters and apart from all timing; by default false."),
            "calls_per_sample": whole(1, 100_000, 1, "Calls in a sample, whose time is divided by it."),
            "input_sets": whole(1, 100, 3, "Sets of inputs that samples are taken on in turn."),
            "seed": whole(0, i64::MAX, 1, "Of inputs and of the order of cases."),
            "ground": word(&["quiet", "any"], "Whether times that the machine was in are judged; by default quiet: they are not."),
            "remeasure": whole(0, 100, 2, "More tries of samples that the machine was in, in one invocation at the most."),
            "remeasure_s": whole(0, 86_400, 30, "Seconds that a run spends on them and on waiting for quiet."),
            "timeout_s": whole(1, 100_000, 120, "Seconds for one request to a worker; loading its library is part of the first."),
        })),
        "Policy": table(&[], json!({
            "floor": share(1, "Smallest relative change that counts, a fraction: 0.05 is 5 %."),
            "confirm": whole(0, 1000, 30, "The most fresh invocations of what the regular ones leave open."),
            "allow": texts("Patterns of cases that may be unsupported or fail."),
            "step_share": {
                "description": "Part of a training step, above 0 and up to 1: weighs how grave a change is.",
                "type": "number", "exclusiveMinimum": 0, "maximum": 1,
            },
            "processor": truth("Of versions measured in turn on a processor: judge the time on its cores too."),
            "sight": at("Sight", "What the gate must have been able to show, or nothing is judged."),
            "metrics": at("Metrics", "What is judged beside the device's time."),
            "structure": at("Structure", "How changes of structure are taken."),
        })),
        "Sight": table(&["change", "cases"], json!({
            "change": share(1000, "This relative change: 0.05 is 5 %."),
            "cases": share(1, "In so many of its cases, a fraction."),
        })),
        "Metrics": table(&[], json!({
            "device": described(
                table(&[], json!({ "floor": share(1, "The same as the policy's `floor`.") })),
                "The device's time.",
            ),
            "host": at("Metric", "The host's time to issue a call."),
            "first_call": at("Metric", "The first call of a process, with all that is done once."),
            "memory": described(table(&[], json!({
                "floor": share(1, "The same as the structure's `memory_share`."),
                "action": action("The same as the structure's `memory`."),
            })), "Peak memory."),
        })),
        "Metric": table(&[], json!({
            "floor": share(1000, "Smallest relative change that counts: 1.0 is twice as long."),
            "least_us": {
                "description": "Smallest change that counts, in microseconds.",
                "type": "number", "minimum": 0, "maximum": 1e9,
            },
            "action": action("What a change beyond both does."),
        })),
        "Structure": structure(),
        "StructureRule": {
            "type": "object",
            "required": ["action"],
            "anyOf": [{ "required": ["name"] }, { "required": ["case"] }],
            "properties": {
                "name": text("Pattern of the kernel, count or parameter that changed; `*` matches anything."),
                "case": text("Pattern of case ids."),
                "kind": word(&Kind::ALL.map(Kind::text), "The kind of change."),
                "action": action("How it is taken."),
            },
            "additionalProperties": false,
        },
        "Sweep": {
            "type": "object",
            "required": ["variants"],
            "properties": axes([
                ("variants", one_or_more(json!({ "type": "string" }), "Variants, `WORKER/NAME` or `WORKER/NAME@ENVIRONMENT`.")),
                ("shapes", one_or_more(at("Shape", ""), "Axes whose values belong together, crossed with those beside it.")),
                ("params", named(one_or_more(scalar(), ""), "Parameters by name, crossed as axes are; `auto` leaves one out.")),
            ]),
            "additionalProperties": false,
        },
        "Shape": { "type": "object", "properties": axes([]), "additionalProperties": false },
        "Selector": named(
            one_or_more(scalar(), ""),
            "Cases by their facets: axes, `variant`, `worker`, `environment` and parameters; a case has one of the values of each.",
        ),
        "Expect": table(&["name", "case", "against", "within"], json!({
            "name": text("A sentence that is to hold."),
            "case": at("Selector", "The cases that it is of."),
            "against": at("Selector", "The cases that they are held against."),
            "within": {
                "description": "Largest ratio to the best of `against`: 1.10 allows 10 % more.",
                "type": "number", "minimum": 0.01, "maximum": 100,
            },
            "metric": word(&["device", "host"], "Which time; by default the device's."),
        })),
        "Limit": {
            "type": "object",
            "required": ["name", "count"],
            "anyOf": [{ "required": ["at_least"] }, { "required": ["at_most"] }],
            "properties": {
                "name": text("A sentence that is to hold."),
                "case": at("Selector", "The cases that it is of; none of a build."),
                "count": text("`launches`, `copies`, `blocks`, `sm_fill` (a share), `build_seconds`, or a count's name."),
                "kernel": text("Pattern of the kernels whose launches, blocks or fill it is of."),
                "at_least": { "description": "Smallest allowed value.", "type": "number" },
                "at_most": { "description": "Largest allowed value.", "type": "number" },
            },
            "additionalProperties": false,
        },
        "Count": table(&["name", "worker", "function"], json!({
            "name": text("`backend selections` becomes the count `calls.backend_selections`."),
            "worker": text("A worker, or a pattern of variants: `torch/sdpa-*`."),
            "function": one_or_more(json!({ "type": "string" }), "`module:qualified.name`, or several."),
        })),
        "Override": table(&["variant", "parameter", "to"], json!({
            "variant": text("The variant."),
            "parameter": text("The parameter."),
            "from": described(scalar(), "The value it replaces; by default whatever is asked for."),
            "to": described(scalar(), "The value handed over."),
        })),
        "Build": table(&["command"], json!({
            "command": words("The program and its arguments, run in the folder that regatta is started in."),
            "makes": texts("Files or folders below that folder which must be there then."),
            "serves": text("The regatta among what is made, which serves `cpu` and `cuda` of a revision."),
            "timeout_s": {
                "description": "Seconds after which it is ended.",
                "type": "integer", "minimum": 1, "maximum": 7 * 86_400,
            },
        })),
        "Environment": table(&[], json!({
            "interpreter": text("The Python interpreter; by default `python3`."),
            "requirements": {
                "description": "What `regatta env make` installs, pinned, a line each; or the path of a file.",
                "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
            },
            "wheels": text("A folder of wheels to install from, and from nowhere else."),
            "system_packages": truth("The interpreter's own packages are seen too; by default false."),
            "env": named(json!({ "type": "string" }), "Environment variables of the process."),
            "import_paths": texts("Folders put in front of Python's import path."),
            "workers": texts("Workers that run in it where a variant names no environment."),
        })),
        "Worker": {
            "type": "object",
            "anyOf": [
                { "required": ["command"] },
                { "required": ["python"] },
                { "required": ["cuda"] },
                { "required": ["start"] },
            ],
            "not": {
                "anyOf": [
                    { "required": ["command", "python"] },
                    { "required": ["command", "cuda"] },
                    { "required": ["python", "cuda"] },
                ],
            },
            "dependentRequired": { "framework": ["python"] },
            "properties": {
                "command": words("The program that speaks the protocol, and its arguments."),
                "python": text("Functions in Python: `bench.py:attention`, `bench.py` or `package.module`."),
                "framework": word(&Framework::ALL.map(|of| of.to_string()), "Whose arrays these take; by default what they import or annotate."),
                "cuda": text("A CUDA file, whose launch contract lies beside it: `attention.cu`, `attention.toml`."),
                "start": word(&Start::ALL.map(|start| start.to_string()), "How its processes come to be; by default auto."),
            },
            "additionalProperties": false,
        },
    })
}

#[cfg(test)]
mod tests;
