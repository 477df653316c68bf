//! What was built, as a table of at most eighty columns.

use std::fmt::Write;

use owo_colors::{OwoColorize, Style};

use crate::cli::indented;
use regatta_cuda::kernels::arch::Arch;
use regatta_cuda::kernels::compile::{BuildError, Image};
use regatta_cuda::kernels::ledger::{Comparison, Row};
use regatta_report::text::{clean, one_line, shorten, shorten_middle};
use regatta_worker::units::{NONE, Nanoseconds, counted};

/// Columns of an entry point's name.
const NAME: usize = 34;
/// The most of a compiler's complaint that is printed, in lines.
const COMPLAINT: usize = 60;

/// One kernel file for one architecture, and what came of it.
pub struct FileOutcome {
    pub file: String,
    pub arch: Arch,
    pub image: Result<Image, BuildError>,
}

/// The rows of a ledger for its entry points.
pub fn rows(outcome: &FileOutcome) -> Vec<Row> {
    let image = outcome.image.as_ref().ok();
    let resources = image.into_iter().flat_map(|image| &image.resources);
    resources
        .map(|resources| Row::new(&outcome.file, outcome.arch, resources))
        .collect()
}

/// Every file and architecture with its entry points, ending in a line feed.
pub fn builds(outcomes: &[FileOutcome], compiler: &str) -> String {
    let mut text = format!(
        "{:<NAME$}  {:>4} {:>11} {:>5} {:>7} {:>6} {:>5}\n",
        "", "regs", "spilled", "stack", "shared", "blocks", "warps"
    );
    for outcome in outcomes {
        let heading = format!("{} {}", outcome.file, outcome.arch);
        match &outcome.image {
            Ok(image) => {
                let time = Nanoseconds::of_seconds(image.seconds);
                let cached = if image.cached { ", from the cache" } else { "" };
                let _ = writeln!(text, "{}  {time}{cached}", heading.bold());
                for row in rows(outcome) {
                    text += &entry(&row);
                }
                for warning in &image.warnings {
                    text += &indented(&one_line(warning), 2, 4);
                }
            }
            Err(error) => {
                let _ = writeln!(text, "{}  {}", heading.bold(), "FAILED".style(bad()));
                text += &complaint(&error.to_string());
            }
        }
    }
    text += &closing(outcomes, compiler);
    text
}

fn bad() -> Style {
    Style::new().red().bold()
}

fn entry(row: &Row) -> String {
    let taken = &row.resources;
    let spilled = match (taken.spill_stores, taken.spill_loads) {
        (0, 0) => "0".to_owned(),
        (stores, loads) => format!("{stores}/{loads}"),
    };
    let (blocks, warps) = match row.launch {
        Some(launch) => (
            launch.blocks_per_sm.to_string(),
            format!("{:.0} %", f64::from(launch.occupancy_permille) / 10.0),
        ),
        None => (NONE.to_owned(), NONE.to_owned()),
    };
    let name = shorten_middle(&taken.name, NAME - 2);
    format!(
        "  {name:<width$}  {:>4} {spilled:>11} {:>5} {:>7} {blocks:>6} {warps:>5}\n",
        taken.registers,
        taken.stack_bytes,
        row.shared_bytes(),
        width = NAME - 2
    )
}

/// A compiler's own lines, as they are: they point at columns.
fn complaint(log: &str) -> String {
    let log = clean(log);
    let count = log.lines().count();
    let lines = log.lines().take(COMPLAINT);
    let mut text: String = lines
        .map(|line| format!("  {}\n", shorten(line, 240)))
        .collect();
    if count > COMPLAINT {
        let _ = writeln!(text, "  ... and {} more lines", count - COMPLAINT);
    }
    text
}

fn closing(outcomes: &[FileOutcome], compiler: &str) -> String {
    let images = || {
        outcomes
            .iter()
            .filter_map(|outcome| outcome.image.as_ref().ok())
    };
    let entries: usize = images().map(|image| image.resources.len()).sum();
    let compiled = images().filter(|image| !image.cached).count();
    let seconds: f64 = images()
        .filter(|image| !image.cached)
        .map(|image| image.seconds)
        .sum();
    let failed = outcomes.len() - images().count();
    let mut parts = vec![format!(
        "{} in {} by {compiler}",
        counted(entries, "entry point"),
        counted(images().count(), "cubin")
    )];
    if compiled > 0 {
        parts.push(format!(
            "{compiled} compiled now in {}",
            Nanoseconds::of_seconds(seconds)
        ));
    } else if failed == 0 {
        parts.push("all from the cache".to_owned());
    }
    if failed > 0 {
        parts.push(format!("{failed} FAILED"));
    }
    let mut text = parts.join(", ");
    text += "\nbytes a thread: spilled (stores/loads) and stack; bytes a block: shared, \
             static and dynamic; blocks: resident on an SM, 0 where one asks for more \
             than there is; warps: share of an SM's that those fill\n";
    format!("\n{}", indented(&text, 0, 0))
}

/// What changed against a ledger, ending in a line feed.
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let mut section = |name: &str, style: Style, lines: Vec<String>| {
        if lines.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{}",
            format!("{name} ({})", lines.len()).style(style)
        );
        for line in lines {
            text += &indented(&line, 2, 4);
        }
    };
    let (good, doubtful) = (Style::new().green().bold(), Style::new().yellow().bold());
    section("Takes more", bad(), lines(&comparison.worse));
    section("Gone", bad(), lines(&comparison.gone));
    section("Takes less", good, lines(&comparison.better));
    section("Not in the baseline", doubtful, lines(&comparison.added));
    let verdict = match comparison.is_worse() {
        true => "FAILED".style(bad()).to_string(),
        false => "passed".style(good).to_string(),
    };
    let mut line = format!(
        "\n{verdict}  {} compared with the baseline",
        counted(comparison.compared, "entry point")
    );
    if comparison.not_built > 0 {
        let _ = write!(line, ", {} of it not built", comparison.not_built);
    }
    text + &line + "\n"
}

fn lines<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_cuda::kernels::ledger::Ledger;
    use regatta_cuda::kernels::resources::Resources;
    use regatta_report::text::width;

    fn taken(name: &str, registers: u32, spilled: u32) -> Resources {
        Resources {
            name: name.to_owned(),
            registers,
            spill_stores: spilled,
            spill_loads: 2 * spilled,
            stack_bytes: 2 * spilled,
            ..Resources::default()
        }
    }

    fn outcomes() -> Vec<FileOutcome> {
        let image = Image {
            cubin: Vec::new(),
            compiler: "nvcc 13.0.88".to_owned(),
            resources: vec![
                taken("flash_mma_forward_bf16_d128", 255, 12_400),
                taken(
                    "not_in_the_contract_and_with_a_name_that_is_too_long",
                    40,
                    0,
                ),
            ],
            cached: true,
            seconds: 1.234,
            warnings: vec![
                "flash_mma.cu(3): warning #177-D: variable \"x\" was declared but never referenced"
                    .to_owned(),
            ],
        };
        let rejected = BuildError::Rejected {
            file: "flash_mma.cu".to_owned(),
            arch: Arch::SM_100,
            log: "flash_mma.cu(12): error: identifier \"x\" is undefined\n    x = 1;\n    ^\n"
                .to_owned(),
        };
        let outcome = |arch, image| FileOutcome {
            file: "flash_mma".to_owned(),
            arch,
            image,
        };
        vec![
            outcome(Arch::SM_90A, Ok(image)),
            outcome(Arch::SM_100, Err(rejected)),
        ]
    }

    #[test]
    fn builds_fit_a_terminal() {
        let text = clean(&builds(&outcomes(), "nvcc 13.0.88"));
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_changed_is_named_with_before_and_after() {
        let row = |name, registers| Row::new("flash_mma", Arch::SM_90A, &taken(name, registers, 0));
        let (first, second) = ("flash_mma_forward_bf16_d128", "flash_mma_forward_bf16_d64");
        let base = [row(first, 168), row(second, 168), row("gone", 32)];
        let head = [row(first, 240), row(second, 160), row("new", 32)];
        let built = [("flash_mma".to_owned(), Arch::SM_90A)].into();
        let base = Ledger::new("nvcc 13.0.88", base);
        let compared = base
            .compare(&Ledger::new("nvcc 13.0.88", head), &built)
            .unwrap();
        insta::assert_snapshot!(clean(&comparison(&compared)));
    }
}
