//! Cases as rows of axes, each value a number: what descriptions are looked for in.

use std::collections::BTreeMap;

use regatta_judge::judgement::Row;
use regatta_worker::attention::axes::{SEQ, SEQ_AXES};
use regatta_worker::attention::{Case, FACETS};

/// Cases by axes.
pub(crate) struct Table {
    /// Axes in which the cases differ, no two of which say the same.
    pub axes: Vec<Axis>,
}

/// One axis.
pub(crate) struct Axis {
    /// What it is called.
    pub name: String,
    /// Other axes that differ just where it does: what is told of it is told of them.
    pub also: Vec<String>,
    /// Its values, in their order.
    pub values: Vec<String>,
    /// True where all of them are whole numbers.
    pub numeric: bool,
    /// The value of each case, by place; `None` where its id is no case's.
    pub of: Vec<Option<usize>>,
}

impl Table {
    /// Of these rows.
    pub(crate) fn of(rows: &[&Row]) -> Table {
        let cases: Vec<Option<Case>> = rows.iter().map(|row| row.case.case().ok()).collect();
        let known = cases.iter().flatten();
        let mut parameters: Vec<String> = known
            .flat_map(|case| case.params.iter().map(|(name, _)| name.clone()))
            .collect();
        parameters.sort();
        parameters.dedup();
        // A worker says less than its variant.
        let facets = FACETS.into_iter().filter(|name| *name != "worker");
        let names = facets.map(str::to_owned).chain(parameters);
        let mut axes: Vec<Axis> = Vec::new();
        for name in names {
            let axis = axis(name, &cases);
            if axis.values.len() < 2 {
                continue;
            }
            match axes.iter_mut().find(|other| other.of == axis.of) {
                // Both lengths are one where they are the same.
                Some(other)
                    if [&other.name, &axis.name] == SEQ_AXES && other.values == axis.values =>
                {
                    other.name = SEQ.to_owned();
                }
                // Of the same values it is the same: key-value heads of as many heads.
                Some(other) if other.values == axis.values => {}
                Some(other) => other.also.push(axis.name),
                None => axes.push(axis),
            }
        }
        Table { axes }
    }
}

fn axis(name: String, cases: &[Option<Case>]) -> Axis {
    let texts: Vec<Option<String>> = cases
        .iter()
        .map(|case| case.as_ref().map(|case| case.facet(&name)))
        .collect();
    let mut values: Vec<String> = texts.iter().flatten().cloned().collect();
    values.sort();
    values.dedup();
    let numeric = values.iter().all(|value| value.parse::<u64>().is_ok());
    if numeric {
        values.sort_by_key(|value| value.parse::<u64>().unwrap_or(0));
    }
    let places: BTreeMap<&String, usize> = values.iter().enumerate().map(|(i, v)| (v, i)).collect();
    let of = texts
        .iter()
        .map(|text| text.as_ref().and_then(|text| places.get(text).copied()))
        .collect();
    Axis {
        name,
        also: Vec::new(),
        numeric,
        of,
        values,
    }
}
