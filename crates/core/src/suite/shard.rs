//! Which part of a suite is measured on one machine of several.
//!
//! Every machine deals the cases by itself and comes to the same parts, for they follow from the
//! cases alone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use regatta_worker::attention::{Case, ParseError, work};

/// The most shards of a suite.
const MOST: u32 = 10_000;

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
        format!("shard-{}-of-{}", self.index, self.of)
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

/// Deals cases to so many shards as cards are dealt: the dearest first, by the operations of
/// their problems, one to each shard in turn. Each shard has its cases sorted.
pub fn deal(cases: &[Case], of: u32) -> Vec<Vec<Case>> {
    let mut cards: Vec<(f64, &Case)> = cases
        .iter()
        .map(|case| (work::flops(&case.problem), case))
        .collect();
    cards.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let mut shards = vec![Vec::new(); of as usize];
    for (place, (_, case)) in cards.into_iter().enumerate() {
        shards[place % of as usize].push(case.clone());
    }
    shards.iter_mut().for_each(|shard| shard.sort());
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_dealt_in_turn_the_dearest_first_whatever_their_order() {
        let ids = ["s16", "s32", "s64", "s128", "s256"].map(|seq| format!("cpu/a:{seq},d64"));
        let mut cases: Vec<Case> = ids.iter().map(|id| id.parse().unwrap()).collect();
        let dealt = deal(&cases, 2);
        let named = |shard: &[Case]| shard.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            named(&dealt[0]),
            [&ids[0], &ids[2], &ids[4]].map(Clone::clone)
        );
        assert_eq!(named(&dealt[1]), [&ids[1], &ids[3]].map(Clone::clone));
        cases.reverse();
        assert_eq!(deal(&cases, 2), dealt);
        assert_eq!(
            deal(&cases, 7).iter().filter(|one| one.is_empty()).count(),
            2
        );
    }
}
