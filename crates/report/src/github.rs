//! Annotations of GitHub Actions: workflow commands that GitHub shows with a job and its files.
//!
//! A step shows only ten of each level, so the verdict comes first, then the worst cases, and the
//! last annotation has the number of the others.

use std::io::Write;

use super::judgement::explanation;
use super::summary::{RowList, SortedRows};
use super::text::{one_line, shorten};
use super::{RenderError, Report};
use regatta_judge::judgement::{ExpectationResult, Row, VerdictOutcome};
use regatta_worker::joined::Joined;

/// Writes `annotations.txt`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    let file = suite_file(report);
    for annotation in annotations(report) {
        annotation.write(file, out)?;
    }
    Ok(())
}

/// The number of annotations of one level that a step shows.
const SHOWN: usize = 10;
/// The longest title and message, in columns.
const TITLE: usize = 120;
const MESSAGE: usize = 1000;

/// An annotation: `error`, `warning` or `notice`.
struct Annotation {
    level: &'static str,
    title: String,
    message: String,
}

impl Annotation {
    fn write(&self, file: Option<&str>, out: &mut dyn Write) -> Result<(), RenderError> {
        let level = self.level;
        let file = file.map_or(String::new(), |file| format!("file={},", property(file)));
        let title = property(&shorten(&one_line(&self.title), TITLE));
        let message = data(&shorten(&one_line(&self.message), MESSAGE));
        Ok(writeln!(out, "::{level} {file}title={title}::{message}")?)
    }
}

/// The annotation of a run without a verdict.
pub fn complaint(why: &str) -> String {
    let message = data(&shorten(&one_line(why), MESSAGE));
    format!("::error title=regatta::{message}")
}

/// The suite's file, if the command names one. The annotations are attached to it.
fn suite_file<'a>(report: &'a Report) -> Option<&'a str> {
    let suite = report.head.header.suite.arguments.first()?;
    let inside = suite.ends_with(".toml") && !suite.starts_with('/') && !suite.contains("..");
    inside.then(|| suite.trim_start_matches("./"))
}

fn annotations(report: &Report) -> Vec<Annotation> {
    let judgement = report.judgement;
    let level = match judgement.verdict.outcome {
        // A filtered run is named even if it passed.
        VerdictOutcome::Passed if judgement.head.filter.is_some() => "notice",
        VerdictOutcome::Passed => return Vec::new(),
        VerdictOutcome::Failed => "error",
        VerdictOutcome::Inconclusive => "warning",
    };
    let verdict = Annotation {
        level,
        title: format!("{}: {}", judgement.suite, judgement.verdict.outcome.text()),
        message: judgement.verdict.sentences().join("; "),
    };
    let summary = SortedRows::new(judgement);
    let errors = summary.rows([RowList::Errors, RowList::Regressed]);
    let errors = errors.map(|row| case("error", row));
    let errors = errors.chain(summary.violated.iter().map(|result| violation(result)));
    let errors = errors.collect();
    let warnings = summary.rows([RowList::Missing, RowList::Inconclusive]);
    let warnings = warnings.map(|row| case("warning", row)).collect();
    let mut annotations = vec![verdict];
    annotations.extend(bounded(errors, usize::from(level == "error")));
    annotations.extend(bounded(warnings, usize::from(level == "warning")));
    annotations
}

/// Limits annotations of a level that already has `before` others; the last one counts the rest.
fn bounded(mut all: Vec<Annotation>, before: usize) -> Vec<Annotation> {
    let room = SHOWN - before;
    if all.len() > room {
        let rest = all.len() - (room - 1);
        all.truncate(room);
        if let Some(last) = all.last_mut() {
            last.title = format!("and {rest} more");
            last.message = "the report has all of them".to_owned();
        }
    }
    all
}

fn case(level: &'static str, row: &Row) -> Annotation {
    Annotation {
        level,
        title: format!("{}: {}", row.word.name(), row.case),
        message: explanation(row).join("; "),
    }
}

fn violation(result: &ExpectationResult) -> Annotation {
    let against = result.against.as_ref();
    let against = against.map(|case| format!("against {case}"));
    let why = against.or_else(|| result.reason.clone());
    let message = std::iter::once(result.sentence()).chain(why);
    let (name, subject) = (&result.name, result.subject());
    Annotation {
        level: "error",
        title: format!("violated expectation `{name}`: {subject}"),
        message: message.joined("; "),
    }
}

/// Escapes a message, so that nothing in it ends the command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property, which a comma or a colon would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use crate::{Format, fixture};

    #[test]
    fn a_failed_gate() {
        insta::assert_snapshot!(fixture::failed().shown(Format::Github));
    }

    #[test]
    fn what_passed_annotates_nothing_and_what_was_not_judged_warns() {
        let mut passed = fixture::passed();
        assert_eq!(passed.shown(Format::Github), "");
        passed.judgement.head.filter = Some("--filter flash left out 2 cases".to_owned());
        assert!(passed.shown(Format::Github).starts_with("::notice "));
        let text = fixture::refused().shown(Format::Github);
        assert!(text.starts_with("::warning "), "{text}");
    }

    #[test]
    fn hostile_text_is_one_command_a_line() {
        let mut scene = fixture::failed();
        for row in &mut scene.judgement.rows {
            row.case.0 = "a\n::error::b%0A,c:d::\r\u{1b}[2J".into();
            row.reason = Some("x\n::set-output name=a::b".to_owned());
        }
        for line in scene.shown(Format::Github).lines() {
            assert!(
                line.starts_with("::error ") || line.starts_with("::warning "),
                "{line}"
            );
            let (_, title) = line.split_once("title=").unwrap();
            let (title, _) = title.split_once("::").unwrap();
            assert!(!title.contains([':', ',']), "{line}");
        }
    }

    #[test]
    fn a_step_shows_ten_of_a_level() {
        let text = fixture::large(60).shown(Format::Github);
        let shown = text.lines().filter(|line| line.starts_with("::error "));
        assert!(shown.count() <= super::SHOWN);
        assert!(text.contains("title=and "), "{text}");
    }
}
