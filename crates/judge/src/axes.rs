//! Describes the cases that changed by their axes.
//!
//! A description is a conjunction of at most three terms. A term compares one axis with a value:
//! equal, different, at least or at most. Terms are added greedily by the F-measure (van Rijsbergen
//! 1979: the harmonic mean of precision and recall), where the matching cases are compared with
//! those that changed. A description that also matches many unchanged cases is dropped.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::rc::Rc;

use regatta_core::text::one_line;
use regatta_worker::case::{Case, CaseId, FACETS};
use regatta_worker::operator::{SEQ, SEQ_AXES, is_plain};
use rustc_hash::FxHashMap;

/// A description, and the cases that match it.
pub struct Described {
    /// The terms as text: ` of cpu/flash with head_dim 32 and causal`; empty for every case.
    pub terms: String,
    /// The indices of the matching cases that changed.
    pub hits: Vec<usize>,
    /// The number of cases that match.
    pub covers: usize,
}

/// The largest number of terms in a description.
const MAX_TERMS: usize = 3;

/// The least share of the matching cases that must have changed.
const PRECISION: f64 = 0.8;

/// A condition on one axis.
#[derive(Clone, Copy)]
struct Term {
    axis: usize,
    value: usize,
    kind: Bound,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Is,
    IsNot,
    AtLeast,
    AtMost,
}

impl Term {
    fn holds(self, table: &AxisTable, place: usize) -> bool {
        table.axes[self.axis].of[place].is_some_and(|value| {
            let value = value as usize;
            match self.kind {
                Bound::Is => value == self.value,
                Bound::IsNot => value != self.value,
                Bound::AtLeast => value >= self.value,
                Bound::AtMost => value <= self.value,
            }
        })
    }

    fn text(self, axis: &TableAxis) -> String {
        let value = &axis.values[self.value];
        let value = one_line(value);
        match (self.kind, &*axis.name) {
            (Bound::IsNot, name) if value.is_empty() => format!("any {name}"),
            (Bound::IsNot, name) => format!("{name} other than {value}"),
            (Bound::AtLeast, name) => format!("{name} ≥ {value}"),
            (Bound::AtMost, name) => format!("{name} ≤ {value}"),
            // `full` is a value of the mask only, and says nothing without the axis' name.
            (_, name) if is_plain(name) && !["", "full"].contains(&&*value) => value,
            (_, name) if value.is_empty() => format!("no {name}"),
            (_, name) => format!("{name} {value}"),
        }
    }
}

/// Returns the best description of the cases that changed, if one matches at least two of them and
/// few others. `moved` says whether each case changed; `None` marks a case that is already
/// described.
pub fn described(table: &AxisTable, moved: &[Option<bool>]) -> Option<Described> {
    let total = moved.iter().filter(|yes| **yes == Some(true)).count();
    if total < 2 {
        return None;
    }
    let mut terms: Vec<Term> = Vec::new();
    let mut holds: Vec<usize> = (0..moved.len())
        .filter(|&place| moved[place].is_some())
        .collect();
    let mut best = score(total, holds.len(), total);
    while terms.len() < MAX_TERMS {
        let Some((term, found)) = better(table, moved, &holds, total, best) else {
            break;
        };
        best = found;
        holds.retain(|&place| term.holds(table, place));
        // Several values may be excluded; any other bound replaces an earlier one of its kind.
        terms.retain(|other| {
            other.axis != term.axis
                || term.kind == Bound::IsNot
                || (other.kind != term.kind && term.kind != Bound::Is)
        });
        terms.push(term);
    }
    let hits: Vec<usize> = holds
        .iter()
        .copied()
        .filter(|&place| moved[place] == Some(true))
        .collect();
    let precise = hits.len() as f64 >= PRECISION * holds.len() as f64;
    (precise && hits.len() >= 2).then(|| Described {
        terms: words(table, terms),
        covers: holds.len(),
        hits,
    })
}

impl Described {
    /// The description as text, where `noun` is the thing that is counted:
    /// `99 of 100 cases with head_dim 32 and causal`.
    pub fn sentence(&self, noun: &str) -> String {
        let share = match (self.hits.len() == self.covers, self.covers) {
            (true, 1) => "the 1".to_owned(),
            (true, 2) => "both".to_owned(),
            (true, all) => format!("all {all}"),
            (false, all) => format!("{} of {all}", self.hits.len()),
        };
        let plural = if self.covers == 1 { "" } else { "s" };
        format!("{share} {noun}{plural}{}", self.terms)
    }
}

/// The term that raises the score most, if one raises it above `best`.
fn better(
    table: &AxisTable,
    moved: &[Option<bool>],
    holds: &[usize],
    total: usize,
    best: f64,
) -> Option<(Term, f64)> {
    let mut chosen: Option<(Term, f64)> = None;
    for (axis, values) in table.axes.iter().enumerate() {
        // For each value, the number of cases that have it, and how many of these changed.
        let mut counts = vec![(0_usize, 0_usize); values.values.len()];
        for &place in holds {
            if let Some(value) = values.of[place] {
                let count = &mut counts[value as usize];
                count.0 += 1;
                count.1 += usize::from(moved[place] == Some(true));
            }
        }
        let mut consider = |kind, value, (covers, hits): (usize, usize)| {
            let score = score(hits, covers, total);
            let least = chosen.map_or(best, |(_, score)| score) + 1e-9;
            if covers > 0 && score > least {
                chosen = Some((Term { axis, value, kind }, score));
            }
        };
        for (value, count) in counts.iter().enumerate() {
            consider(Bound::Is, value, *count);
        }
        if counts.len() < 3 {
            continue;
        }
        if !values.numeric {
            let all = counts
                .iter()
                .fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
            for (value, of) in counts.iter().enumerate() {
                consider(Bound::IsNot, value, (all.0 - of.0, all.1 - of.1));
            }
            continue;
        }
        let add = |sum: &mut (usize, usize), count: &(usize, usize)| {
            *sum = (sum.0 + count.0, sum.1 + count.1);
            Some(*sum)
        };
        for (value, sum) in counts.iter().scan((0, 0), add).enumerate() {
            consider(Bound::AtMost, value, sum);
        }
        let from_above = counts.iter().rev().scan((0, 0), add);
        for (value, sum) in (0..counts.len()).rev().zip(from_above) {
            consider(Bound::AtLeast, value, sum);
        }
    }
    chosen
}

/// The F-measure.
fn score(hits: usize, covers: usize, total: usize) -> f64 {
    2.0 * hits as f64 / (covers + total).max(1) as f64
}

/// Axes of which a description states the value without the axis' name. The variant comes first,
/// because it implies its worker.
const OF: [&str; 2] = ["variant", "worker"];

fn words(table: &AxisTable, mut terms: Vec<Term>) -> String {
    terms.sort_by_key(|term| term.axis);
    let name = |term: &Term| &*table.axes[term.axis].name;
    let mut text = String::new();
    let (of, with): (Vec<Term>, Vec<Term>) = terms
        .iter()
        .partition(|term| OF.contains(&name(term)) && term.kind == Bound::Is);
    for term in of {
        let value = &table.axes[term.axis].values[term.value];
        text += &format!(" of {}", one_line(value));
    }
    let with: Vec<String> = with
        .iter()
        .map(|term| term.text(&table.axes[term.axis]))
        .collect();
    if let [first @ .., last] = &with[..] {
        text += " with ";
        text += &match first {
            [] => last.clone(),
            first => format!("{} and {last}", first.join(", ")),
        };
    }
    text
}

/// The values of cases, by axis.
pub struct AxisTable {
    /// Axes in which the cases differ. Axes that divide the cases alike are merged.
    pub axes: Vec<TableAxis>,
}

/// One axis of a table.
pub struct TableAxis {
    /// The name of the axis.
    pub name: String,
    /// The names of other axes that divide the cases in the same way.
    pub also: Vec<String>,
    /// The sorted values.
    pub values: Vec<String>,
    /// True where all values are whole numbers.
    pub numeric: bool,
    /// The index into `values` for each case; `None` if its id does not parse.
    pub of: Vec<Option<u32>>,
}

/// The axes of all cases of a report, from which tables of some cases are made.
pub struct CaseAxes {
    /// The kind of each case, by index; `None` if its id does not parse.
    kinds: Vec<Option<CaseKind>>,
    axes: Vec<AxisTexts>,
}

/// The numbers of a case's variant and problem, from which its texts follow. A run may have a
/// hundred thousand cases, but only few variants and problems.
#[derive(Clone, Copy)]
struct CaseKind {
    /// The number of its variant.
    variant: u32,
    /// The number of its problem with its parameters.
    problem: u32,
}

/// The texts of one axis.
struct AxisTexts {
    name: String,
    /// The distinct texts.
    texts: Vec<String>,
    /// The index into `texts` of each variant or problem.
    numbers: Vec<u32>,
    number_of: fn(CaseKind) -> u32,
}

impl AxisTexts {
    fn text_of(&self, kind: CaseKind) -> u32 {
        self.numbers[(self.number_of)(kind) as usize]
    }
}

impl CaseAxes {
    /// Reads the axes of the cases with these ids.
    pub fn new<'c>(ids: impl Iterator<Item = &'c CaseId>) -> CaseAxes {
        let cases: Vec<Option<Rc<Case>>> = ids.map(|id| id.case().ok()).collect();
        let (mut variants, mut problems) = (Numbers::new(), Numbers::new());
        let kinds = cases.iter().map(|case| {
            let case = case.as_deref()?;
            Some(CaseKind {
                variant: variants.number(&case.variant, case),
                problem: problems.number((&case.problem, &case.params), case),
            })
        });
        let kinds = kinds.collect();
        let (variants, problems) = (variants.cases, problems.cases);
        let parameters = problems.iter().flat_map(|case| case.params.iter());
        let parameters: BTreeSet<&str> = parameters.map(|(name, _)| name.as_str()).collect();
        let facets = FACETS.into_iter().filter(|name| !OF.contains(name));
        let names = OF.into_iter().chain(facets).map(str::to_owned);
        let declared = Case::declared_axes(problems.iter().copied());
        let names = names.chain(declared);
        let names = names.chain(parameters.into_iter().map(str::to_owned));
        let axes = names.map(|name| {
            if OF_VARIANTS.contains(&&*name) {
                texts(name, &variants, |kind| kind.variant)
            } else {
                texts(name, &problems, |kind| kind.problem)
            }
        });
        // An axis in which no two cases differ is never in a table.
        let axes = axes.filter(|axis| axis.texts.len() > 1).collect();
        CaseAxes { kinds, axes }
    }

    /// The table of the cases at the indices `places`.
    pub fn table(&self, places: &[usize]) -> AxisTable {
        let mut axes: Vec<TableAxis> = Vec::new();
        for texts in &self.axes {
            let axis = self.axis(texts, places);
            if axis.values.len() < 2 {
                continue;
            }
            match axes.iter_mut().find(|other| other.of == axis.of) {
                // The two sequence lengths are merged where they are equal.
                Some(other)
                    if [&other.name, &axis.name] == SEQ_AXES && other.values == axis.values =>
                {
                    other.name = SEQ.to_owned();
                }
                // Axes with equal values are kept once, such as two equal numbers of heads.
                Some(other) if other.values == axis.values || axis.name == OF[1] => {}
                Some(other) => other.also.push(axis.name),
                None => axes.push(axis),
            }
        }
        AxisTable { axes }
    }

    fn axis(&self, axis: &AxisTexts, places: &[usize]) -> TableAxis {
        let texts = || {
            places
                .iter()
                .map(|&place| Some(axis.text_of(self.kinds[place]?)))
        };
        // The rank of each text among the values that these cases have.
        let mut ranks = vec![None; axis.texts.len()];
        for text in texts().flatten() {
            ranks[text as usize] = Some(0);
        }
        let used = (0..ranks.len()).filter(|&text| ranks[text].is_some());
        let mut used: Vec<usize> = used.collect();
        let number = |text: &usize| axis.texts[*text].parse::<u64>();
        let numeric = used.iter().all(|text| number(text).is_ok());
        used.sort_by(|a, b| axis.texts[*a].cmp(&axis.texts[*b]));
        if numeric {
            used.sort_by_key(|text| number(text).unwrap_or(0));
        }
        for (rank, text) in (0..).zip(&used) {
            ranks[*text] = Some(rank);
        }
        TableAxis {
            name: axis.name.clone(),
            also: Vec::new(),
            numeric,
            of: texts().map(|text| ranks[text? as usize]).collect(),
            values: used.iter().map(|&text| axis.texts[text].clone()).collect(),
        }
    }
}

impl AxisTable {
    /// The table of all these cases.
    pub fn new<'c>(ids: impl Iterator<Item = &'c CaseId>) -> AxisTable {
        let mut number = 0;
        let axes = CaseAxes::new(ids.inspect(|_| number += 1));
        axes.table(&Vec::from_iter(0..number))
    }
}

/// Facets that depend on the variant only; all others depend on the problem and the parameters.
const OF_VARIANTS: [&str; 3] = ["variant", "worker", "environment"];

/// Numbers distinct keys from 0, in the order in which the cases have them.
struct Numbers<'c, K> {
    known: FxHashMap<K, u32>,
    /// The first case of each number.
    cases: Vec<&'c Case>,
}

impl<'c, K: Hash + Eq> Numbers<'c, K> {
    fn new() -> Numbers<'c, K> {
        Numbers {
            known: FxHashMap::default(),
            cases: Vec::new(),
        }
    }

    fn number(&mut self, key: K, case: &'c Case) -> u32 {
        *self.known.entry(key).or_insert_with(|| {
            self.cases.push(case);
            self.cases.len() as u32 - 1
        })
    }
}

/// The texts of the axis `name` in these cases.
fn texts(name: String, cases: &[&Case], number_of: fn(CaseKind) -> u32) -> AxisTexts {
    let mut known: FxHashMap<String, u32> = FxHashMap::default();
    let numbers = cases.iter().map(|case| {
        let next = known.len() as u32;
        *known.entry(case.facet(&name)).or_insert(next)
    });
    let numbers = numbers.collect();
    let mut texts = vec![String::new(); known.len()];
    for (text, number) in known {
        texts[number as usize] = text;
    }
    AxisTexts {
        name,
        texts,
        numbers,
        number_of,
    }
}
