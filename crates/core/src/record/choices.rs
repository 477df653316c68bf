//! What a tuner chose for a case, invocation by invocation.
//!
//! A tuner that times its candidates may choose otherwise in the next process. Then a case has
//! the times of several kernels, and which of them was timed is known here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use regatta_worker::attention::ParamValue;

/// A parameter that a tuner chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Tuned {
    /// What it chose.
    pub value: ParamValue,
    /// True where a case may ask for it: the variant has a parameter of this name that takes
    /// the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinnable: bool,
}

/// What a tuner chose, by the parameter's name.
pub type Choices = BTreeMap<String, Tuned>;

/// What a tuner chose in some invocations of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Choice {
    /// By the parameter's name; empty where the tuner told nothing in these.
    pub tuned: Choices,
    /// The numbers of these invocations, from 0, rising.
    pub invocations: Vec<u32>,
}

/// Takes in what was chosen in an invocation. Choices keep the order in which they were first
/// made.
pub fn add(all: &mut Vec<Choice>, invocation: u32, tuned: &Choices) {
    match all.iter_mut().find(|choice| choice.tuned == *tuned) {
        Some(choice) => choice.invocations.push(invocation),
        None => all.push(Choice {
            tuned: tuned.clone(),
            invocations: vec![invocation],
        }),
    }
}

/// The same of the invocations of these numbers alone, which then go by their places in
/// `numbers`.
pub fn placed(all: &[Choice], numbers: &[u32]) -> Vec<Choice> {
    let placed = all.iter().map(|choice| {
        let places = (0..).zip(numbers);
        let places = places.filter(|(_, number)| choice.invocations.contains(number));
        Choice {
            tuned: choice.tuned.clone(),
            invocations: places.map(|(place, _)| place).collect(),
        }
    });
    placed
        .filter(|choice| !choice.invocations.is_empty())
        .collect()
}

/// The choice that most invocations have; of two that as many have, the one that was made first.
pub fn usual(all: &[Choice]) -> Option<&Choice> {
    // `max_by_key` takes the last of equals.
    let rated = all.iter().rev();
    rated.max_by_key(|choice| choice.invocations.len())
}

/// The choice of the first invocation, in which structure is counted.
pub fn counted(all: &[Choice]) -> Option<&Choice> {
    all.iter().min_by_key(|choice| choice.invocations.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(block: i64) -> Choices {
        let tuned = Tuned {
            value: ParamValue::Int(block),
            pinnable: true,
        };
        BTreeMap::from([("BLOCK_M".to_owned(), tuned)])
    }

    #[test]
    fn what_was_chosen_goes_by_the_places_of_the_times_that_are_kept() {
        let mut all = Vec::new();
        for (invocation, block) in [(0, 64), (1, 128), (2, 64), (3, 32)] {
            add(&mut all, invocation, &chosen(block));
        }
        let kept = placed(&all, &[1, 2]);
        let told: Vec<_> = kept.iter().map(|of| (&of.tuned, &of.invocations)).collect();
        assert_eq!(
            told,
            [(&chosen(64), &vec![1]), (&chosen(128), &vec![0])],
            "those of the others are not kept"
        );
    }
}
