//! How long the commands take that only tell something: from the start of the process to its
//! end, of one after another.
//!
//! ```sh
//! cargo bench --bench start           # 50 starts of each
//! cargo bench --bench start -- 200
//! ```
//!
//! Wanted are 20 ms for `--help` and 100 ms for `list` of the largest built-in suite, at the
//! median. No command here starts a process or looks at a device.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use regatta::suite::{self, BUILTIN};
use regatta::units::Nanoseconds;

/// A suite of 10,000 cases, which is more than any of ours has.
const MANY: &str = "schema = 1\ndescription = \"many\"\n\
    [workers.mine]\ncommand = [\"./serve\"]\n\
    [[sweep]]\nvariants = [\"mine/a\", \"mine/b\", \"mine/c\", \"mine/d\"]\n\
    seq = [LENGTHS]\nhead_dim = [32, 64, 96, 128, 256]\n\
    direction = [\"forward\", \"backward\"]\n";

fn main() {
    let arguments = std::env::args().skip(1);
    let times = arguments.filter_map(|text| text.parse().ok()).next();
    let times: usize = times.unwrap_or(50);
    let folder = tempfile::tempdir().unwrap();
    let lengths: Vec<String> = (1..=250).map(|length| (16 * length).to_string()).collect();
    let many = MANY.replace("LENGTHS", &lengths.join(", "));
    fs::write(folder.path().join("many.toml"), many).unwrap();
    let suites = BUILTIN.iter().map(|(name, _)| suite::load(name).unwrap());
    let largest = suites.max_by_key(|suite| suite.cases.len()).unwrap();
    println!(
        "{:<40} {:>9} {:>9} {:>9}",
        "regatta", "fastest", "median", "slowest"
    );
    for command in [
        "--version".to_owned(),
        "--help".to_owned(),
        "run --help".to_owned(),
        format!("list {}", largest.name),
        format!("list {} --json", largest.name),
        "list ./many.toml".to_owned(),
        "list ./many.toml --ids".to_owned(),
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        started(folder.path(), &words);
        let mut took: Vec<Nanoseconds> =
            (0..times).map(|_| started(folder.path(), &words)).collect();
        took.sort_by(Nanoseconds::total_cmp);
        let [fastest, median, slowest] = [0, times / 2, times - 1].map(|place| took[place]);
        println!("{command:<40} {fastest:>9} {median:>9} {slowest:>9}");
    }
}

/// What one start takes.
fn started(folder: &Path, words: &[&str]) -> Nanoseconds {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
    command.args(words).current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().unwrap();
    let took = began.elapsed();
    assert!(status.success(), "{words:?}: {status}");
    took.into()
}
