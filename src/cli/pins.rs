//! `--pin`: what a tuner chose in a stored run, handed to the cases as parameters.

use std::collections::BTreeMap;

use anyhow::anyhow;

use super::measure_args::MeasureArgs;
use super::{Stop, note, sides};
use regatta::attention::{Case, CaseId, Params};
use regatta::measure::machine::fingerprint;
use regatta::measure::preflight::variant_of;
use regatta::record::baseline::Store;
use regatta::record::choices::usual;
use regatta::record::run_file::Known;
use regatta::record::side::Side;
use regatta::report::text::one_line;
use regatta::suite::Suite;
use regatta::units::counted;
use regatta::worker::protocol::Hello;

/// Pins the cases of a suite to what `--pin` names, where it is given, and says what cannot be.
///
/// # Errors
/// A run that cannot be found or read, or in which no tuner chose anything that can be pinned:
/// exit code 2.
pub fn pin(
    suite: &mut Suite,
    args: &MeasureArgs,
    hellos: &BTreeMap<String, Hello>,
) -> Result<(), Stop> {
    let Some(what) = &args.pin else {
        return Ok(());
    };
    let store = Store::new(&args.baselines);
    let machine = fingerprint(hellos).name;
    let found = sides::find(what, &store, Some(&machine), &mut Known::default())?;
    let chosen = chosen(&found.side);
    if chosen.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "--pin {what}: no tuner chose anything in it; name a run whose variants tell what \
             their tuners chose"
        )));
    }
    let mut free = Vec::new();
    for case in &suite.cases {
        let Some(asked) = chosen.get(&anywhere(case)) else {
            continue;
        };
        let hello = hellos.get(&case.variant.worker_name());
        let variant = hello.and_then(|hello| variant_of(case, hello).ok());
        let mut pins = Params::default();
        for (name, value) in asked.iter() {
            let takes = variant.and_then(|variant| variant.parameters.get(name));
            match takes.is_some_and(|takes| takes.allows(value)) {
                true => pins.set(name, value.clone()),
                false => free.push((case.id(), name.clone(), value.clone())),
            }
        }
        if !pins.is_empty() {
            suite.pins.insert(case.id(), pins);
        }
    }
    let first = free.first().map(|(case, name, value)| {
        let variant = case.case().map(|case| case.variant.to_string());
        let variant = variant.unwrap_or_else(|_| case.to_string());
        one_line(&format!(
            "{variant} cannot be pinned to {name} = {value}: it has no such parameter"
        ))
    });
    if suite.pins.is_empty() {
        let why = first.unwrap_or_else(|| format!("it has none of the cases of {}", suite.name));
        return Err(Stop::Usage(anyhow!("--pin {what} pins nothing: {why}")));
    }
    if let Some(first) = first {
        note(format!("--pin {what}: {first}"));
    }
    let without = suite.cases.len() - suite.pins.len();
    if without > 0 && !args.quiet {
        note(format!(
            "--pin {what}: {} not pinned",
            counted(without, "case")
        ));
    }
    Ok(())
}

/// What a tuner mostly chose in a run, or what that was pinned to itself, by the case in any
/// environment.
fn chosen(side: &Side) -> BTreeMap<CaseId, Params> {
    let mut all: BTreeMap<CaseId, Params> = BTreeMap::new();
    let known = |id: &CaseId| id.case().map(|case| anywhere(&case)).ok();
    for (id, record) in &side.cases {
        let (Some(choice), Some(id)) = (usual(&record.choices), known(id)) else {
            continue;
        };
        let params = all.entry(id).or_default();
        for (name, tuned) in &choice.tuned {
            params.set(name, tuned.value.clone());
        }
    }
    for (id, pins) in &side.header.suite.pins {
        let Some(id) = known(id) else { continue };
        let params = all.entry(id).or_default();
        for (name, value) in pins.iter() {
            params.set(name, value.clone());
        }
    }
    all.retain(|_, params| !params.is_empty());
    all
}

/// The id of a case, in whichever environment it runs.
fn anywhere(case: &Case) -> CaseId {
    let mut case = case.clone();
    case.variant.environment = None;
    case.id()
}
