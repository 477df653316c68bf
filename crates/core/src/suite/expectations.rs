//! `[[expect]]`: the demands on a single run. With `against` it is a relation between cases,
//! otherwise a limit on a figure of each case or of a build. One expectation is built in: a variant
//! that chooses its own splits or tiles must be as fast as with the best of the measured values.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{DocumentError, TomlDocument, key, name_hint, or_near};
use super::file::{ExpectTable, Facets};
use super::sweep::facets;
use super::{Count, Expectation, Metric, Origin, Quantity, Selector, Suite};
use regatta_worker::case::{Case, FACETS, ParamValue, Params, VariantId};
use regatta_worker::operator::{Problem, SEQ, SEQ_AXES};

/// The largest number of expectations. Each is matched with every case, so more would take longer
/// to read than to measure.
const MAX_EXPECTATIONS: usize = 500;

/// Reads the demands of a suite, once its cases are known.
///
/// # Errors
/// The first invalid demand, or one that would hold for any measurement.
pub(super) fn read(
    document: &TomlDocument<'_>,
    tables: &[ExpectTable],
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    let all = tables.len() + suite.rules.expectations.len();
    for (table, count) in [("expect", all), ("set", suite.overrides.len())] {
        if count > MAX_EXPECTATIONS {
            let error = format!(
                "there are {count}, and {MAX_EXPECTATIONS} are the most; put some together"
            );
            return Err(document.error(table, error));
        }
    }
    for (place, table) in tables.iter().enumerate() {
        let reading = TableReader {
            document,
            at: format!("expect[{place}]"),
            suite,
        };
        let (expectation, counts) = reading.expectation(table)?;
        suite.rules.expectations.push(expectation);
        suite.counts.extend(counts);
    }
    expect_the_best(suite);
    Ok(())
}

/// One `[[expect]]` of a suite whose cases are known.
struct TableReader<'a> {
    document: &'a TomlDocument<'a>,
    at: String,
    suite: &'a Suite,
}

impl TableReader<'_> {
    /// An error about a key.
    fn error(&self, name: &str, message: impl AsRef<str>) -> DocumentError {
        self.document.error(&key(&self.at, name), message)
    }

    fn expectation(&self, table: &ExpectTable) -> Result<(Expectation, Vec<Count>), DocumentError> {
        let whole = |message: &str| self.document.error(&self.at, message);
        let (metric, function) = match table.against {
            Some(_) => self.compared(table)?,
            None => self.figure(table)?,
        };
        let case = match (&table.case, metric.is_of_build()) {
            (Some(case), false) => self.selector("case", case)?,
            (None, true) => Selector::default(),
            (None, false) => return Err(whole("`case` is missing")),
            (Some(_), true) => {
                let error =
                    format!("`{metric}` is the time of a build, not of a case; leave `case` out");
                return Err(self.error("case", error));
            }
        };
        let bounds = match table.against {
            Some(_) => self.ratio(table)?,
            None => self.bounds(table)?,
        };
        let against = table.against.as_ref();
        let against = against.map(|against| self.selector("against", against));
        let against = against.transpose()?;
        let mut cases = self.suite.cases.iter();
        if let Some(against) = &against
            && cases.all(|one| case.matches(one) == against.matches(one))
        {
            return Err(whole(
                "`case` and `against` select the same cases, so it compares nothing; name a \
                 facet in which they differ",
            ));
        }
        let counts = match function {
            Some(function) => self.counts(&function, &case)?,
            None => Vec::new(),
        };
        let name = table.name.clone().unwrap_or_else(|| match &against {
            Some(against) => {
                let metric = match metric {
                    Quantity::Metric(metric) if metric != Metric::Device => {
                        format!("{} of ", metric.text())
                    }
                    _ => String::new(),
                };
                format!("{metric}{case} {bounds} of {against}")
            }
            None => match (&table.kernel, metric.is_of_build()) {
                (Some(kernel), _) => format!("{metric} of {kernel} {bounds}"),
                (None, true) => format!("{metric} {bounds}"),
                (None, false) => format!("{metric} of {case} {bounds}"),
            },
        });
        let expectation = Expectation {
            name,
            case,
            against,
            metric,
            kernel: table.kernel.clone(),
            at_least: table.at_least,
            at_most: table.within.or(table.at_most),
            origin: Origin(self.document.place(&self.at)),
        };
        Ok((expectation, counts))
    }

    /// The metric that is compared with that of other cases.
    fn compared(&self, table: &ExpectTable) -> Result<(Quantity, Option<String>), DocumentError> {
        for (key, is_there) in [
            ("kernel", table.kernel.is_some()),
            ("at_most", table.at_most.is_some()),
            ("at_least", table.at_least.is_some()),
        ] {
            if is_there {
                let error = "is of a figure, and with `against` times are compared; write `within`";
                return Err(self.error(key, error));
            }
        }
        let metric = match &table.metric {
            None => Metric::Device,
            Some(name) => name.parse().map_err(|_| {
                let hint = name_hint(name, Metric::ALL.into_iter().map(Metric::name));
                self.error("metric", format!("no such metric; {hint}"))
            })?,
        };
        Ok((Quantity::Metric(metric), None))
    }

    /// The largest ratio to other cases, in words.
    fn ratio(&self, table: &ExpectTable) -> Result<String, DocumentError> {
        match table.within {
            None => Err(self.document.error(&self.at, "`within` is missing")),
            Some(within) if !(0.01..=100.0).contains(&within) => {
                let error = "a limit is a ratio of times from 0.01 to 100: 1.10 allows 10 % more";
                Err(self.error("within", error))
            }
            Some(within) => Ok(format!("within {within}")),
        }
    }

    /// The bounds of a figure, in words.
    fn bounds(&self, table: &ExpectTable) -> Result<String, DocumentError> {
        let whole = |message: &str| self.document.error(&self.at, message);
        for (key, bound) in [("at_least", table.at_least), ("at_most", table.at_most)] {
            if bound.is_some_and(|bound| !bound.is_finite()) {
                return Err(self.error(key, "must be a finite number"));
            }
        }
        match (table.at_least, table.at_most) {
            (None, None) => Err(whole("has no limit; give `at_least` or `at_most`")),
            (Some(least), Some(most)) if least > most => {
                let error = format!("nothing is at least {least} and at most {most}");
                Err(whole(&error))
            }
            (Some(least), Some(most)) => Ok(format!("from {least} to {most}")),
            (Some(least), None) => Ok(format!("at least {least}")),
            (None, Some(most)) => Ok(format!("at most {most}")),
        }
    }

    /// The figure that is limited, and the function whose calls it counts.
    fn figure(&self, table: &ExpectTable) -> Result<(Quantity, Option<String>), DocumentError> {
        if table.within.is_some() {
            let error = "is a ratio to other cases; name these by `against`, or write `at_most`";
            return Err(self.error("within", error));
        }
        let Some(name) = &table.metric else {
            let error = "give `against` and `within` to compare times, or a figure as `metric` \
                         with `at_most` or `at_least`";
            return Err(self.document.error(&self.at, error));
        };
        if name.parse::<Metric>().is_ok() {
            let error = "is compared with other cases; give `against` and `within`";
            return Err(self.error("metric", error));
        }
        let function = name.strip_prefix("calls:");
        let quantity = match function.map(Count::function_name).transpose() {
            Ok(None) => Quantity::from(name.clone()),
            Ok(Some(count)) => Quantity::Count(format!("calls.{count}")),
            Err(error) => return Err(self.error("metric", error)),
        };
        if name.starts_with("build_") && !quantity.is_of_build() {
            let error = "no such figure of a build; there is build_seconds";
            return Err(self.error("metric", error));
        }
        if table.kernel.is_some() && !quantity.is_of_launches() {
            let error = format!(
                "`{quantity}` is not counted by kernel; leave `kernel` out, or limit launches, \
                 blocks or sm_fill"
            );
            return Err(self.error("kernel", error));
        }
        Ok((quantity, function.map(str::to_owned)))
    }

    /// The counts for a limit on the calls of a function: one for each worker of its cases.
    fn counts(&self, function: &str, case: &Selector) -> Result<Vec<Count>, DocumentError> {
        let name = Count::function_name(function).map_err(|error| self.error("metric", error))?;
        let counted = || self.suite.counts.iter().filter(|count| count.name == name);
        if let Some(other) = counted().find(|count| count.functions != [function]) {
            let error = format!(
                "calls.{name} is counted already, of {}",
                other.functions.join(", ")
            );
            return Err(self.error("metric", error));
        }
        let cases = self.suite.cases.iter().filter(|one| case.matches(one));
        let workers: BTreeSet<&str> = cases.map(|case| case.variant.worker.as_str()).collect();
        let new = workers.into_iter().filter(|worker| {
            let mut counted = counted();
            !counted.any(|count| count.worker == *worker)
        });
        let count = |worker: &str| Count {
            name: name.to_owned(),
            worker: worker.to_owned(),
            functions: vec![function.to_owned()],
        };
        Ok(new.map(count).collect())
    }

    /// Reads a selector, and refuses one with a facet or value that no case has: such a demand
    /// would always hold.
    fn selector(&self, name: &str, written: &Facets) -> Result<Selector, DocumentError> {
        let at = key(&self.at, name);
        let mut selector = Selector::default();
        for (facet, texts) in facets(self.document, &at, written)? {
            let mut params = self.suite.cases.iter().flat_map(|case| case.params.iter());
            let declared = Case::declared_axes(&self.suite.cases);
            let known = FACETS.contains(&facet.as_str()) || declared.contains(&facet);
            let known = known || facet == SEQ || facet == "operator";
            if !known && !params.any(|(name, _)| *name == facet) {
                let names = FACETS
                    .into_iter()
                    .chain(declared.iter().map(String::as_str));
                let hint = or_near(&facet, names);
                let error = format!("neither an axis nor a parameter of this suite{hint}");
                return Err(self.document.error(&key(&at, &facet), error));
            }
            if facet == SEQ && !declared.contains(&facet) {
                let each = SEQ_AXES.map(|axis| (axis.to_owned(), texts.clone()));
                selector.0.extend(each);
            } else {
                selector.0.insert(facet, texts);
            }
        }
        if self.suite.cases.iter().any(|case| selector.matches(case)) {
            Ok(selector)
        } else {
            let facets = selector.0.iter();
            let facets = facets.map(|(facet, texts)| format!("{facet} = {}", texts.join(" or ")));
            let facets = facets.collect::<Vec<_>>().join(", ");
            let error = format!("{facets} selects no case of this suite");
            Err(self.document.error(&at, error))
        }
    }
}

/// Parameters that choose how a result is computed, and do not change the result.
const CHOICES: [&str; 3] = ["num_splits", "num_splits_key", "tile_keys"];

/// The largest allowed ratio of the automatic choice's time to that of the best value.
const AUTOMATIC_WITHIN: f64 = 1.10;

/// Adds the demand that an automatic choice is as fast as the best explicit value, for each variant
/// that is measured with both, unless the suite itself compares them.
fn expect_the_best(suite: &mut Suite) {
    let name = |variant: &VariantId, parameter: &str| {
        format!("{parameter} = auto of {variant} within {AUTOMATIC_WITHIN:.2} of the best")
    };
    // Such demands of an extended suite are replaced, since there may be more values now.
    suite.rules.expectations.retain(|expectation| {
        let mut parameters = CHOICES.iter();
        let variants = expectation.case.0.get("variant");
        let variant = variants.and_then(|variants| variants.first()?.parse().ok());
        !variant.is_some_and(|v| parameters.any(|p| expectation.name == name(&v, p)))
    });
    let mut made = Vec::new();
    for parameter in CHOICES {
        // For cases that are equal except for the parameter: whether one leaves the choice to the
        // variant, and the explicit values.
        let mut groups: BTreeMap<(&VariantId, &Problem, Params), (bool, BTreeSet<ParamValue>)> =
            BTreeMap::new();
        for case in &suite.cases {
            let mut others = case.params.clone();
            others.set(parameter, ParamValue::auto());
            let value = case.params.get(parameter);
            let group = groups
                .entry((&case.variant, &case.problem, others))
                .or_default();
            if value.is_auto() {
                group.0 = true;
            } else {
                group.1.insert(value);
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
                against: Some(selector(values.iter().map(ToString::to_string).collect())),
                metric: Quantity::Metric(Metric::Device),
                kernel: None,
                at_least: None,
                at_most: Some(AUTOMATIC_WITHIN),
                origin: Origin(suite.origins.get(variant).cloned().unwrap_or_default()),
            };
            if !is_demanded(suite, parameter, &expectation) {
                made.push(expectation);
            }
        }
    }
    suite.rules.expectations.extend(made);
}

/// True if the suite itself compares the cases of the expectation `made` by the parameter.
fn is_demanded(suite: &Suite, parameter: &str, made: &Expectation) -> bool {
    let both = |own: &Selector, made: &Selector| {
        let is_of_both = |case: &Case| own.matches(case) && made.matches(case);
        own.0.contains_key(parameter) && suite.cases.iter().any(is_of_both)
    };
    suite.rules.expectations.iter().any(|own| {
        let against = own.against.as_ref().zip(made.against.as_ref());
        own.metric == made.metric
            && both(&own.case, &made.case)
            && against.is_some_and(|(own, made)| both(own, made))
    })
}

#[cfg(test)]
mod tests {
    use crate::suite::Suite;
    use crate::suite::tests::parse;

    const SWEEP: &str = "\
[[sweep]]
variants = [\"torch/flash\", \"torch/efficient@old\", \"cpu/flash\"]
seq = 8
head_dim = 8
params = { num_splits = [\"auto\", 2, 4] }
";

    /// A suite whose first expectation's key stands in line 7.
    fn suite(expect: &str) -> Suite {
        swept(&format!("[[expect]]\n{expect}\n"))
    }

    #[test]
    fn a_limit_is_called_by_what_it_allows() {
        let limit = |more: &str| suite(&format!("case = {{ worker = \"torch\" }}\n{more}"));
        let blocks = limit("metric = \"blocks\"\nkernel = \"fmha*\"\nat_least = 9");
        let expected = "blocks of fmha* at least 9";
        assert_eq!(blocks.rules.expectations[0].name, expected);
        let copies = &limit("metric = \"copies\"\nat_most = 0").rules.expectations[0];
        assert_eq!(copies.name, "copies of worker torch at most 0");
        assert_eq!(copies.origin.0, "s.toml:6: expect[0]");
    }

    #[test]
    fn calls_are_counted_where_they_are_limited() {
        let calls = |function: &str| {
            format!("case = {{ worker = \"torch\" }}\nmetric = \"calls:{function}\"\nat_most = 0\n")
        };
        let counted = suite(&calls("torch.cuda:synchronize"));
        let count = &counted.counts[0];
        assert_eq!(count.name.as_str(), "synchronize");
        assert_eq!(count.worker.as_str(), "torch");
        assert_eq!(count.functions, ["torch.cuda:synchronize"]);
        let selected = counted.cases.iter().filter(|case| count.selects(case));
        assert_eq!(selected.count(), 6);
        let expected = "calls.synchronize";
        assert_eq!(counted.rules.expectations[0].metric.to_string(), expected);
        let again = format!("{}[[expect]]\n{}", calls("a:f"), calls("a:f"));
        assert_eq!(suite(&again).counts.len(), 1);
    }

    fn swept(expect: &str) -> Suite {
        parse(&format!("{SWEEP}{expect}")).unwrap()
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
        assert_eq!(names(&swept("")), all);
        let own = swept(
            "[[expect]]\nname = \"own\"\nwithin = 1.3\n\
             case = { worker = \"torch\", num_splits = \"auto\" }\n\
             against = { worker = \"torch\", num_splits = 2 }",
        );
        assert_eq!(
            names(&own),
            ["own".to_owned(), all[0].clone(), all[1].clone()]
        );
        let first = &swept("").rules.expectations[0];
        assert_eq!(first.against.as_ref().unwrap().0["num_splits"], ["2", "4"]);
        let variant = "s.toml:2: sweep[0].variants[2] = \"cpu/flash\"";
        assert_eq!(first.origin.0, variant);
        let own = &own.rules.expectations[0].origin;
        assert_eq!(own.0, "s.toml:6: expect[0]");
    }
}
