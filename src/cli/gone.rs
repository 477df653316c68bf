//! What there was, and what stands in its place: for a version or two, so that nobody has to
//! search for it.

use clap::error::{ContextKind, ContextValue, Error};

use regatta_report::Format;

/// A command or a flag, each with what stands in its place.
#[rustfmt::skip]
const GONE: [(&str, &str); 30] = [
    ("submit", "examples/slurm and examples/kubernetes have scripts for --shard I/N"),
    ("next", "regatta run --shard I/N"),
    ("merge", "folders of shards are one run: regatta report SHARD SHARD.."),
    ("comment", "--output markdown=PATH, which action.yml or gh puts under a pull request"),
    ("calibrate", "regatta compare SUITE --base here says what changes it can see"),
    ("verdicts", "docs/JUDGING.md says how often verdicts are wrong"),
    ("schema", "docs/schemas has the schemas"),
    ("env list", "regatta env"),
    ("env show", "regatta env NAME"),
    ("history list", "regatta history --list"),
    ("baseline show", "regatta baseline list NAME"),
    ("baseline import", "regatta run, then regatta baseline save NAME"),
    ("--openmetrics", "--output json=PATH, or --output bencher=PATH"),
    ("--asv", "--output json=PATH, or --output bencher=PATH"),
    ("--google-benchmark", "--output json=PATH, or --output bencher=PATH"),
    ("--criterion", "--output csv=DIR, whose samples.csv has every sample"),
    ("--timings", "the last line of a command that measures says where its time went"),
    ("--pin", "--set VARIANT.PARAMETER=VALUE"),
    ("--costs", "--shard I/N, which deals by the plan's own costs"),
    ("--peak", "--set peak=true, or `peak = true` in the suite's [measure]"),
    ("--instructions", "--set instructions=true, or the same in the suite's [measure]"),
    ("--man", "regatta COMMAND --help"),
    ("gate --against", "--base SPEC"),
    ("--budget", "--time-limit TIME"),
    ("--strict", "nothing: what may be worse and is inconclusive always exits 3"),
    ("--add", "nothing: regatta gate measures pairs where one stored run does not show a case to be the same"),
    ("--floor", "--threshold SHARE"),
    ("compare --processor", "nothing: CPU time is judged wherever a worker tells it"),
    ("gate --shard", "regatta run --shard I/N, then regatta diff --baseline NAME with all shards"),
    ("compare --shard", "--filter PATTERN on each machine, or one machine for both versions"),
];

/// The same of what a suite says.
#[rustfmt::skip]
const GONE_FROM_SUITES: [(&str, &str); 10] = [
    ("policy.floor", "threshold = 0.02, or threshold = { device = 0.02, host = 0.2 }"),
    ("policy.confirm", "nothing: what is open is measured up to 35 times, within --time-limit"),
    ("policy.metrics", "threshold = { host = 0.2 } and ignore = [\"first_call\"] in [policy]"),
    ("policy.processor", "nothing: CPU time is judged wherever a worker tells it"),
    ("policy.sight", "nothing: a case that may be worse and is inconclusive never passes"),
    ("policy.step_share", "nothing"),
    ("measure.ground", "nothing: disturbed invocations never show `same`; REGATTA_WATCH=no looks away"),
    ("measure.remeasure", "nothing: more pairs are measured instead"),
    ("calls_per_sample", "nothing: a sample is one call"),
    ("build_cores", "build_seconds"),
];

/// What to say of a command line that clap refuses for a command or a flag that is gone.
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

/// What to say of a command below another that is gone, whose name is read as something else.
pub fn nested(words: &[String]) -> Option<String> {
    replacement(&words.get(1..3)?.join(" "))
}

fn replacement(what: &str) -> Option<String> {
    let known = GONE.iter().find(|(gone, _)| *gone == what);
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

/// What to say beside an error about what a suite says.
pub fn in_suite(error: &str) -> Option<String> {
    let mut gone = GONE_FROM_SUITES.iter();
    let (what, place) = gone.find(|(what, _)| error.contains(what))?;
    Some(is_gone(what, place))
}

fn is_gone(what: &str, place: &str) -> String {
    format!("`{what}` is gone; in its place: {place}")
}
