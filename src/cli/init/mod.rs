//! `regatta init`: writes the files that a repository needs for its own gate.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::reporting::report_error_as_json;
use super::{Ended, Stop, note, print, print_json, show_blocks};
use regatta_core::suite::environment::Environment;
use regatta_measure::environments::interpreter_of;
use regatta_measure::git;
use regatta_report::document::{Block, ListItem};
use regatta_report::files;
use regatta_report::text::shell_quoted;

/// Write a suite, a function and a CI job into this repository
///
/// Asks nothing and replaces nothing. The function is an example in NumPy; the command that it
/// prints last measures it. docs/FUNCTIONS.md has the next steps.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  regatta init\n  regatta init --ci gitlab --dir bench")]
pub struct InitArgs {
    /// Write the job of this CI [default: that of the repository's remote]
    #[arg(long, value_enum)]
    ci: Option<Ci>,

    /// The repository's folder; init creates a missing one
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// A CI that there is a job for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ci {
    /// GitHub Actions: .github/workflows/speed.yml
    Github,
    /// GitLab: speed.gitlab-ci.yml, to be included
    Gitlab,
    /// None
    None,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &InitArgs) -> Ended {
    report_error_as_json(init(args), args.json)
}

const FUNCTION: &str = include_str!("function.py");
const SUITE: &str = include_str!("speed.toml");
const SECTION: &str = include_str!("README.md");
const GITHUB: &str = include_str!("github.yml");
const GITLAB: &str = include_str!("gitlab.yml");

/// The prefix of the suite's line before which its environment's requirements are inserted.
const ENVIRONMENT: &str = "environments.default.";
const NUMPY: &str = "requirements = [\"numpy==2.2.6\"]\nenvironments.default.";

/// True if Python has NumPy, so that the example can be imported.
fn has_numpy() -> bool {
    let python = interpreter_of(&Environment::default());
    let asked = Command::new(python)
        .args(["-c", "import numpy"])
        .stdin(Stdio::null())
        .output();
    asked.is_ok_and(|output| output.status.success())
}

/// A file, and a word for what was done with it.
type InitFile = (PathBuf, &'static str);

fn init(args: &InitArgs) -> Ended {
    let root = &args.dir;
    fs::create_dir_all(root).map_err(|error| at(root, error))?;
    let ci = args.ci.unwrap_or_else(|| of_remote(root));
    // If Python has no NumPy, the suite's environment requires it.
    let bringing = SUITE.replace(ENVIRONMENT, &format!("{ENVIRONMENT}{NUMPY}"));
    let made = match read(&root.join("speed.toml"))? {
        Some(own) => own == bringing,
        None => !has_numpy(),
    };
    let suite = if made { bringing } else { SUITE.to_owned() };
    let worker = SUITE.split_once("workers.mine = \"");
    let named = worker.and_then(|(_, worker)| worker.split_once(':'));
    let named = named.map_or("function.py", |(file, _)| file);
    let mut all = vec![
        write_new(root, named, FUNCTION)?,
        write_new(root, "speed.toml", &suite)?,
    ];
    all.extend(match ci {
        Ci::Github => Some(write_new(root, ".github/workflows/speed.yml", GITHUB)?),
        Ci::Gitlab => Some(write_new(root, "speed.gitlab-ci.yml", GITLAB)?),
        Ci::None => None,
    });
    // `reports` is the output folder of runs.
    let is_ignored = |line: &str| line.trim().trim_matches('/') == "reports";
    all.push(append(root, ".gitignore", "reports/\n", is_ignored)?);
    let section = SECTION.replace("git:main", &format!("git:{}", branch(root)));
    let is_described = |line: &str| line.contains("./speed.toml");
    all.push(append(root, "README.md", &section, is_described)?);
    let mut next = "regatta run ./speed.toml".to_owned();
    if made {
        next = format!("regatta env --suite ./speed.toml make default && {next}");
    }
    if root != Path::new(".") {
        next = format!("cd {} && {next}", shell_quoted(&root.display().to_string()));
    }
    let files = all.iter();
    if args.json {
        let files = files.map(|(path, what)| json!({ "path": path, "what": what }));
        let files: Vec<_> = files.collect();
        return print_json(&json!({ "files": files, "next": next }));
    }
    let files = files.map(|(path, what)| ListItem::new(*what, path.display().to_string()));
    show_blocks(vec![Block::List(files.collect())])?;
    match ci {
        Ci::None if args.ci.is_none() => note(
            "no CI job was written: no remote is on GitHub or GitLab; --ci github or --ci gitlab \
             writes one",
        ),
        Ci::None => {}
        _ => note(
            "regatta is on no package index yet: in the CI job, replace OWNER by the owner of the \
             repository that you trust",
        ),
    }
    print(format!("next: {next}\n"))
}

fn at(path: &Path, error: std::io::Error) -> Stop {
    Stop::Usage(format!("{}: {error}", path.display()))
}

fn of_remote(root: &Path) -> Ci {
    let remote = git::ask(root, &["remote", "get-url", "origin"]);
    let remote = remote.unwrap_or_default();
    match () {
        () if remote.contains("github") || root.join(".github").is_dir() => Ci::Github,
        () if remote.contains("gitlab") || root.join(".gitlab-ci.yml").is_file() => Ci::Gitlab,
        () => Ci::None,
    }
}

/// The contents of a file; `None` for a missing one.
fn read(path: &Path) -> Result<Option<String>, Stop> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}

/// Writes a file unless one of this name exists.
fn write_new(root: &Path, name: &str, text: &str) -> Result<InitFile, Stop> {
    let path = root.join(name);
    let what = match read(&path)? {
        Some(own) if own == text => "unchanged",
        Some(_) => "kept",
        None => {
            files::write(&path, text).map_err(Stop::usage)?;
            "written"
        }
    };
    Ok((path, what))
}

/// Adds a text to the end of a file, unless one of its lines has it by `is_in`.
fn append(root: &Path, name: &str, text: &str, is_in: fn(&str) -> bool) -> Result<InitFile, Stop> {
    let path = root.join(name);
    let own = read(&path)?;
    let what = if own.is_some() { "added to" } else { "written" };
    let mut whole = own.unwrap_or_default();
    if whole.lines().any(is_in) {
        return Ok((path, "unchanged"));
    }
    if !whole.is_empty() && !whole.ends_with('\n') {
        whole.push('\n');
    }
    let is_section = !whole.trim().is_empty() && text.starts_with('#');
    let apart = if is_section { "\n" } else { "" };
    files::write(&path, &format!("{whole}{apart}{text}")).map_err(Stop::usage)?;
    Ok((path, what))
}

/// The branch to compare with: the remote's default, or else one of the usual names, or the current
/// branch.
fn branch(root: &Path) -> String {
    let reference = |name: &str| git::ask(root, &["symbolic-ref", "--short", name]).ok();
    let remote = reference("refs/remotes/origin/HEAD");
    let remote = remote.and_then(|name| Some(name.trim().strip_prefix("origin/")?.to_owned()));
    let is_there = |name: &&str| {
        let branch = format!("refs/heads/{name}");
        git::ask(root, &["show-ref", "--verify", &branch]).is_ok()
    };
    let usual = || ["main", "master", "trunk"].into_iter().find(is_there);
    let here = || Some(reference("HEAD")?.trim().to_owned());
    let branch = remote.or_else(|| usual().map(str::to_owned)).or_else(here);
    branch.unwrap_or_else(|| "main".to_owned())
}
