//! The table as text in 80 columns, and as Markdown.

use std::fmt::Write;

use super::rate::Rate;
use super::rules::RULES;
use super::table::{Block, Evidence, Line, OURS, Table, widest};
use crate::units::Share;

/// The table for a terminal.
pub fn text(table: &Table) -> String {
    let mut out = heading(table);
    for block in &table.blocks {
        let _ = write!(out, "\n{}: {}\n", block.noise, block.about);
        let names = ["red sweeps", "cells", "?", "imp", "open", "new", "seen"];
        let widths = [13, 7, 4, 4, 5, 5, 5];
        let _ = write!(out, "{:<17}", "%, new in cases");
        for (name, width) in names.iter().zip(widths) {
            let _ = write!(out, "{name:>width$}");
        }
        for change in table.changes {
            let _ = write!(out, "{:>4}", format!("+{:.0}", 100.0 * change.0));
        }
        out.push('\n');
        for line in &block.lines {
            let _ = write!(
                out,
                "{:<17}{:>13}{:>7}",
                line.rule,
                with_interval(line.red),
                percent(line.worse.share(), 2),
            );
            let ours = line.ours.map_or(Default::default(), |ours| {
                let fresh = format!("{:.0}", ours.fresh as f64 / line.red.of as f64);
                let [say, improved, open, seen] =
                    [ours.cannot_say, ours.improved, ours.undecided, ours.at_seen].map(short);
                [say, improved, open, fresh, seen]
            });
            for (cell, width) in ours.iter().zip([4, 4, 5, 5, 5]) {
                let _ = write!(out, "{cell:>width$}");
            }
            for rate in &line.found {
                let _ = write!(out, "{:>4}", short(*rate));
            }
            out.push('\n');
        }
    }
    if let Some(half) = widest(table) {
        let _ = write!(
            out,
            "\n? sweeps that cannot say, imp those in which something is called improved, open\n\
             cells left undecided, new fresh invocations of a case a sweep, seen called where\n\
             a case takes as much longer as its row says would be seen. In brackets 95 %\n\
             intervals; those of what is called reach {:.0} points either way (--json has each).\n",
            100.0 * half.0
        );
    }
    out
}

/// What was counted, in a few lines.
fn heading(table: &Table) -> String {
    let given = match table.evidence {
        Evidence::Own => "what they measure themselves,\nmostly samples of one process",
        Evidence::Medians => "the medians of five\ninvocations, which this gate judges",
    };
    let Table {
        sweeps,
        cases,
        floor,
        seed,
        ..
    } = table;
    format!(
        "Each noise: {sweeps} unchanged sweeps of {cases} cases; {sweeps} changed cases of each \
         size.\nFloor {floor}, seed {seed}. Other rules are given {given}.\n"
    )
}

/// The table as two of Markdown: false alarms and power.
pub fn markdown(table: &Table) -> String {
    let mut out = String::new();
    let columns: Vec<&str> = OURS
        .into_iter()
        .map(|(name, _)| name)
        .chain(RULES.iter().map(|rule| rule.name))
        .collect();
    let sizes: Vec<String> = table
        .changes
        .iter()
        .map(|change| format!("{:.0}", 100.0 * change.0))
        .collect();
    let header = |out: &mut String, first: &str| {
        let _ = writeln!(out, "| {first} | {} |", columns.join(" | "));
        let _ = writeln!(out, "|---|{}", "---|".repeat(columns.len()));
    };
    let row = |out: &mut String, block: &Block, cell: &dyn Fn(&Line) -> String| {
        let cells: Vec<String> = block.lines.iter().map(cell).collect();
        let _ = writeln!(out, "| {} | {} |", block.noise, cells.join(" | "));
    };
    header(&mut out, "red sweeps; cells, %");
    for block in &table.blocks {
        row(&mut out, block, &|line| {
            let unsure = match line.ours {
                Some(ours) if ours.cannot_say.hits > 0 => {
                    format!(" ({} ?)", short(ours.cannot_say))
                }
                _ => String::new(),
            };
            let cells = percent(line.worse.share(), 2);
            format!("{}{unsure}; {cells}", with_interval(line.red))
        });
    }
    out.push('\n');
    header(&mut out, &format!("called at +{} %", sizes.join("/")));
    for block in &table.blocks {
        row(&mut out, block, &|line| {
            let found: Vec<String> = line.found.iter().map(|rate| short(*rate)).collect();
            found.join("/")
        });
    }
    out
}

/// `12 [7, 20]`, in per cent.
fn with_interval(rate: Rate) -> String {
    let (low, high) = rate.interval();
    let [low, high] = [low, high].map(|end| format!("{:.0}", 100.0 * end.0));
    format!("{} [{low}, {high}]", short(rate))
}

/// `12`, `0.5`, in per cent: whole from one on, and never 0 for what happened.
fn short(rate: Rate) -> String {
    match rate.share() {
        few if few > Share(0.0) && few < Share(0.0095) => percent(few, 1),
        share => percent(share, 0),
    }
}

/// In per cent without the sign; `<0.01` where it would read 0 and is not.
fn percent(share: Share, places: usize) -> String {
    let least = 0.5 * 0.1_f64.powi(places as i32);
    match 100.0 * share.0 {
        0.0 => "0".to_owned(),
        few if few < least => format!("<{:.places$}", 2.0 * least),
        figure => format!("{figure:.places$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hits: usize, of: usize) -> Rate {
        Rate { hits, of }
    }

    #[test]
    fn what_happened_never_reads_nought() {
        assert_eq!(short(of(0, 1000)), "0");
        assert_eq!(short(of(1, 1000)), "0.1");
        assert_eq!(short(of(1, 100_000)), "<0.1");
        assert_eq!(percent(of(1, 1_000_000).share(), 2), "<0.01");
        assert_eq!(with_interval(of(15, 148)), "10 [6, 16]");
    }
}
