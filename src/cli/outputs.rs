//! `--output FORMAT=PATH`: files in chosen formats, and the annotations and summary that GitHub
//! Actions shows.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::error::{ContextKind, ContextValue};

use super::{Stop, note, print, print_as_made};
use regatta_core::suite::document::nearest;
use regatta_judge::judgement::Judgement;
use regatta_report::figures::{self, Figure};
use regatta_report::{self as report, Format, Report, files};
use regatta_worker::joined::Joined;

/// The formats of a trace.
pub const OF_TRACES: [Format; 2] = [Format::Html, Format::Perfetto];

/// The formats of a history.
pub const OF_HISTORIES: [Format; 2] = [Format::Html, Format::Figures];

/// Files of chosen formats.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Write a file, `-` for standard output (repeatable)
    #[arg(long, short, value_name = "FORMAT=PATH", value_parser = output, long_help = help(&Vec::from_iter(Format::all())))]
    output: Vec<OutputFile>,
}

/// A file of one format.
#[derive(Clone, Debug)]
struct OutputFile {
    format: Format,
    path: PathBuf,
}

/// The help of `--output`, with these formats.
pub fn help(formats: &[Format]) -> String {
    let lines = formats
        .iter()
        .map(|f| format!("\n{}: {}", f.name(), f.about()));
    let first = "Write a file, `-` for standard output (repeatable). Formats:\n";
    first.to_owned() + &lines.collect::<String>()
}

/// Reads `FORMAT=PATH`.
fn output(text: &str) -> Result<OutputFile, String> {
    let names = || Format::all().map(Format::name);
    let (name, path) = text.split_once('=').unwrap_or((text, ""));
    let format = Format::all().find(|format| format.name() == name);
    let format = format.ok_or_else(|| {
        let near = nearest(name, names());
        let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let known = names().joined(", ");
        format!("unknown format `{name}`; {near}known formats are {known}")
    })?;
    if path.is_empty() {
        return Err(format!(
            "say where it goes: {name}=PATH, `-` for standard output"
        ));
    }
    let path = path.into();
    Ok(OutputFile { format, path })
}

impl Outputs {
    /// The requested formats, with their paths.
    pub fn wanted(&self) -> impl Iterator<Item = (Format, &Path)> {
        let all = self.output.iter();
        all.map(|output| (output.format, output.path.as_path()))
    }

    /// True if a file was requested.
    pub fn any(&self) -> bool {
        !self.output.is_empty()
    }

    /// True if annotations go to standard output, together with the answer.
    pub fn annotates(&self) -> bool {
        self.wanted().any(is_annotation)
    }

    /// True if a file goes to standard output, so that nothing else may.
    pub fn prints(&self) -> bool {
        let mut wanted = self.wanted();
        wanted.any(|output| is_stdout(output.1) && !is_annotation(output))
    }

    /// Checks before any work that `what` has these formats, that the files can be written to
    /// different paths, and that none goes to the standard output that JSON uses.
    ///
    /// # Errors
    /// The first fault: exit code 2.
    pub fn check(&self, what: &str, formats: &[Format], json: bool) -> Result<(), Stop> {
        if json && self.prints() {
            refuse!(
                "--json and a report named `-` both go to standard output; write one to a file"
            );
        }
        let mut taken: Vec<PathBuf> = Vec::new();
        for (format, path) in self.wanted() {
            if !formats.contains(&format) {
                let known = formats.iter().map(|format| format.name()).joined(", ");
                refuse!(
                    "--output {}={}: {what} can be written as {known}",
                    format.name(),
                    path.display()
                );
            }
            let targets = match format {
                Format::Csv if is_stdout(path) => {
                    refuse!("--output csv=-: these are two tables; name a folder for them");
                }
                Format::Csv => vec![path.join("cases.csv"), path.join("samples.csv")],
                Format::Figures if is_stdout(path) => {
                    refuse!(
                        "--output figures=-: these are several pictures; name a folder for them"
                    );
                }
                Format::Figures => figures::file_names().map(|name| path.join(name)).collect(),
                _ if is_annotation((format, path)) => continue,
                _ => vec![path.to_owned()],
            };
            for target in targets {
                // A step's summary is only appended to, so it may have other contents.
                if !is_stdout(&target) && !is_summary(&target) {
                    files::check_writable(&target).map_err(Stop::usage)?;
                }
                let place = files::place(&target);
                if taken.contains(&place) {
                    refuse!(
                        "{} is named for two formats; name a file for each",
                        target.display()
                    );
                }
                taken.push(place);
            }
        }
        Ok(())
    }

    /// [`check`](Outputs::check) for the formats of a run.
    ///
    /// # Errors
    /// The first fault: exit code 2.
    pub fn check_of_run(&self, json: bool) -> Result<(), Stop> {
        let formats: Vec<Format> = Format::all().filter(|f| *f != Format::Perfetto).collect();
        self.check("a run", &formats, json)
    }

    /// True if the Markdown goes to the step's summary.
    pub fn summarises(&self) -> bool {
        let mut wanted = self.wanted();
        wanted.any(|(format, path)| format == Format::Markdown && is_summary(path))
    }

    /// Writes the requested files. Annotations on standard output come later, with the answer.
    ///
    /// # Errors
    /// When one cannot be written: exit code 3.
    pub fn write(&self, report: &Report) -> Result<(), Stop> {
        for (format, path) in self.wanted() {
            match format {
                Format::Csv => {
                    files::write_format(path, format, report).map_err(Stop::not_judged)?;
                    continue;
                }
                Format::Figures => {
                    draw(path, &figures::of_run(report).map_err(Stop::not_judged)?)?;
                    continue;
                }
                _ if is_annotation((format, path)) => continue,
                _ => {}
            }
            for name in report::names(format) {
                let make = |out: &mut dyn Write| report::write(format, report, name, out);
                if is_stdout(path) {
                    print_as_made(make)?;
                } else if is_summary(path) {
                    summarise(report, path)?;
                } else {
                    files::write_as_made(path, make).map_err(Stop::not_judged)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the files of a command that had nothing to judge, in the formats that have a document
    /// for it.
    pub fn write_refusal(&self, refusal: &Judgement) {
        for (format, path) in self.wanted() {
            // The existing file may be the reason for a refusal.
            let appends = is_summary(path);
            if !appends && !is_stdout(path) && files::check_writable(path).is_err() {
                continue;
            }
            let text = report::render_refusal(format, refusal);
            let Ok(Some(text)) = text else { continue };
            let written = if appends {
                append_summary(path, &text)
            } else {
                put(path, text)
            };
            if let Err(stop) = written {
                note(stop);
            }
        }
    }
}

/// Writes pictures into a folder.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn draw(folder: &Path, figures: &[Figure]) -> Result<(), Stop> {
    if figures.is_empty() {
        let folder = folder.display();
        note(format!(
            "{folder}: nothing has a time, so no picture was drawn"
        ));
    }
    files::write_figures(folder, figures).map_err(Stop::not_judged)
}

/// True for `github=-`, whose lines may be mixed with others in the log.
fn is_annotation((format, path): (Format, &Path)) -> bool {
    format == Format::Github && is_stdout(path)
}

/// True for `-`, which means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a document to a path of the command line, or to standard output.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn put(path: &Path, text: String) -> Result<(), Stop> {
    if is_stdout(path) {
        print(text).map(drop)
    } else {
        files::write(path, &text).map_err(Stop::not_judged)
    }
}

/// The environment variable that names the file of a step's summary.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// The largest summary in bytes that GitHub shows.
const LARGEST: u64 = 1 << 20;

fn summary() -> Option<PathBuf> {
    let path = env::var_os(SUMMARY).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// True for the file of this step's summary, to which others append as well.
fn is_summary(path: &Path) -> bool {
    summary().is_some_and(|summary| files::place(&summary) == files::place(path))
}

/// Appends the report to a step's summary, if it has room.
///
/// # Errors
/// When it cannot be written: exit code 3.
fn summarise(report: &Report, path: &Path) -> Result<(), Stop> {
    let documents = report::render(Format::Markdown, report).map_err(Stop::not_judged)?;
    for document in documents {
        append_summary(path, &document.text)?;
    }
    Ok(())
}

fn append_summary(path: &Path, text: &str) -> Result<(), Stop> {
    if !files::append(path, &format!("{text}\n"), LARGEST).map_err(Stop::not_judged)? {
        note(
            "the summary of this step is full (1 MiB), and the report is not in it; give it a step \
             of its own, or name a file: --output markdown=report.md",
        );
    }
    Ok(())
}

/// The message for a flag that is the name of a format, such as `--html`.
pub fn format_as_flag(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let word = word.split('=').next()?;
    let mut formats = Format::all().map(Format::name);
    let format = formats.find(|name| word.strip_prefix("--") == Some(*name))?;
    Some(format!(
        "write `--output {format}=PATH` in place of `{word}`"
    ))
}

/// Prints an annotation with the reason for a missing report, and ignores a closed pipe.
pub fn complain(why: &str, aside: bool) {
    let line = report::complaint(why);
    if aside {
        note(line)
    } else {
        drop(print(format!("{line}\n")))
    }
}

/// Appends a report to the step's summary, if there is one.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn fill_summary(report: &Report) -> Result<(), Stop> {
    summary().map_or(Ok(()), |path| summarise(report, &path))
}

/// Prints the annotations of a report, to standard error if standard output has JSON.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn annotate(report: &Report, aside: bool) -> Result<(), Stop> {
    for name in report::names(Format::Github) {
        let make = |out: &mut dyn Write| report::write(Format::Github, report, name, out);
        if aside {
            let mut bytes = Vec::new();
            make(&mut bytes).map_err(Stop::not_judged)?;
            String::from_utf8_lossy(&bytes).lines().for_each(note);
        } else {
            print_as_made(make)?
        }
    }
    Ok(())
}
