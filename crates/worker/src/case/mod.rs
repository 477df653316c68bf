//! Cases of any operator, and their canonical ids.

mod dtype;
mod params;
mod text;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};

pub use dtype::Dtype;
pub use params::{AUTO, NAME_RULE, ParamValue, Params, VariantId, is_name, parameter_name};
pub use text::ParseError;
pub(crate) use text::refuse;

use crate::operator::{AXES, DeclaredProblem, Problem};
use params::plain_name;
use rustc_hash::FxHashMap;

/// The largest value of an axis: far more than fits into memory, and small enough that products of
/// several axes can be counted.
pub const MAX_AXIS: u32 = 1 << 24;

/// The facets of a case other than its problem's axes and its parameters.
const OF_CASES: [&str; 3] = ["variant", "worker", "environment"];

/// The names of a case's facets other than parameters, in the order of the columns of `cases.csv`:
/// those of its variant, and every axis of the native operator.
pub const FACETS: [&str; OF_CASES.len() + AXES.len()] = {
    let mut names = [""; OF_CASES.len() + AXES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = if at < OF_CASES.len() {
            OF_CASES[at]
        } else {
            AXES[at - OF_CASES.len()].name
        };
        at += 1;
    }
    names
};

/// Variant × problem × parameters: what is measured under one name.
///
/// An id such as `torch/efficient:s10000,d32,bwd:num_splits_key=1` parses back to the same case.
/// The last part is absent if no parameter is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Case {
    /// The implementation.
    pub variant: VariantId,
    /// The problem that it computes.
    pub problem: Problem,
    /// The parameters that are set.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
}

impl Case {
    /// The canonical id.
    pub fn id(&self) -> CaseId {
        CaseId(self.to_string().into())
    }
}

impl Case {
    /// A property of the case as text, by its name in suites: a facet of [`FACETS`], or a parameter
    /// (`auto` if it is not set).
    ///
    /// `variant` is `worker/name` without the environment, which is a facet of its own (empty if it
    /// is the default). An axis that the problem does not have is empty. All facets of a script's
    /// call are parameters.
    pub fn facet(&self, name: &str) -> String {
        match name {
            "variant" => return format!("{}/{}", self.variant.worker, self.variant.name),
            "worker" => return self.variant.worker.clone(),
            "environment" => return self.variant.environment.clone().unwrap_or_default(),
            _ => {}
        }
        if self.problem.is_call() {
            let value = self.params.get(name);
            return if value.is_auto() {
                String::new()
            } else {
                value.to_string()
            };
        }
        match self.problem.axis(name) {
            Some(value) => value,
            None if FACETS.contains(&name) => String::new(),
            None => self.params.get(name).to_string(),
        }
    }

    /// The value of an axis; empty if the problem does not have it.
    pub fn axis(&self, name: &str) -> String {
        self.problem.axis(name).unwrap_or_default()
    }

    /// The names of further axes by which cases differ: `operator` and the axes of declared
    /// operators that are not in [`FACETS`]. Empty if all cases are of the native operator.
    pub fn declared_axes<'c>(cases: impl IntoIterator<Item = &'c Case>) -> Vec<String> {
        let cases = cases.into_iter().filter(|case| !case.problem.is_call());
        let declared = cases.filter_map(|case| case.problem.declared());
        let axes = declared.flat_map(|problem| ["operator"].into_iter().chain(axis_names(problem)));
        let axes: BTreeSet<&str> = axes.filter(|name| !FACETS.contains(name)).collect();
        let mut axes: Vec<String> = axes.into_iter().map(str::to_owned).collect();
        axes.sort_by_key(|name| name != "operator");
        axes
    }
}

fn axis_names(problem: &DeclaredProblem) -> impl Iterator<Item = &str> {
    problem.axes.keys().map(String::as_str)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.variant)?;
        if !self.problem.is_call() || self.params.is_empty() {
            write!(f, ":{}", self.problem)?;
        }
        for (i, (name, value)) in self.params.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Case, ParseError> {
        let (variant, rest) = text.split_once(':').ok_or_else(|| {
            ParseError::new(format!(
                "`{text}` is not a case id; write one as `cpu/flash:h8,s2048,d64,causal`"
            ))
        })?;
        // A call of a script may have only parameters.
        let first = rest.split([',', ':']).next().unwrap_or_default();
        let rest = if first.contains('=') {
            format!("call:{rest}")
        } else {
            rest.to_owned()
        };
        // A ragged problem may contain a colon. Parameters always contain `=`; a declared problem's
        // parameters come after its own colon.
        let (problem, params) = match rest.rsplit_once(':') {
            Some((problem, params)) if params.contains('=') => (problem, Some(params)),
            _ => (rest.as_str(), None),
        };
        let mut case = Case {
            variant: variant.parse()?,
            problem: known_problem(problem)?,
            params: Params::default(),
        };
        for pair in params.into_iter().flat_map(|params| params.split(',')) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                ParseError::new(format!("`{pair}` in `{text}` is not a parameter"))
            })?;
            if case.problem.is_call() {
                plain_name(name)?;
            } else {
                parameter_name(name)?;
            }
            if !case.params.get(name).is_auto() {
                refuse!("`{name}` is given twice in `{text}`");
            }
            case.params.set(name, value.parse()?);
        }
        Ok(case)
    }
}

/// More than the number of cases in a run.
const MAX_KNOWN: usize = 1 << 18;

/// Parses a problem, with a cache: the ids of all variants that compute it contain it.
fn known_problem(text: &str) -> Result<Problem, ParseError> {
    thread_local! {
        static KNOWN: RefCell<FxHashMap<Box<str>, Problem>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(problem) = known.get(text) {
            return Ok(problem.clone());
        }
        let problem: Problem = text.parse()?;
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(text.into(), problem.clone());
        Ok(problem)
    })
}

/// The canonical id of a case, for code that does not need the case itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
// Shared, since a run of many cases has each id in several places.
pub struct CaseId(pub Arc<str>);

thread_local! {
    /// Cases by id, because each id is parsed many times.
    static KNOWN: RefCell<FxHashMap<Arc<str>, Rc<Case>>> = RefCell::default();
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = CaseId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    /// The id, sharing the text of a known one: base and head have the same ids.
    fn visit_str<E>(self, text: &str) -> Result<CaseId, E> {
        KNOWN.with_borrow(|known| {
            let id = known.get_key_value(text).map(|(id, _)| id.clone());
            Ok(CaseId(id.unwrap_or_else(|| text.into())))
        })
    }
}

impl<'de> Deserialize<'de> for CaseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CaseId, D::Error> {
        deserializer.deserialize_str(IdVisitor)
    }
}

impl CaseId {
    /// The case of this id.
    ///
    /// # Errors
    /// [`Case`] does not write such an id.
    pub fn case(&self) -> Result<Rc<Case>, ParseError> {
        KNOWN.with_borrow_mut(|known| {
            if let Some(case) = known.get(&self.0) {
                return Ok(case.clone());
            }
            let case: Rc<Case> = Rc::new(self.0.parse()?);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(self.0.clone(), case.clone());
            Ok(case)
        })
    }
}

impl CaseId {
    /// A number that depends only on a seed and the id, the same on every machine (FNV-1a).
    pub fn drawn(&self, seed: u64) -> u64 {
        let start = 0xcbf2_9ce4_8422_2325 ^ seed;
        let bytes = self.0.bytes();
        bytes.fold(start, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joined::Joined;
    use proptest::prelude::*;

    use crate::case::ParamValue;

    #[test]
    fn only_what_differs_from_its_default_appears() {
        let mut case: Case = "torch/efficient:b1,h1,kv1,s10000,sk10000,d32,dv32,f32,full,bshd,bwd"
            .parse()
            .unwrap();
        assert_eq!(case.to_string(), "torch/efficient:s10000,d32,bwd");
        case.params.set("num_splits_key", ParamValue::Int(1));
        case.problem = "b2,h8,kv8,s10000,d32,bwd".parse().unwrap();
        assert_eq!(
            case.to_string(),
            "torch/efficient:b2,h8,s10000,d32,bwd:num_splits_key=1"
        );
    }

    #[test]
    fn a_case_of_a_declared_operator_has_its_axes_and_parameters() {
        let id = "mine/rmsnorm:rmsnorm,rows=8,width=64,dtype=bf16:block=4";
        let case: Case = id.parse().unwrap();
        assert_eq!(case.to_string(), id);
        let facets = ["operator", "rows", "dtype", "heads", "block", "warps"];
        let facets = facets.map(|name| case.facet(name));
        assert_eq!(facets, ["rmsnorm", "8", "bf16", "", "4", "auto"]);
        let native: Case = "cpu/flash:s8,d8".parse().unwrap();
        assert!(Case::declared_axes([&native]).is_empty());
        let axes = Case::declared_axes([&native, &case]);
        assert_eq!(axes, ["operator", "rows", "width"]);
    }

    #[test]
    fn an_id_that_is_read_again_shares_its_text() {
        let read = || -> CaseId { serde_json::from_str("\"cpu/flash:s8,d8,bwd\"").unwrap() };
        let first = read();
        first.case().unwrap();
        assert!(Arc::ptr_eq(&first.0, &read().0));
        assert_eq!(
            serde_json::to_string(&first).unwrap(),
            "\"cpu/flash:s8,d8,bwd\""
        );
    }

    #[test]
    fn malformed_ids_are_refused() {
        for id in [
            "cpu/flash",
            "flash:s1,d1",
            "cpu/flash:s0,d64",
            "cpu/flash:d64",
            "cpu/flash:s64,d64,x9",
            "cpu/flash:s64,d64,h3,kv2",
            "cpu/flash:s64,sk128,d64,causal",
            "cpu/flash:v10+20:30,d64",
            "cpu/flash:s64,s32,d64",
            "cpu/flash:s64,d64,causal,window-1-1",
            "cpu/flash:s64,d64,bf16,f16",
            "cpu/flash:s64,d64,b4294967295",
            "cpu/flash:v33554432,d64",
            "cpu/flash:s64,d64:n=1,n=2",
            "bench/main:n=1,n=2",
            "bench/main:call,n=2",
            "bench/main:n.m=2",
            "cpu/flash:s64,d64:n=1=2",
            "cpu/flash:s64,d64:n=",
            "cpu/flash:s64,d64:n=a b",
            "cpu/flash:s64,d64:n=a\u{202e}b",
            "cpu/flash:s64,d64:=1",
            "cpu/flash:s64,d64:n.m=1",
            "cpu/flash:s64,d64:dtype=bf16",
            "cpu/flash:s64,d64:seq=1",
            "cpu/..:s64,d64",
            "cpu/flash@..:s64,d64",
            "../flash:s64,d64",
        ] {
            assert!(id.parse::<Case>().is_err(), "{id} parsed");
        }
    }

    #[test]
    fn a_call_of_a_script_has_its_values_and_no_axes() {
        for id in [
            "bench/main.softmax:call",
            "bench/main.softmax:dtype=float32,heads=8",
        ] {
            let case: Case = id.parse().unwrap();
            assert!(case.problem.is_call());
            assert_eq!(case.to_string(), id);
        }
        let case: Case = "bench/run:dtype=float32,n=8".parse().unwrap();
        let facets = ["dtype", "heads", "n", "m", "worker"].map(|name| case.facet(name));
        assert_eq!(facets, ["float32", "", "8", "", "bench"]);
    }

    proptest! {
        /// Any combination of tokens is written and parsed back unchanged.
        #[test]
        fn ids_parse_back(
            n in prop::array::uniform8(1u32..500),
            given in prop::array::uniform9(any::<bool>()),
            ragged in any::<bool>(),
            mask in prop::sample::select(vec!["causal", "causal-br", "window-12-0-tl", "window-inf-3"]),
            environment in prop::option::of("[a-z][a-z0-9.-]{0,8}"),
            params in prop::sample::select(vec!["", ":access=copies", ":a=b,num_splits_key=-1"]),
        ) {
            let seq = if ragged {
            format!("v{}+{}:{}+{}", n[0], n[1], n[2], n[3])
            } else {
            format!("s{}", n[0])
            };
            let optional = [
                format!("b{}", n[4]), format!("h{}", 6 * n[5]), "kv3".to_owned(),
                format!("sk{}", n[1]), format!("dv{}", n[6]), "bf16".to_owned(), mask.to_owned(),
                "bhsd".to_owned(), "bwd".to_owned(),
            ];
            let tokens = optional.into_iter().zip(given).filter(|(_, given)| *given);
            let tokens = tokens.map(|(token, _)| token).chain([seq, format!("d{}", n[7])]);
            let problem = tokens.joined(",");
            let environment = environment.map_or(String::new(), |name| format!("@{name}"));
            let id = format!("torch/efficient{environment}:{problem}{params}");
            if let Ok(case) = id.parse::<Case>() {
                let written = case.to_string();
                prop_assert_eq!(written.parse::<Case>().unwrap(), case, "{}", written);
            }
        }
    }
}
