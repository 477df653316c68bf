//! Report files of chosen formats.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;

use super::github;
use super::{Stop, print, print_as_made};
use regatta::report::{self, Format, Report, files, foreign};

/// Report files of chosen formats.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Write one self-contained page
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    /// Write cases.csv and samples.csv into a folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// Write Markdown, for a comment on a pull request; a step's summary is appended to
    #[arg(long, value_name = "PATH")]
    markdown: Option<PathBuf>,

    /// Write JUnit XML, for the test view of a CI system
    #[arg(long, value_name = "PATH")]
    junit: Option<PathBuf>,

    /// Write the Metric Format of Bencher
    #[arg(long, value_name = "PATH", help_heading = OTHERS)]
    bencher: Option<PathBuf>,

    /// Write customSmallerIsBetter of github-action-benchmark
    #[arg(long, value_name = "PATH", help_heading = OTHERS)]
    benchmark_action: Option<PathBuf>,

    /// Write the JSON of Google Benchmark, for its compare.py
    #[arg(long, value_name = "PATH", help_heading = OTHERS)]
    google_benchmark: Option<PathBuf>,

    /// Write OpenMetrics text, for Prometheus
    #[arg(long, value_name = "PATH", help_heading = OTHERS)]
    openmetrics: Option<PathBuf>,

    /// Add to a results folder of asv (needs a run of a commit)
    #[arg(long, value_name = "DIR", help_heading = OTHERS)]
    asv: Option<PathBuf>,
}

/// Where `--help` lists what other tools read.
const OTHERS: &str = "For other tools";

impl Outputs {
    fn wanted(&self) -> impl Iterator<Item = (Format, &PathBuf)> {
        let pairs = [
            (Format::Html, &self.html),
            (Format::Csv, &self.csv),
            (Format::Markdown, &self.markdown),
            (Format::Junit, &self.junit),
            (Format::Bencher, &self.bencher),
            (Format::BenchmarkAction, &self.benchmark_action),
            (Format::GoogleBenchmark, &self.google_benchmark),
            (Format::OpenMetrics, &self.openmetrics),
        ];
        pairs
            .into_iter()
            .filter_map(|(format, path)| Some((format, path.as_ref()?)))
    }

    /// The page that was asked for.
    pub fn html(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// True when a file was asked for.
    pub fn any(&self) -> bool {
        self.wanted().next().is_some() || self.asv.is_some()
    }

    /// True when a file was asked for that is not the page.
    pub fn beside_html(&self) -> bool {
        self.wanted().any(|(format, _)| format != Format::Html) || self.asv.is_some()
    }

    /// True when one goes to standard output, which nothing else may then go to.
    pub fn prints(&self) -> bool {
        self.wanted().any(|(_, path)| is_stdout(path))
    }

    /// Finds out before any work whether the files can be written, each in a place of its own.
    ///
    /// # Errors
    /// The first that cannot: exit code 2.
    pub fn check(&self) -> Result<(), Stop> {
        let mut taken: Vec<PathBuf> = Vec::new();
        for (format, path) in self.wanted() {
            let targets = match format {
                Format::Csv if is_stdout(path) => {
                    return Err(Stop::Usage(anyhow!(
                        "--csv -: these are two tables; name a folder for them"
                    )));
                }
                Format::Csv => vec![path.join("cases.csv"), path.join("samples.csv")],
                _ => vec![path.clone()],
            };
            for target in targets {
                if !is_stdout(&target) {
                    files::check_writable(&target).map_err(Stop::usage)?;
                }
                let place = files::place(&target);
                if taken.contains(&place) {
                    return Err(Stop::Usage(anyhow!(
                        "{} is named for two formats",
                        target.display()
                    )));
                }
                taken.push(place);
            }
        }
        Ok(())
    }

    /// True where the Markdown goes to the step's summary.
    pub fn summarises(&self) -> bool {
        self.markdown.as_deref().is_some_and(github::is_summary)
    }

    /// Writes the files asked for.
    ///
    /// # Errors
    /// When one cannot be written: exit code 3.
    pub fn write(&self, report: &Report) -> Result<(), Stop> {
        for (format, path) in self.wanted() {
            if format == Format::Csv {
                files::write_format(path, format, report).map_err(Stop::not_judged)?;
                continue;
            }
            for name in report::names(format) {
                match is_stdout(path) {
                    true => print_as_made(|out| report::write(format, report, name, out))?,
                    false if github::is_summary(path) => github::summarise(report, path)?,
                    false => {
                        let make = |out: &mut dyn Write| report::write(format, report, name, out);
                        files::write_as_made(path, make).map_err(Stop::not_judged)?;
                    }
                }
            }
        }
        if let Some(folder) = &self.asv {
            asv(folder, report)?;
        }
        Ok(())
    }
}

/// Adds a run to a results folder of asv, whose list of benchmarks keeps what is in it.
fn asv(folder: &Path, report: &Report) -> Result<(), Stop> {
    let list = folder.join("benchmarks.json");
    let there = match fs::read_to_string(&list) {
        Ok(text) => {
            let read = serde_json::from_str(&text);
            Some(
                read.with_context(|| format!("{}", list.display()))
                    .map_err(Stop::NotJudged)?,
            )
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let context = format!("cannot read {}", list.display());
            return Err(Stop::NotJudged(anyhow::Error::new(error).context(context)));
        }
    };
    let listed = foreign::asv::benchmarks(report, there).map_err(Stop::not_judged)?;
    let results = foreign::asv::results(report).map_err(Stop::not_judged)?;
    for (path, text) in results
        .into_iter()
        .chain([("benchmarks.json".into(), listed)])
    {
        files::write(&folder.join(path), &text).map_err(Stop::not_judged)?;
    }
    Ok(())
}

/// `-` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a document where the command line wants it.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn put(path: &Path, text: String) -> Result<(), Stop> {
    match is_stdout(path) {
        true => print(text),
        false => files::write(path, &text).map_err(Stop::not_judged),
    }
}
