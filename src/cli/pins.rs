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
    let found = sides::find(what, &store, Some(&machine))?;
    let chosen = chosen(&found.side);
    if chosen.here.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "--pin {what}: no tuner chose anything in it; name a run whose variants tell what \
             their tuners chose"
        )));
    }
    let mut free = Vec::new();
    let mut given = Vec::new();
    let asked_for: Vec<Params> = suite
        .cases
        .iter()
        .map(|case| suite.params_for(case))
        .collect();
    for (case, own) in suite.cases.iter().zip(&asked_for) {
        let Some(asked) = chosen.for_case(case) else {
            continue;
        };
        let hello = hellos.get(&case.variant.worker_name());
        let variant = hello.and_then(|hello| variant_of(case, hello).ok());
        let mut pins = Params::default();
        for (name, value) in asked.iter() {
            // What the suite or --set gives a case stays.
            let has = own.get(name);
            if !has.is_auto() && has != *value {
                given.push((case.id(), name.clone(), has));
                continue;
            }
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
    if let Some((case, name, value)) = given.first() {
        note(one_line(&format!(
            "--pin {what}: {} another value than its tuner chose, as {case} {name} = {value}",
            match given.len() {
                1 => "the suite or --set gives a parameter".to_owned(),
                more => format!("the suite or --set gives {more} parameters"),
            }
        )));
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

/// What a tuner mostly chose in a run, or what that was pinned to itself, by case.
#[derive(Debug, Default, PartialEq)]
struct Chosen {
    here: BTreeMap<CaseId, Params>,
    /// By the case in any environment; `None` where it was not the same in all of them.
    anywhere: BTreeMap<CaseId, Option<Params>>,
}

impl Chosen {
    /// Of cases with what each was given, which is all of it.
    fn of(here: BTreeMap<CaseId, Params>) -> Chosen {
        let mut all: BTreeMap<CaseId, Option<Params>> = BTreeMap::new();
        for (id, params) in &here {
            let Ok(case) = id.case() else { continue };
            let known = all.entry(anywhere(&case)).or_insert(Some(params.clone()));
            if known.as_ref() != Some(params) {
                *known = None;
            }
        }
        Chosen {
            here,
            anywhere: all,
        }
    }

    /// What to hand a case: what was chosen for it, or else in every other environment alike.
    fn for_case(&self, case: &Case) -> Option<&Params> {
        let elsewhere = || self.anywhere.get(&anywhere(case))?.as_ref();
        self.here.get(&case.id()).or_else(elsewhere)
    }
}

fn chosen(side: &Side) -> Chosen {
    let mut all: BTreeMap<CaseId, Params> = BTreeMap::new();
    for (id, record) in &side.cases {
        for (name, tuned) in usual(&record.choices).iter().flat_map(|one| &one.tuned) {
            let params = all.entry(id.clone()).or_default();
            params.set(name, tuned.value.clone());
        }
    }
    for (id, pins) in &side.header.suite.pins {
        for (name, value) in pins.iter() {
            let params = all.entry(id.clone()).or_default();
            params.set(name, value.clone());
        }
    }
    Chosen::of(all)
}

/// The id of a case, in whichever environment it runs.
fn anywhere(case: &Case) -> CaseId {
    let mut case = case.clone();
    case.variant.environment = None;
    case.id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta::attention::ParamValue;

    fn chose(id: &str, block: i64) -> (CaseId, Params) {
        let mut params = Params::default();
        params.set("BLOCK_M", ParamValue::Int(block));
        (CaseId(id.to_owned()), params)
    }

    #[test]
    fn a_case_gets_what_was_chosen_in_its_own_environment() {
        let case = |id: &str| CaseId(id.to_owned()).case().unwrap();
        let block = |chosen: &Chosen, id: &str| {
            let params = chosen.for_case(&case(id))?;
            Some(params.get("BLOCK_M"))
        };
        let unlike = Chosen::of(
            [
                chose("mine/a@new:s64,d64", 64),
                chose("mine/a@old:s64,d64", 128),
            ]
            .into(),
        );
        assert_eq!(
            block(&unlike, "mine/a@new:s64,d64"),
            Some(ParamValue::Int(64))
        );
        assert_eq!(
            block(&unlike, "mine/a@old:s64,d64"),
            Some(ParamValue::Int(128))
        );
        assert_eq!(block(&unlike, "mine/a:s64,d64"), None, "nobody knows which");
        let alike = Chosen::of(
            [
                chose("mine/a@new:s64,d64", 64),
                chose("mine/a@old:s64,d64", 64),
            ]
            .into(),
        );
        assert_eq!(block(&alike, "mine/a:s64,d64"), Some(ParamValue::Int(64)));
    }
}
