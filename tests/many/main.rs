//! The cost of judging and reporting runs of many cases: time on the processors, the most
//! memory at once, and how large the reports are.
//!
//! ```sh
//! cargo bench --bench many                # 1,000, 10,000 and 100,000 cases
//! cargo bench --bench many -- 10000       # so many
//! cargo bench --bench many -- 10000 DIR   # with the runs kept in a folder
//! ```
//!
//! Two runs of so many cases of 5 invocations of 20 samples are made up, and each line is one
//! start of the command.

mod cost;
mod runs;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use cost::{cost, mb, size};
use runs::Which;

/// The argument of the process that makes the runs up: the most memory of a command is at least that
/// of the process which started it.
const WRITE: &str = "write";

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, folder, cases] = &arguments[..]
        && first == WRITE
    {
        let at = |name: &str| Path::new(folder).join(name);
        let cases = cases.parse().unwrap();
        runs::write(&at("base"), cases, Which::Base);
        runs::write(&at("head"), cases, Which::Head);
        return;
    }
    let number = |argument: &String| argument.parse().ok();
    let asked: Vec<usize> = arguments.iter().filter_map(number).collect();
    let mut others = arguments
        .iter()
        .filter(|argument| number(argument).is_none());
    let kept = others.find(|argument| !argument.starts_with('-'));
    let sizes = if asked.is_empty() {
        vec![1_000, 10_000, 100_000]
    } else {
        asked
    };
    println!("   cases  what                        CPU       memory       wrote");
    for cases in sizes {
        let passing = tempfile::tempdir().unwrap();
        let folder = match kept {
            Some(kept) => Path::new(kept).join(cases.to_string()),
            None => passing.path().to_owned(),
        };
        let at = |name: &str| folder.join(name);
        let mut write = Command::new(env::current_exe().unwrap());
        write.arg(WRITE).arg(&folder).arg(cases.to_string());
        assert!(write.status().unwrap().success());
        let read = fs::metadata(at("head/run.jsonl")).unwrap().len();
        println!(
            "{cases:>8}  each run                                  {:>9}",
            mb(read)
        );
        for (what, options) in [
            ("diff", ""),
            ("html", "--output html=page.html"),
            ("csv", "--output csv=tables"),
            ("junit", "--output junit=junit.xml"),
            ("markdown", "--output markdown=comment.md"),
            ("diff --json", "--json"),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
            command
                .args(["diff", "base", "head"])
                .args(options.split_whitespace());
            let (seconds, memory) = cost(command.current_dir(&folder));
            let path = options
                .rsplit([' ', '='])
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
