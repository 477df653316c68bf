//! The expectation that every suite has: a variant that chooses how to split or to tile does
//! so as well as the best value that it is measured with.

use std::collections::{BTreeMap, BTreeSet};

use super::Suite;
use super::rules::{Expectation, Metric, Origin, Selector};
use regatta_worker::attention::{Case, ParamValue, Params, Problem, VariantId};
use regatta_worker::units::Ratio;

/// Parameters that choose how something is computed, and not what.
const CHOICES: [&str; 3] = ["num_splits", "num_splits_key", "tile_keys"];

/// The most that the automatic choice may take of the time of the best value.
const AUTOMATIC_WITHIN: Ratio = Ratio(1.10);

/// Demands of each variant that is measured with a choice left to it, and with explicit values
/// in its place, that it chooses as well as the best of these; where the suite demands nothing
/// of that itself.
pub(super) fn expect_the_best(suite: &mut Suite) {
    let name = |variant: &VariantId, parameter: &str| {
        format!(
            "{parameter} = auto of {variant} within {:.2} of the best",
            AUTOMATIC_WITHIN.0
        )
    };
    // Those of the suite that is extended are made anew: there may be more values.
    suite.rules.expectations.retain(|expectation| {
        let mut parameters = CHOICES.iter();
        let variants = expectation.case.0.get("variant");
        let variant = variants.and_then(|variants| variants.first()?.parse().ok());
        !variant.is_some_and(|v| parameters.any(|p| expectation.name == name(&v, p)))
    });
    let mut made = Vec::new();
    for parameter in CHOICES {
        // By all that is alike: whether the choice is left to the variant, and the values.
        let mut groups: BTreeMap<(&VariantId, &Problem, Params), (bool, BTreeSet<ParamValue>)> =
            BTreeMap::new();
        for case in &suite.cases {
            let mut others = case.params.clone();
            others.set(parameter, ParamValue::auto());
            let value = case.params.get(parameter);
            let group = groups
                .entry((&case.variant, &case.problem, others))
                .or_default();
            match value.is_auto() {
                true => group.0 = true,
                false => drop(group.1.insert(value)),
            }
        }
        let mut values: BTreeMap<&VariantId, BTreeSet<ParamValue>> = BTreeMap::new();
        for ((variant, _, _), (is_automatic, explicit)) in groups {
            if is_automatic && !explicit.is_empty() {
                values.entry(variant).or_default().extend(explicit);
            }
        }
        for (variant, values) in values {
            let selector = |values: Vec<String>| {
                Selector(BTreeMap::from([
                    ("variant".to_owned(), vec![variant.to_string()]),
                    (parameter.to_owned(), values),
                ]))
            };
            let expectation = Expectation {
                name: name(variant, parameter),
                case: selector(vec![ParamValue::auto().to_string()]),
                against: selector(values.iter().map(ToString::to_string).collect()),
                within: AUTOMATIC_WITHIN,
                metric: Metric::Device,
                origin: Origin(suite.origins.get(variant).cloned().unwrap_or_default()),
            };
            if !is_demanded(suite, parameter, &expectation) {
                made.push(expectation);
            }
        }
    }
    suite.rules.expectations.extend(made);
}

/// True where a suite itself compares the cases that an expectation is of by the parameter.
fn is_demanded(suite: &Suite, parameter: &str, made: &Expectation) -> bool {
    let names = |selector: &Selector| selector.0.contains_key(parameter);
    let both = |a: &Selector, b: &Selector| {
        let is_of_both = |case: &Case| a.matches(case) && b.matches(case);
        suite.cases.iter().any(is_of_both)
    };
    suite.rules.expectations.iter().any(|own| {
        own.metric == made.metric
            && names(&own.case)
            && names(&own.against)
            && both(&own.case, &made.case)
            && both(&own.against, &made.against)
    })
}

#[cfg(test)]
mod tests {
    use crate::suite::document::TomlText;
    use crate::suite::{Suite, load, plan};

    fn suite(expect: &str) -> Suite {
        let source = TomlText {
            label: "s.toml".to_owned(),
            text: format!(
                "[[sweep]]\nvariants = [\"torch/flash\", \"torch/efficient@old\", \"cpu/flash\"]\n\
                 seq = 8\nhead_dim = 8\nparams = {{ num_splits = [\"auto\", 2, 4] }}\n{expect}"
            ),
        };
        plan::read("s", &source, &load).unwrap()
    }

    #[test]
    fn the_automatic_choice_is_held_to_the_best_value_unless_the_suite_says_otherwise() {
        let names = |suite: &Suite| {
            let all = suite.rules.expectations.iter();
            all.map(|one| one.name.clone()).collect::<Vec<_>>()
        };
        let built_in =
            |variant: &str| format!("num_splits = auto of {variant} within 1.10 of the best");
        let all = ["cpu/flash", "torch/efficient@old", "torch/flash"].map(built_in);
        assert_eq!(names(&suite("")), all);
        let own = suite(
            "[[expect]]\nname = \"own\"\nwithin = 1.3\n\
             case = { worker = \"torch\", num_splits = \"auto\" }\n\
             against = { worker = \"torch\", num_splits = 2 }",
        );
        assert_eq!(
            names(&own),
            ["own".to_owned(), all[0].clone(), all[1].clone()]
        );
        let first = &suite("").rules.expectations[0];
        assert_eq!(first.against.0["num_splits"], ["2", "4"]);
        let variant = "s.toml:2: sweep[0].variants[2] = \"cpu/flash\"";
        assert_eq!(first.origin.0, variant);
        let own = &own.rules.expectations[0].origin;
        assert_eq!(own.0, "s.toml:6: expect[0]");
    }
}
