//! What a long history costs: adding a run to it, the answer in a terminal, and the page.
//!
//! ```sh
//! cargo bench --bench history                     # 1,000 runs of 1,000 cases
//! cargo bench --bench history -- 200 100          # runs, cases
//! cargo bench --bench history -- 1000 1000 DIR    # with the history kept in a folder
//! ```
//!
//! The runs are made up: most cases only vary, some change or creep. Wall and processor time
//! are of one start of the command each.

#[path = "../common/cost.rs"]
mod cost;
#[path = "../many/runs.rs"]
#[allow(dead_code, reason = "a run of it is added")]
mod runs;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cost::{cost, mb, size};
use jiff::Timestamp;
use regatta::record::history::{About, Came, Figures, Reduced, Store};
use regatta::record::types::Git;
use regatta::units::{Nanoseconds, Share};
use runs::Which;

const DAY: i64 = 86_400;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse().ok());
    let (runs, cases): (usize, usize) = (number(0).unwrap_or(1_000), number(1).unwrap_or(1_000));
    let passing = tempfile::tempdir().unwrap();
    let folder = match arguments.get(2) {
        Some(kept) => Path::new(kept).to_owned(),
        None => passing.path().to_owned(),
    };
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("history/many/h200-132sm.jsonl");
    let _ = fs::remove_file(&file);
    let store = Store::new(folder.join("history"));
    let mut book = store.open("many", "h200-132sm").unwrap();
    for run in 0..runs {
        book.add(&made(run, runs, cases)).unwrap();
    }
    drop(book);
    println!("{runs} runs of {cases} cases: {}", mb(size(&file)));
    runs::write(&folder.join("run"), cases, Which::Base);
    println!("what                        wall         CPU      memory       wrote");
    for (what, arguments, wrote) in [
        ("add a run", "history add run --at 2026-11-21", None),
        ("answer", "history", None),
        (
            "answer, --all --since",
            "history --all --since 2000-01-01",
            None,
        ),
        ("--json", "history --json", None),
        ("page", "history --output html=page.html", Some("page.html")),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
        command
            .args(arguments.split_whitespace())
            .current_dir(&folder);
        let began = Instant::now();
        let (seconds, memory) = cost(&mut command);
        let wall = began.elapsed().as_secs_f64();
        let wrote = wrote.map_or(String::new(), |name| mb(size(&folder.join(name))));
        println!(
            "{what:<22} {wall:>7.2} s   {seconds:>7.2} s   {:>9}   {wrote:>9}",
            mb(memory)
        );
    }
}

/// A run of a history of so many.
fn made(run: usize, runs: usize, cases: usize) -> Reduced {
    let part = run as f64 / runs as f64;
    let results = (0..cases).map(|case| {
        let level = 4e4 * (1.0 + (case % 977) as f64);
        // Of a hundred cases: one slower for good, one for a while, one creeps; and a family.
        let step = |from: f64, to: f64| (from..to).contains(&part);
        let factor = match case % 100 {
            7 if step(0.97, 1.0) => 1.08,
            23 if step(0.3, 0.6) => 1.3,
            41 => 1.0 + 0.07 * part,
            _ => 1.0,
        };
        let id = runs::id(case);
        let family = id.0.contains("split-kv") && id.0.contains(",bwd");
        let factor = if family && step(0.985, 1.0) {
            1.15
        } else {
            factor
        };
        let shared = 0.004 * runs::noise([run, 0, 0, 1]);
        let own = 0.012 * runs::noise([run, case, 0, 2]);
        let came = match case % 250 == 77 && step(0.99, 1.0) {
            true => Came::Failed("its worker ended (signal 11)".to_owned()),
            false => Came::Timed(Figures {
                device_ns: Nanoseconds(level * factor * (1.0 + shared + own)),
                spread: Some(Share(0.006 + 0.004 * runs::noise([run, case, 1, 3]))),
                host_ns: Some(Nanoseconds(
                    9_000.0 + 900.0 * runs::noise([run, case, 2, 4]),
                )),
                cpu_ns: None,
            }),
        };
        (id, came)
    });
    let second = 1_794_000_000 - DAY * (runs - run) as i64;
    Reduced {
        suite: "many".to_owned(),
        machine: "h200-132sm".to_owned(),
        about: About {
            id: format!("{run:08x}-1"),
            at: Timestamp::from_second(second).unwrap(),
            started: None,
            label: format!("reports/nightly/past/{run}.jsonl"),
            git: Some(Git {
                revision: format!("{:040x}", run as u128 * 0x9e37_79b9_7f4a_7c15),
                dirty: false,
                changes: None,
            }),
            tool: "0.1.0".to_owned(),
            verdict: None,
            versions: [(
                "cuda".to_owned(),
                [("driver".to_owned(), "580.159.04".to_owned())].into(),
            )]
            .into(),
            facts: [("cuda".to_owned(), "NVIDIA H200".to_owned())].into(),
        },
        cases: results.collect(),
    }
}
