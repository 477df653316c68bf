//! The plan of a suite in a few lines: variants that measure the same stand together, what
//! their cases have in common is said once, and each problem has a line.

use std::collections::BTreeMap;

use super::super::indented;
use regatta_core::suite::Suite;
use regatta_report::labels::Labels;
use regatta_report::text::one_line;
use regatta_worker::attention::{Case, Params};
use regatta_worker::units::counted;

/// A problem, and the parameters that a variant is given with it.
type Measured = (String, Vec<String>);

/// Variants that measure the same, and the cases of one of them.
type Group<'a> = (Vec<String>, Vec<&'a Case>);

/// The plan, ending in a line feed.
pub(super) fn plan(suite: &Suite) -> String {
    let mut text = indented(
        &one_line(&format!("{}: {}", suite.name, suite.description)),
        0,
        2,
    );
    let invocations = suite.settings.invocations as usize;
    text += &format!(
        "{}, {} each\n",
        counted(suite.cases.len(), "case"),
        counted(invocations, "invocation"),
    );
    for (variants, cases) in groups(&suite.cases) {
        text.push('\n');
        text += &group(&variants, &cases);
    }
    text
}

/// Variants that measure the same, in the order of the first of each, and the cases of one.
fn groups(cases: &[Case]) -> Vec<Group<'_>> {
    let mut by_variant: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let variant = case.variant.to_string();
        by_variant.entry(variant).or_default().push(case);
    }
    let same = |case: &&Case| (case.problem.to_string(), case.params.clone());
    let mut found: BTreeMap<Vec<(String, Params)>, Group> = BTreeMap::new();
    for (variant, cases) in by_variant {
        let key = cases.iter().map(same).collect();
        let group = found.entry(key).or_insert_with(|| (Vec::new(), cases));
        group.0.push(variant);
    }
    let mut groups: Vec<_> = found.into_values().collect();
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    groups
}

fn group(variants: &[String], cases: &[&Case]) -> String {
    let bare = |case: &Case| Case {
        params: Params::default(),
        ..case.clone()
    };
    let mut problems: Vec<Measured> = Vec::new();
    let ids: Vec<_> = cases.iter().map(|case| bare(case).id()).collect();
    let mut distinct = ids.clone();
    distinct.dedup();
    let labels = Labels::new(&distinct);
    for (case, id) in cases.iter().zip(&ids) {
        let label = match distinct.len() {
            // One alone is called by its id, whose variant stands above.
            1 => case.problem.to_string(),
            _ => labels.label(id),
        };
        match problems.last_mut().filter(|(last, _)| *last == label) {
            Some((_, params)) => params.push(asked(case)),
            None => problems.push((label, vec![asked(case)])),
        }
    }
    let mut head = format!("{}: {}", variants.join(", "), counted(cases.len(), "case"));
    if variants.len() > 1 {
        head += " each";
    }
    // The variant is named already.
    let common = labels.shared().iter();
    let common: Vec<&str> = common
        .map(String::as_str)
        .filter(|token| !variants.iter().any(|variant| variant == token))
        .collect();
    if !common.is_empty() {
        head += &format!(", all {}", common.join(", "));
    }
    // What each problem is given is said once.
    let alike = problems.windows(2).all(|two| two[0].1 == two[1].1);
    let given = problems
        .first()
        .map_or(String::new(), |one| together(&one.1));
    if alike && problems.len() > 1 && !given.is_empty() {
        head += &format!(", each with {given}");
    }
    let mut text = indented(&head, 0, 4);
    for (label, params) in &problems {
        let line = match (together(params), alike && problems.len() > 1) {
            (given, false) if !given.is_empty() => format!("{label}; {given}"),
            _ => label.clone(),
        };
        text += &indented(&line, 2, 6);
    }
    text
}

/// The parameters of a case: `num_splits_key=1,access=views`; empty: none.
fn asked(case: &Case) -> String {
    let params = case.params.iter();
    let params: Vec<String> = params
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    params.join(",")
}

/// Several sets of parameters in a line: `num_splits_key = auto 1 2`, where it is one that
/// differs; empty: none is given.
fn together(params: &[String]) -> String {
    if params.iter().all(String::is_empty) {
        return String::new();
    }
    let name = |text: &str| text.split_once('=').map(|(name, _)| name.to_owned());
    let names: Vec<String> = params.iter().filter_map(|text| name(text)).collect();
    let one = params.iter().all(|text| !text.contains(','))
        && names.windows(2).all(|two| two[0] == two[1]);
    let values = params.iter().map(|text| match text.split_once('=') {
        _ if text.is_empty() => "auto",
        Some((_, value)) if one => value,
        _ => text,
    });
    let values = values.collect::<Vec<_>>().join(" ");
    match names.first().filter(|_| one) {
        Some(name) => format!("{name} = {values}"),
        None => values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::suite::{self, BUILTIN};
    use regatta_report::terminal::COLUMNS;
    use regatta_report::text::width;

    #[test]
    fn a_plan_names_variants_that_measure_the_same_once_and_parameters_with_their_problem() {
        for name in ["quick", "sdpa", "xformers-backward"] {
            insta::assert_snapshot!(name, plan(&suite::load(name).unwrap()));
        }
    }

    #[test]
    fn every_built_in_suite_fits() {
        for (name, _) in BUILTIN {
            let suite = suite::load(name).unwrap();
            let text = plan(&suite);
            for line in text.lines() {
                assert!(width(line) <= COLUMNS, "{name}: {line}");
            }
            assert!(text.lines().count() <= suite.cases.len() * 2 + 4, "{text}");
        }
    }
}
