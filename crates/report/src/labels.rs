//! Short case ids: the tokens that all ids of a list share are printed once, the others in each
//! label.
//!
//! Nothing is renamed: every token that a label leaves out is among the shared ones.

use std::collections::BTreeSet;

use super::text::one_line;
use regatta_worker::case::{Case, CaseId};
use regatta_worker::joined::Joined;
use regatta_worker::operator::{AXES, axis};

/// The short names of the cases of a list.
#[derive(Clone, Debug, Default)]
pub struct Labels<'a> {
    ids: Vec<&'a CaseId>,
    common: Vec<String>,
}

/// An id in its tokens: `torch/efficient`, `s4096` and `d32`, `num_splits_key=1`.
struct Tokens {
    variant: String,
    problem: Vec<String>,
    params: Vec<String>,
}

impl Tokens {
    fn new(case: &Case) -> Tokens {
        let problem = case.problem.to_string();
        let params = case.params.iter();
        Tokens {
            variant: case.variant.to_string(),
            problem: problem.split(',').map(str::to_owned).collect(),
            params: params
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        let variant = std::iter::once(&self.variant);
        variant.chain(&self.problem).chain(&self.params)
    }

    /// The tokens in the form of an id, without the common ones.
    fn without(&self, common: &[String]) -> String {
        let left = |tokens: &[String]| -> String {
            let tokens = tokens.iter().filter(|token| !common.contains(token));
            tokens.joined(",")
        };
        let variant = left(std::slice::from_ref(&self.variant));
        let parts = [variant, left(&self.problem), left(&self.params)];
        let parts = parts.iter().filter(|part| !part.is_empty());
        one_line(&parts.joined(":"))
    }
}

impl<'a> Labels<'a> {
    /// The labels of these cases. A single case keeps its id; if one id does not parse, all keep
    /// theirs.
    pub fn new(ids: impl IntoIterator<Item = &'a CaseId>) -> Labels<'a> {
        let ids: Vec<&CaseId> = ids.into_iter().collect();
        let common = match ids.len() {
            0 | 1 => None,
            _ => common(&ids),
        };
        match common {
            Some(common) => Labels { ids, common },
            None => Labels::default(),
        }
    }

    /// The tokens that all of them share: `torch/efficient, d32, bwd`; `None` if no token is shared.
    pub fn common(&self) -> Option<String> {
        (!self.common.is_empty()).then(|| one_line(&self.common.join(", ")))
    }

    /// The shared tokens, one by one.
    pub fn shared(&self) -> &[String] {
        &self.common
    }

    /// The label of a case: the tokens that not all share. A case that is not in the list has its
    /// id.
    pub fn label(&self, id: &CaseId) -> String {
        let case = id.case().ok().filter(|_| !self.ids.is_empty());
        let Some(case) = case else {
            return one_line(&id.0);
        };
        match Tokens::new(&case).without(&self.common) {
            label if label.is_empty() => self.unsaid(&case),
            label => label,
        }
    }

    /// The axes that a case's id leaves out and other ids name: `num_splits_key=auto`, `forward`.
    /// The id itself if it names every axis.
    fn unsaid(&self, case: &Case) -> String {
        let all = self.ids.iter().filter_map(|id| id.case().ok());
        let all: Vec<_> = all.collect();
        let parameters = all.iter().flat_map(|case| case.params.iter());
        let parameters: BTreeSet<&str> = parameters.map(|(name, _)| name.as_str()).collect();
        // A value that follows from another axis belongs to that axis.
        let axes = AXES.iter();
        let axes = axes.filter(|axis| !axis.follows_another());
        let names = axes.map(|axis| axis.name).chain(parameters);
        let parts = names.filter_map(|name| {
            let value = case.facet(name);
            let differs = all.iter().any(|other| other.facet(name) != value);
            (differs && !value.is_empty()).then(|| match axis(name) {
                Some(axis) if axis.is_token() => value,
                _ => format!("{name}={value}"),
            })
        });
        match parts.joined(",") {
            parts if parts.is_empty() => one_line(&case.to_string()),
            parts => one_line(&parts),
        }
    }
}

/// The tokens that all ids share, in their order in an id; `None` if an id does not parse.
fn common(ids: &[&CaseId]) -> Option<Vec<String>> {
    let mut common: Option<Vec<String>> = None;
    for id in ids {
        let case = id.case().ok()?;
        let tokens = Tokens::new(&case);
        match &mut common {
            None => common = Some(tokens.all().cloned().collect()),
            Some(common) => common.retain(|token| tokens.all().any(|shared| shared == token)),
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_have_is_said_once_and_no_case_is_left_without_a_name() {
        for (ids, common, each) in [
            (
                "torch/efficient:s5000,d32,bwd|torch/efficient:s10000,d32,bwd:num_splits_key=1",
                "torch/efficient, d32, bwd",
                "s5000|s10000:num_splits_key=1",
            ),
            (
                "cpu/flash:h8,s64,d64,causal|cpu/naive:h8,s64,d64",
                "h8, s64, d64",
                "cpu/flash:causal|cpu/naive",
            ),
            (
                "cpu/a:s64,d64|cpu/a:s64,d64,bwd",
                "cpu/a, s64, d64",
                "forward|bwd",
            ),
            (
                "cpu/a:s64,d64|cpu/a:s64,d64:n=4",
                "cpu/a, s64, d64",
                "n=auto|n=4",
            ),
            (
                "cpu/a:s64,d64|cpu/a:h8,s64,d64,causal",
                "cpu/a, s64, d64",
                "heads=1,full|h8,causal",
            ),
            ("cpu/a:s64,d64", "", "cpu/a:s64,d64"),
            (
                "no\u{1b}[2J case|cpu/a:s64,d64",
                "",
                "no case|cpu/a:s64,d64",
            ),
        ] {
            let ids: Vec<CaseId> = ids.split('|').map(|id| CaseId(id.into())).collect();
            let labels = Labels::new(&ids);
            let each_label: Vec<String> = ids.iter().map(|id| labels.label(id)).collect();
            assert_eq!(labels.common().unwrap_or_default(), common);
            assert_eq!(each_label.join("|"), each);
        }
    }
}
