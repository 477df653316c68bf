//! Optional inputs. Each is also an axis with its name and the values `true` and `false`.

use super::operands::Role;
use super::{AxisKind, DeclaredProblem, Operator};
use crate::case::ParamValue;

impl AxisKind {
    /// The axis of an optional input, which is present by default.
    pub fn optional() -> AxisKind {
        AxisKind::Words(["true", "false"].map(str::to_owned).to_vec())
    }
}

impl Operator {
    /// The optional inputs that a problem leaves out.
    pub fn left_out(&self, problem: &DeclaredProblem) -> Vec<String> {
        let is_off = |name: &&String| problem.axes.get(*name) == Some(&ParamValue::from("false"));
        let optional = self.inputs.iter().filter(|(_, input)| input.optional);
        optional
            .map(|(name, _)| name)
            .filter(is_off)
            .cloned()
            .collect()
    }

    /// The key of an input that must not be optional, and the reason.
    pub fn objection_to_optional(&self) -> Option<(String, String)> {
        let scales = || self.inputs.values().filter_map(|one| one.scale.as_ref());
        let optional = || self.inputs.iter().filter(|(_, input)| input.optional);
        let objection = optional().find_map(|(name, input)| {
            let why = if input.role == Role::State {
                "a call leaves results in a state: a state is given to each"
            } else if input.scale.is_some() || scales().any(|scale| scale == name) {
                "a scale and what it scales are given together: neither is optional"
            } else {
                return None;
            };
            Some((format!("inputs.{name}.optional"), why.to_owned()))
        });
        objection.or_else(|| {
            (optional().count() == self.inputs.len()).then(|| {
                let why = "every input is optional: a call is given one at the least";
                ("inputs".to_owned(), why.to_owned())
            })
        })
    }
}
