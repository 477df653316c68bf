//! The problems that a variant supports, and small problems to check it with.

use serde::{Deserialize, Serialize};

use super::{Attention, ProjectionKind};
use crate::operator::Problem;
use crate::protocol::VariantInfo;

/// The layers that a variant computes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Layers {
    /// Projections that it computes. If empty, it computes attention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projections: Vec<ProjectionKind>,
}

impl Layers {
    /// The names of its layers other than attention.
    pub fn names(&self) -> Vec<&'static str> {
        let projections = self.projections.iter();
        projections.map(|projection| projection.name()).collect()
    }
}

impl Problem {
    /// The problem as one of attention, for a worker that computes only attention.
    ///
    /// # Errors
    /// It is a problem of another operator.
    pub fn attention(&self) -> Result<&Attention, String> {
        let operator = || self.axis("operator").unwrap_or_default();
        let refused = || format!("this computes attention, not the operator `{}`", operator());
        self.native().ok_or_else(refused)
    }

    /// The problem after checking that its axes fit together, for a worker that computes only
    /// attention.
    ///
    /// # Errors
    /// Values contradict each other, or the problem is another operator's.
    pub fn validated(&self) -> Result<Problem, String> {
        let validated = self.attention()?.clone().validated();
        validated
            .map(Problem::from)
            .map_err(|error| error.to_string())
    }
}

impl From<Attention> for Problem {
    fn from(attention: Attention) -> Problem {
        Problem::Native(attention)
    }
}

impl Attention {
    /// The reason for which a variant does not compute this kind of problem, if any.
    ///
    /// The worker cannot be relied on for this: one that does not know projections ignores the
    /// field, as the protocol requires, and computes attention.
    pub fn refusal(&self, variant: &VariantInfo) -> Option<String> {
        let name = &variant.name;
        if let Some(arguments) = &variant.arguments
            && variant.directions.is_empty()
        {
            let why = arguments.only_declared.clone();
            let usual =
                || format!("`{name}` does not begin with the parameters q, k, v of attention");
            return Some(format!(
                "{}; for another computation declare an operator (docs/OPERATORS.md)",
                why.unwrap_or_else(usual)
            ));
        }
        let projections = &variant.layers.projections;
        match &self.projection {
            None if projections.is_empty() => None,
            None => Some(format!("`{name}` does projections, not attention")),
            Some(asked) if projections.contains(&asked.kind) => None,
            Some(_) if projections.is_empty() => {
                Some(format!("`{name}` does attention, not projections"))
            }
            Some(asked) => Some(format!("`{name}` does no {} projection", asked.kind)),
        }
    }
}

/// Small problems that reveal common mistakes: odd sizes, a mask, groups of heads, queries and keys
/// of different lengths.
const PROBLEMS: [&str; 4] = [
    "b2,h4,s33,d16",
    "b2,h4,s33,d16,causal",
    "b2,h4,kv2,s33,d16",
    "b2,h4,s33,sk40,d16,causal-br",
];

/// Problems with every direction and type of the variant, and odd shapes in the first of them. For
/// projections, small problems with one rank and with two, and different widths.
pub fn examples(variant: &VariantInfo) -> Vec<Attention> {
    let (directions, dtypes) = (&variant.directions, &variant.dtypes);
    let mut ids: Vec<String> = Vec::new();
    // A change of the number of ranks restarts them, so that loop is the outer one.
    for ranks in [1, 2] {
        let kinds = variant.layers.projections.iter().map(|kind| kind.short());
        ids.extend(kinds.map(|kind| format!("b2,h2,s24,d16,{kind}48,r{ranks}")));
    }
    let is_attention = ids.is_empty();
    if is_attention {
        let directions = directions.iter().map(|direction| direction.short());
        ids.extend(directions.map(|direction| format!("s48,d16,{direction}")));
    }
    let in_types = |id: &String| Vec::from_iter(dtypes.iter().map(|dtype| format!("{id},{dtype}")));
    let mut ids: Vec<String> = ids.iter().flat_map(in_types).collect();
    if let (true, Some(direction), Some(dtype)) = (is_attention, directions.first(), dtypes.first())
    {
        let direction = direction.short();
        ids.extend(PROBLEMS.map(|shape| format!("{shape},{direction},{dtype}")));
    }
    ids.iter().filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Dtype;
    use crate::operator::Direction;

    #[test]
    fn examples_have_every_direction_type_and_layer() {
        let mut variant = VariantInfo {
            directions: Direction::ALL.to_vec(),
            dtypes: Dtype::ALL.to_vec(),
            ..VariantInfo::default()
        };
        let attention = examples(&variant);
        assert_eq!(attention.len(), 3 * 3 + PROBLEMS.len());
        assert_eq!(attention[8].to_string(), "s48,d16,bf16,both");
        variant.layers.projections = ProjectionKind::ALL.to_vec();
        let projections = examples(&variant);
        assert_eq!(projections.len(), 2 * 2 * 3);
        assert_eq!(projections[11].to_string(), "b2,h2,s24,d16,bf16,rs48,r2");
    }

    #[test]
    fn a_worker_refuses_another_operator() {
        let declared: Problem = "rmsnorm,rows=8,dtype=f32".parse().unwrap();
        let reason = declared.attention().unwrap_err();
        let words = "this computes attention, not the operator `rmsnorm`";
        assert_eq!(reason, words);
    }
}
