//! The cases that differ only in one axis and in their variant.

use std::collections::BTreeMap;

use regatta_judge::axes::{AxisTable, TableAxis};
use regatta_judge::judgement::Row;
use regatta_worker::joined::Joined;
use regatta_worker::operator::{SEQ, is_plain};

/// The cases along the longest axis, with the most frequent values of the other axes.
pub(super) struct Slice<'a> {
    /// The name of the axis.
    pub axis: String,
    /// The other axes: `head_dim 128, causal`.
    pub others: String,
    /// The cases of each variant with their values of the axis, ascending.
    pub lines: BTreeMap<&'a str, Vec<(f64, &'a Row)>>,
}

/// The variant of a case with its environment: the first part of its id.
pub(super) fn variant(row: &Row) -> &str {
    row.case.0.split(':').next().unwrap_or_default()
}

impl<'a> Slice<'a> {
    /// The longest axis along which two cases of a variant differ in nothing else.
    pub fn new(rows: &'a [Row]) -> Option<Slice<'a>> {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.head.is_some()).collect();
        let table = AxisTable::new(rows.iter().map(|row| &row.case));
        let mut axes: Vec<&TableAxis> = table.axes.iter().filter(|axis| axis.numeric).collect();
        axes.sort_by_key(|axis| (axis.values.len(), axis.name.starts_with(SEQ)));
        axes.into_iter()
            .rev()
            .find_map(|axis| along(&rows, &table, axis))
    }
}

fn along<'a>(rows: &[&'a Row], table: &AxisTable, axis: &TableAxis) -> Option<Slice<'a>> {
    const NAMES_OF_LINES: [&str; 3] = ["variant", "worker", "environment"];
    let is_other = |other: &&TableAxis| {
        other.name != axis.name && !NAMES_OF_LINES.contains(&other.name.as_str())
    };
    let others: Vec<&TableAxis> = table.axes.iter().filter(is_other).collect();
    let value = |place: usize| axis.values[axis.of[place]? as usize].parse::<f64>().ok();
    let mut groups: BTreeMap<Vec<Option<u32>>, Vec<(f64, usize)>> = BTreeMap::new();
    for place in 0..rows.len() {
        if let Some(value) = value(place).filter(|value| *value > 0.0) {
            let key = others.iter().map(|other| other.of[place]).collect();
            groups.entry(key).or_default().push((value, place));
        }
    }
    let length = |group: &[(f64, usize)]| {
        let mut values: Vec<u64> = group.iter().map(|(value, _)| value.to_bits()).collect();
        values.sort_unstable();
        values.dedup();
        (values.len(), group.len())
    };
    let groups = groups.into_iter();
    let (key, mut group) = groups.max_by_key(|(_, group)| length(group))?;
    if length(&group).0 < 2 {
        return None;
    }
    group.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lines: BTreeMap<&str, Vec<(f64, &Row)>> = BTreeMap::new();
    for (value, place) in group {
        let line = lines.entry(variant(rows[place])).or_default();
        line.push((value, rows[place]));
    }
    let named = others.iter().zip(key).filter_map(|(other, value)| {
        let value = other.values[value? as usize].as_str();
        Some(match other.name.as_str() {
            _ if value.is_empty() => return None,
            name if is_plain(name) => value.to_owned(),
            name => format!("{name} {value}"),
        })
    });
    Some(Slice {
        axis: axis.name.clone(),
        others: named.joined(", "),
        lines,
    })
}
