//! A run that is a part of another, and a run that was made of such parts.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attention::CaseId;
use crate::suite::shard::Place;

/// What a run is that measured a part of a suite: with it, a header says what all the parts
/// must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// Which part it is.
    #[serde(flatten)]
    pub place: Place,
    /// What falls to each part, in the order of their numbers.
    pub parts: Vec<Portion>,
    /// What is to become of the whole.
    pub asked: Asked,
}

impl Shard {
    /// What in it cannot be, as a sentence.
    pub fn objection(&self) -> Option<String> {
        let Place { index, of } = self.place;
        if let Err(problem) = Place::new(index, of) {
            return Some(problem.to_string());
        }
        let parts = self.parts.len();
        (parts != of as usize).then(|| format!("shard {} tells of {parts} parts", self.place))
    }
}

/// What falls to a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Portion {
    /// Cases in it.
    pub cases: usize,
    /// Checksum of their ids.
    pub sum: String,
}

impl Portion {
    /// That of these cases, in whatever order: a plan has that of its suite, which is not that
    /// of ids.
    pub fn of(cases: &[CaseId]) -> Portion {
        let mut sorted: Vec<&CaseId> = cases.iter().collect();
        sorted.sort();
        let mut hasher = crc32fast::Hasher::new();
        for case in sorted {
            hasher.update(case.0.as_bytes());
            hasher.update(b"\n");
        }
        Portion {
            cases: cases.len(),
            sum: format!("{:08x}", hasher.finalize()),
        }
    }
}

/// A baseline as it was when a run was held against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaseId {
    /// Its name.
    pub name: String,
    /// Checksum of its file.
    pub sum: String,
}

impl BaseId {
    /// The other side of a comparison, which is measured in turn and stored nowhere.
    pub fn in_turn(label: String) -> BaseId {
        BaseId {
            name: label,
            sum: "measured in turn".to_owned(),
        }
    }
}

/// What is to become of the whole that a part belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// It is judged by itself.
    Run,
    /// It is held against a baseline.
    Gate {
        /// Which; `None`: limits alone were asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<BaseId>,
    },
    /// Its two sides are held against each other.
    Compare {
        /// True where the suite's expectations and limits are held against the head as well.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        demands: bool,
    },
}

impl Asked {
    /// True where two parts are to become the same. Of another kind of machine the baseline is
    /// another file of the same name.
    pub fn is_as(&self, other: &Asked, one_kind: bool) -> bool {
        match (self, other) {
            (Asked::Gate { base: Some(own) }, Asked::Gate { base: Some(other) }) => {
                own.name == other.name && (!one_kind || own.sum == other.sum)
            }
            _ => self == other,
        }
    }

    /// The command whose part it is.
    pub fn command(&self) -> &'static str {
        match self {
            Asked::Run => "run",
            Asked::Gate { .. } => "gate",
            Asked::Compare { demands: false } => "compare",
            Asked::Compare { demands: true } => "gate --against",
        }
    }
}

/// What a run was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// When.
    pub merged: Timestamp,
    /// The parts, in the order of their numbers.
    pub shards: Vec<MergedShard>,
    /// The number of the part that each case of the plan is of, in the plan's order.
    pub shard_of: Vec<u32>,
}

/// A part that was merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergedShard {
    /// Its number.
    pub index: u32,
    /// When it began.
    pub started: Timestamp,
    /// The hosts it was measured on, in their order; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Its cases.
    pub cases: usize,
}

impl MergedShard {
    /// Where it was measured, in words: its hosts, or its number where they are not known.
    pub fn machine(&self) -> String {
        match self.hosts.is_empty() {
            true => format!("that of shard {}", self.index),
            false => self.hosts.join(", then "),
        }
    }
}

impl Merged {
    /// The part that a case is of, by its place in the plan.
    pub fn of(&self, place: usize) -> Option<&MergedShard> {
        let index = self.shard_of.get(place)?;
        self.shards.iter().find(|shard| shard.index == *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_there_is_not_and_parts_that_are_not_told_are_refused() {
        let shard = |index, of, parts| Shard {
            place: Place { index, of },
            parts: vec![Portion::of(&[]); parts],
            asked: Asked::Run,
        };
        assert_eq!(shard(2, 3, 3).objection(), None);
        for wrong in [
            shard(0, 3, 3),
            shard(4, 3, 3),
            shard(1, u32::MAX, 1),
            shard(1, 3, 2),
        ] {
            assert!(wrong.objection().is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn a_portion_is_of_cases_and_not_of_their_order() {
        let cases =
            |ids: &[&str]| -> Vec<CaseId> { ids.iter().map(|&id| CaseId(id.to_owned())).collect() };
        // A suite has shapes in the order of their sizes, ids are sorted as text.
        let plan = cases(&["cpu/flash:s1024,d64", "cpu/flash:b2,h4,s512,d64"]);
        let dealt = cases(&["cpu/flash:b2,h4,s512,d64", "cpu/flash:s1024,d64"]);
        assert_eq!(Portion::of(&plan), Portion::of(&dealt));
        assert_ne!(Portion::of(&plan), Portion::of(&plan[..1]));
    }
}
