//! `regatta comment`: the one comment on a pull request.

use std::env;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::json;

use super::outputs::is_stdout;
use super::reporting::told_as_json;
use super::{Ended, Stop, print};
use regatta::forge::curl::Curl;
use regatta::forge::place::Place;
use regatta::forge::{Done, put};
use regatta::names::plain_name;
use regatta::report::Mark;

/// Put a report on a pull request, as one comment that is replaced by the next
///
/// The report is the Markdown of `run`, `gate`, `compare`, `diff` or `report` (--output markdown=PATH). A
/// line that nobody sees names the suite and the machine: the comment with such a line is
/// replaced, and there is one for each suite and machine. On GitHub Actions and GitLab CI it
/// finds the repository and the number itself; the token is GITHUB_TOKEN (or GH_TOKEN), with
/// `pull-requests: write`, or GITLAB_TOKEN, of the scope `api`. Sent by curl. Exits 0 when the
/// comment is there, 2 when it cannot be asked for, 3 when the forge refused: the exit code of
/// the gate is the gate's alone.
#[derive(Args, Debug)]
#[command(after_help = "Example, in a job of GitHub Actions:\n  \
    regatta gate quick --against git:origin/main --output markdown=report.md || code=$?\n  \
    regatta comment report.md --only-worse\n  \
    exit ${code:-0}")]
pub struct CommentArgs {
    /// The report, or `-` for standard input
    report: PathBuf,

    /// Begin no comment for a report in which nothing is worse; one that is there is replaced
    #[arg(long)]
    only_worse: bool,

    /// What the comment is told from others by, in place of suite and machine
    #[arg(long, value_name = "NAME")]
    key: Option<String>,

    /// Where more is to be seen: the page of the run [default: the job]
    #[arg(long, value_name = "URL")]
    link: Option<String>,

    /// The pull request's number [default: that of the job]
    #[arg(long, value_name = "NUMBER")]
    number: Option<u64>,

    /// OWNER/NAME on GitHub, a number or GROUP/NAME on GitLab [default: that of the job]
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,

    /// The forge's interface [default: that of the job, or https://api.github.com]
    #[arg(long, value_name = "URL")]
    api: Option<String>,

    /// Print what would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,

    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// Longest text that GitHub takes, in characters.
const LONGEST: usize = 65_536;

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &CommentArgs) -> Ended {
    told_as_json(comment(args), args.json)
}

fn comment(args: &CommentArgs) -> Ended {
    let text = text(args)?;
    let mark = Mark::of(&text);
    let marker = match (&args.key, &mark) {
        (Some(key), _) => format!("<!-- regatta key={} ", plain_name(key)),
        (None, Some(mark)) => mark.beginning(),
        (None, None) => {
            return Err(Stop::Usage(anyhow!(
                "{} does not say of which suite it is, as the Markdown of regatta does; name the \
                 comment: --key NAME",
                args.report.display()
            )));
        }
    };
    let body = body(args, &marker, &text);
    let length = body.chars().count();
    if length > LONGEST {
        return Err(Stop::Usage(anyhow!(
            "{} has {length} characters with what is added, and a comment at most {LONGEST}",
            args.report.display()
        )));
    }
    let begin = !(args.only_worse && mark.is_some_and(|mark| mark.is_green()));
    if args.dry_run {
        return dry_run(args, &body);
    }
    let place = place(args)?;
    let done = put(&Curl, &place, (&marker, &body), begin).map_err(Stop::not_judged)?;
    let (word, address) = match done {
        Done::Created(address) => ("created", address),
        Done::Updated(address) => ("updated", address),
        Done::Nothing => ("nothing", None),
    };
    match (args.json, word) {
        (true, _) => print(format!(
            "{}\n",
            json!({ "comment": word, "address": address })
        ))?,
        (false, "nothing") => print("no comment: nothing is worse, and none was there\n")?,
        (false, word) => {
            let address = address.map_or(String::new(), |address| format!(": {address}"));
            print(format!("comment {word}{address}\n"))?;
        }
    }
    Ok(0)
}

fn text(args: &CommentArgs) -> Result<String, Stop> {
    let mut text = String::new();
    let read = match is_stdout(&args.report) {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(&args.report).map(|read| text = read),
    };
    read.with_context(|| format!("cannot read {}", args.report.display()))
        .map_err(Stop::Usage)?;
    match text.trim().is_empty() {
        true => Err(Stop::Usage(anyhow!("{} is empty", args.report.display()))),
        false => Ok(text),
    }
}

/// The text with a link, and with what it is found by.
fn body(args: &CommentArgs, marker: &str, text: &str) -> String {
    let mut body = text.trim_end().to_owned();
    if args.key.is_some() {
        body += &format!("\n\n{marker}-->");
    }
    let job = || {
        let [server, name, run] = ["SERVER_URL", "REPOSITORY", "RUN_ID"]
            .map(|name| variable(&[&format!("GITHUB_{name}")]));
        let github = || Some(format!("{}/{}/actions/runs/{}", server?, name?, run?));
        github().or_else(|| variable(&["CI_JOB_URL"]))
    };
    if let Some(link) = args.link.clone().or_else(job) {
        body += &format!("\n\n[more]({link})");
    }
    body + "\n"
}

fn dry_run(args: &CommentArgs, body: &str) -> Ended {
    match place(args) {
        Ok(place) => {
            let request = place.create(body);
            match args.json {
                true => print(format!(
                    "{}\n",
                    json!({ "method": request.method, "url": request.url, "body": body })
                ))?,
                false => print(format!("{} {}\n\n{body}", request.method, request.url))?,
            }
            Ok(0)
        }
        Err(stop) => Err(stop),
    }
}

/// A variable of the job that is set to something.
fn variable(names: &[&str]) -> Option<String> {
    let mut found = names.iter().filter_map(|name| env::var(name).ok());
    found.find(|value| !value.is_empty())
}

/// Where the comment goes, by the command line and the job.
fn place(args: &CommentArgs) -> Result<Place, Stop> {
    let missing = |what: &str, option: &str| {
        Stop::Usage(anyhow!("{what} is not known here; name it: {option}"))
    };
    let gitlab = variable(&["GITLAB_CI"]).is_some();
    let repository = args.repository.clone();
    let repository = repository.or_else(|| match gitlab {
        true => variable(&["CI_PROJECT_ID"]),
        false => variable(&["GITHUB_REPOSITORY"]),
    });
    let repository = repository.ok_or_else(|| missing("the repository", "--repository"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !repository.chars().all(plain) || repository.split('/').any(|part| part == "..") {
        return Err(Stop::Usage(anyhow!(
            "--repository {}: write OWNER/NAME",
            repository.escape_debug()
        )));
    }
    let number = args.number.or_else(|| match gitlab {
        true => variable(&["CI_MERGE_REQUEST_IID"])?.parse().ok(),
        false => number_of_job(),
    });
    let number = number.ok_or_else(|| {
        missing(
            "the pull request's number (the job is of none?)",
            "--number",
        )
    })?;
    let token = |names: &[&str], what: &str| {
        // A dry run sends nothing.
        match (variable(names), args.dry_run) {
            (Some(token), _) => Ok(token),
            (None, true) => Ok(String::new()),
            (None, false) => Err(Stop::Usage(anyhow!("{} is not set: {what}", names[0]))),
        }
    };
    let api = |names: &[&str], default: &str| {
        let found = args.api.clone().or_else(|| variable(names));
        let api = found.unwrap_or_else(|| default.to_owned());
        api.trim_end_matches('/').to_owned()
    };
    Ok(match gitlab {
        true => Place::GitLab {
            api: api(&["CI_API_V4_URL"], "https://gitlab.com/api/v4"),
            project: repository,
            number,
            token: token(&["GITLAB_TOKEN"], "a project's token of the scope `api`")?,
        },
        false => Place::GitHub {
            api: api(&["GITHUB_API_URL"], "https://api.github.com"),
            repository,
            number,
            token: token(
                &["GITHUB_TOKEN", "GH_TOKEN"],
                "in a job, `env: GITHUB_TOKEN: ${{ github.token }}`",
            )?,
        },
    })
}

/// The number of the pull request that a job of GitHub Actions is of: `refs/pull/12/merge`, or
/// as the event that began it says.
fn number_of_job() -> Option<u64> {
    let reference = variable(&["GITHUB_REF"]).unwrap_or_default();
    let own = reference.strip_prefix("refs/pull/");
    let own = own.and_then(|rest| rest.split('/').next()?.parse().ok());
    own.or_else(|| {
        let path = variable(&["GITHUB_EVENT_PATH"])?;
        let event: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        let places = ["/pull_request/number", "/issue/number", "/number"];
        places.iter().find_map(|at| event.pointer(at)?.as_u64())
    })
}
