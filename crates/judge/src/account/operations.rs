//! Aligns the operations of two sides: those that take longer, were added, are gone, or replaced
//! others.

use std::collections::BTreeMap;

use super::AccountInputs;
use crate::judgement::{AccountLine, Item};
use regatta_core::machine::{
    Counters, KernelChange, LaunchChange, METRICS, Part, Sides, StepPart, Work, align, family,
    moves_data, normalised, short,
};
use regatta_worker::units::{Nanoseconds, Share};

/// The lines of operations. Equal operations share a line, because the layers of a model repeat
/// them.
pub fn lines(asked: &AccountInputs) -> Vec<AccountLine> {
    let parts = asked.divisions.map(|division| division.parts.as_slice());
    let keys = parts.map(|parts| parts.iter().map(Part::key).collect::<Vec<String>>());
    let texts = Sides::new(texts(&keys.base), texts(&keys.head));
    let alignment = align(&texts.base, &texts.head);
    let mut builder = LineBuilder::default();
    let mut clock = Nanoseconds::ZERO;
    let mut same: BTreeMap<(&str, Option<StepPart>), Same> = BTreeMap::new();
    for &(i, j) in &alignment.same {
        let (before, after) = (&parts.base[i], &parts.head[j]);
        let line = same
            .entry((texts.base[i], step_part(after)))
            .or_insert_with(|| Same::new(after));
        line.add(before, after);
    }
    for ((key, of_step), Same { part, count, time }) in same {
        let by_clock = of_the_clock(time, asked.mhz);
        clock += by_clock;
        let item = Item::Longer {
            what: name(part),
            count,
            changes: changes(asked.kernels, key),
            executes: executes(asked, key),
        };
        builder.push(item, of_step, time.growth() - by_clock);
    }
    if let Some(mhz) = asked.mhz.filter(|_| clock != Nanoseconds::ZERO) {
        builder.push(Item::Clock { mhz }, None, clock);
    }
    for (before, after) in &alignment.stretches {
        let before: Vec<&Part> = before.iter().map(|&i| &parts.base[i]).collect();
        let after: Vec<&Part> = after.iter().map(|&j| &parts.head[j]).collect();
        builder.stretch(&before, &after);
    }
    builder.lines()
}

/// The operations of one name that both sides run.
struct Same<'a> {
    part: &'a Part,
    count: u32,
    time: Sides<Nanoseconds>,
}

impl<'a> Same<'a> {
    fn new(part: &'a Part) -> Same<'a> {
        Same {
            part,
            count: 0,
            time: Sides::new(Nanoseconds::ZERO, Nanoseconds::ZERO),
        }
    }

    fn add(&mut self, before: &Part, after: &Part) {
        self.count += 1;
        self.time.base += before.ns;
        self.time.head += after.ns;
    }
}

/// The part of a training step that an operation belongs to, if its operator says so.
fn step_part(part: &Part) -> Option<StepPart> {
    regatta_core::machine::part(part.operator.as_deref()?)
}

fn texts(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

/// Collects lines, and merges equal ones.
#[derive(Default)]
struct LineBuilder {
    by: BTreeMap<String, AccountLine>,
}

impl LineBuilder {
    fn push(&mut self, item: Item, part: Option<StepPart>, growth_ns: Nanoseconds) {
        let key = match &item {
            Item::Added { what, .. } => format!("added {what}"),
            Item::Gone { what, .. } => format!("gone {what}"),
            Item::InPlace { names, .. } => format!("{:?} for {:?}", names.head, names.base),
            other => format!("{other:?}"),
        };
        let key = format!("{part:?} {key}");
        let line = AccountLine {
            part,
            ..AccountLine::new(item.clone(), growth_ns)
        };
        match self.by.get_mut(&key) {
            None => drop(self.by.insert(key, line)),
            Some(line) => {
                line.growth_ns += growth_ns;
                join(&mut line.item, &item);
            }
        }
    }

    /// Adds the operations between two aligned ones. A kernel that moves data is never the
    /// replacement of one that computes.
    fn stretch(&mut self, before: &[&Part], after: &[&Part]) {
        for moving in [false, true] {
            let kind = |part: &&&Part| moves(part) == moving;
            let left: Vec<&Part> = before.iter().filter(kind).copied().collect();
            let new: Vec<&Part> = after.iter().filter(kind).copied().collect();
            match (left.is_empty(), new.is_empty()) {
                (true, true) => {}
                (true, false) => new.into_iter().for_each(|part| {
                    let (what, count, moves) = (name(part), 1, moving);
                    self.push(Item::Added { what, count, moves }, step_part(part), part.ns);
                }),
                (false, true) => left.into_iter().for_each(|part| {
                    let (what, count) = (name(part), 1);
                    let growth = Nanoseconds::ZERO - part.ns;
                    self.push(Item::Gone { what, count }, step_part(part), growth);
                }),
                (false, false) => {
                    let sum = |parts: &[&Part]| parts.iter().map(|part| part.ns).sum();
                    let time: Sides<Nanoseconds> = Sides::new(sum(&left), sum(&new));
                    let of_step = agreed(left.iter().chain(&new).map(|part| step_part(part)));
                    self.push(in_place(&left, &new, time), of_step, time.growth());
                }
            }
        }
    }

    fn lines(self) -> Vec<AccountLine> {
        self.by.into_values().collect()
    }
}

/// Merges `other` into `into`, an item with the same key.
fn join(into: &mut Item, other: &Item) {
    match (into, other) {
        (Item::Added { count, .. }, Item::Added { count: more, .. })
        | (Item::Gone { count, .. }, Item::Gone { count: more, .. }) => *count += more,
        (
            Item::InPlace { count, time, .. },
            Item::InPlace {
                count: more,
                time: longer,
                ..
            },
        ) => {
            *count = Sides::new(count.base + more.base, count.head + more.head);
            *time = Sides::new(time.base + longer.base, time.head + longer.head);
        }
        _ => {}
    }
}

fn in_place(left: &[&Part], new: &[&Part], time: Sides<Nanoseconds>) -> Item {
    let names = |parts: &[&Part]| {
        let mut names: Vec<String> = Vec::new();
        for name in parts.iter().map(|part| name(part)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let both = || left.iter().chain(new).map(|part| part.operator.as_deref());
    let of_base = left
        .iter()
        .map(|part| Some(family(part.operator.as_deref()?)));
    // The base's operator describes the work best. Without one, the ranges that all of them share
    // are used.
    let operator = agreed(of_base).map(str::to_owned);
    Item::InPlace {
        operator: operator.or_else(|| in_common(both())),
        names: Sides::new(names(left), names(new)),
        count: Sides::new(left.len() as u32, new.len() as u32),
        time,
    }
}

/// The value that all of `values` have; `None` if one is missing or they differ.
fn agreed<T: PartialEq>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = values.next()??;
    values
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

/// The profiler ranges that all operations were launched in, outermost first. `None` if an
/// operation has none, or if they share none.
fn in_common<'a>(operators: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let mut common: Option<Vec<&str>> = None;
    for operator in operators {
        let ranges: Vec<&str> = operator?.split('/').collect();
        common = Some(match common {
            None => ranges,
            Some(before) => {
                let pairs = before.into_iter().zip(ranges);
                let same = pairs.take_while(|(one, other)| one == other);
                same.map(|(one, _)| one).collect()
            }
        });
    }
    common
        .filter(|ranges| !ranges.is_empty())
        .map(|ranges| ranges.join("/"))
}

fn moves(part: &Part) -> bool {
    match &part.work {
        Work::Kernel(kernel) => moves_data(&kernel.name),
        _ => true,
    }
}

fn name(part: &Part) -> String {
    match &part.work {
        Work::Kernel(kernel) => short(&kernel.name),
        _ => part.key(),
    }
}

fn changes(kernels: &[KernelChange], key: &str) -> Vec<LaunchChange> {
    let mut matching = kernels
        .iter()
        .filter(|kernel| normalised(kernel.called()) == key);
    matching
        .next()
        .map_or_else(Vec::new, |kernel| kernel.changes.clone())
}

/// The growth of a kernel's executed instructions, if both sides' counts are exact.
fn executes(asked: &AccountInputs, key: &str) -> Option<Share> {
    let sides = asked.counters?;
    let executed = |side: &Counters| {
        let counts = side.kernels.get(key)?.instructions.get(METRICS[0].name)?;
        (counts.is_exact() && counts.least > 0).then_some(counts.least as f64)
    };
    Some(Share(executed(sides.head)? / executed(sides.base)? - 1.0))
}

/// The resolution of the clock frequency: smaller relative differences explain nothing.
const RESOLUTION: f64 = 0.01;

/// The part of a growth that is due to the clock frequency, if the kernel takes the same number of
/// cycles. Work that is bound by memory slows less, so the part never exceeds the growth.
fn of_the_clock(time: Sides<Nanoseconds>, mhz: Option<Sides<f64>>) -> Nanoseconds {
    let Some(mhz) = mhz.filter(|mhz| mhz.base > 0.0 && mhz.head > 0.0) else {
        return Nanoseconds::ZERO;
    };
    let slower = mhz.base / mhz.head - 1.0;
    let (expected, grew) = (time.base.0 * slower, time.growth().0);
    if slower.abs() >= RESOLUTION && expected * grew > 0.0 {
        Nanoseconds(expected.signum() * expected.abs().min(grew.abs()))
    } else {
        Nanoseconds::ZERO
    }
}
