//! Where a judgement goes: the terminal, a report folder, files of chosen formats.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Ended, Stop, note, print};
use crate::report::{self, Format, Report, files, terminal};

/// How the answer is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Show {
    /// Print the judgement as JSON
    #[arg(long)]
    pub json: bool,

    /// Print every case, not only those that matter
    #[arg(long)]
    pub all: bool,
}

/// Report files of chosen formats.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Write one self-contained page
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    /// Write cases.csv and samples.csv into a folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// Write Markdown, for a comment on a pull request
    #[arg(long, value_name = "PATH")]
    markdown: Option<PathBuf>,

    /// Write JUnit XML, for the test view of a CI system
    #[arg(long, value_name = "PATH")]
    junit: Option<PathBuf>,
}

impl Outputs {
    fn wanted(&self) -> impl Iterator<Item = (Format, &PathBuf)> {
        let pairs = [
            (Format::Html, &self.html),
            (Format::Csv, &self.csv),
            (Format::Markdown, &self.markdown),
            (Format::Junit, &self.junit),
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
        self.wanted().next().is_some()
    }

    /// True when a file was asked for that is not the page.
    pub fn beside_html(&self) -> bool {
        self.wanted().any(|(format, _)| format != Format::Html)
    }

    /// Finds out before any work whether the files can be written.
    ///
    /// # Errors
    /// The first that cannot: exit code 2.
    pub fn check(&self) -> Result<(), Stop> {
        for (format, path) in self.wanted() {
            let probe = match format {
                Format::Csv => path.join("cases.csv"),
                _ => path.clone(),
            };
            files::check_writable(&probe).map_err(Stop::usage)?;
        }
        let paths: Vec<&PathBuf> = self.wanted().map(|(_, path)| path).collect();
        for (i, path) in paths.iter().enumerate() {
            if paths[..i].contains(path) {
                return Err(Stop::Usage(anyhow::anyhow!(
                    "{} is named for two formats",
                    path.display()
                )));
            }
        }
        Ok(())
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
            let documents = report::render(format, report).map_err(Stop::not_judged)?;
            for document in documents {
                files::write(path, &document.text).map_err(Stop::not_judged)?;
            }
        }
        Ok(())
    }
}

/// Writes the page and the tables into a report folder.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn write(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, Stop> {
    files::write_all(folder, report).map_err(Stop::not_judged)
}

/// Prints the answer, says where the page is, and gives the exit code.
///
/// # Errors
/// When it cannot be printed.
pub fn show(report: &Report, show: &Show, folder: Option<&Path>) -> Ended {
    if show.json {
        for document in report::render(Format::Json, report).map_err(Stop::not_judged)? {
            print(document.text)?;
        }
    } else {
        let options = terminal::Options {
            colour: true,
            all: show.all,
        };
        print(terminal::render(report.judgement, options))?;
    }
    if let Some(folder) = folder {
        note(format!("report: {}", folder.join("index.html").display()));
    }
    Ok(report.judgement.verdict.outcome.exit_code())
}
