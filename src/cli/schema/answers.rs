//! What `--json` prints where it is put together by hand: the shape of each answer, which the
//! tests hold against what is printed (`tests/schema.rs`).

#![expect(dead_code, reason = "described, never made")]

use std::path::PathBuf;

use jiff::Timestamp;
use regatta::attention::CaseId;
use regatta::judge::judgement::VerdictOutcome;
use regatta::judge::spread::Spread;
use regatta::record::header::{Fingerprint, Git};
use regatta::record::history::About;
use regatta::record::types::Damage;
use regatta::suite::rules::Rules;
use regatta::suite::{Override, Settings};
use regatta::worker::protocol::Hello;
use schemars::JsonSchema;

/// What a command prints that was stopped before there was an answer.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Stopped {
    /// Its command line, or a file that it names, is wrong: exit code 2.
    Usage {
        /// What is wrong, and what to do.
        error: String,
    },
    /// It cannot be judged: exit code 3.
    NotJudged {
        /// What is known.
        verdict: NotJudged,
    },
}

/// A verdict that was not reached.
#[derive(JsonSchema)]
pub struct NotJudged {
    /// `not-judged`.
    outcome: VerdictOutcome,
    /// Why, a sentence each.
    reasons: Vec<String>,
}

/// The plan of a suite.
#[derive(JsonSchema)]
pub struct Plan {
    /// The suite's name.
    suite: String,
    /// What it is for.
    description: String,
    /// How it measures.
    settings: Settings,
    /// What it demands.
    rules: Rules,
    /// Parameters that are handed over otherwise than their case says.
    overrides: Vec<Override>,
    /// Its cases.
    cases: Vec<CaseId>,
}

/// What there is to measure.
#[derive(JsonSchema)]
pub struct Variants {
    /// Every worker.
    workers: Vec<Introduced>,
    /// Names of the built-in suites.
    suites: Vec<String>,
}

/// A worker that was asked who it is.
#[derive(JsonSchema)]
pub struct Introduced {
    /// Its name.
    worker: String,
    /// How it introduced itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    hello: Option<Hello>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// What came of adding a run to a history.
#[derive(JsonSchema)]
pub struct HistoryAdded {
    /// Where the run was found.
    run: String,
    /// False: it is there already.
    added: bool,
    /// The history's file.
    history: PathBuf,
    /// Runs that it has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<usize>,
    /// Cases that it did not have before.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_cases: Option<usize>,
}

/// A history that is kept here.
#[derive(JsonSchema)]
pub struct HistoryListed {
    /// Its suite.
    suite: String,
    /// Its machine.
    machine: String,
    /// Its file.
    path: PathBuf,
    /// Runs in it.
    runs: usize,
    /// Cases in it.
    cases: usize,
    /// Its earliest run; null where it has none.
    from: Option<Timestamp>,
    /// Its latest run; null where it has none.
    to: Option<Timestamp>,
    /// Lines that could not be used.
    damage: Vec<Damage>,
}

/// What `history list` prints: the histories, or the runs of the chosen one.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum HistoryList {
    /// Histories.
    Histories(Vec<HistoryListed>),
    /// The runs of one.
    Runs(Vec<HistoryRun>),
}

/// A run of a history.
#[derive(JsonSchema)]
pub struct HistoryRun {
    /// What is kept of it.
    run: About,
    /// Cases that were timed.
    timed: usize,
    /// Cases that were to be.
    cases: usize,
}

/// What became of a comment.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Comment {
    /// It was put.
    Put {
        /// What was done.
        comment: Done,
        /// Where it is; null where that is not known.
        address: Option<String>,
    },
    /// What would be sent, by `--dry-run`.
    Request {
        /// The method of HTTP.
        method: String,
        /// The address it would be sent to.
        url: String,
        /// The comment, in Markdown.
        body: String,
    },
}

/// What was done to a comment.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// It is new.
    Created,
    /// It was there, and says this now.
    Updated,
    /// There is none: nothing is worse, and none was there.
    Nothing,
}

/// A baseline that was saved.
#[derive(JsonSchema)]
pub struct BaselineSaved {
    /// Its file.
    saved: PathBuf,
    /// The run it was made of.
    run: String,
    /// Cases in it.
    cases: usize,
    /// Sessions in it, this one included.
    sessions: usize,
}

/// A baseline that is kept here.
#[derive(JsonSchema)]
pub struct BaselineListed {
    /// Its name.
    name: String,
    /// Its file.
    path: PathBuf,
    /// Its suite.
    suite: String,
    /// Cases in it.
    cases: usize,
    /// Sessions in it.
    sessions: usize,
    /// The machine it is of.
    machine: Fingerprint,
    /// When it was saved.
    saved: Timestamp,
    /// The version of regatta that measured it.
    tool: String,
    /// The checkout it was measured in; null where there was none.
    git: Option<Git>,
}

/// Baselines that were removed.
#[derive(JsonSchema)]
pub struct BaselineRemoved {
    /// Their files.
    removed: Vec<PathBuf>,
}

/// What was written into a repository.
#[derive(JsonSchema)]
pub struct Begun {
    /// Every file.
    files: Vec<BegunFile>,
    /// The next command, as a shell takes it.
    next: String,
}

/// A file that was written, or is there.
#[derive(JsonSchema)]
pub struct BegunFile {
    /// Where it is.
    path: PathBuf,
    /// What was done: `written`, for example.
    what: String,
}

/// How well a run knows its times.
#[derive(JsonSchema)]
pub struct RunSpread {
    /// The run's file.
    run: PathBuf,
    /// Its cases.
    cases: Vec<Spread>,
}

/// A schema that `regatta schema` prints.
#[derive(JsonSchema)]
pub struct SchemaListed {
    /// Its name.
    name: String,
    /// What it is of: `written`, `files`, `protocol` or `answers`.
    group: String,
    /// Its version, major and minor.
    version: String,
    /// What the document is.
    title: String,
    /// The commands that print such a document for `--json`.
    commands: Vec<String>,
}
