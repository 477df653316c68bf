//! `regatta build SUITE`: runs and measures the suite's own build command.

use serde_json::json;

use crate::cli::{Ended, Stop, note, print_json, show_blocks, watch_for};
use regatta_core::record::SUITE_BUILD;
use regatta_core::secrets;
use regatta_core::suite::{self, BUILTIN, Suite};
use regatta_judge::expect::on_builds;
use regatta_judge::judgement::{ExpectationResult, Word};
use regatta_measure::building::{BuildingError, SuiteBuild, build_suite};
use regatta_measure::experiment::arm::reports;
use regatta_report::document::{Block, ListItem, Tone};

/// True for a name that can only be a suite's: a built-in suite, or the path of a TOML file.
pub fn is_one(name: &str) -> bool {
    name.ends_with(".toml") || BUILTIN.iter().any(|(known, _)| *known == name)
}

/// Runs the suite's build, and applies the suite's limits on builds.
///
/// # Errors
/// A suite that cannot be read or builds nothing, and a command that cannot be started.
pub fn run(name: &str, json: bool) -> Ended {
    let suite = suite::load(name)?;
    let Some(build) = &suite.build else {
        refuse!(
            "suite {name} has no [build]; give it `command = [\"make\", ...]` there, and what \
             comes out as `makes`"
        );
    };
    watch_for("; what was built so far is left as it is");
    let command = secrets::command_line(&build.command).join(" ");
    note(format!("building: {command}"));
    let outcome = match build_suite(build, &reports(&suite.name)) {
        Ok(outcome) => outcome,
        Err(error @ BuildingError::NotStarted(_)) => {
            let origin = &build.origin;
            refuse!("{origin}: {error}");
        }
        // A build that fails is a failure of the code, like a regression.
        Err(error) => {
            note(format!("error: {error}"));
            if json {
                let answer = json!({"suite": suite.name, "error": error.to_string()});
                print_json(&answer)?;
            }
            return Ok(1);
        }
    };
    let limits = check_limits(&suite, &outcome);
    show(&suite, &outcome, &limits, json)?;
    let any = |word| limits.iter().any(|limit| limit.word == word);
    Ok(match (any(Word::Regressed), any(Word::Missing)) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 0,
    })
}

/// Applies the limits on builds, unless the command found everything up to date and has no time to
/// limit.
fn check_limits(suite: &Suite, outcome: &SuiteBuild) -> Vec<ExpectationResult> {
    let built = [(SUITE_BUILD.to_owned(), outcome.built.clone())].into();
    let rules = suite.rules.expectations.iter();
    let limits = rules.filter(|rule| outcome.rebuilt && rule.metric.is_of_build());
    limits.flat_map(|rule| on_builds(rule, &built)).collect()
}

fn show(
    suite: &Suite,
    outcome: &SuiteBuild,
    limits: &[ExpectationResult],
    json: bool,
) -> Result<(), Stop> {
    if json {
        print_json(&json!({
            "suite": suite.name,
            "built": outcome.built,
            "rebuilt": outcome.rebuilt,
            "limits": limits,
        }))?;
        return Ok(());
    }
    let mut items: Vec<ListItem> = vec![outcome.built.to_string().into()];
    if !outcome.rebuilt {
        let why = "up to date: nothing was built, so there is no build time";
        items.push(why.to_owned().into());
    }
    let failed = limits.iter().filter(|limit| limit.word != Word::Same);
    items.extend(failed.map(|limit| ListItem {
        tone: Tone::Bad,
        ..ListItem::new(
            format!("{} {}", limit.word.of_demand(), limit.name),
            limit.sentence(),
        )
    }));
    show_blocks(vec![Block::heading(&suite.name), Block::List(items)])?;
    Ok(())
}
