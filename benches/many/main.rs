//! What it costs to judge and to report runs of many cases: time on the processors, the most
//! memory at once, and how large the reports are.
//!
//! ```sh
//! cargo bench --bench many                # 1,000, 10,000 and 100,000 cases
//! cargo bench --bench many -- 10000       # so many
//! cargo bench --bench many -- 10000 DIR   # with the runs kept in a folder
//! cargo bench --bench many -- shards      # 64 shards of 100,000 cases (shards DIR: kept)
//! ```
//!
//! Two runs of so many cases of 5 invocations of 20 samples are made up, and each line is one
//! start of the command.

#[path = "../common/cost.rs"]
mod cost;
mod runs;

use std::fs;
use std::path::Path;
use std::process::Command;

use cost::{cost, mb, size};
use runs::Which;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |argument: &String| argument.parse().ok();
    let asked: Vec<usize> = arguments.iter().filter_map(number).collect();
    let mut others = arguments
        .iter()
        .filter(|argument| number(argument).is_none() && *argument != "shards");
    let kept = others.find(|argument| !argument.starts_with('-'));
    if arguments.iter().any(|argument| argument == "shards") {
        let cases = asked.first().copied().unwrap_or(100_000);
        return shards(cases, kept.map(Path::new));
    }
    let sizes = match asked.is_empty() {
        true => vec![1_000, 10_000, 100_000],
        false => asked,
    };
    println!("   cases  what                        CPU       memory       wrote");
    for cases in sizes {
        let passing = tempfile::tempdir().unwrap();
        let folder = match kept {
            Some(kept) => Path::new(kept).join(cases.to_string()),
            None => passing.path().to_owned(),
        };
        let at = |name: &str| folder.join(name);
        runs::write(&at("base"), cases, Which::Base);
        runs::write(&at("head"), cases, Which::Head);
        let read = fs::metadata(at("head/run.jsonl")).unwrap().len();
        println!(
            "{cases:>8}  each run                                  {:>9}",
            mb(read)
        );
        for (what, options) in [
            ("diff", ""),
            ("diff --html", "--html page.html"),
            ("diff --csv", "--csv tables"),
            ("diff --junit", "--junit junit.xml"),
            ("diff --markdown", "--markdown comment.md"),
            ("diff --json", "--json"),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
            command
                .args(["diff", "base", "head"])
                .args(options.split_whitespace());
            let (seconds, memory) = cost(command.current_dir(&folder));
            let path = options
                .rsplit(' ')
                .next()
                .filter(|path| !path.starts_with('-'));
            let wrote = path.map_or(0, |path| size(&at(path)));
            let wrote = if wrote > 0 { mb(wrote) } else { String::new() };
            println!(
                "{cases:>8}  {what:<22}  {seconds:>6.2} s   {:>9}   {wrote:>9}",
                mb(memory)
            );
        }
    }
}

/// Shards that are judged together.
const SHARDS: u32 = 64;

/// What it costs to read the shards of so many cases, to judge them, and to write all reports.
fn shards(cases: usize, kept: Option<&Path>) {
    let passing = tempfile::tempdir().unwrap();
    let folder = kept.unwrap_or(passing.path());
    let read = runs::write_shards(folder, cases, SHARDS);
    println!("{SHARDS} shards of {cases} cases: {}", mb(read));
    let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
    command.args(["report", "reports/many"]);
    let began = std::time::Instant::now();
    let (seconds, memory) = cost(command.current_dir(folder));
    let whole = began.elapsed().as_secs_f64();
    println!(
        "all reports: {whole:.2} s, {seconds:.2} s CPU, {}",
        mb(memory)
    );
    for name in ["index.html", "cases.csv", "samples.csv"] {
        println!(
            "  {name:<12} {:>10}",
            mb(size(&folder.join("reports/many").join(name)))
        );
    }
}
