//! The builds, as blocks of a document.

use regatta_cuda::kernels::arch::Arch;
use regatta_cuda::kernels::compile::{BuildError, Image};
use regatta_cuda::kernels::ledger::{LedgerComparison, LedgerRow};
use regatta_report::document::{Block, Document, Table, TableRow, Tone};
use regatta_report::text::shorten_middle;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Nanoseconds, counted};

/// The width of an entry point's name, in columns.
const NAME: usize = 32;
/// The largest number of lines of a compiler's error that are printed.
const COMPLAINT: usize = 60;

/// The meaning of the columns, below the table.
const LEGEND: &str = "bytes a thread: spilled (stores/loads) and stack; bytes a block: shared, \
    static and dynamic; blocks: resident on an SM, 0 where one asks for more than there is; warps: \
    share of an SM's that those fill";

/// The outcome of one kernel file for one architecture.
pub struct FileOutcome {
    pub file: String,
    pub arch: Arch,
    pub image: Result<Image, BuildError>,
}

/// The images that were compiled.
pub fn images(outcomes: &[FileOutcome]) -> impl Iterator<Item = &Image> {
    let images = outcomes.iter().map(|outcome| outcome.image.as_ref());
    images.filter_map(Result::ok)
}

/// The rows of a ledger for its entry points.
pub fn rows(outcome: &FileOutcome) -> Vec<LedgerRow> {
    let image = outcome.image.as_ref().ok();
    let resources = image.into_iter().flat_map(|image| &image.resources);
    resources
        .map(|resources| LedgerRow::new(&outcome.file, outcome.arch, resources))
        .collect()
}

/// Every file and architecture with its entry points, then what was refused.
pub fn builds(outcomes: &[FileOutcome], compiler: &str) -> Vec<Block> {
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        let name = format!("{} {}", outcome.file, outcome.arch);
        match &outcome.image {
            Ok(image) => {
                let time = Nanoseconds::of_seconds(image.seconds);
                let cached = if image.cached { ", from the cache" } else { "" };
                let line = TableRow::new(format!("{name}: {time}{cached}"), Vec::new());
                lines.push(line.with_below(image.warnings.clone()));
                lines.extend(rows(outcome).iter().map(entry));
            }
            Err(error) => {
                let title = format!("{name}: FAILED");
                failed.push(Block::Heading(title, String::new(), Tone::Bad));
                failed.push(Block::Log(complaint(&error.to_string())));
            }
        }
    }
    let heads = vec!["regs", "spilled", "stack", "shared", "blocks", "warps"];
    let mut blocks = Vec::new();
    if !lines.is_empty() {
        blocks.push(Block::Table(Table::new("entry point", heads, lines)));
    }
    blocks.extend(failed);
    let closing = closing(outcomes, compiler);
    blocks.push(Block::Text(vec![closing, LEGEND.to_owned()]));
    blocks
}

fn entry(row: &LedgerRow) -> TableRow {
    let taken = &row.resources;
    let spilled = match (taken.spill_stores, taken.spill_loads) {
        (0, 0) => "0".to_owned(),
        (stores, loads) => format!("{stores}/{loads}"),
    };
    let launch = row.launch.map(|launch| {
        let occupancy = f64::from(launch.occupancy_permille) / 10.0;
        let blocks = launch.blocks_per_sm.to_string();
        [blocks, format!("{occupancy:.0} %")]
    });
    let [blocks, warps] = launch.unwrap_or_default();
    let cells = vec![
        taken.registers.to_string(),
        spilled,
        taken.stack_bytes.to_string(),
        row.shared_bytes().to_string(),
        blocks,
        warps,
    ];
    TableRow::new(format!("  {}", shorten_middle(&taken.name, NAME)), cells)
}

/// A compiler's lines unchanged, because they point at columns.
fn complaint(log: &str) -> String {
    let lines = log.lines().take(COMPLAINT);
    let mut text = lines.joined("\n");
    let more = log.lines().count().saturating_sub(COMPLAINT);
    if more > 0 {
        text += &format!("\n... and {more} more lines");
    }
    text
}

fn closing(outcomes: &[FileOutcome], compiler: &str) -> String {
    let entries: usize = images(outcomes).map(|image| image.resources.len()).sum();
    let now: Vec<&Image> = images(outcomes).filter(|image| !image.cached).collect();
    let (compiled, seconds) = (now.len(), now.iter().map(|image| image.seconds).sum());
    let made = images(outcomes).count();
    let failed = outcomes.len() - made;
    let mut parts = vec![format!(
        "{} in {} by {compiler}",
        counted(entries, "entry point"),
        counted(made, "cubin")
    )];
    if compiled > 0 {
        let time = Nanoseconds::of_seconds(seconds);
        parts.push(format!("{compiled} compiled now in {time}"));
    } else if failed == 0 {
        parts.push("all from the cache".to_owned());
    }
    if failed > 0 {
        parts.push(format!("{failed} FAILED"));
    }
    parts.join(", ")
}

/// The changes against a ledger.
pub fn comparison(comparison: &LedgerComparison) -> Document {
    let new = "Not in the baseline";
    let sections = [
        ("Takes more", Tone::Bad, lines(&comparison.worse)),
        ("Gone", Tone::Bad, lines(&comparison.gone)),
        ("Takes less", Tone::Good, lines(&comparison.better)),
        (new, Tone::Doubtful, lines(&comparison.added)),
    ];
    let sections = sections.into_iter();
    let sections = sections.filter(|(_, _, lines)| !lines.is_empty());
    let blocks = sections.flat_map(|(name, tone, lines)| {
        let title = Block::counted(name, lines.len(), tone);
        [title, Block::list(lines)]
    });
    let (word, tone) = if comparison.is_worse() {
        ("FAILED", Tone::Bad)
    } else {
        ("passed", Tone::Good)
    };
    let not_built = match comparison.not_built {
        0 => String::new(),
        count => format!(", {count} of it not built"),
    };
    let compared = counted(comparison.compared, "entry point");
    Document {
        word: word.to_owned(),
        tone,
        sentence: format!("{compared} compared with the baseline{not_built}"),
        body: blocks.collect(),
        ..Document::default()
    }
}

fn lines<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_cuda::kernels::compile::Resources;
    use regatta_cuda::kernels::ledger::Ledger;
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
        let document = Document {
            body: builds(&outcomes(), "nvcc 13.0.88"),
            ..Document::default()
        };
        let text = document.text(false);
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_changed_is_named_with_before_and_after() {
        let row =
            |name, registers| LedgerRow::new("flash_mma", Arch::SM_90A, &taken(name, registers, 0));
        let (first, second) = ("flash_mma_forward_bf16_d128", "flash_mma_forward_bf16_d64");
        let base = [row(first, 168), row(second, 168), row("gone", 32)];
        let head = [row(first, 240), row(second, 160), row("new", 32)];
        let built = [("flash_mma".to_owned(), Arch::SM_90A)].into();
        let base = Ledger::new("nvcc 13.0.88", base);
        let compared = base
            .compare(&Ledger::new("nvcc 13.0.88", head), &built)
            .unwrap();
        insta::assert_snapshot!(comparison(&compared).text(false));
    }
}
