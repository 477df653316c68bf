//! Every document that regatta writes, reads or prints, with its schema and its version.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use super::document::{Document, Form, Group};
use super::history::Answer as History;
use super::{answers, builds};
use crate::cli::{doctor, ruler, trace};
use regatta::judge::judgement::Judgement;
use regatta::judge::trace::Comparison;
use regatta::measure::conformance::Check;
use regatta::record::calibration::{self, Calibration};
use regatta::record::{SCHEMA_VERSION, baseline, history, ledger, run_file};
use regatta::report::timings::Timings;
use regatta::report::{self, bisect};
use regatta::suite;
use regatta::variants::cuda::ContractFile;
use regatta::verdicts::history::Row;
use regatta::verdicts::table::Table;
use regatta::versions::journal;
use regatta::worker::protocol::{PROTOCOL_VERSION, Reply, Request};

/// The schema of a type.
fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of what is read alone: a member with a default may be left out.
fn read<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// A schema that is written by hand, or apart, whose definitions the generator keeps.
fn by_hand(mut schema: Value, generator: &mut SchemaGenerator) -> Schema {
    let defs = schema
        .as_object_mut()
        .and_then(|fields| fields.remove("$defs"));
    if let Some(Value::Object(defs)) = defs {
        generator.definitions_mut().extend(defs);
    }
    Schema::try_from(schema).unwrap_or_default()
}

const FILE: Document = Document {
    name: "",
    group: Group::Files,
    version: (SCHEMA_VERSION, 0),
    title: "",
    form: Form::Whole,
    commands: &[],
    is_read: false,
    of: of::<()>,
};

const LINES: Document = Document {
    form: Form::Summed,
    ..FILE
};

const ANSWER: Document = Document {
    group: Group::Answers,
    version: (1, 0),
    ..FILE
};

/// Every document. A version is raised with every change of its schema: the minor one where
/// who reads the old can read the new, else the major one.
pub const ALL: &[Document] = &[
    Document {
        name: "suite",
        group: Group::Written,
        version: (1, 0),
        title: "A suite: what to measure, how, and what it demands (TOML)",
        of: |generator| by_hand(suite::schema::suite(), generator),
        ..FILE
    },
    Document {
        name: "contract",
        group: Group::Written,
        version: (1, 0),
        title: "How the kernels of a CUDA file are launched (TOML)",
        of: |generator| by_hand(read::<ContractFile>(), generator),
        ..FILE
    },
    Document {
        name: "config",
        group: Group::Written,
        version: (1, 0),
        title: "regatta.toml: environments and workers for every suite",
        of: |generator| by_hand(suite::schema::config(), generator),
        ..FILE
    },
    Document {
        name: "run",
        title: "A line of run.jsonl: what was measured",
        of: run_file::schema,
        ..LINES
    },
    Document {
        name: "baseline",
        title: "A line of a baseline: a run kept to hold others against",
        of: baseline::schema,
        ..LINES
    },
    Document {
        name: "calibration",
        version: (calibration::SCHEMA, 0),
        title: "calibration.json: the noise of a machine, case by case",
        commands: &["calibrate"],
        of: of::<Calibration>,
        ..FILE
    },
    Document {
        name: "history",
        title: "A line of a history: a run and what came of its cases",
        of: history::schema,
        ..LINES
    },
    Document {
        name: "trace",
        title: "A line of a trace: an operation of a program's devices",
        of: regatta::record::trace::file::schema,
        ..LINES
    },
    Document {
        name: "recording",
        title: "A line of a raw recording, by the injected library",
        form: Form::Lines,
        is_read: true,
        of: regatta::record::trace::raw::schema,
        ..FILE
    },
    Document {
        name: "bisect",
        title: "A line of bisect.jsonl: what a bisect has tried",
        of: journal::schema,
        ..LINES
    },
    Document {
        name: "ledger",
        title: "A line of a ledger: what a kernel's entry point takes",
        of: ledger::schema,
        ..LINES
    },
    Document {
        name: "request",
        group: Group::Protocol,
        version: (PROTOCOL_VERSION, 0),
        title: "What a worker is asked, a line each",
        form: Form::Lines,
        of: of::<Request>,
        ..FILE
    },
    Document {
        name: "reply",
        group: Group::Protocol,
        version: (PROTOCOL_VERSION, 0),
        title: "What a worker answers, a line each",
        form: Form::Lines,
        is_read: true,
        of: of::<Reply>,
        ..FILE
    },
    Document {
        name: "stopped",
        title: "What is printed when a command ends before its answer",
        commands: &[
            "bisect", "comment", "compare", "diff", "gate", "history", "init", "merge", "run",
            "submit",
        ],
        of: of::<answers::Stopped>,
        ..ANSWER
    },
    Document {
        name: "judgement",
        version: (SCHEMA_VERSION, 0),
        title: "What a run means, with its verdict",
        commands: &["run", "gate", "compare", "diff", "merge", "submit"],
        of: report::schema,
        ..ANSWER
    },
    Document {
        name: "plan",
        title: "The cases and rules of a suite",
        commands: &["list"],
        of: of::<answers::Plan>,
        ..ANSWER
    },
    Document {
        name: "variants",
        title: "Every worker and its variants",
        commands: &["list"],
        of: of::<answers::Variants>,
        ..ANSWER
    },
    Document {
        name: "doctor",
        title: "What this machine can run, and what is missing",
        commands: &["doctor"],
        of: of::<Vec<doctor::finding::Finding>>,
        ..ANSWER
    },
    Document {
        name: "ruler",
        title: "How well the clocks keep time (doctor --ruler)",
        commands: &["doctor"],
        of: of::<Vec<ruler::Outcome>>,
        ..ANSWER
    },
    Document {
        name: "environments",
        title: "The Python environments, and whether they are made",
        commands: &["env list"],
        of: of::<Vec<builds::EnvListed>>,
        ..ANSWER
    },
    Document {
        name: "environment-made",
        title: "A Python environment that was made",
        commands: &["env make"],
        of: of::<builds::EnvMade>,
        ..ANSWER
    },
    Document {
        name: "environment",
        title: "What is installed in a Python environment",
        commands: &["env show"],
        of: of::<Vec<String>>,
        ..ANSWER
    },
    Document {
        name: "build",
        title: "What building took, and what came of it",
        commands: &["build"],
        of: of::<builds::Build>,
        ..ANSWER
    },
    Document {
        name: "baseline-saved",
        title: "A baseline that was saved",
        commands: &["baseline save"],
        of: of::<answers::BaselineSaved>,
        ..ANSWER
    },
    Document {
        name: "baselines",
        title: "The baselines that are kept",
        commands: &["baseline list"],
        of: of::<Vec<answers::BaselineListed>>,
        ..ANSWER
    },
    Document {
        name: "baseline-shown",
        title: "What a baseline holds, a line for each machine",
        form: Form::Lines,
        commands: &["baseline show"],
        of: of::<Judgement>,
        ..ANSWER
    },
    Document {
        name: "baseline-removed",
        title: "Baselines that were removed",
        commands: &["baseline remove"],
        of: of::<answers::BaselineRemoved>,
        ..ANSWER
    },
    Document {
        name: "spread",
        title: "How well runs know their times (report --spread)",
        commands: &["report"],
        of: of::<Vec<answers::RunSpread>>,
        ..ANSWER
    },
    Document {
        name: "timings",
        title: "Where the time of a run went (report --timings)",
        commands: &["report"],
        of: of::<Timings>,
        ..ANSWER
    },
    Document {
        name: "history-shown",
        title: "What changed in a history, and since when",
        commands: &["history"],
        of: of::<History>,
        ..ANSWER
    },
    Document {
        name: "history-added",
        title: "Runs that were added to a history",
        commands: &["history add"],
        of: of::<Vec<answers::HistoryAdded>>,
        ..ANSWER
    },
    Document {
        name: "histories",
        title: "The histories that are kept, or the runs of one",
        commands: &["history list"],
        of: of::<answers::HistoryList>,
        ..ANSWER
    },
    Document {
        name: "bisected",
        title: "The change that a bisect found",
        version: (SCHEMA_VERSION, 0),
        commands: &["bisect"],
        of: bisect::schema,
        ..ANSWER
    },
    Document {
        name: "traced",
        title: "What a program did on its devices",
        commands: &["trace"],
        of: of::<trace::Answer>,
        ..ANSWER
    },
    Document {
        name: "traces",
        title: "Two traces beside each other",
        commands: &["diff"],
        of: of::<Comparison>,
        ..ANSWER
    },
    Document {
        name: "comment",
        title: "What became of the comment on a pull request",
        commands: &["comment"],
        of: of::<answers::Comment>,
        ..ANSWER
    },
    Document {
        name: "begun",
        title: "What was written into a repository",
        commands: &["init"],
        of: of::<answers::Begun>,
        ..ANSWER
    },
    Document {
        name: "checked",
        title: "Whether a worker keeps to the protocol",
        commands: &["worker check"],
        of: of::<Vec<Check>>,
        ..ANSWER
    },
    Document {
        name: "verdicts",
        title: "How often verdicts are wrong, rule by rule",
        commands: &["verdicts"],
        of: of::<Table>,
        ..ANSWER
    },
    Document {
        name: "verdicts-histories",
        title: "How often change points err (verdicts --histories)",
        commands: &["verdicts"],
        of: of::<Vec<Row>>,
        ..ANSWER
    },
    Document {
        name: "schemas",
        title: "The schemas that there are",
        commands: &["schema"],
        of: of::<Vec<answers::SchemaListed>>,
        ..ANSWER
    },
];
