//! JUnit XML for the test view of a CI system.
//!
//! A case is a test, named by its full id, because GitLab keeps only the first of equal names.
//! Regressed is a `failure`, error and missing are an `error`, inconclusive and skipped are
//! `skipped`, with their reason. The verdict is a test of its own, so that an inconclusive run is
//! never green.

use std::collections::HashMap;
use std::io::{self, Write};

use super::judgement::explanation;
use super::summary::evidence;
use super::text::{clean, escaped, one_line, shorten};
use super::{RenderError, Report};
use regatta_judge::judgement::{
    ExpectationResult, Judgement, Row, Uncounted, Verdict, VerdictOutcome, Word,
};
use regatta_worker::joined::Joined;
use regatta_worker::units::Nanoseconds;

/// Writes `junit.xml`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    Ok(document(report.judgement, out)?)
}

/// The longest `message` attribute, in columns; the body has more of the text.
const MESSAGE: usize = 200;

/// The longest body, in columns.
const BODY: usize = 20_000;

/// One `testcase`.
struct Test {
    class: String,
    name: String,
    time: Option<Nanoseconds>,
    /// The element of a test that did not pass, its type, its message and its body.
    problem: Option<(&'static str, &'static str, String, String)>,
}

/// Every test, made lazily: once to count them and once to write them.
fn tests(judgement: &Judgement) -> impl Iterator<Item = Test> {
    let verdict = std::iter::once_with(|| verdict(&judgement.verdict));
    let rows = judgement.rows.iter().map(case);
    let expectations = judgement.expectations.iter().map(expectation);
    verdict.chain(rows).chain(expectations)
}

pub(super) fn document(judgement: &Judgement, out: &mut dyn Write) -> io::Result<()> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for test in tests(judgement) {
        *counts.entry("test").or_default() += 1;
        if let Some((element, ..)) = test.problem {
            *counts.entry(element).or_default() += 1;
        }
    }
    let [all, failures, errors, skipped] = ["test", "failure", "error", "skipped"]
        .map(|element| counts.get(element).copied().unwrap_or(0));
    let counts =
        format!(r#"tests="{all}" failures="{failures}" errors="{errors}" skipped="{skipped}""#);
    let name = format!("regatta {} {}", judgement.suite, judgement.head.machine);
    let name = name.trim_end();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites {counts}>")?;
    writeln!(
        out,
        r#"<testsuite name="{}" {counts} timestamp="{}">"#,
        attribute(name),
        attribute(&judgement.head.started),
    )?;
    let shown = &judgement.verdict.shown;
    if !shown.is_empty() {
        let shown = attribute(shown);
        writeln!(
            out,
            r#"<properties><property name="verdict" value="{shown}"/></properties>"#
        )?;
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for mut test in tests(judgement) {
        let times = seen.entry(test.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            test.name = format!("{} ({times})", test.name);
        }
        write_test(out, &test)?;
    }
    writeln!(out, "</testsuite>\n</testsuites>")
}

fn verdict(verdict: &Verdict) -> Test {
    let element = match verdict.outcome {
        VerdictOutcome::Passed => None,
        VerdictOutcome::Failed => Some("failure"),
        VerdictOutcome::Inconclusive => Some("error"),
    };
    let [message, body] = ["; ", "\n"].map(|separator| verdict.sentences().join(separator));
    Test {
        class: "regatta".into(),
        name: "verdict".into(),
        time: None,
        problem: element.map(|element| (element, "verdict", message, body)),
    }
}

fn case(row: &Row) -> Test {
    let reason = row.reason.clone().unwrap_or_default();
    let text = row.word.name();
    let problem = match row.word {
        Word::Regressed => {
            let of_metric = row.regressed().next().and_then(|_| evidence(row));
            let (kind, message) = match of_metric {
                Some(parts) => ("regressed", parts.join("   ")),
                None => ("structure", row.worth_telling().joined("; ")),
            };
            Some(("failure", kind, message, explanation(row).join("\n")))
        }
        Word::Error | Word::Missing => {
            let uncounted = Uncounted::sentence(&row.uncounted);
            let message = Some(reason).filter(|reason| !reason.is_empty());
            let message = message.or(uncounted).unwrap_or_default();
            Some(("error", text, message, explanation(row).join("\n")))
        }
        Word::Skipped if !reason.is_empty() => Some(("skipped", text, reason, String::new())),
        Word::Skipped | Word::Inconclusive => {
            let parts = [text.to_owned(), reason];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            let message = parts.joined(": ");
            Some(("skipped", text, message, String::new()))
        }
        Word::Improved | Word::Same | Word::New => None,
    };
    let variant = row.case.0.split(':').next().unwrap_or_default();
    Test {
        class: variant.replace('/', "."),
        name: row.case.to_string(),
        time: row.head.as_ref().map(|timing| timing.median_ns),
        problem,
    }
}

fn expectation(result: &ExpectationResult) -> Test {
    let against = result.against.as_ref();
    let against = against.map(|case| format!("compared with {case}"));
    let text = result.reason.clone().unwrap_or_default();
    let problem = match result.word {
        Word::Regressed => {
            let body = against
                .into_iter()
                .chain(result.reason.clone())
                .joined("\n");
            Some(("failure", "expectation", result.sentence(), body))
        }
        Word::Missing => Some(("error", "missing", text.clone(), text)),
        Word::Inconclusive | Word::Skipped => {
            let message = format!("{}: {text}", result.word.name());
            Some(("skipped", result.word.name(), message, String::new()))
        }
        _ => None,
    };
    Test {
        class: "expectation".into(),
        name: format!("{}: {}", result.name, result.subject()),
        time: None,
        problem,
    }
}

fn attribute(text: &str) -> String {
    escaped(&one_line(text))
}

fn write_test(xml: &mut dyn Write, test: &Test) -> io::Result<()> {
    let (class, name) = (attribute(&test.class), attribute(&test.name));
    write!(xml, r#"<testcase classname="{class}" name="{name}""#)?;
    if let Some(time) = test.time.filter(|time| time.is_finite()) {
        write!(xml, r#" time="{:.9}""#, time.seconds())?;
    }
    let Some((element, kind, message, body)) = &test.problem else {
        return writeln!(xml, "/>");
    };
    let message = attribute(&shorten(&one_line(message), MESSAGE));
    if *element == "skipped" {
        return writeln!(xml, r#"><skipped message="{message}"/></testcase>"#);
    }
    let body = escaped(&shorten(&clean(body), BODY));
    writeln!(
        xml,
        r#"><{element} type="{kind}" message="{message}">{body}</{element}></testcase>"#
    )
}

#[cfg(test)]
mod tests {
    use crate::{Format, fixture};

    #[test]
    fn a_failed_gate() {
        insta::assert_snapshot!(fixture::failed().shown(Format::Junit));
    }

    #[test]
    fn hostile_reasons_are_escaped() {
        let text = fixture::incomplete().shown(Format::Junit);
        insta::assert_snapshot!(text.replace("template&lt;int, int&gt; ", ""));
    }

    #[test]
    fn a_run_that_was_not_judged_is_never_green() {
        for (scene, counts) in [
            (fixture::refused(), r#"errors="1""#),
            (fixture::empty(), r#"errors="1""#),
            (fixture::passed(), r#"failures="0" errors="0""#),
        ] {
            let text = scene.shown(Format::Junit);
            assert!(text.contains(counts), "{text}");
        }
    }
}
