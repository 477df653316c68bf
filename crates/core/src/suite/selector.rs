//! Which cases are meant: by their facets, or by patterns of ids.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::short;
use regatta_worker::attention::Case;

/// Selects cases: every facet named must have one of the values listed.
/// Facets are the axes, `variant`, `worker`, `environment`, and parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Selector(pub BTreeMap<String, Vec<String>>);

impl Selector {
    /// True when the case has one of the listed values in every facet named.
    pub fn matches(&self, case: &Case) -> bool {
        self.0
            .iter()
            .all(|(facet, values)| values.contains(&case.facet(facet)))
    }

    /// The facets it names.
    pub fn facets(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Display for Selector {
    /// `worker torch, num_splits auto`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facets = self.0.iter();
        let facets: Vec<String> = facets
            .map(|(facet, values)| format!("{facet} {}", values.join("|")))
            .collect();
        f.write_str(&facets.join(", "))
    }
}

/// True where an id matches one of the patterns, or there are none.
pub fn matches_any(patterns: &[String], id: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches_id(pattern, id))
}

/// True when a case id matches a pattern: a [`glob`] when it holds `*`, else a part
/// of the id.
pub fn matches_id(pattern: &str, id: &str) -> bool {
    match pattern.contains('*') {
        true => glob(pattern, id),
        false => id.contains(pattern),
    }
}

/// True when a pattern is of a kernel, count or parameter: by its whole name, or by the short one
/// that reports print.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    glob(pattern, name) || glob(pattern, &short(name))
}

/// `*` stands for any text, also across `/`, `:` and `,`; all else for itself.
///
/// Greedy with one point to return to: linear in practice, and no pattern is
/// special beyond `*`, since case ids hold characters that globs treat otherwise.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}
