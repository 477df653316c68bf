//! Whether parts make a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::Part;
use super::problem::{Lack, Problem, Problems};
use super::sweeps::LastMerge;
use crate::record::run_file::differences;
use crate::record::shard::{Asked, Portion, Shard};
use crate::record::types::{Fingerprint, RunHeader};
use crate::suite::shard::Place;
use crate::units::counted;

/// All parts of a suite on one kind of machine, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The machine, as its runs call it.
    pub machine: String,
    /// The parts.
    pub parts: Vec<Part>,
}

/// Sorts parts by the kind of machine that they were measured on; each kind has all of them. With
/// `again` some may have been ended by a merge that was stopped before it ended the others.
///
/// # Errors
/// What is lost, unfinished, twice there or foreign, all of it.
pub fn kinds(mut parts: Vec<Part>, again: bool) -> Result<Vec<Kind>, Problems> {
    // Those of a sweep that was dealt to another number, and merged, are over.
    let open = parts.iter().filter(|part| part.run.end.is_none());
    let open: BTreeSet<u32> = open.map(|part| part.place().of).collect();
    parts.retain(|part| {
        part.run.end.is_none() || open.is_empty() || open.contains(&part.place().of)
    });
    let mut problems = Vec::new();
    let Some(most_are) = usual(&parts).cloned() else {
        return Ok(Vec::new());
    };
    for part in &parts {
        problems.extend(foreign(part, &most_are));
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let mut machines: BTreeMap<Vec<(String, String)>, Vec<Part>> = BTreeMap::new();
    for part in parts {
        // What no case fell to was measured nowhere.
        let hard = part.run.header.machine.hard.clone().into_iter().collect();
        machines.entry(hard).or_default().push(part);
    }
    let most = machines.values().map(Vec::len).max().unwrap_or(0);
    let home = machines.values().find(|of| of.len() == most);
    let home = home.map(|of| of[0].run.header.machine.clone());
    let mut kinds = Vec::new();
    for mut of_kind in machines.into_values() {
        of_kind.sort_by_key(|part| part.place());
        // Parts of two kinds of machine may differ in what those of one may not.
        let of_this = usual(&of_kind).cloned();
        let of_this = of_this.iter();
        problems.extend(of_this.flat_map(|usual| {
            let parts = of_kind.iter();
            parts.filter_map(|part| foreign(part, usual))
        }));
        problems.extend(lacking(&of_kind, home.as_ref(), again));
        kinds.push(Kind {
            machine: of_kind[0].run.header.machine.name.clone(),
            parts: of_kind,
        });
    }
    match problems.is_empty() {
        true => Ok(kinds),
        false => Err(Problems(problems)),
    }
}

/// The header that most parts agree with; of equals the first. Each is held against one of every
/// sort, of which there is one as a rule.
fn usual(parts: &[Part]) -> Option<&RunHeader> {
    let mut sorts: Vec<(&Part, usize)> = Vec::new();
    for part in parts {
        let alike = |with: &Part| {
            part.shard().parts == with.shard().parts
                && asks_as(part, &with.run.header)
                && of_one_kind(&part.run.header, &with.run.header).is_empty()
        };
        match sorts.iter_mut().find(|(with, _)| alike(with)) {
            Some((_, number)) => *number += 1,
            None => sorts.push((part, 1)),
        }
    }
    let most = sorts.iter().map(|(_, number)| *number).max()?;
    let first = sorts.iter().find(|(_, number)| *number == most);
    first.map(|(part, _)| &part.run.header)
}

/// True where a part is to become what another is.
fn asks_as(part: &Part, other: &RunHeader) -> bool {
    let one_kind = part.run.header.machine.hard == other.machine.hard;
    let asked = other.shard.as_ref().map(|shard| &shard.asked);
    asked.is_some_and(|asked| part.shard().asked.is_as(asked, one_kind))
}

/// In what two parts differ that no other machine explains.
fn of_one_kind(then: &RunHeader, now: &RunHeader) -> Vec<String> {
    if then.machine.hard == now.machine.hard {
        return differences(then, now);
    }
    // Its versions and files are its own; its suite and revision are not.
    let mut now = now.clone();
    now.machine = then.machine.clone();
    now.workers.clone_from(&then.workers);
    now.identity.clone_from(&then.identity);
    differences(then, &now)
}

/// Why a part does not belong to the others.
fn foreign(part: &Part, usual: &RunHeader) -> Option<Problem> {
    let place = part.place();
    let path = part.path.display();
    let (own, theirs) = (part.shard(), usual.shard.as_ref()?);
    let say = |why: String, again: Vec<String>| {
        Some(Problem {
            place,
            lack: Lack::Foreign,
            said: format!("shard {place} ({path}) does not belong to the others: {why}"),
            again,
        })
    };
    if !asks_as(part, usual) {
        let base = |shard: &Shard| match &shard.asked {
            Asked::Gate { base: Some(base) } => {
                format!("gate against {} ({})", base.name, base.sum)
            }
            asked => asked.command().to_owned(),
        };
        let why = format!("it is of `{}`, they are of `{}`", base(own), base(theirs));
        return say(why, Vec::new());
    }
    let differ = of_one_kind(usual, &part.run.header);
    let anew = || {
        let mut again = again(usual, place);
        again.push("--fresh".to_owned());
        again
    };
    if !differ.is_empty() {
        // The same command would measure the same: the others are what was left behind.
        let newer = part.run.header.started > usual.started;
        let others = match newer {
            true => " (it is the newer: where it is right, measure the others anew)",
            false => "",
        };
        return say(differ.join("; ") + others, anew());
    }
    if own.parts != theirs.parts && own.place.of == theirs.place.of {
        let why = "its suite was dealt otherwise (other --costs, or another baseline then)";
        return say(why.to_owned(), anew());
    }
    if own.parts != theirs.parts {
        let why = "it is one of another number of shards; move it away, or the others";
        return say(why.to_owned(), Vec::new());
    }
    let portion = &own.parts.get(place.index as usize - 1);
    if *portion != Some(&Portion::of(&part.run.header.plan)) {
        let why = "its plan is not what falls to it: its file was edited";
        return say(why.to_owned(), Vec::new());
    }
    None
}

/// What the parts of one kind of machine lack; `home` is the machine that most parts are of.
fn lacking(parts: &[Part], home: Option<&Fingerprint>, again_too: bool) -> Vec<Problem> {
    let header = &parts[0].run.header;
    let of = parts[0].place().of;
    let mut found = Vec::new();
    let strays =
        parts.len() < of as usize && home.is_some_and(|home| home.hard != header.machine.hard);
    if strays {
        let facts = home.map_or(String::new(), |home| unlike(home, &header.machine));
        let home = home.map_or("", |home| &home.name);
        return parts
            .iter()
            .map(|part| Problem {
                place: part.place(),
                lack: Lack::Foreign,
                said: format!(
                    "shard {} ({}) was measured on {}, and most others on {home}{facts}: measure it \
                     there",
                    part.place(),
                    part.path.display(),
                    header.machine.name,
                ),
                again: again(header, part.place()),
            })
            .collect();
    }
    let mut there: BTreeMap<u32, Vec<&Part>> = BTreeMap::new();
    for part in parts {
        there.entry(part.place().index).or_default().push(part);
    }
    let merged = LastMerge::of(parts, again_too);
    for index in 1..=of {
        let place = Place { index, of };
        let (lack, why, again) = match there.get(&index).map(Vec::as_slice) {
            None => (
                Lack::Lost,
                format!("is not there ({})", share(parts, place)),
                again(header, place),
            ),
            Some([part]) => match left(part, merged.as_ref()) {
                Some((lack, why)) => {
                    let why = format!("({}) {why}", part.path.display());
                    let mut again = again(header, place);
                    match lack {
                        Lack::Foreign => again.push("--fresh".to_owned()),
                        Lack::Unclear => again.clear(),
                        _ => {}
                    }
                    (lack, why, again)
                }
                None => continue,
            },
            Some(several) => {
                let paths = several.iter().map(|part| part.path.display().to_string());
                let paths = paths.collect::<Vec<_>>().join(" and ");
                let said = format!("shard {place} is there twice: {paths}; leave one out");
                found.push(Problem {
                    place,
                    lack: Lack::Foreign,
                    said,
                    again: Vec::new(),
                });
                continue;
            }
        };
        found.push(Problem {
            place,
            lack,
            said: format!("shard {place} {why}"),
            again,
        });
    }
    found
}

/// In what two machines differ, where their names do not tell.
fn unlike(home: &Fingerprint, other: &Fingerprint) -> String {
    if home.name != other.name {
        return String::new();
    }
    let facts = home.hard.iter().filter_map(|(fact, there)| {
        let here = other.hard.get(fact).filter(|here| *here != there)?;
        Some(format!("{fact} is {here} here and {there} there"))
    });
    let facts: Vec<String> = facts.collect();
    format!(" ({})", facts.join(", "))
}

/// What falls to a part that is not there.
fn share(parts: &[Part], place: Place) -> String {
    let portion = parts[0].shard().parts.get(place.index as usize - 1);
    counted(portion.map_or(0, |portion| portion.cases), "case")
}

/// What a part has left to measure.
fn left(part: &Part, merged: Option<&LastMerge>) -> Option<(Lack, String)> {
    if let Some(parted) = merged.and_then(|merged| merged.parted(part)) {
        return Some(parted);
    }
    let (there, planned) = (part.regular, part.planned());
    if let Some(damage) = part.run.damage.first() {
        let said = format!(
            "has {} that cannot be used (line {}: {})",
            counted(part.run.damage.len(), "line"),
            damage.line,
            damage.problem
        );
        return Some((Lack::Unfinished, said));
    }
    if there < planned {
        let said = match there {
            0 => format!(
                "is empty: it has none of {}",
                counted(planned, "measurement")
            ),
            _ => format!(
                "was stopped: it has {there} of {}",
                counted(planned, "measurement")
            ),
        };
        return Some((Lack::Unfinished, said));
    }
    let (fresh, owes) = (part.fresh, part.owes);
    (fresh < owes).then(|| {
        let said = format!("owes fresh invocations: it has {fresh} of {owes}");
        (Lack::Owes, said)
    })
}

/// The command that measures a part, from one that measured another.
fn again(header: &RunHeader, place: Place) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut argv = header.argv.iter();
    while let Some(word) = argv.next() {
        if word == "--shard" {
            argv.next();
        } else if !word.starts_with("--shard=") && word != "--fresh" {
            words.push(word.clone());
        }
    }
    words.extend(["--shard".to_owned(), place.to_string()]);
    words
}
