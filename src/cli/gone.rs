//! Former commands, flags and keys with their replacements: for a version or two, so that a user
//! need not search for them.

use clap::error::{ContextKind, ContextValue, Error};

use regatta_core::suite::glob;
use regatta_report::Format;

/// Commands, flags, and keys of suites with a dot (`*` is any name), and what stands in their
/// place.
#[rustfmt::skip]
const GONE: [(&[&str], &str); 41] = [
    (&["submit", "next"], "regatta run --shard I/N, for which examples/slurm and examples/kubernetes have scripts"),
    (&["merge"], "folders of shards are one run: regatta report SHARD SHARD.."),
    (&["comment"], "--output markdown=PATH, which action.yml or gh puts under a pull request"),
    (&["calibrate"], "regatta compare SUITE --base here says what changes it can see"),
    (&["verdicts", "schema"], "docs/JUDGING.md says how often verdicts are wrong, docs/schemas has the schemas"),
    (&["env list", "env show"], "regatta env, or regatta env NAME"),
    (&["history list"], "regatta history --list"),
    (&["baseline show"], "regatta baseline list NAME"),
    (&["baseline import"], "regatta run, then regatta baseline save NAME"),
    (&["--fresh"], "--no-resume; of build it is --no-cache, of env --recreate"),
    (&["--ruler"], "--check-clocks"),
    (&["report --spread", "report --noise"], "the columns spread_within and spread_between of cases.csv"),
    (&["bisect --processor"], "--cpu-time"),
    (&["bisect --first-parent"], "git bisect start --first-parent, then git bisect run (docs/VERSIONS.md)"),
    (&["--against"], "--base SPEC; of build it is --baseline FILE"),
    (&["--openmetrics", "--asv", "--google-benchmark"], "--output json=PATH, or --output bencher=PATH"),
    (&["--criterion"], "--output csv=DIR, whose samples.csv has every sample"),
    (&["--timings"], "the last line of a command that measures says where its time went"),
    (&["--pin"], "--set VARIANT.PARAMETER=VALUE"),
    (&["--costs"], "--shard I/N, which deals by the plan's own costs"),
    (&["--peak", ".measure.peak", "--instructions"], "--set peak=true; --set instructions=true, or the same in the suite's [measure]"),
    (&["--man"], "regatta COMMAND --help"),
    (&["--budget"], "--time-limit TIME"),
    (&["--strict", ".policy.sight"], "nothing: what may be worse and is inconclusive always exits 3"),
    (&["--add"], "nothing: regatta gate measures pairs where one stored run does not show a case to be the same"),
    (&["--floor", ".policy.floor"], "--threshold SHARE, or threshold = { device = 0.02, host = 0.2 } in [policy]"),
    (&["compare --processor", ".policy.processor"], "nothing: CPU time is judged wherever a worker tells it"),
    (&["gate --shard", "compare --shard"], "regatta run --shard I/N, then regatta diff --baseline NAME with all shards"),
    (&[".schema", ".policy.step_share", ".measure.warmup", ".measure.min_samples", ".measure.seed", ".measure.calls_per_sample"], "nothing: leave it out"),
    (&[".measure.graph", ".measure.input_sets"], "--set graph=true, --set input_sets=N"),
    (&[".measure.ground", ".measure.remeasure*", ".policy.confirm"], "nothing: what is open is measured up to 35 times, within --time-limit"),
    (&[".policy.metrics"], "threshold = { host = 0.2 } and ignore = [\"first_call\"] in [policy]"),
    (&[".policy.structure"], "ignore = [\"launches\", \"copies:*elementwise*\"] in [policy]"),
    (&[".policy.allow"], "optional = [\"PATTERN\"] in [policy]"),
    (&[".limit", ".count"], "[[expect]] with metric = \"copies\" or \"calls:module:function\", and at_most or at_least"),
    (&[".override"], "set.\"torch/efficient\".num_splits_key = { auto = -1 }"),
    (&[".build.serves", ".build.timeout_s"], "the path in makes whose name is regatta; no time limit"),
    (&[".environments.*.interpreter", ".environments.*.import_paths"], "python = \"PATH\", and paths = [\"FOLDER\"]"),
    (&[".environments.*.wheels"], "requirements = [.., \"--no-index\", \"--find-links FOLDER\"]"),
    (&[".environments.*.workers"], "an environment of the worker's name"),
    (&[".workers.*"], "workers.mine = \"bench.py:attention\", \"attention.cu\" or [\"./serve\"]; in that of `start`, REGATTA_FORK=no or always"),
    ];

/// The message for a command line that clap refuses for a command or a flag that is gone.
pub fn on_command_line(error: &Error, words: &[String]) -> Option<String> {
    let refused = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let refused = refused.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.split('=').next().unwrap_or(word).to_owned()),
        _ => None,
    });
    let command = words.get(1).map_or("", String::as_str);
    refused
        .and_then(|word| replacement(&format!("{command} {word}")).or_else(|| replacement(&word)))
        .or_else(|| nested(words))
}

/// The message for a command below another that is gone, whose name is read as something else.
pub fn nested(words: &[String]) -> Option<String> {
    replacement(&words.get(1..3)?.join(" "))
}

fn replacement(what: &str) -> Option<String> {
    let known = GONE.iter().find(|(gone, _)| gone.contains(&what));
    let format = Format::all().map(Format::name);
    let format = format
        .into_iter()
        .find(|name| what.strip_prefix("--") == Some(name));
    let place = match (known, format) {
        (Some((_, place)), _) => (*place).to_owned(),
        (None, Some(name)) => format!("--output {name}=PATH"),
        (None, None) => return None,
    };
    Some(is_gone(what, &place))
}

/// The addition to an error about a key of a suite: `s.toml:3: policy.floor = 1: unknown key`.
pub fn in_suite(error: &str) -> Option<String> {
    let is_of_a_key = error.contains("unknown key") || error.contains("found table");
    let mut parts = error.split(": ").filter(|_| is_of_a_key);
    parts.find_map(|part| {
        let key = part.split([' ', '[']).next().unwrap_or_default();
        let dotted = format!(".{key}");
        let is_of = |gone: &&str| gone.starts_with('.') && glob(gone, &dotted);
        let row = GONE.iter().find(|(gone, _)| gone.iter().any(&is_of));
        row.map(|(_, place)| is_gone(key, place))
    })
}

fn is_gone(what: &str, place: &str) -> String {
    format!("`{what}` is gone; in its place: {place}")
}
