//! The demands of a suite on its results: expectations and policy.
//!
//! A run contains the rules of its suite, so that a stored run is judged by them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::document::name_hint;
use super::{Action, Kind, Quantity};
use crate::machine::short;
pub use crate::metric::{Metric, Values};
use regatta_worker::case::{Case, FACETS};
use regatta_worker::units::Share;

/// All demands of a suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The demands that need no baseline.
    pub expectations: Vec<Expectation>,
    /// The policy of the judge.
    pub policy: Policy,
}

/// The origin of a demand: file, line and key. It is ignored when demands are compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Origin(pub String);

impl Origin {
    /// True where it is not known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Eq for Origin {}

impl fmt::Display for Origin {
    /// ` (suites/decode.toml:41: expect[2])`, to end a sentence; nothing where it is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.0)
        }
    }
}

/// A demand that must hold inside one run, without any baseline. With `against` it is a relation:
/// each case that `case` selects takes at most `at_most` times as long as the best of the cases
/// that `against` selects and that are equal in everything that neither selector names. Otherwise
/// it is a limit on a figure of each case, or of each build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// A sentence: `automatic splits as good as the best explicit ones`.
    pub name: String,
    /// The cases that must meet it; a limit on builds has none.
    pub case: Selector,
    /// The cases that they are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Selector>,
    /// The quantity: with `against` a metric, else a figure.
    pub metric: Quantity,
    /// Pattern of the kernels to which it applies, by their full names or the short ones that
    /// reports print; `None` for all kernels that compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Smallest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest allowed value; with `against`, the largest allowed ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The origin in the suite.
    #[serde(default, skip_serializing_if = "Origin::is_empty")]
    pub origin: Origin,
}

impl Expectation {
    /// True for a value within its bounds.
    pub fn allows(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }

    /// All facets of a case that neither selector names, with their values. Cases for which these
    /// are equal are compared with each other.
    ///
    /// Facets overlap, and naming one also names the facets that it implies: a variant implies its
    /// worker, so a rule that names variants compares across workers, and a rule that names workers
    /// compares variants of the same name.
    pub fn alike(&self, case: &Case) -> Vec<(String, String)> {
        let named: BTreeSet<&str> = self.facets().collect();
        let variant = named.contains("variant");
        let free = |facet: &str| match facet {
            "worker" => variant || named.contains("worker"),
            facet => named.contains(facet),
        };
        let parameters = case.params.iter().map(|(name, _)| name.as_str());
        let declared = Case::declared_axes([case]);
        FACETS
            .into_iter()
            .chain(declared.iter().map(String::as_str))
            .chain(parameters)
            .filter(|facet| !free(facet))
            .map(|facet| {
                let value = match facet {
                    "variant" if named.contains("worker") => case.variant.name.clone(),
                    facet => case.facet(facet),
                };
                (facet.to_owned(), value)
            })
            .collect()
    }

    /// The facets that its selectors name.
    pub fn facets(&self) -> impl Iterator<Item = &str> {
        let selectors = std::iter::once(&self.case).chain(&self.against);
        selectors.flat_map(|selector| selector.0.keys().map(String::as_str))
    }
}

/// The policy of the judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Policy {
    /// The smallest relative change of the device time that counts, for example 0.05. A real change
    /// below it is not called a regression.
    pub threshold: Share,
    /// The smallest relative change of other metrics, where it is not the default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<Metric, Share>,
    /// The differences that are not judged.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignore: BTreeSet<Ignored>,
    /// The change that another day may bring when a stored run is compared; by default 1 % on a GPU
    /// and 3 % on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<Share>,
    /// Patterns of case ids (`*` matches anything) that may fail or be
    /// unsupported without making the run incomplete.
    #[serde(rename = "allow")]
    pub optional: Vec<String>,
}

/// A difference that is not judged: a metric (`host`), which is not compared, or a kind of
/// structural change (`launches`), which is recorded and shown only on the page. A kind may be
/// followed by a pattern of the changed kernel, count or parameter, which matches its full name or
/// the short one that reports print: `copies:*elementwise*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Ignored(String);

impl TryFrom<String> for Ignored {
    type Error = String;

    fn try_from(text: String) -> Result<Ignored, String> {
        let word = text.split(':').next().unwrap_or_default();
        if text.parse::<Metric>().is_ok() || word.parse::<Kind>().is_ok() {
            return Ok(Ignored(text));
        }
        let metrics = Metric::ALL.into_iter().map(Metric::name);
        let kinds = Kind::ALL.into_iter().map(Kind::name);
        let hint = name_hint(word, metrics.chain(kinds));
        Err(format!("no such metric or kind of change; {hint}"))
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ignored {
    /// True if it covers changes of this kind of the kernel, count or parameter `name`.
    fn covers(&self, kind: Kind, name: &str) -> bool {
        match self.0.split_once(':') {
            Some((word, pattern)) => word == kind.name() && matches_name(pattern, name),
            None => self.0 == kind.name(),
        }
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Ignored {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ignored".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let metrics = Metric::ALL.map(Metric::name).join("|");
        let kinds = Kind::ALL.map(Kind::name).join("|");
        schemars::json_schema!({
            "description": "A metric, or a kind of change of structure, also of what a pattern names.",
            "type": "string",
            "pattern": format!("^(({metrics})|({kinds})(:.+)?)$")
        })
    }
}

/// The default change that another day may bring on a GPU, and on a CPU: two sessions on one H100
/// agree within 0.6 % in each case.
const DAY: [Share; 2] = [Share(0.01), Share(0.03)];

impl Policy {
    /// The smallest relative change of a metric that counts.
    pub fn threshold_of(&self, metric: Metric) -> Share {
        let own = self.thresholds.get(&metric).copied();
        own.unwrap_or_else(|| metric.threshold(self.threshold))
    }

    /// True for a metric that is not compared.
    pub fn ignores(&self, metric: Metric) -> bool {
        self.ignore.iter().any(|ignored| ignored.0 == metric.name())
    }

    /// The effect on the verdict of a change of this kind in the kernel, count or parameter `name`.
    /// A change for the better is only recorded.
    pub fn action(&self, kind: Kind, name: &str) -> Action {
        if self.ignore.iter().any(|ignored| ignored.covers(kind, name)) {
            Action::Ignore
        } else {
            kind.default_action()
        }
    }

    /// The change that another day may bring on a device.
    pub fn day_on(&self, gpu: bool) -> Share {
        self.day.unwrap_or(DAY[usize::from(!gpu)])
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            threshold: Share(0.05),
            thresholds: BTreeMap::new(),
            ignore: BTreeSet::new(),
            day: None,
            optional: Vec::new(),
        }
    }
}

/// Selects cases whose facets each have one of the listed values. Facets are the axes, `variant`,
/// `worker`, `environment`, and parameters.
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

/// True if an id matches one of the patterns; also without any pattern.
pub fn matches_any(patterns: &[String], id: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches_id(pattern, id))
}

/// True when a case id matches a pattern: a [`glob`] when it holds `*`, else a part
/// of the id.
pub fn matches_id(pattern: &str, id: &str) -> bool {
    if pattern.contains('*') {
        glob(pattern, id)
    } else {
        id.contains(pattern)
    }
}

/// True when a pattern is of a kernel, count or parameter: by its whole name, or by the short one
/// that reports print.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    glob(pattern, name) || glob(pattern, &short(name))
}

/// Matches a text with a pattern in which `*` matches any text, also across `/`, `:` and `,`. Every
/// other character matches itself.
///
/// Greedy, with a single point for backtracking, so linear in practice. Only `*` is special,
/// because case ids contain characters that other globs would interpret.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_the_suites_or_follows_from_that_of_the_device() {
        let policy = |threshold: f64| Policy {
            threshold: Share(threshold),
            thresholds: [(Metric::Host, Share(0.3))].into(),
            ..Policy::default()
        };
        for (metric, at_2, at_8) in [
            (Metric::Device, 0.02, 0.08),
            (Metric::DeviceP90, 0.10, 0.24),
            (Metric::Host, 0.3, 0.3),
            (Metric::FirstCall, 1.0, 1.0),
            (Metric::PeakMemory, 0.10, 0.10),
            (Metric::CpuTime, 0.05, 0.08),
        ] {
            for (threshold, wanted) in [(0.02, at_2), (0.08, at_8)] {
                let actual = policy(threshold).threshold_of(metric).0;
                assert!((actual - wanted).abs() < 1e-12, "{metric:?}: {actual}");
            }
        }
        let usual = Policy::default();
        assert_eq!(usual.threshold_of(Metric::Host), Share(0.20));
        assert_eq!(usual.day_on(true), Share(0.01));
        assert_eq!(usual.day_on(false), Share(0.03));
        let own = Policy {
            day: Some(Share(0.0)),
            ..usual
        };
        assert_eq!(own.day_on(true), Share(0.0));
        assert_eq!(own.day_on(false), Share(0.0));
    }

    #[test]
    fn what_is_ignored_is_of_a_kind_and_of_what_its_pattern_names() {
        let ignoring = |texts: &[&str]| Policy {
            ignore: texts
                .iter()
                .map(|text| Ignored::try_from((*text).to_owned()).unwrap())
                .collect(),
            ..Policy::default()
        };
        let policy = ignoring(&["host", "fill", "block:vectorized_elementwise_kernel<4>"]);
        assert!(policy.ignores(Metric::Host) && !policy.ignores(Metric::Device));
        assert_eq!(policy.action(Kind::Fill, "flash_fwd"), Action::Ignore);
        assert_eq!(policy.action(Kind::Copies, "flash_fwd"), Action::Fail);
        assert_eq!(policy.action(Kind::Grid, "flash_fwd"), Action::Warn);
        // A report prints `vectorized_elementwise_kernel<4>` of this.
        let whole = "at::native::vectorized_elementwise_kernel<4>(int, float*)";
        assert_eq!(policy.action(Kind::Block, whole), Action::Ignore);
        assert_eq!(policy.action(Kind::Block, "flash_fwd"), Action::Warn);
        let long = ignoring(&["block:at::native::*(int, float*)"]);
        assert_eq!(long.action(Kind::Block, whole), Action::Ignore);
        let text = serde_json::to_string(&policy.ignore).unwrap();
        assert_eq!(
            serde_json::from_str::<BTreeSet<Ignored>>(&text).unwrap(),
            policy.ignore
        );
    }
}
