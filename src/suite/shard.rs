//! Which part of a suite is measured on one machine of several.
//!
//! Every machine deals the cases by itself and comes to the same parts: they follow from the
//! cases, from the expectations, which need what they compare in one run, and from what each
//! case cost before. A group of cases goes to the shard that its name likes best and that has
//! room (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018), so
//! that no shard has much more than its share, and a case that is added moves few others.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rules::Expectation;
use crate::attention::{Case, CaseId, ParseError};
use crate::units::Nanoseconds;

/// The most shards of a suite.
pub const MOST: u32 = 10_000;

/// What a shard takes at the most, in shares: beyond it a group goes where it is liked less.
const ROOM: f64 = 1.05;

/// One of several shards: `3/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Place {
    /// Which: from 1.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl Place {
    /// The shard of this number, where there is one.
    ///
    /// # Errors
    /// What is wrong with the numbers, as a sentence.
    pub fn new(index: u32, of: u32) -> Result<Place, ParseError> {
        match (1..=MOST).contains(&of) && (1..=of).contains(&index) {
            true => Ok(Place { index, of }),
            false => Err(ParseError::new(format!(
                "there is no shard {index} of {of}: they count from 1 to N, and N is at most {MOST}"
            ))),
        }
    }

    /// What its folder is called.
    pub fn folder(self) -> String {
        format!("{}-of-{}", self.index, self.of)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Place {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Place, ParseError> {
        let numbers = text.split_once('/').and_then(|(index, of)| {
            let number = |text: &str| text.trim().parse::<u32>().ok();
            number(index).zip(number(of))
        });
        match numbers {
            Some((index, of)) => Place::new(index, of),
            None => Err(ParseError::new(format!(
                "`{text}` is no shard; one reads 3/8, the third of eight"
            ))),
        }
    }
}

/// What each case cost where it was measured before: the time of one invocation.
pub type Costs = BTreeMap<CaseId, Nanoseconds>;

/// What falls to each shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Dealt {
    /// The cases of each, sorted, in the order of their numbers.
    pub parts: Vec<Vec<CaseId>>,
    /// What each costs, in the costs' unit; one a case where none is known.
    pub loads: Vec<f64>,
    /// Cases whose cost is known.
    pub known: usize,
    /// Groups of cases that cannot be parted; a case that nothing holds is one.
    pub groups: usize,
    /// What no dealing of these groups is below: the dearest shard, in the costs' unit.
    pub least: f64,
}

impl Dealt {
    /// The dearest shard, in shares of the mean; `None` where there is nothing to do.
    pub fn imbalance(&self) -> Option<f64> {
        self.of_mean(self.loads.iter().copied().fold(0.0, f64::max))
    }

    /// The least that the dearest shard can have, in shares of the mean.
    pub fn least_imbalance(&self) -> Option<f64> {
        self.of_mean(self.least)
    }

    fn of_mean(&self, load: f64) -> Option<f64> {
        let sum: f64 = self.loads.iter().sum();
        (sum > 0.0).then(|| load * self.loads.len() as f64 / sum)
    }
}

/// Deals cases to `of` shards. What an expectation holds together stays together; a case whose
/// cost is not known counts as the mean of the others.
pub fn deal(cases: &[Case], expectations: &[Expectation], costs: &Costs, of: u32) -> Dealt {
    let ids: Vec<CaseId> = cases.iter().map(Case::id).collect();
    let known: Vec<f64> = ids
        .iter()
        .filter_map(|id| costs.get(id).map(|cost| cost.0))
        .collect();
    let usual = match known.is_empty() {
        true => 1.0,
        false => known.iter().sum::<f64>() / known.len() as f64,
    };
    let mut groups: Vec<Group> = together(cases, expectations)
        .into_iter()
        .map(|members| Group::of(&members, &ids, costs, usual))
        .collect();
    // The dearest first: what is small fills the room that is left.
    groups.sort_by(|a, b| b.cost.total_cmp(&a.cost).then_with(|| a.name.cmp(b.name)));
    let sum: f64 = groups.iter().map(|group| group.cost).sum();
    let dearest = groups.first().map_or(0.0, |group| group.cost);
    let room = (ROOM * sum / f64::from(of)).max(dearest);
    // Of one group more than there are shards, two share one: the two least of them at best.
    let cost_of = |place: u32| groups.get(place as usize).map_or(0.0, |group| group.cost);
    let shared = match cost_of(of) {
        0.0 => 0.0,
        cost => cost + cost_of(of - 1),
    };
    let (least, number) = (dearest.max(shared).max(sum / f64::from(of)), groups.len());
    let mut loads = vec![0.0; of as usize];
    let mut parts: Vec<Vec<CaseId>> = vec![Vec::new(); of as usize];
    for group in groups {
        let shard = group.shard(&loads, room);
        loads[shard] += group.cost;
        parts[shard].extend(group.members.iter().map(|place| ids[*place].clone()));
    }
    parts.iter_mut().for_each(|part| part.sort());
    Dealt {
        parts,
        loads,
        known: known.len(),
        groups: number,
        least,
    }
}

/// Cases that are measured in one run.
struct Group<'c> {
    /// The first of its cases' ids.
    name: &'c CaseId,
    /// Their places.
    members: Vec<usize>,
    cost: f64,
}

impl<'c> Group<'c> {
    fn of(members: &[usize], ids: &'c [CaseId], costs: &Costs, usual: f64) -> Group<'c> {
        let cost = |id: &CaseId| costs.get(id).map_or(usual, |cost| cost.0);
        let mut names: Vec<&CaseId> = members.iter().map(|place| &ids[*place]).collect();
        names.sort();
        Group {
            name: names[0],
            // In the order of their names, so that the sum is one whatever the order of cases.
            cost: names.iter().map(|id| cost(id)).sum(),
            members: members.to_vec(),
        }
    }

    /// The shard that the group likes best of those that have room for it; where none has, the
    /// one with the least.
    fn shard(&self, loads: &[f64], room: f64) -> usize {
        let name = self.name.drawn(0);
        let liking = |shard: usize| mixed(name ^ mixed(shard as u64 + 1));
        let fitting = (0..loads.len()).filter(|shard| loads[*shard] + self.cost <= room);
        let best = fitting.max_by_key(|shard| liking(*shard));
        let least = || {
            (0..loads.len()).min_by(|a, b| {
                let lighter = loads[*a].total_cmp(&loads[*b]);
                lighter.then_with(|| liking(*b).cmp(&liking(*a)))
            })
        };
        best.or_else(least).unwrap_or(0)
    }
}

/// Spreads a number over all its bits (the finalizer of SplitMix64: Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The places of cases, those in one list that an expectation holds against each other, by
/// whatever way.
fn together(cases: &[Case], expectations: &[Expectation]) -> Vec<Vec<usize>> {
    let mut leads: Vec<usize> = (0..cases.len()).collect();
    for rule in expectations {
        let mut first: HashMap<Vec<(String, String)>, usize> = HashMap::new();
        for (place, case) in cases.iter().enumerate() {
            if rule.case.matches(case) || rule.against.matches(case) {
                let with = *first.entry(rule.alike(case)).or_insert(place);
                let (a, b) = (lead(&mut leads, with), lead(&mut leads, place));
                leads[a.max(b)] = a.min(b);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in 0..cases.len() {
        let lead = lead(&mut leads, place);
        groups.entry(lead).or_default().push(place);
    }
    groups.into_values().collect()
}

/// The place that leads the group of another.
fn lead(leads: &mut [usize], mut place: usize) -> usize {
    while leads[place] != place {
        leads[place] = leads[leads[place]];
        place = leads[place];
    }
    place
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::suite;
    use crate::suite::rules::Selector;

    fn cases(number: usize) -> Vec<Case> {
        let ids = (0..number).map(|n| format!("cpu/a:s{},d64", 16 + n));
        ids.map(|id| id.parse().unwrap()).collect()
    }

    fn shard_of(dealt: &Dealt) -> BTreeMap<CaseId, usize> {
        let parts = dealt.parts.iter().enumerate();
        parts
            .flat_map(|(shard, part)| part.iter().map(move |case| (case.clone(), shard)))
            .collect()
    }

    #[test]
    fn every_case_falls_to_one_shard_whatever_their_order() {
        let mut cases = cases(1000);
        let dealt = deal(&cases, &[], &Costs::new(), 7);
        let all: Vec<&CaseId> = dealt.parts.iter().flatten().collect();
        assert_eq!(all.len(), 1000);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 1000);
        cases.reverse();
        assert_eq!(deal(&cases, &[], &Costs::new(), 7), dealt);
        assert!(dealt.imbalance().unwrap() <= ROOM);
    }

    #[test]
    fn a_case_that_is_added_or_dearer_moves_few_others() {
        let cases = cases(1001);
        let few = |now: &Dealt, then: &Dealt| {
            let then = shard_of(then);
            let now = shard_of(now);
            let moved = then.iter().filter(|(case, shard)| now[*case] != **shard);
            moved.count()
        };
        let none = Costs::new();
        let then = deal(&cases[..1000], &[], &none, 8);
        let moved = few(&deal(&cases, &[], &none, 8), &then);
        assert!(moved <= 20, "{moved} of 1,000");
        // Another shard takes its share, from all of them.
        let nine = few(&deal(&cases[..1000], &[], &none, 9), &then);
        assert!(nine <= 250, "{nine} of 1,000");
    }

    #[test]
    fn what_is_dear_is_balanced_and_what_is_unknown_is_as_the_others() {
        let cases = cases(400);
        let costs: Costs = cases[..300]
            .iter()
            .enumerate()
            .map(|(n, case)| (case.id(), Nanoseconds(1e6 * 1.02_f64.powi(n as i32))))
            .collect();
        let dealt = deal(&cases, &[], &costs, 8);
        assert_eq!(dealt.known, 300);
        assert!(dealt.imbalance().unwrap() < 1.1, "{:?}", dealt.loads);
        let counts: Vec<usize> = dealt.parts.iter().map(Vec::len).collect();
        assert!(counts.iter().max() > counts.iter().min(), "{counts:?}");
    }

    #[test]
    fn what_is_held_together_falls_together() {
        let selector = |variant: &str| {
            let facets = [("variant".to_owned(), vec![variant.to_owned()])];
            Selector(facets.into())
        };
        let rule = Expectation {
            name: "a as good as b".to_owned(),
            case: selector("cpu/a"),
            against: selector("cpu/b"),
            within: crate::units::Ratio(1.1),
            metric: Default::default(),
        };
        let mut all = cases(60);
        for case in cases(60) {
            let id = case.to_string().replace("cpu/a", "cpu/b");
            all.push(id.parse().unwrap());
        }
        let rules = [rule];
        let dealt = deal(&all, &rules, &Costs::new(), 6);
        let at = shard_of(&dealt);
        for case in cases(60) {
            let other = CaseId(case.to_string().replace("cpu/a", "cpu/b"));
            assert_eq!(at[&case.id()], at[&other]);
        }
        assert!(dealt.imbalance().unwrap() <= 1.11, "{:?}", dealt.loads);
        assert_eq!((dealt.groups, dealt.least_imbalance()), (60, Some(1.0)));
        // 60 pairs in 8 shards: some have 8 pairs, where 7.5 are the mean.
        let eight = deal(&all, &rules, &Costs::new(), 8);
        assert!(eight.least_imbalance() <= eight.imbalance(), "{eight:?}");
    }

    #[test]
    fn no_dealing_is_below_the_least() {
        let cases = cases(7);
        let held = |costs: &[f64], of| {
            let named = cases.iter().map(Case::id);
            let costs = named
                .zip(costs.iter().map(|cost| Nanoseconds(*cost)))
                .collect();
            let dealt = deal(&cases, &[], &costs, of);
            let (least, most) = (dealt.least_imbalance(), dealt.imbalance());
            assert!(least <= most, "{dealt:?}");
            least.unwrap()
        };
        assert_eq!(held(&[1.0; 7], 8), 8.0 / 7.0, "one of eight has none");
        assert_eq!(
            held(&[4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 4),
            1.6,
            "the dearest"
        );
        assert_eq!(held(&[1.0; 7], 6), 2.0 * 6.0 / 7.0, "two share one");
        assert_eq!(held(&[1.0; 7], 1), 1.0);
    }

    #[test]
    fn the_built_in_suites_are_dealt_without_a_shard_that_has_most() {
        for (name, _) in suite::BUILTIN {
            let suite = suite::load(name).unwrap();
            for of in [1, 2, 4] {
                let dealt = deal(&suite.cases, &suite.rules.expectations, &Costs::new(), of);
                let all: usize = dealt.parts.iter().map(Vec::len).sum();
                assert_eq!(all, suite.cases.len(), "{name}");
            }
        }
    }

    #[test]
    fn a_place_reads_as_it_is_written() {
        let place: Place = "3/8".parse().unwrap();
        assert_eq!((place.index, place.of), (3, 8));
        assert_eq!(place.to_string(), "3/8");
        for wrong in [
            "0/8", "9/8", "3", "3/", "/8", "-1/8", "1/10001", "a/b", "1/0",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
