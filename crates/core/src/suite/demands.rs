//! Reads what a suite demands of structure: `[policy.structure]` and `[[limit]]`.

use super::Suite;
use super::document::{DocumentError, Source, Table, Value, nearest};
use super::rules::{Metric, Policy};
use super::selector::{Selector, selector};
use super::structural::{Action, Kind, Limit, Quantity, StructurePolicy, StructureRule};
use regatta_worker::attention::FACETS;
use regatta_worker::units::Share;

/// Reads `[policy.structure]` over what is there already.
///
/// # Errors
/// The first thing in it that cannot stand.
pub(super) fn structure(
    table: &Table<'_>,
    policy: &mut StructurePolicy,
) -> Result<(), DocumentError> {
    for kind in Kind::ALL {
        if let Some(value) = table.get(kind.text()) {
            policy.actions.insert(kind, action(&value)?);
        }
    }
    if let Some(value) = table.get("memory_share") {
        policy.memory_share = Share(value.number()?);
        if !(0.0..=1.0).contains(&policy.memory_share.0) {
            return Err(
                value.error("a share is a fraction from 0 to 1: 0.10 lets memory grow by 10 %")
            );
        }
    }
    if let Some(value) = table.get("steady_counts") {
        policy.steady_counts = value.strings()?;
    }
    if let Some(value) = table.get("rule") {
        for value in value.list()? {
            policy.rules.push(rule(&value.table()?)?);
        }
    }
    table.finish()
}

/// Reads `threshold`: one of the device time, or a table of several metrics'.
///
/// # Errors
/// The first thing in it that cannot stand.
pub(super) fn thresholds(value: &Value<'_>, policy: &mut Policy) -> Result<(), DocumentError> {
    let Ok(table) = value.table() else {
        policy.threshold = fraction(value)?;
        return Ok(());
    };
    for metric in Metric::ALL {
        let Some(value) = table.get(metric.key()) else {
            continue;
        };
        match metric {
            Metric::Device => policy.threshold = fraction(&value)?,
            _ => drop(policy.thresholds.insert(metric, growth(&value)?)),
        }
    }
    table.finish()
}

/// Reads the name of a metric.
///
/// # Errors
/// There is none of this name.
pub(super) fn metric(value: &Value<'_>) -> Result<Metric, DocumentError> {
    let name = value.string()?;
    Metric::named(&name).ok_or_else(|| {
        let known = || Metric::ALL.into_iter().map(Metric::key);
        value.error(match nearest(&name, known()) {
            Some(near) => format!("no such metric; did you mean `{near}`?"),
            None => format!(
                "no such metric; there are {}",
                known().collect::<Vec<_>>().join(", ")
            ),
        })
    })
}

/// Reads a share of a whole.
///
/// # Errors
/// It is none.
pub(super) fn fraction(value: &Value<'_>) -> Result<Share, DocumentError> {
    let share = value.number()?;
    match (0.0..=1.0).contains(&share) {
        true => Ok(Share(share)),
        false => Err(value.error("use a fraction from 0 to 1: 0.05 is 5 %")),
    }
}

/// A relative change, which may be many times.
fn growth(value: &Value<'_>) -> Result<Share, DocumentError> {
    let share = value.number()?;
    match (0.0..=1e3).contains(&share) {
        true => Ok(Share(share)),
        false => Err(value.error("use a relative change from 0 to 1000: 0.25 is a quarter more")),
    }
}

fn rule(table: &Table<'_>) -> Result<StructureRule, DocumentError> {
    let pattern = |key| table.get(key).map(|value| value.string()).transpose();
    let rule = StructureRule {
        name: pattern("name")?,
        case: pattern("case")?,
        kind: table.get("kind").map(|value| kind(&value)).transpose()?,
        action: action(&table.require("action")?)?,
    };
    table.finish()?;
    if rule.name.is_none() && rule.case.is_none() {
        return Err(table.error(
            "matches every case; name a kernel, count or parameter (`name`) or cases (`case`), \
             or set the kind in [policy.structure]",
        ));
    }
    Ok(rule)
}

fn kind(value: &Value<'_>) -> Result<Kind, DocumentError> {
    let word = value.string()?;
    Kind::parse(&word).ok_or_else(|| {
        let known = || Kind::ALL.into_iter().map(Kind::text);
        value.error(match nearest(&word, known()) {
            Some(near) => format!("no such kind of change; did you mean `{near}`?"),
            None => format!(
                "no such kind of change; there are {}",
                known().collect::<Vec<_>>().join(", ")
            ),
        })
    })
}

fn action(value: &Value<'_>) -> Result<Action, DocumentError> {
    Action::parse(&value.string()?).ok_or_else(|| value.error("use `fail`, `warn` or `ignore`"))
}

/// Reads one `[[limit]]`.
///
/// # Errors
/// The first thing in it that cannot stand.
pub(super) fn limit(table: &Table<'_>) -> Result<Limit, DocumentError> {
    let number = |key| table.get(key).map(|value| value.number()).transpose();
    let kernel = table.get("kernel");
    let count = table.require("count")?;
    let quantity = Quantity::from(count.string()?);
    let case = match (quantity.is_of_build(), table.get("case")) {
        (false, _) => selector(&table.require("case")?)?,
        (true, None) => Selector::default(),
        (true, Some(case)) => {
            return Err(case.key_error(format!(
                "`{quantity}` is of what was built, whatever the case; leave `case` out"
            )));
        }
    };
    let limit = Limit {
        name: table.require("name")?.string()?,
        case,
        count: quantity,
        kernel: kernel.as_ref().map(Value::string).transpose()?,
        at_least: number("at_least")?,
        at_most: number("at_most")?,
    };
    table.finish()?;
    if limit.at_least.is_none() && limit.at_most.is_none() {
        return Err(table.error("limits nothing; give `at_least` or `at_most`"));
    }
    if let (Some(least), Some(most)) = (limit.at_least, limit.at_most)
        && least > most
    {
        return Err(table.error(format!("nothing is at least {least} and at most {most}")));
    }
    if let (Some(kernel), false) = (&kernel, limit.count.is_of_launches()) {
        return Err(kernel.error(format!(
            "`{}` is not counted by kernel; a kernel is named for launches, blocks or sm_fill",
            limit.count
        )));
    }
    Ok(limit)
}

/// Demands are compared with every case: more of a kind than these take longer to read than
/// to measure.
const MOST_DEMANDS: usize = 500;

/// Refuses more demands of a kind than [`MOST_DEMANDS`], with those of what it extends.
pub(super) fn few_enough(source: &Source, suite: &Suite) -> Result<(), DocumentError> {
    let rules = &suite.rules;
    let kinds = [
        ("expect", rules.expectations.len()),
        ("limit", rules.limits.len()),
        ("override", suite.overrides.len()),
        ("count", suite.counts.len()),
        ("policy.structure.rule", rules.policy.structure.rules.len()),
    ];
    match kinds.iter().find(|(_, count)| *count > MOST_DEMANDS) {
        None => Ok(()),
        Some((kind, count)) => Err(source.error(format!(
            "has {count} of [[{kind}]], and {MOST_DEMANDS} are the most; put some together"
        ))),
    }
}

/// A limit that selects nothing would hold for ever: refuse it now.
pub(super) fn limits_meet_cases(source: &Source, suite: &Suite) -> Result<(), DocumentError> {
    for limit in &suite.rules.limits {
        selects(
            source,
            suite,
            &format!("limit \"{}\": `case`", limit.name),
            &limit.case,
        )?;
    }
    Ok(())
}

/// Refuses a selector that names what no case has, or selects no case. `about` says
/// whose it is.
pub(super) fn selects(
    source: &Source,
    suite: &Suite,
    about: &str,
    selector: &Selector,
) -> Result<(), DocumentError> {
    let knows = |facet: &str| {
        let mut params = suite.cases.iter().flat_map(|case| case.params.iter());
        FACETS.contains(&facet) || params.any(|(name, _)| name == facet)
    };
    if let Some(facet) = selector.facets().find(|facet| !knows(facet)) {
        let near = nearest(facet, FACETS.iter().copied());
        let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        return Err(source.error(format!(
            "{about} names `{facet}`, which is neither an axis nor a parameter of this suite{hint}"
        )));
    }
    if !suite.cases.iter().any(|case| selector.matches(case)) {
        return Err(source.error(format!("{about} selects no case of this suite")));
    }
    Ok(())
}
