//! JUnit XML for the test view of a CI system.
//!
//! A case is a test, named by its full id: GitLab drops all but the first of
//! equal names. Regressed is a `failure`, error and missing are an `error`, inconclusive and
//! skipped are `skipped`, with their reason. The verdict is a test of its own, so that an
//! inconclusive run is never green.

use std::collections::HashMap;
use std::io::{self, Write};

use super::exporter::{RenderError, Report};
use super::summary::{beside, evidence};
use super::text::{clean, escaped, one_line, shorten};
use regatta_judge::judgement::{
    ExpectationResult, Judgement, LimitResult, Row, Uncounted, Verdict, VerdictOutcome, Word,
};
use regatta_worker::units::Nanoseconds;

/// Writes `junit.xml`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    Ok(document(report.judgement, out)?)
}

/// Longest `message` attribute, in columns; the body has the whole text.
const MESSAGE: usize = 200;

/// One `testcase`.
struct Test {
    class: String,
    name: String,
    time: Option<Nanoseconds>,
    outcome: TestOutcome,
}

enum TestOutcome {
    Passed,
    Failure {
        kind: &'static str,
        message: String,
        body: String,
    },
    Error {
        kind: &'static str,
        message: String,
        body: String,
    },
    Skipped {
        message: String,
    },
}

/// Every test, made when it is asked for: twice, to be counted and to be written.
fn tests(judgement: &Judgement) -> impl Iterator<Item = Test> {
    let verdict = std::iter::once_with(|| of_verdict(&judgement.verdict));
    let rows = judgement.rows.iter().map(of_row);
    let expectations = judgement.expectations.iter().map(of_expectation);
    let limits = judgement.limits.iter().map(of_limit);
    verdict.chain(rows).chain(expectations).chain(limits)
}

pub(super) fn document(judgement: &Judgement, out: &mut dyn Write) -> io::Result<()> {
    let (mut all, mut failures, mut errors, mut skipped) = (0, 0, 0, 0);
    for test in tests(judgement) {
        all += 1;
        match test.outcome {
            TestOutcome::Passed => {}
            TestOutcome::Failure { .. } => failures += 1,
            TestOutcome::Error { .. } => errors += 1,
            TestOutcome::Skipped { .. } => skipped += 1,
        }
    }
    let counts =
        format!(r#"tests="{all}" failures="{failures}" errors="{errors}" skipped="{skipped}""#);
    let name = format!("regatta {} {}", judgement.suite, judgement.head.machine);
    let name = name.trim_end();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites {counts}>")?;
    writeln!(
        out,
        r#"<testsuite name="{}" {counts} timestamp="{}">"#,
        escaped(&one_line(name)),
        escaped(&one_line(&judgement.head.started)),
    )?;
    let mut seen = HashMap::new();
    for mut test in tests(judgement) {
        make_name_unique(&mut test, &mut seen);
        write_test(out, &test)?;
    }
    writeln!(out, "</testsuite>\n</testsuites>")
}

fn of_verdict(verdict: &Verdict) -> Test {
    let message = verdict.reasons.join("; ");
    let body = verdict.reasons.join("\n");
    Test {
        class: "regatta".into(),
        name: "verdict".into(),
        time: None,
        outcome: match verdict.outcome {
            VerdictOutcome::Passed => TestOutcome::Passed,
            VerdictOutcome::Failed => TestOutcome::Failure {
                kind: "verdict",
                message,
                body,
            },
            VerdictOutcome::Inconclusive => TestOutcome::Error {
                kind: "verdict",
                message,
                body,
            },
        },
    }
}

fn of_row(row: &Row) -> Test {
    let reason = row.reason.clone().unwrap_or_default();
    let skipped = || TestOutcome::Skipped {
        message: match (reason.is_empty(), row.word) {
            (true, word) => word.text().to_owned(),
            (false, Word::Skipped) => reason.clone(),
            (false, word) => format!("{}: {reason}", word.text()),
        },
    };
    let outcome = match row.word {
        Word::Regressed => TestOutcome::Failure {
            kind: match row.regressed().next() {
                Some(_) => "regressed",
                None => "structure",
            },
            message: match row.regressed().next() {
                Some(_) => evidence(row).map_or(reason, |parts| parts.join("   ")),
                None => row.structure_told().join("; "),
            },
            body: explanation(row),
        },
        Word::Error | Word::Missing => TestOutcome::Error {
            kind: row.word.text(),
            message: match Uncounted::sentence(&row.uncounted) {
                Some(told) if reason.is_empty() => told,
                _ => reason,
            },
            body: explanation(row),
        },
        Word::Skipped | Word::Inconclusive => skipped(),
        Word::Improved | Word::Same | Word::New => TestOutcome::Passed,
    };
    let variant = row.case.0.split(':').next().unwrap_or_default();
    Test {
        class: variant.replace('/', "."),
        name: row.case.to_string(),
        time: row.head.as_ref().map(|timing| timing.median_ns),
        outcome,
    }
}

fn explanation(row: &Row) -> String {
    let evidence = evidence(row).map(|parts| parts.join("   "));
    let mut lines: Vec<String> = evidence.into_iter().collect();
    lines.extend(row.reason.clone());
    lines.extend(Uncounted::sentence(&row.uncounted));
    lines.extend(beside(row));
    lines.extend(row.account_told());
    let findings = row.findings.iter();
    lines.extend(findings.map(ToString::to_string));
    lines.join("\n")
}

fn of_expectation(expectation: &ExpectationResult) -> Test {
    let reason = expectation.reason.clone().unwrap_or_default();
    let outcome = match expectation.word {
        Word::Regressed => TestOutcome::Failure {
            kind: "expectation",
            message: expectation.sentence(),
            body: match &expectation.against {
                Some(against) => format!("compared with {against}\n{reason}")
                    .trim_end()
                    .to_owned(),
                None => reason,
            },
        },
        Word::Missing => TestOutcome::Error {
            kind: "missing",
            message: reason.clone(),
            body: reason,
        },
        word @ (Word::Inconclusive | Word::Skipped) => TestOutcome::Skipped {
            message: format!("{}: {reason}", word.text()),
        },
        _ => TestOutcome::Passed,
    };
    Test {
        class: "expectation".into(),
        name: format!("{}: {}", expectation.name, expectation.case),
        time: None,
        outcome,
    }
}

fn of_limit(limit: &LimitResult) -> Test {
    let reason = limit.reason.clone().unwrap_or_default();
    let outcome = match limit.word {
        Word::Regressed => TestOutcome::Failure {
            kind: "limit",
            message: limit.sentence(),
            body: reason,
        },
        Word::Missing => TestOutcome::Error {
            kind: "missing",
            message: reason.clone(),
            body: reason,
        },
        _ => TestOutcome::Passed,
    };
    Test {
        class: "limit".into(),
        name: format!("{}: {}", limit.name, limit.subject()),
        time: None,
        outcome,
    }
}

fn make_name_unique(test: &mut Test, seen: &mut HashMap<String, usize>) {
    let times = seen.entry(test.name.clone()).or_default();
    *times += 1;
    if *times > 1 {
        test.name = format!("{} ({times})", test.name);
    }
}

fn write_test(xml: &mut dyn Write, test: &Test) -> io::Result<()> {
    write!(
        xml,
        r#"<testcase classname="{}" name="{}""#,
        escaped(&one_line(&test.class)),
        escaped(&one_line(&test.name))
    )?;
    if let Some(time) = test.time.filter(|time| time.is_finite()) {
        write!(xml, r#" time="{:.9}""#, time.seconds())?;
    }
    let message = |text: &str| escaped(&shorten(&one_line(text), MESSAGE));
    match &test.outcome {
        TestOutcome::Passed => writeln!(xml, "/>"),
        TestOutcome::Failure {
            kind,
            message: text,
            body,
        } => writeln!(
            xml,
            r#"><failure type="{kind}" message="{}">{}</failure></testcase>"#,
            message(text),
            escaped(&clean(body))
        ),
        TestOutcome::Error {
            kind,
            message: text,
            body,
        } => writeln!(
            xml,
            r#"><error type="{kind}" message="{}">{}</error></testcase>"#,
            message(text),
            escaped(&clean(body))
        ),
        TestOutcome::Skipped { message: text } => {
            writeln!(xml, r#"><skipped message="{}"/></testcase>"#, message(text))
        }
    }
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
        assert!(
            fixture::refused()
                .shown(Format::Junit)
                .contains(r#"errors="1""#)
        );
        assert!(
            fixture::empty()
                .shown(Format::Junit)
                .contains(r#"errors="1""#)
        );
        assert!(
            fixture::passed()
                .shown(Format::Junit)
                .contains(r#"failures="0" errors="0""#)
        );
    }
}
