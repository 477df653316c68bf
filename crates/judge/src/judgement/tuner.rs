//! What a tuner chose of a case, where that was not one and the same.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use regatta_core::machine::Sides;
use regatta_worker::attention::{CaseId, ParamValue};
use regatta_worker::units::ARROW;

/// A tuner that chose otherwise: on the other side, or from one invocation to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Tuner {
    /// What the two sides mostly chose, where that differs, by the parameter's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<String, Sides<ParamValue>>,
    /// What a side chose, where its invocations differ: `the tuner chose BLOCK_M 64 in 3 of 5
    /// invocations, 128 in 2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsteady: Option<String>,
    /// True where the case is not judged for it: by what was chosen, the times lie apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several_times: bool,
    /// What the base mostly chose, by which both sides would run alike: of parameters that a
    /// case may ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pin: BTreeMap<String, ParamValue>,
    /// Parameters that no case can ask for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unpinnable: BTreeSet<String>,
}

impl Tuner {
    /// What the sides chose: `BLOCK_M 128 → 64`.
    pub fn chosen(&self) -> String {
        told(&self.changed)
    }

    /// What would tell the choice from the code: the words of a command line that pin it on
    /// both sides.
    pub fn advice(&self, case: &CaseId) -> String {
        let variant = case.case().map_or_else(
            |_| "its variant".to_owned(),
            |case| case.variant.to_string(),
        );
        let free: Vec<&str> = self.unpinnable.iter().map(String::as_str).collect();
        let free = match free.is_empty() {
            true => String::new(),
            false => format!(
                "{variant} has no parameter to ask for {} by",
                free.join(" and ")
            ),
        };
        if self.pin.is_empty() {
            return format!("nothing pins it: {free}");
        }
        let set = |(name, value): (&String, &ParamValue)| format!("--set {variant}.{name}={value}");
        let sets: Vec<String> = self.pin.iter().map(set).collect();
        let beside = match free.is_empty() {
            true => free,
            false => format!("; {free}"),
        };
        format!("pin it on both sides: {}{beside}", sets.join(" "))
    }
}

/// `BLOCK_M 128 → 64, num_warps 8 → 4`.
pub fn told(changed: &BTreeMap<String, Sides<ParamValue>>) -> String {
    let each = changed.iter();
    let each = each.map(|(name, value)| format!("{name} {} {ARROW} {}", value.base, value.head));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_a_command_line_or_says_that_there_is_none() {
        let case = CaseId("fake/gpu:s32,d16".to_owned());
        let mut tuner = Tuner {
            changed: BTreeMap::from([(
                "BLOCK_M".to_owned(),
                Sides::of(ParamValue::Int(128), ParamValue::Int(64)),
            )]),
            unsteady: None,
            several_times: false,
            pin: BTreeMap::from([("BLOCK_M".to_owned(), ParamValue::Int(128))]),
            unpinnable: BTreeSet::new(),
        };
        assert_eq!(told(&tuner.changed), "BLOCK_M 128 → 64");
        let pin = "pin it on both sides: --set fake/gpu.BLOCK_M=128";
        assert_eq!(tuner.advice(&case), pin);
        let free = "fake/gpu has no parameter to ask for engine by";
        tuner.unpinnable.insert("engine".to_owned());
        assert_eq!(tuner.advice(&case), format!("{pin}; {free}"));
        tuner.pin.clear();
        let none = format!("nothing pins it: {free}");
        assert_eq!(tuner.advice(&case), none);
    }
}
