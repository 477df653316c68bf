//! The commands of a user and their output: the files of `transcripts/`, each a test.
//!
//! A line `  $ COMMAND` is run by a shell, with those that begin `  > ` as its further lines; below it
//! stands what it prints, and `  [CODE]` where its exit code is not 0. Where a pipe, a loop or a further
//! command hides exit codes of regatta that are not 0, `  [regatta CODE...]` has them. A line that ends in
//! ` (glob)` may have anything for each `*`. The commands of a file share one shell and one folder, and
//! functions of `prelude.sh`. `REGATTA_TRANSCRIPTS=write` writes the answers again.

use std::env;
use std::fs;
use std::mem;
use std::path::Path;

use crate::common::{Place, fake_worker, regatta};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/transcripts");
const END: &str = "-- end of a command: ";

macro_rules! transcripts {
    ($($(#[$attribute:meta])* $name:ident)*) => {
        $(#[test] $(#[$attribute])* fn $name() { check(stringify!($name)); })*
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

transcripts! {
    accounts baselines bisect
    #[ignore = "needs CUDA's compilers"] build_compiled
    building builds_of_kernels ci compare conformance cuda
    #[ignore = "needs CUDA's compilers"] cuda_compiled
    doctor documents environments examples
    #[ignore = "needs NumPy and JAX"] examples_python
    failing_workers history identity init injection instructions
    #[ignore = "needs JAX"] jax
    #[ignore = "needs NumPy"] operators
    #[ignore = "needs NumPy and JAX"] operators_declared
    #[ignore = "needs NumPy"] operators_refused
    promises refused_commands refused_files refused_suites refused_workers
    resume scripts
    #[ignore = "needs NumPy"] scripts_numpy
    secrets shards structure suites terminal trace trace_import tuners whose_code worker_logs
}

#[test]
fn every_file_is_a_test() {
    let files = fs::read_dir(FOLDER).unwrap().flatten();
    let names = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    let mut names: Vec<String> = names
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, NAMES);
}

/// A command with the lines that stand below it, or text between two commands.
#[derive(Default)]
struct Block<'a> {
    lines: Vec<&'a str>,
    command: String,
    printed: Vec<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = vec![Block::default()];
    for line in text.lines() {
        let begins = line.strip_prefix("  $ ");
        if begins.is_some() || !line.starts_with("  ") {
            blocks.push(Block::default());
        }
        let block = blocks.last_mut().unwrap();
        match begins.or(line.strip_prefix("  > ")) {
            Some(command) => {
                block.command += &format!("{command}\n");
                block.lines.push(line);
            }
            None if line.starts_with("  ") => block.printed.push(line),
            None => block.lines.push(line),
        }
    }
    blocks
}

/// True where `line` is what `pattern` says with anything for each `*`.
fn matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            (0..=line.len()).any(|at| line.is_char_boundary(at) && matches(rest, &line[at..]))
        }),
    }
}

/// The output of all commands of the blocks, each with its exit code. Outputs that were read in part are
/// whole in files of `outputs`, by the number of the block.
fn answers(place: &Place, blocks: &[Block], outputs: &Path) -> Vec<String> {
    let mut script = fs::read_to_string(format!("{FOLDER}/prelude.sh")).unwrap();
    for block in blocks {
        script += &format!("{}ended '{END}'\n", block.command);
    }
    let folders = [regatta(), fake_worker()].map(|path| path.parent().unwrap().to_owned());
    let path = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let path = env::join_paths(folders.into_iter().chain(path)).unwrap();
    let piped =
        r#"sh -c "$0" 2>&1 </dev/null | sed -E -f "$SOURCE/tests/it/transcripts/volatile.sed""#;
    let mut shell = place.command("sh");
    shell.args(["-c", piped, &script]).env("PATH", path);
    let text = shell
        .env("SOURCE", env!("CARGO_MANIFEST_DIR"))
        .env("OUTPUTS", outputs)
        .output()
        .unwrap()
        .stdout;
    let text = String::from_utf8_lossy(&text).replace(&place.path().display().to_string(), "PLACE");
    let (mut answers, mut answer) = (Vec::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix(END) {
            None if line.is_empty() => {}
            None => answer += &format!("  {line}\n"),
            Some(codes) => {
                let (code, of_regatta) = codes.split_once(' ').unwrap();
                if !["", code].contains(&of_regatta) {
                    answer += &format!("  [regatta {of_regatta}]\n");
                }
                if code != "0" {
                    answer += &format!("  [{code}]\n");
                }
                answers.push(mem::take(&mut answer));
            }
        }
    }
    answers
}

fn check(name: &str) {
    let path = Path::new(FOLDER).join(name).with_extension("txt");
    let text = fs::read_to_string(&path).unwrap();
    let place = Place::new();
    let blocks = blocks(&text);
    let outputs = tempfile::tempdir().unwrap();
    let answers = answers(&place, &blocks, outputs.path());
    assert_eq!(
        answers.len(),
        blocks.len(),
        "a command of {name} ended the shell"
    );
    let (mut whole, mut wrong) = (String::new(), String::new());
    for (number, (block, answer)) in blocks.iter().zip(answers).enumerate() {
        let mut answer_of_block = String::new();
        for (at, line) in answer.lines().enumerate() {
            let wanted = block.printed.get(at).copied().unwrap_or_default();
            let pattern = wanted.strip_suffix(" (glob)");
            let same = pattern.is_some_and(|pattern| matches(pattern, line));
            answer_of_block += &format!("{}\n", if same { wanted } else { line.trim_end() });
        }
        let asked: String = block.lines.iter().map(|line| format!("{line}\n")).collect();
        let wanted: String = block
            .printed
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        whole += &format!("{asked}{answer_of_block}");
        if wanted != answer_of_block {
            let output = fs::read_to_string(outputs.path().join(number.to_string()));
            let output = output.unwrap_or_default();
            wrong += &format!("{asked}is to print\n{wanted}and prints\n{answer_of_block}\n");
            wrong += &format!("a part of\n{output}\n");
        }
    }
    if env::var("REGATTA_TRANSCRIPTS").is_ok_and(|how| how == "write") {
        fs::write(&path, whole).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{wrong}");
}
