//! `regatta history --list`: the histories that there are, or the runs of one.

use serde_json::json;

use super::ShowArgs;
use super::show::{chosen, read};
use crate::cli::{Ended, note, print_json, show_blocks};
use regatta_core::record::history::{History, HistoryStore};
use regatta_report::document::{Block, ListItem, Table, TableRow};
use regatta_report::text::{one_line, shorten_middle};
use regatta_worker::units::counted;

/// Lists them.
///
/// # Errors
/// When the one that is asked for is not there or cannot be read: exit code 2.
pub(super) fn run(args: &ShowArgs) -> Ended {
    match &args.which.suite {
        Some(_) => runs(args),
        None => histories(args),
    }
}

fn histories(args: &ShowArgs) -> Ended {
    let store = HistoryStore::new(&args.which.root);
    let (mut told, mut items) = (Vec::new(), Vec::new());
    for stored in store.list() {
        if args
            .which
            .machine
            .as_ref()
            .is_some_and(|machine| *machine != stored.machine)
        {
            continue;
        }
        let name = format!(
            "{} on {}",
            one_line(&stored.suite),
            one_line(&stored.machine)
        );
        let history = match History::read(&stored.path) {
            Ok(history) => history,
            // The others can be listed none the less.
            Err(error) => {
                note(format!("{name}: {error}"));
                continue;
            }
        };
        let ends = [history.runs.first(), history.runs.last()];
        let ends = ends.map(|run| run.map(|run| run.about.at));
        told.push(json!({
            "suite": stored.suite,
            "machine": stored.machine,
            "path": stored.path,
            "runs": history.runs.len(),
            "cases": history.cases.len(),
            "from": ends[0],
            "to": ends[1],
            "damage": history.damage,
        }));
        if args.json {
            continue;
        }
        let day = |place: usize| ends[place].map(|at| at.strftime("%Y-%m-%d").to_string());
        let from_to = match (day(0), day(1)) {
            (Some(from), Some(to)) => format!(", {from} to {to}"),
            _ => String::new(),
        };
        let damage = match history.damage.len() {
            0 => String::new(),
            lines => format!(", {} damaged", counted(lines, "line")),
        };
        let runs = counted(history.runs.len(), "run");
        let cases = counted(history.cases.len(), "case");
        items.push(ListItem::new(
            name,
            format!("{runs} of {cases}{from_to}{damage}"),
        ));
    }
    if args.json {
        return print_json(&told);
    }
    if told.is_empty() {
        note(format!(
            "no history in {}; `regatta history add RUN` or `regatta gate --history` begins one",
            store.root().display()
        ));
    }
    show_blocks(vec![Block::List(items)])
}

fn runs(args: &ShowArgs) -> Ended {
    let history = read(&chosen(&args.which)?)?;
    if args.json {
        let runs = history.runs.iter().map(|kept| {
            json!({
                "run": kept.about,
                "timed": timed(kept),
                "cases": kept.results.len(),
            })
        });
        return print_json(&runs.collect::<serde_json::Value>());
    }
    let rows = history.runs.iter().map(|kept| {
        let about = &kept.about;
        let revision = about.git.as_ref();
        let cells = vec![
            about.at.strftime("%Y-%m-%d %H:%M").to_string(),
            format!("{} of {}", timed(kept), kept.results.len()),
            revision.map_or_else(String::new, regatta_judge::revision_text),
        ];
        TableRow::new(shorten_middle(&about.label, 33), cells)
    });
    let heads = vec!["measured", "timed", "revision"];
    show_blocks(vec![Block::Table(Table::new("run", heads, rows))])
}

fn timed(kept: &regatta_core::record::history::HistoryRun) -> usize {
    use regatta_core::record::history::Came;
    let results = kept.results.iter();
    results
        .filter(|(_, came)| matches!(came, Came::Timed(_)))
        .count()
}
