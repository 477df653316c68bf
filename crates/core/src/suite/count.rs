//! `[[count]]`: functions of a worker's process whose calls are counted.

use serde::{Deserialize, Serialize};

use super::document::{DocumentError, Table, Value, nearest};
use super::selector::glob;
use regatta_worker::attention::Case;

/// Functions whose calls are one kind of event, counted over steady calls of some cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Count {
    /// Of the count: `backend_selections` is counted as `calls.backend_selections`.
    pub name: String,
    /// A worker, or a glob over variants: `torch`, `torch/sdpa-*`.
    pub worker: String,
    /// Each `module:qualified.name`.
    pub functions: Vec<String>,
}

/// Counts that workers make without being asked.
const BUILT_IN: [&str; 4] = [
    "triton_autotune",
    "triton_compile",
    "torch_compile",
    "jax_compile",
];

impl Count {
    /// True when it is made on this case.
    pub fn selects(&self, case: &Case) -> bool {
        self.worker == case.variant.worker || glob(&self.worker, &case.variant.to_string())
    }
}

/// Reads one `[[count]]`; all sweeps have been read.
///
/// # Errors
/// The first thing in it that cannot stand.
pub(super) fn count(
    table: &Table<'_>,
    counted: &[Count],
    cases: &[Case],
) -> Result<Count, DocumentError> {
    let title = table.require("name")?;
    let name = name(&title)?;
    if counted.iter().any(|other| other.name == name) {
        return Err(title.error(format!(
            "calls.{name} is counted already; name it otherwise"
        )));
    }
    let worker = table.require("worker")?;
    let mut functions = Vec::new();
    for value in table.require("function")?.one_or_more()? {
        functions.push(function(&value)?);
    }
    let count = Count {
        name,
        worker: worker.string()?,
        functions,
    };
    if !cases.iter().any(|case| count.selects(case)) {
        let known = cases.iter().map(|case| case.variant.worker.as_str());
        let hint = nearest(&count.worker, known)
            .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        return Err(worker.error(format!(
            "selects no case of this suite; give a worker (`torch`) or a glob over variants \
             (`torch/sdpa-*`){hint}"
        )));
    }
    table.finish()?;
    Ok(count)
}

/// `backend selections` as `backend_selections`.
fn name(title: &Value<'_>) -> Result<String, DocumentError> {
    let text = title.string()?.to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join("_");
    if name.is_empty() {
        return Err(title.error("a count needs a name with letters or digits"));
    }
    if BUILT_IN.contains(&name.as_str()) {
        return Err(title.error(format!(
            "calls.{name} is counted without being asked for; name it otherwise"
        )));
    }
    Ok(name)
}

fn function(value: &Value<'_>) -> Result<String, DocumentError> {
    let text = value.string()?;
    let identifier = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_')
            && letters.all(|c| c.is_alphanumeric() || c == '_')
    };
    let dotted = |path: &str| path.split('.').all(identifier);
    match text.split_once(':') {
        Some((module, qualified)) if dotted(module) && dotted(qualified) => Ok(text),
        _ => Err(value.error(
            "name a function as `module:qualified.name`, for example \
             `torch.nn.attention:sdpa_kernel` or `package.module:Class.method`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::suite::Suite;
    use crate::suite::document::Source;

    fn suite(count: &str) -> Result<Suite, String> {
        let source = Source {
            label: "s.toml".to_owned(),
            text: format!(
                "schema = 1\ndescription = \"d\"\n[[sweep]]\n\
                 variants = [\"torch/sdpa-flash\", \"torch/efficient@old\", \"cpu/flash\"]\n\
                 seq = 8\nhead_dim = 8\n[[count]]\n{count}"
            ),
        };
        let base = |name: &str| crate::suite::load(name);
        super::super::parse::suite("s", &source, &base).map_err(|error| error.to_string())
    }

    const NAME: &str = "name = \"Backend selections\"\n";
    const FUNCTION: &str = "function = \"torch.nn.attention:sdpa_kernel\"\n";

    fn selected(worker: &str) -> Vec<String> {
        let suite = suite(&format!("{NAME}worker = \"{worker}\"\n{FUNCTION}")).unwrap();
        let count = &suite.counts[0];
        assert_eq!(count.name, "backend_selections");
        assert_eq!(count.functions, ["torch.nn.attention:sdpa_kernel"]);
        let cases = suite.cases.iter().filter(|case| count.selects(case));
        cases.map(|case| case.variant.to_string()).collect()
    }

    #[test]
    fn a_count_is_made_on_a_worker_or_on_variants() {
        let all = ["torch/efficient@old", "torch/sdpa-flash"];
        assert_eq!(selected("torch"), all);
        assert_eq!(selected("torch/*"), all);
        assert_eq!(selected("torch/sdpa-*"), ["torch/sdpa-flash"]);
        assert_eq!(selected("*"), ["cpu/flash", all[0], all[1]]);
    }

    #[test]
    fn what_cannot_be_counted_is_refused_with_its_line() {
        let refused = |count: &str| suite(count).unwrap_err();
        for (worker, fix) in [
            ("torhc", "did you mean `torch`?"),
            ("jax", "a glob over variants"),
        ] {
            let error = refused(&format!("{NAME}worker = \"{worker}\"\n{FUNCTION}"));
            let place = format!("s.toml:9: count[0].worker = \"{worker}\": selects no case");
            assert!(error.starts_with(&place) && error.contains(fix), "{error}");
        }
        for function in ["sdpa_kernel", "a:", "a.:b", "a:1b", "a:b:c", "a:b()"] {
            let error = refused(&format!(
                "{NAME}worker = \"torch\"\nfunction = [\"a:b\", \"{function}\"]"
            ));
            let place =
                format!("s.toml:10: count[0].function[1] = \"{function}\": name a function");
            assert!(error.starts_with(&place), "{error}");
        }
        for (name, reason) in [
            (
                "Triton autotune",
                "calls.triton_autotune is counted without being asked for",
            ),
            ("--", "letters or digits"),
        ] {
            let error = refused(&format!(
                "name = \"{name}\"\nworker = \"torch\"\n{FUNCTION}"
            ));
            assert!(
                error.starts_with("s.toml:8: count[0].name") && error.contains(reason),
                "{error}"
            );
        }
        let twice = format!("{NAME}worker = \"torch\"\n{FUNCTION}");
        let error = refused(&format!("{twice}[[count]]\n{twice}"));
        assert!(
            error.contains("calls.backend_selections is counted already"),
            "{error}"
        );
    }
}
