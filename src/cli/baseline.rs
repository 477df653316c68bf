//! `regatta baseline`: the only way a run becomes a baseline.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Ended, Stop, note, print, print_as_made, print_json, show_blocks};
use regatta_core::record::Side;
use regatta_core::record::baseline::{self, Store};
use regatta_judge::{self as judge, Options};
use regatta_measure::experiment::baseline as saving;
use regatta_measure::experiment::stored;
use regatta_report::document::{Block, ListItem};
use regatta_report::judgement::terminal;
use regatta_worker::units::counted;

/// Save, list and remove baselines
#[derive(Args, Debug)]
pub struct BaselineArgs {
    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines", global = true)]
    baselines: PathBuf,

    /// Machine-readable output
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    action: BaselineAction,
}

#[derive(Subcommand, Debug)]
enum BaselineAction {
    /// Promote a run under a name, for its machine
    Save {
        /// The baseline's name; `gate SUITE` takes that of the suite
        name: String,
        /// A run file, report folder or shards [default: reports/NAME]
        ///
        /// Without it the only run under reports/; if there is a baseline
        /// of this name, the report folder of its suite.
        #[arg(value_name = "RUN")]
        runs: Vec<String>,
        /// Replace the baseline that is there
        #[arg(long)]
        replace: bool,
        /// Save a run that does not fit
        ///
        /// It did not pass, is a part of its suite, was measured with --set, or is of another
        /// suite than the baseline it replaces.
        #[arg(long)]
        force: bool,
    },
    /// List the baselines, or show what one holds
    List {
        /// The one to show
        name: Option<String>,
    },
    /// Remove a baseline
    Remove {
        /// The name of the baseline
        name: String,
        /// Only the one of this machine
        #[arg(long)]
        machine: Option<String>,
    },
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &BaselineArgs) -> Ended {
    let store = Store::new(&args.baselines);
    match &args.action {
        BaselineAction::Save {
            name,
            runs,
            replace,
            force,
        } => {
            let saved = saving::save(&store, name, runs, *replace, *force)?;
            print_saved(&saved, args.json)
        }
        BaselineAction::List { name: None } => list(&store, args.json),
        BaselineAction::List { name: Some(name) } => show(&store, name, args.json),
        BaselineAction::Remove { name, machine } => {
            remove(&store, name, machine.as_deref(), args.json)
        }
    }
}

/// Prints a baseline that was saved: its file and its run.
fn print_saved((path, side): &(PathBuf, Side), json: bool) -> Ended {
    let cases = side.cases.len();
    if let Some(disturbed) = side.disturbed() {
        note(format!(
            "{disturbed}: a gate can show little against these times; measure and save again when \
             nothing else runs"
        ));
    }
    if json {
        let answer = json!({ "saved": path, "run": side.label, "cases": cases });
        return print_json(&answer);
    }
    show_blocks(vec![
        Block::Note(path.display().to_string()),
        Block::list([format!("{} of {}", counted(cases, "case"), side.label)]),
    ])
}

fn list(store: &Store, json: bool) -> Ended {
    let (stored, broken) = store.list();
    for error in &broken {
        note(format!("left out: {error}"));
    }
    if json {
        return print_json(&stored.iter().map(described).collect::<Vec<_>>());
    }
    if stored.is_empty() {
        note(format!(
            "no baseline in {}; make one from a run that passed: regatta baseline save NAME",
            store.root().display()
        ));
    }
    let items = stored.iter().map(|baseline| {
        let header = &baseline.header;
        let text = format!(
            "suite {}, {}, machine {}, saved {}",
            header.suite.name,
            counted(header.plan.len(), "case"),
            header.machine.name,
            baseline.saved.strftime("%Y-%m-%d %H:%M"),
        );
        ListItem::new(&baseline.name, text)
    });
    show_blocks(vec![Block::List(items.collect())])
}

fn described(baseline: &baseline::Stored) -> serde_json::Value {
    json!({
        "name": baseline.name,
        "path": baseline.path,
        "suite": baseline.header.suite.name,
        "cases": baseline.header.plan.len(),
        "machine": baseline.header.machine,
        "saved": baseline.saved,
        "tool": baseline.header.tool,
        "git": baseline.header.git,
    })
}

fn show(store: &Store, name: &str, json: bool) -> Ended {
    let files = store.files(name).map_err(Stop::usage)?;
    if files.is_empty() {
        return Err(Stop::usage(store.absent(name)));
    }
    for path in files {
        let stored = stored::read(&path, name)?;
        let judgement = judge::judge(&stored.side, None, &Options::ALONE);
        if json {
            print_json(&judgement)?;
        } else {
            print(format!("{}\n", path.display()))?;
            print_as_made(|out| terminal(&judgement, true).write(true, out))?;
        }
    }
    Ok(0)
}

fn remove(store: &Store, name: &str, machine: Option<&str>, json: bool) -> Ended {
    let removed = store.remove(name, machine).map_err(Stop::usage)?;
    if json {
        return print_json(&json!({ "removed": removed }));
    }
    let removed = removed.iter();
    let removed = removed.map(|path| ListItem::new("removed", path.display().to_string()));
    show_blocks(vec![Block::List(removed.collect())])
}
