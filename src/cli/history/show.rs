//! `regatta history SUITE`: shows the changes.

use std::fs;
use std::path::{Component, Path};

use super::{ShowArgs, Which};
use super::{since, time};
use crate::cli::outputs::{OF_HISTORIES, draw, is_stdout, put};
use crate::cli::{Ended, Stop, note, print, print_json, show_blocks};
use regatta_core::record::history::{About, History, HistoryFile, HistoryRun, HistoryStore};
use regatta_core::record::run_file;
use regatta_core::suite::{Metric, matches_id};
use regatta_judge::history::{Options, series, trends};
use regatta_report::Format;
use regatta_report::document::{Block, Table, TableRow};
use regatta_report::files::place;
use regatta_report::history::{self, Shown};
use regatta_report::text::link_part;
use regatta_report::text::shorten_middle;
use regatta_worker::joined::Joined;
use regatta_worker::units::counted;
use serde_json::json;

/// Shows a history.
///
/// # Errors
/// When it is missing, cannot be read, or lacks the selected part: exit code 2; when
/// the page cannot be written: 3.
pub(super) fn run(args: &ShowArgs) -> Ended {
    args.outputs.check("a history", &OF_HISTORIES, args.json)?;
    let stored = chosen(&args.which)?;
    let history = read(&stored)?;
    let (Some(newest), Some(_)) = (history.runs.last(), history.runs.first()) else {
        refuse!("{} has no run that can be read", stored.path.display());
    };
    for pattern in &args.case {
        if !history.cases.iter().any(|id| matches_id(pattern, &id.0)) {
            refuse!(
                "--case {pattern}: no case of {} matches; `{}` lists them",
                stored.path.display(),
                args.which.command(&stored.suite, "--all")
            );
        }
    }
    let options = Options {
        metric: args.clock,
        reference_from: reference(&history, args)?,
    };
    let all = series(&history, options.metric);
    if all.iter().all(|series| series.runs.is_empty()) {
        return Err(Stop::Usage(no_times(&history, &stored.path, &options)));
    }
    let trends = trends(&history, &options);
    let shown = Shown {
        history: &history,
        series: &all,
        trends: &trends,
        options: &options,
        since: since(&args.since, newest.about.at)?,
        patterns: &args.case,
        links: &[],
    };
    for (format, page) in args.outputs.wanted() {
        if format == Format::Figures {
            draw(page, &history::figures(&shown))?;
            continue;
        }
        let is_file = !is_stdout(page);
        let links = if is_file {
            links(&history, page)
        } else {
            Vec::new()
        };
        let linked = Shown {
            links: &links,
            ..shown
        };
        put(page, history::page(&linked).map_err(Stop::not_judged)?)?;
        if is_file {
            note(format!("report: {}", page.display()));
        }
    }
    if args.outputs.prints() {
        return Ok(0);
    }
    if args.json {
        print(history::json(&shown).map_err(Stop::not_judged)? + "\n")
    } else {
        print(history::text(&shown, true, args.all))
    }
}

/// The reason why a history has no times of a metric, and the fix.
fn no_times(history: &History, path: &Path, options: &Options) -> String {
    let path = path.display();
    let runs = counted(history.runs.len(), "run");
    let results = history.runs.iter().flat_map(|kept| &kept.results);
    let mut times = results.filter_map(|(_, outcome)| outcome.measured());
    let is_disturbed = times.any(|times| times.time(options.metric).is_some());
    if !is_disturbed || options.metric == Metric::CpuTime {
        return format!("no run of {path} has a {}", options.metric.text());
    }
    let by_cpu = series(history, Metric::CpuTime);
    let fix = if by_cpu.iter().all(|series| series.runs.is_empty()) {
        "add a run that was measured when nothing else ran"
    } else {
        "--clock cpu shows CPU times, or add a run that was measured when nothing else ran"
    };
    format!(
        "no {} is known: other programs disturbed all invocations of {runs} in {path}; {fix}",
        options.metric.text(),
    )
}

/// The number of timed cases of a run: those that other programs disturbed in all invocations if
/// `disturbed`, else the others.
fn timed(run: &HistoryRun, disturbed: bool) -> usize {
    let outcomes = run.results.iter().map(|(_, outcome)| outcome);
    let times = outcomes.filter_map(|outcome| outcome.measured());
    times.filter(|times| times.disturbed == disturbed).count()
}

/// Lists the runs of a history.
///
/// # Errors
/// When it does not exist or cannot be read: exit code 2.
pub(super) fn list(args: &ShowArgs) -> Ended {
    let history = read(&chosen(&args.which)?)?;
    if args.json {
        let runs = history.runs.iter().map(|kept| {
            json!({
                "run": kept.about,
                "timed": timed(kept, false),
                "disturbed": timed(kept, true),
                "cases": kept.results.len(),
            })
        });
        return print_json(&runs.collect::<serde_json::Value>());
    }
    let rows = history.runs.iter().map(|kept| {
        let about = &kept.about;
        let revision = about.git.as_ref();
        let disturbed = match timed(kept, true) {
            0 => String::new(),
            some => format!(", {some} disturbed"),
        };
        let (quiet, all) = (timed(kept, false), kept.results.len());
        let cells = vec![
            about.at.strftime("%Y-%m-%d %H:%M").to_string(),
            format!("{quiet} of {all}{disturbed}"),
            revision.map_or_else(String::new, regatta_judge::revision_text),
        ];
        TableRow::new(shorten_middle(&about.label, 33), cells)
    });
    let heads = vec!["measured", "timed", "revision"];
    show_blocks(vec![Block::Table(Table::new("run", heads, rows))])
}

/// Reads a history, and reports lines that could not be used.
pub(super) fn read(stored: &HistoryFile) -> Result<History, Stop> {
    let history = History::read(&stored.path).map_err(Stop::usage)?;
    /// The largest number of damaged lines that are reported one by one. A file with more was
    /// written by another program.
    const MAX_DAMAGE: usize = 10;
    for damage in history.damage.iter().take(MAX_DAMAGE) {
        let path = stored.path.display();
        note(format!("{path}:{}: {}", damage.line, damage.problem));
    }
    if history.damage.len() > MAX_DAMAGE {
        let more = history.damage.len() - MAX_DAMAGE;
        note(format!("and {more} more lines that could not be used"));
    }
    Ok(history)
}

/// The selected history, if the selection is unambiguous.
pub(super) fn chosen(which: &Which) -> Result<HistoryFile, Stop> {
    let store = HistoryStore::new(&which.root);
    let there = store.list();
    let fits = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|w| w == name);
    let mut matching = there.clone();
    matching.retain(|stored| {
        fits(&which.suite, &stored.suite) && fits(&which.machine, &stored.machine)
    });
    let names = |all: &[HistoryFile]| -> String {
        let names = all.iter();
        let names = names.map(|stored| format!("{} --machine {}", stored.suite, stored.machine));
        names.joined(", ")
    };
    let root = store.root().display();
    match matching.as_slice() {
        [one] => Ok(one.clone()),
        [] if there.is_empty() => Err(Stop::Usage(format!(
            "{root} has no history; `regatta history add RUN` or `regatta gate --history` \
             begins one"
        ))),
        [] => Err(Stop::Usage(format!(
            "{root} has no such history; it has: {}",
            names(&there)
        ))),
        several => Err(Stop::Usage(format!(
            "several histories are in {root}; choose one: {}",
            names(several)
        ))),
    }
}

/// The index of the reference's first run: the first since a time, or the one with a label.
fn reference(history: &History, args: &ShowArgs) -> Result<usize, Stop> {
    let Some(asked) = args.reference.as_deref() else {
        return Ok(0);
    };
    let is_meant = |about: &About| match time(asked) {
        Some(at) => about.at >= at,
        None => about.label == asked,
    };
    let place = history.runs.iter().position(|kept| is_meant(&kept.about));
    place.ok_or_else(|| {
        Stop::Usage(format!(
            "--reference {asked}: no run of the history is of that time or later, or has that \
             label; `{}` shows them",
            args.which.command(&history.suite, "--list")
        ))
    })
}

/// Links from a page to the pages of runs, which are beside a run's file if that still has this
/// run.
fn links(history: &History, page: &Path) -> Vec<Option<String>> {
    let folder = place(page);
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let runs = history.runs.iter().map(|kept| {
        let run = Path::new(&kept.about.label);
        let is_there = run_file::started(run) == Some(kept.about.measured());
        let report = fs::canonicalize(run.with_file_name("index.html")).ok();
        Some(link(&report.filter(|_| is_there)?, folder))
    });
    runs.collect()
}

/// The relative link from a folder to a file; both paths are absolute.
fn link(file: &Path, folder: &Path) -> String {
    let (file, folder): (Vec<Component>, Vec<Component>) =
        (file.components().collect(), folder.components().collect());
    let same = file.iter().zip(&folder).take_while(|(a, b)| a == b).count();
    let up = folder[same..].iter().map(|_| "..".to_owned());
    let down = file[same..]
        .iter()
        .map(|part| link_part(&part.as_os_str().to_string_lossy(), "-._~+@"));
    up.chain(down).joined("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::record::Outcome;
    use regatta_core::record::history::CaseTimes;
    use regatta_worker::case::CaseId;
    use regatta_worker::units::Nanoseconds;

    /// A worker on a processor has no host time, so none can be disturbed.
    #[test]
    fn a_metric_that_no_run_has_was_not_disturbed() {
        let times = CaseTimes {
            device_ns: Nanoseconds(100.0),
            invocations_ns: Vec::new(),
            host_ns: None,
            cpu_ns: None,
            disturbed: true,
        };
        let about = json!({
            "id": "1", "at": "2026-05-01T00:00:00Z", "label": "r", "tool": "0.1.0",
            "versions": {}, "facts": {},
        });
        let history = History {
            suite: "s".to_owned(),
            machine: "m".to_owned(),
            runs: vec![HistoryRun {
                about: serde_json::from_value(about).unwrap(),
                results: vec![(0, Outcome::Measured(times))],
            }],
            cases: vec![CaseId("cpu/flash:s64,d64".into())],
            damage: Vec::new(),
        };
        let words = |metric| {
            let options = Options {
                metric,
                ..Options::default()
            };
            no_times(&history, Path::new("m.jsonl"), &options)
        };
        assert_eq!(words(Metric::Host), "no run of m.jsonl has a host time");
        assert!(words(Metric::Device).contains("other programs disturbed"));
    }

    #[test]
    fn links_go_up_and_down_and_are_escaped() {
        let relative = |file: &str, folder: &str| link(Path::new(file), Path::new(folder));
        assert_eq!(relative("/a/b/index.html", "/a"), "b/index.html");
        assert_eq!(relative("/a/b/i.html", "/a/c/d"), "../../b/i.html");
        assert_eq!(
            relative("/a b/#1/javascript:x", "/"),
            "a%20b/%231/javascript%3Ax"
        );
    }
}
