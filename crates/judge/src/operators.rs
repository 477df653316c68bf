//! The references that the results of declared operators were compared with.

use std::collections::BTreeSet;

use super::suites::Demands;
use regatta_core::record::{Fault, RunHeader, Side, in_turn};
use regatta_worker::case::Dtype;
use regatta_worker::joined::Joined;
use regatta_worker::operator::{Operator, Output, Tolerance};

/// The largest number of operators with a reference that a verdict names; of more it gives the
/// number.
const MAX_NAMED: usize = 2;

/// A sentence on what the results of each declared operator were compared with; `None` if all cases
/// are the built-in operator's.
pub(super) fn results(base: Option<&Side>, head: &Side) -> Option<String> {
    let cases = head.header.plan.iter().filter_map(|id| id.case().ok());
    let paired = base.is_some_and(|base| in_turn(&base.header, &head.header));
    // Calls of a script are reported by `conditions`, one by one.
    let cases = cases.filter(|case| paired || !case.problem.is_call());
    let names = cases.filter_map(|case| Some(case.problem.declared()?.operator.clone()));
    let names: BTreeSet<String> = names.collect();
    let reference_of = |name: &String| head.header.operators.get(name)?.reference.clone();
    let (with, without): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| reference_of(name).is_some());
    let mut each = Vec::new();
    if with.len() > MAX_NAMED {
        let many = with.len();
        each.push(format!(
            "results of {many} operators compared with their references in float64"
        ));
    } else {
        each.extend(with.into_iter().map(|name| {
            let reference = reference_of(name).unwrap_or_default();
            format!("results of {name} compared with {reference} in float64")
        }));
    }
    if !without.is_empty() {
        // The base has no results of a new case.
        let compared = head.cases.iter().filter_map(|(id, record)| {
            let problem = &id.case().ok()?.problem;
            let is_wrong = record.status.fault() == Some(Fault::WrongResult);
            let is_compared = problem.is_call() || is_wrong || !record.errors.is_empty();
            let operator = &problem.declared()?.operator;
            (paired && is_compared).then(|| operator.clone())
        });
        let compared: BTreeSet<String> = compared.collect();
        let (compared, unchecked): (Vec<&str>, Vec<&str>) = without
            .into_iter()
            .map(String::as_str)
            .partition(|name| compared.contains(*name));
        if !compared.is_empty() {
            let names = compared.join(", ");
            each.push(format!("results of {names} compared only with the base's"));
        }
        if !unchecked.is_empty() {
            let several = unchecked.len() > 1;
            let has = if several { "they have" } else { "it has" };
            let names = unchecked.join(", ");
            each.push(format!(
                "results of {names} were not checked: {has} no reference, and no base was measured \
                 beside it"
            ));
        }
    }
    (!each.is_empty()).then(|| each.join("; "))
}

/// Adds differences of the operators that both sides declare.
pub(super) fn demands(demands: &mut Demands, base: &RunHeader, head: &RunHeader) {
    for (name, was) in &base.operators {
        let Some(is) = head.operators.get(name) else {
            continue;
        };
        let reference = |operator: &Operator| operator.reference.clone().unwrap_or_default();
        let field = |key: &str| format!("operators.{name}.{key}");
        let dropped = is.reference.is_none();
        demands.add(&field("reference"), reference(was), reference(is), dropped);
        for output in &was.outputs {
            let mut outputs = is.outputs.iter();
            let Some(now) = outputs.find(|one| one.name == output.name) else {
                demands.add(&field("outputs"), &output.name, "left out", true);
                continue;
            };
            let key = field(&format!("outputs.{}.tolerance", output.name));
            let wider = |dtype: &Dtype| now.limit(*dtype) > output.limit(*dtype);
            let is_wider = Dtype::ALL.iter().any(wider);
            demands.add(&key, tolerance(output), tolerance(now), is_wider);
        }
        let drawn = |operator: &Operator| {
            let inputs = operator.inputs.iter();
            let inputs = inputs.map(|(name, input)| format!("{name} {input}"));
            inputs.joined(", ")
        };
        demands.add(&field("inputs"), drawn(was), drawn(is), false);
    }
}

fn tolerance(output: &Output) -> String {
    match &output.tolerance {
        None => "usual".to_owned(),
        Some(Tolerance::One(one)) => format!("{one:e}"),
        Some(Tolerance::ByType(by_type)) => {
            let each = by_type.iter();
            each.map(|(dtype, one)| format!("{dtype} {one:e}"))
                .joined(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::record::testing::{around, failed, header};
    use regatta_core::record::{PairSide, Pairing};

    /// A header with an operator `o` of one output.
    fn declared(reference: Option<&str>, tolerance: Option<f64>) -> RunHeader {
        let mut header = header();
        let mut operator: Operator = serde_json::from_str(
            r#"{"name":"o","axes":{},"dtypes":["f32"],"inputs":{},"outputs":[{"name":"y","shape":[4]}]}"#,
        )
        .unwrap();
        operator.reference = reference.map(str::to_owned);
        operator.outputs[0].tolerance = tolerance.map(Tolerance::One);
        header.plan = vec![regatta_worker::case::CaseId("mine/o:o,dtype=f32".into())];
        header.operators.insert("o".to_owned(), operator);
        header
    }

    fn side(header: RunHeader) -> Side {
        Side {
            label: String::new(),
            header,
            cases: Default::default(),
            damage: Vec::new(),
        }
    }

    #[test]
    fn the_verdict_says_what_results_were_compared_with() {
        let with = side(declared(Some("r.py:o"), None));
        let mut alone = side(declared(None, None));
        let sentence = results(None, &with).unwrap();
        assert_eq!(sentence, "results of o compared with r.py:o in float64");
        assert!(results(None, &alone).unwrap().contains("were not checked"));
        let mut base = alone.clone();
        for (of, side) in [(&mut base, PairSide::Base), (&mut alone, PairSide::Head)] {
            of.header.pairing = Some(Pairing {
                side,
                ..Pairing::default()
            });
        }
        let sentence = results(Some(&base), &alone).unwrap();
        assert!(sentence.contains("were not checked"), "{sentence}");
        let mut checked = around(100.0);
        checked.errors.raise("y", 0.0);
        for record in [failed("wrong result", Fault::WrongResult), checked] {
            alone.cases.insert(alone.header.plan[0].clone(), record);
            let sentence = results(Some(&base), &alone).unwrap();
            assert_eq!(sentence, "results of o compared only with the base's");
        }
        assert_eq!(results(None, &side(header())), None);

        let mut many = declared(Some("r.py:o"), None);
        for name in ["p", "q"] {
            let operator = many.operators["o"].clone();
            many.operators.insert(name.to_owned(), operator);
            let id = format!("mine/o:{name},dtype=f32");
            many.plan.push(regatta_worker::case::CaseId(id.into()));
        }
        let sentence = results(None, &side(many.clone())).unwrap();
        let words = "results of 3 operators compared with their references in float64";
        assert_eq!(sentence, words);
        for operator in many.operators.values_mut() {
            operator.reference = None;
        }
        let sentence = results(None, &side(many)).unwrap();
        assert!(
            sentence.starts_with("results of o, p, q were not checked: they have no reference"),
            "{sentence}"
        );
    }

    #[test]
    fn a_weaker_check_is_a_weaker_demand() {
        let weaker = |base: RunHeader, head: RunHeader| {
            let mut declared_demands = Demands::default();
            demands(&mut declared_demands, &base, &head);
            let fields = declared_demands.weaker.iter().map(|one| one.field.clone());
            fields.collect::<Vec<_>>()
        };
        let strict = || declared(Some("r.py:o"), Some(1e-3));
        assert!(weaker(strict(), strict()).is_empty());
        let dropped = weaker(strict(), declared(None, Some(1e-3)));
        assert_eq!(dropped, ["operators.o.reference"]);
        let wider = weaker(strict(), declared(Some("r.py:o"), Some(0.1)));
        assert_eq!(wider, ["operators.o.outputs.y.tolerance"]);
        assert!(weaker(declared(None, None), declared(Some("r.py:o"), None)).is_empty());
    }
}
