//! Reports of runs and comparisons: one source file for each format.
//!
//! The crate turns values into text: nothing in it reads a clock or a device, and only [`files`]
//! writes. Every text from outside the process (a worker's reason, a kernel's name, a path) passes
//! [`text`] before it is shown.

pub mod bisect;
mod by_axes;
mod csv;
mod device;
pub mod document;
mod facts;
pub mod figures;
pub mod files;
mod github;
pub mod history;
mod html;
mod json;
pub mod judgement;
mod junit;
pub mod labels;
mod markdown;
pub mod summary;
pub mod terminal;
pub mod trace;

#[cfg(test)]
#[path = "tests/fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "tests/plain.rs"]
mod plain;
#[cfg(test)]
#[path = "tests/words.rs"]
mod words;

pub use regatta_core::text;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;

use regatta_core::record::{Entry, RecordError, Run, Side, run_file};
use regatta_judge::judgement::Judgement;
use regatta_worker::case::CaseId;

pub use github::complaint;
#[cfg(feature = "schemas")]
pub use json::schema;

/// Everything a report shows.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The judgement of the run.
    pub judgement: &'a Judgement,
    /// The run; its entries may be in files.
    pub head: &'a Run,
    /// The run, reduced to the values that were judged.
    pub side: &'a Side,
    /// The files of its entries, for their samples; empty for a baseline, which has only medians.
    pub files: &'a [PathBuf],
    /// The base of the comparison, if there is one.
    pub base: Option<&'a Side>,
    /// The files of the base's entries.
    pub base_files: &'a [PathBuf],
}

impl Report<'_> {
    /// Calls `look` with each entry of the run, or of some cases, in the order of measurement.
    pub(crate) fn entries(
        &self,
        cases: Option<&HashSet<&str>>,
        mut look: impl FnMut(&Entry),
    ) -> Result<(), RecordError> {
        let wanted = |entry: &&Entry| cases.is_none_or(|cases| cases.contains(&*entry.case.0));
        self.head.entries.iter().filter(wanted).for_each(&mut look);
        run_file::entries(self.files, cases, look)
    }

    /// Calls `look` with each entry of some cases of the base, under their ids in the run.
    pub(crate) fn base_entries(
        &self,
        cases: &HashSet<&str>,
        mut look: impl FnMut(&CaseId, &Entry),
    ) -> Result<(), RecordError> {
        let Some(base) = self.base else { return Ok(()) };
        let renamed = base.header.counterparts_in(&self.head.header);
        let renamed = renamed.is_some_and(|names| !names.is_empty());
        let wanted = Some(cases).filter(|_| !renamed);
        run_file::entries(self.base_files, wanted, |entry| {
            let name = if renamed {
                base.header.named_in(&self.head.header, &entry.case)
            } else {
                entry.case.clone()
            };
            if cases.contains(&*name.0) {
                look(&name, entry);
            }
        })
    }
}

/// One rendered file.
pub struct RenderedFile {
    /// The name of the file in a report's directory.
    pub name: &'static str,
    /// The text of the file.
    pub text: String,
}

/// The reason why a report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A table could not be written.
    #[error("cannot write the table {name}: {problem}")]
    Table {
        /// The document.
        name: &'static str,
        /// The writer's error.
        problem: String,
    },
    /// The page could not be filled in.
    #[error("cannot fill in the page: {0}")]
    Page(#[from] minijinja::Error),
    /// A figure does not fit its own data.
    #[error("cannot draw a figure: {0}")]
    Figure(String),
    /// The judgement could not be written as JSON.
    #[error("cannot write the judgement as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The run's file, which has its samples, can no longer be read.
    #[error("cannot read the samples again: {0}")]
    Samples(#[from] RecordError),
    /// Writing the report failed.
    #[error("{0}")]
    Output(#[from] io::Error),
}

/// Renders the document with a name directly into a writer.
type Writer = fn(&Report, &str, &mut dyn Write) -> Result<(), RenderError>;

/// A format of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// One self-contained page.
    Html,
    /// Two tables: of cases and of samples.
    Csv,
    /// The judgement as one document.
    Json,
    /// JUnit XML for the test view of a CI system.
    Junit,
    /// Markdown for a comment on a pull request.
    Markdown,
    /// Workflow commands of GitHub Actions: annotations.
    Github,
    /// Bencher Metric Format.
    Bencher,
    /// `customSmallerIsBetter` of github-action-benchmark.
    BenchmarkAction,
    /// A trace for Perfetto and chrome://tracing.
    Perfetto,
    /// Pictures.
    Figures,
}

/// Every format: its name on the command line, its description, the documents that it makes of a
/// run (the most important first), and the function that writes one of them.
#[rustfmt::skip]
const FORMATS: [(Format, &str, &str, &[&str], Writer); 10] = [
    (Format::Html, "html", "one self-contained page", &["index.html"], html::write),
    (Format::Csv, "csv", "cases.csv and samples.csv, in a folder", &["cases.csv", "samples.csv"], csv::write),
    (Format::Json, "json", "the judgement as one document", &["judgement.json"], json::judgement),
    (Format::Junit, "junit", "JUnit XML, for the test view of a CI system", &["junit.xml"], junit::write),
    (Format::Markdown, "markdown", "for a comment; a step's summary is appended to", &["report.md"], markdown::write),
    (Format::Github, "github", "annotations for GitHub Actions; `-` also fills the step's summary", &["annotations.txt"], github::write),
    (Format::Bencher, "bencher", "the Metric Format of Bencher", &["bencher.json"], json::bencher),
    (Format::BenchmarkAction, "benchmark-action", "customSmallerIsBetter of github-action-benchmark", &["benchmark-action.json"], json::benchmark_action),
    (Format::Perfetto, "perfetto", "of a trace: what ui.perfetto.dev opens", &[], |_, _, _| Ok(())),
    (Format::Figures, "figures", "pictures as SVG and PNG, light and dark, in a folder", &[], |_, _, _| Ok(())),
];

impl Format {
    /// Every format.
    pub fn all() -> impl Iterator<Item = Format> {
        FORMATS.iter().map(|(format, ..)| *format)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        FORMATS[self as usize].1
    }

    /// A description in one line.
    pub fn about(self) -> &'static str {
        FORMATS[self as usize].2
    }
}

/// The documents of a report in one format, the most important first: one document, or `cases.csv`
/// and `samples.csv` for [`Format::Csv`].
///
/// # Errors
/// Only for a fault of this program: a template or a figure that does not fit its own data.
pub fn render(format: Format, report: &Report) -> Result<Vec<RenderedFile>, RenderError> {
    let documents = names(format).iter().map(|name| {
        let mut bytes = Vec::new();
        write(format, report, name, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(RenderedFile { name, text })
    });
    documents.collect()
}

/// The names of the documents of a format, the most important first; empty if the format is not
/// made of a run.
pub fn names(format: Format) -> &'static [&'static str] {
    FORMATS[format as usize].3
}

/// Renders one document of a report directly into a writer, since one of many cases is too large
/// for memory.
///
/// # Errors
/// When the writer fails, or the run's file cannot be read again; and as [`render`].
pub fn write(
    format: Format,
    report: &Report,
    name: &'static str,
    out: &mut dyn Write,
) -> Result<(), RenderError> {
    FORMATS[format as usize].4(report, name, out)
}

/// The document of a judgement without a run, if the format has one. A CI system reads it if a gate
/// was refused before it measured.
///
/// # Errors
/// As [`render`].
pub fn render_refusal(
    format: Format,
    judgement: &Judgement,
) -> Result<Option<String>, RenderError> {
    let mut bytes = Vec::new();
    match format {
        Format::Json => json::document(judgement, env!("CARGO_PKG_VERSION"), &mut bytes)?,
        Format::Junit => junit::document(judgement, &mut bytes)?,
        Format::Markdown => return Ok(Some(markdown::refusal(judgement))),
        _ => return Ok(None),
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::suite::Metric;
    use regatta_judge::judgement::{Judgement, Word};
    use regatta_worker::units::{Nanoseconds, Rate, Ratio, Share, quantities};

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        assert!(Format::all().enumerate().all(|(i, f)| f as usize == i));
    }

    /// JSON has text as it is; the snapshots of the others show what of it is left.
    #[test]
    fn hostile_text_stays_text_in_every_format() {
        let scene = fixture::incomplete();
        for format in Format::all().filter(|format| *format != Format::Json) {
            for RenderedFile { name, text } in render(format, &scene.report()).unwrap() {
                assert!(!text.contains(['\u{1b}', '\u{202e}', '\0']), "{name}");
            }
        }
        let page = scene.shown(Format::Html);
        fixture::stands_alone(&page);
        assert!(page.contains("&lt;script&gt;alert") && page.contains("u003cscript>alert"));
        assert!(!page.contains("</pre> the worker"));
    }

    #[test]
    fn a_long_reason_is_cut_where_it_is_shown() {
        let mut scene = fixture::incomplete();
        for row in &mut scene.judgement.rows {
            row.reason = Some("word ".repeat(4_000));
        }
        // JSON has all of it.
        for format in Format::all().filter(|format| *format != Format::Json) {
            for RenderedFile { name, text } in render(format, &scene.report()).unwrap() {
                assert!(text.len() < 200_000, "{name}: {}", text.len());
            }
        }
        let text = judgement::terminal(&scene.judgement, false).text(false);
        assert!(text.len() < 10_000, "{}", text.len());
    }

    /// Each format for people has the estimate and the interval of the one case that regressed.
    fn assert_all_show(scene: &fixture::Scene, figures: [&str; 2]) {
        let texts = [
            judgement::terminal(&scene.judgement, false).text(false),
            scene.shown(Format::Markdown),
            scene.shown(Format::Html),
            scene.shown(Format::Junit),
            scene.shown(Format::Github).replace("%25", "%"),
        ];
        for text in &texts {
            assert!(figures.iter().all(|figure| text.contains(figure)), "{text}");
        }
    }

    #[test]
    fn every_format_has_the_same_estimate_and_interval() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        rows.retain(|row| row.case.0.contains("cudnn"));
        let change = *rows[0].change().unwrap();
        assert_all_show(&scene, ["+11.8 %", "[+11.2 %, +12.5 %]"]);

        let figures = [Some(change.ratio), change.low, change.high].map(|figure| figure.unwrap().0);
        let json: Judgement = serde_json::from_str(&scene.shown(Format::Json)).unwrap();
        assert_eq!(json.rows[0].change(), Some(&change));
        let table = scene.shown(Format::Csv);
        let mut table = ::csv::Reader::from_reader(table.as_bytes());
        let names = table.headers().unwrap().clone();
        let cells = table.records().next().unwrap().unwrap();
        let columns = ["ratio", "ratio_low_90", "ratio_high_90"].map(|end| format!("device_{end}"));
        let cell = |column| &cells[names.iter().position(|name| *name == column).unwrap()];
        assert_eq!(columns.map(cell), figures.map(|figure| figure.to_string()));
        let drawn = figures.map(|figure| format!("{figure:.4}")).join(",");
        assert!(scene.shown(Format::Html).contains(&format!("[{drawn}]")));

        // The same for another metric that regressed alone.
        let row = &mut scene.judgement.rows[0];
        row.metrics[0].change.word = Word::Same;
        let host = fixture::metric(Metric::Host, Word::Regressed, 52_100.0, 352_400.0);
        row.metrics.push(host);
        assert_all_show(&scene, ["6.76x", "[6.72x, 6.80x]"]);
    }

    #[test]
    fn every_format_takes_any_number() {
        let tiny = [0.0, -0.0, -1.0, 1e308, 5e-324];
        for number in [&tiny[..], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]].concat() {
            let (time, ratio) = (Nanoseconds(number), Ratio(number));
            let mut scene = fixture::failed();
            scene.head.header.rules.policy.threshold = Share(number);
            for row in &mut scene.judgement.rows {
                for timing in row.head.iter_mut().chain(&mut row.base) {
                    (timing.median_ns, timing.min_ns, timing.max_ns) = (time, time, time);
                    (timing.tflops, timing.gbps) = (Some(Rate(number)), Some(number));
                    timing.invocations_ns = vec![time; 3];
                }
                for metric in &mut row.metrics {
                    (metric.base, metric.head, metric.change.ratio) = (number, number, ratio);
                    (metric.change.low, metric.change.high) = (Some(ratio), Some(ratio));
                    (metric.change.threshold, metric.change.detectable) =
                        (Share(number), Some(Share(number)));
                }
            }
            for expectation in &mut scene.judgement.expectations {
                (expectation.value, expectation.at_most) = (Some(number), Some(number));
            }
            for entry in &mut scene.head.entries {
                if let regatta_core::record::Outcome::Measured(of) = &mut entry.outcome {
                    of.samples.device_ns = quantities([number, 1.0, number]);
                }
            }
            for format in Format::all() {
                render(format, &scene.report()).unwrap();
            }
            for all in [false, true] {
                judgement::terminal(&scene.judgement, all).text(true);
            }
        }
    }
}
