//! Whether a bisect names the commit that it should: a checkout of many commits whose worker is a
//! real kernel, with one step planted in it, creep before the step, and commits that do not
//! build.
//!
//! ```sh
//! cargo bench --bench bisect              # 60 commits
//! cargo bench --bench bisect -- 20        # so many
//! cargo bench --bench bisect -- 60 DIR    # with the checkout kept in a folder
//! ```
//!
//! The kernel is the one of `crates/worker/examples/naive.rs`, on one core; a commit computes
//! some of its rows twice. Each commit that is tried is built by Cargo, from the crates that are
//! there (`--offline`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What each commit before the step adds, in per cent.
const CREEP: f64 = 0.3;
/// What is planted, in per cent.
const STEP: f64 = 4.0;
/// Rows of the output: 256 queries of 4 heads.
const ROWS: f64 = 1024.0;

const SUITE: &str = r#"schema = 1
description = "a kernel of many commits"

[measure]
invocations = 5
warmup = 2
samples = 12
min_samples = 6
budget_ms = 1500

[policy]
floor = 0.01

[workers.mine]
command = ["made/kernel"]

[build]
command = ["sh", "build.sh"]
makes = ["made/kernel"]

[[sweep]]
variants = ["mine/naive"]
shapes = [{ heads = 4, seq = 256, head_dim = 64, dtype = "f32" }]
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let commits = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(60);
    let kept = arguments.iter().find(|a| a.parse::<usize>().is_err());
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = match kept {
        Some(folder) => PathBuf::from(folder),
        None => temporary.path().to_owned(),
    };
    let checkout = folder.join("checkout");
    fs::create_dir_all(checkout.join("src")).expect("a folder for the checkout");
    let planted = commits * 2 / 3;
    let broken = [commits / 4, planted - 2, planted + commits / 5];
    println!(
        "{commits} commits, +{CREEP} % each up to number {planted}, which adds {STEP} %; {broken:?} \
         do not build"
    );
    history(&checkout, &folder.join("target"), commits, planted, &broken);
    let began = Instant::now();
    let regatta = Path::new(env!("CARGO_BIN_EXE_regatta"));
    let answer = Command::new(regatta)
        .args(["bisect", "./suite.toml", "--good", "git:c0", "--bad"])
        .args([&format!("git:c{}", commits - 1), "--json"])
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .current_dir(&checkout)
        .stderr(Stdio::inherit())
        .output()
        .expect("regatta starts");
    let json: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("an answer");
    let named = json["after"]["subject"].as_str().unwrap_or("none");
    let comparisons = json["tried"].as_array().map_or(0, Vec::len);
    let right = named == subject(planted);
    println!(
        "{}: it names \"{named}\" by {comparisons} comparisons, exit code {}, in {:.0} s",
        if right { "right" } else { "WRONG" },
        answer.status.code().unwrap_or(-1),
        began.elapsed().as_secs_f64()
    );
    std::process::exit(i32::from(!right));
}

fn subject(number: usize) -> String {
    format!("Change number {number}")
}

/// A checkout with these commits, tagged `c0`, `c1`, ....
fn history(checkout: &Path, target: &Path, commits: usize, planted: usize, broken: &[usize]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let write = |name: &str, text: &str| {
        fs::write(checkout.join(name), text).expect("a file of the checkout");
    };
    let git = |words: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
            .args(["-c", "commit.gpgsign=false"])
            .args(words)
            .current_dir(checkout)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "git {words:?}");
    };
    write("suite.toml", SUITE);
    write(".gitignore", "made\nreports\nCargo.lock\n");
    let worker = here.join("crates/worker");
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"kernel\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nregatta-worker = {{ path = {:?} }}\n\n[workspace]\n",
            worker.display().to_string()
        ),
    );
    write(
        "build.sh",
        &format!(
            "set -e\nexport CARGO_TARGET_DIR='{}'\ncargo build --release --offline --quiet\n\
             mkdir -p made\ncp \"$CARGO_TARGET_DIR/release/kernel\" made/kernel\n",
            target.display()
        ),
    );
    let kernel = fs::read_to_string(worker.join("examples/naive.rs")).expect("the example");
    // Some rows are computed twice.
    let call = "attention)";
    assert!(kernel.contains(call), "the example has changed");
    let kernel = kernel.replace(call, "again)");
    git(&["init", "-q", "-b", "main"]);
    for number in 0..commits {
        let level = CREEP * number.min(planted) as f64 + if number >= planted { STEP } else { 0.0 };
        let rows = (ROWS * level / 100.0).round();
        let again = format!(
            "\n/// Computes {rows} of the rows twice.\n\
             fn again(problem: &Problem, of: &Tensors) -> Vec<Vec<f32>> {{\n    \
                 let rows = {rows} * problem.head_dim as usize;\n    \
                 let some = Tensors {{ q: of.q[..rows].to_vec(), ..of.clone() }};\n    \
                 std::hint::black_box(attention(problem, &some));\n    \
                 attention(problem, of)\n}}\n"
        );
        let broken = match broken.contains(&number) {
            true => "compile_error!(\"this one does not build\");\n",
            false => "",
        };
        write(
            "src/main.rs",
            &format!("{kernel}{again}// {number}\n{broken}"),
        );
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", &subject(number)]);
        git(&["tag", &format!("c{number}")]);
    }
}
