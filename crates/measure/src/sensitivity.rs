//! Checks that a declared operator's tolerance notices changes. Each input that is drawn again, and
//! each scalar that is doubled, has to move a result by several limits; otherwise a kernel that
//! ignores it would pass.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::SetupError;
use crate::conformance::{Check, CheckResult};
use crate::session::reference_worker;
use crate::worker::Launcher;
use crate::workers::Processes;
use regatta_core::suite::Suite;
use regatta_worker::case::Dtype;
use regatta_worker::operator::{DeclaredProblem, Direction, Operands, Operator};
use regatta_worker::protocol::{Compare, ReplyBody, RequestBody, TensorError};

/// A change of an input has to move a result by at least this many limits.
pub const LIMITS: f64 = 4.0;

/// Stands in place of an input's name for the comparison of the reference's gradients with finite
/// differences.
const DIFFERENCES: &str = "=";

/// The largest error of a float64 gradient relative to finite differences.
const DIFFERENCES_LIMIT: f64 = 1e-4;

/// Checks the reference of each declared operator of a suite on its smallest case of each dtype,
/// by each axis of words, with and without each optional input.
///
/// # Errors
/// A reference cannot be started, or the suite has none.
pub fn check(suite: &Suite, logs: PathBuf) -> Result<Vec<Check>, SetupError> {
    let smallest = smallest(suite);
    if smallest.is_empty() {
        return Err(SetupError(format!(
            "suite {} has no case of a declared operator with a reference; there is nothing to check \
             (docs/OPERATORS.md)",
            suite.name
        )));
    }
    let names: Vec<String> = smallest
        .keys()
        .map(|(name, ..)| reference_worker(name))
        .collect();
    let limit = Duration::from_secs(suite.settings.timeout_s.into());
    let mut processes = Processes::find(names.iter(), suite, None, logs)?.introducing(Some(limit));
    let mut checks = Vec::new();
    for ((name, _, _, _, has_backward), (operator, problem)) in smallest {
        // Outputs are included, since an input that is added moves no gradient.
        let mut problem = problem.clone();
        if has_backward {
            problem = problem.with(Direction::Both);
        }
        let operands = operator
            .operands(&problem)
            .map_err(|(key, why)| SetupError(format!("operators.{name}.{key}: {why}")))?;
        let mut reference = processes.start(&reference_worker(name))?;
        let request = RequestBody::Compare(Compare {
            operands: operands.clone(),
            seed: suite.settings.seed,
            results: None,
        });
        let moved = match reference.ask(request, limit)? {
            ReplyBody::Compared { errors } => errors,
            ReplyBody::Failed { reason } => return Err(SetupError(reason)),
            other => return Err(SetupError(format!("the reference answered {other:?}"))),
        };
        checks.extend(judged(&problem, &operands, &moved));
    }
    Ok(checks)
}

/// An operator's name, a dtype, the words, the inputs that are left out, and whether there are
/// gradients.
type Group<'s> = (
    &'s String,
    Dtype,
    BTreeMap<String, String>,
    Vec<String>,
    bool,
);

/// The smallest case of each group, for operators with a reference.
fn smallest(suite: &Suite) -> BTreeMap<Group<'_>, (&Operator, &DeclaredProblem)> {
    let mut smallest: BTreeMap<_, (&Operator, &DeclaredProblem)> = BTreeMap::new();
    for problem in suite
        .cases
        .iter()
        .filter_map(|case| case.problem.declared())
    {
        let Some((name, operator)) = suite.operators.get_key_value(&problem.operator) else {
            continue;
        };
        if operator.reference.is_none() {
            continue;
        }
        let has_backward = operator.direction(problem).has_backward();
        let kept = smallest
            .entry((
                name,
                problem.dtype,
                operator.words(problem),
                operator.left_out(problem),
                has_backward,
            ))
            .or_insert((operator, problem));
        if operator.memory_bytes(problem) < operator.memory_bytes(kept.1) {
            *kept = (operator, problem);
        }
    }
    smallest
}

/// A check for each input or scalar: the output that it moves most, in limits.
fn judged(
    problem: &DeclaredProblem,
    operands: &Operands,
    moved: &BTreeMap<String, TensorError>,
) -> Vec<Check> {
    let mut by_input: BTreeMap<&str, (f64, &str)> = BTreeMap::new();
    for (names, error) in moved {
        let Some((input, output)) = names.split_once(' ') else {
            continue;
        };
        if input == DIFFERENCES {
            continue;
        }
        let limit = operands.outputs.iter().find(|one| one.name == output);
        let limit = limit.map_or(f64::INFINITY, |one| one.limit);
        let limits = match error.relative_l2 {
            // Any change of a result that is compared exactly is noticed.
            Some(error) if error > 0.0 || limit > 0.0 => error / limit,
            Some(_) => 0.0,
            None => f64::INFINITY,
        };
        let most = by_input.entry(input).or_insert((limits, output));
        if limits > most.0 {
            *most = (limits, output);
        }
    }
    let checked = moved.iter().filter_map(|(names, error)| {
        let (_, output) = names
            .split_once(' ')
            .filter(|(name, _)| *name == DIFFERENCES)?;
        let error = error.relative_l2.unwrap_or(f64::INFINITY);
        let result = if error <= DIFFERENCES_LIMIT {
            CheckResult::Passed
        } else {
            CheckResult::Failed(format!(
                "it lies {error:.1e} of its size from them: correct the reference's gradients"
            ))
        };
        Some(Check {
            name: format!("{problem}: {output} is the gradient that finite differences give"),
            result,
        })
    });
    let checks = by_input.into_iter().map(|(input, (limits, output))| {
        let changed = if operands.scalars.contains_key(input) {
            "doubled"
        } else {
            "drawn again"
        };
        let result = if limits >= LIMITS {
            CheckResult::Passed
        } else {
            CheckResult::Failed(format!(
                "it moves {output} by {limits:.1} limits, and {LIMITS} are needed: a kernel that \
                 ignores `{input}` would pass. Draw the inputs so that it matters, or lower the \
                 tolerance"
            ))
        };
        Check {
            name: format!("{problem}: {input} {changed} moves the results"),
            result,
        }
    });
    checked.chain(checks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::operator::{ElementType, OutputTensor};

    #[test]
    fn an_input_that_moves_no_result_is_named() {
        let operands = Operands {
            scalars: BTreeMap::from([("eps".to_owned(), 1e-6)]),
            outputs: vec![OutputTensor {
                name: "y".to_owned(),
                shape: vec![4],
                dtype: ElementType::F32,
                limit: 5e-6,
                in_place: None,
            }],
            ..Operands::default()
        };
        let error = |relative| TensorError {
            relative_l2: Some(relative),
            max_abs: None,
        };
        let moved = BTreeMap::from([
            ("eps y".to_owned(), error(1e-6)),
            ("x y".to_owned(), error(1.4)),
        ]);
        let problem = "rmsnorm,rows=8,dtype=f32".parse().unwrap();
        let checks = judged(&problem, &operands, &moved);
        let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        let doubled = "rmsnorm,rows=8,dtype=f32: eps doubled moves the results";
        assert_eq!(names[0], doubled);
        assert_eq!(checks[1].result, CheckResult::Passed);
        let CheckResult::Failed(why) = &checks[0].result else {
            panic!("{checks:?}");
        };
        let expected = "it moves y by 0.2 limits, and 4 are needed";
        assert!(why.starts_with(expected), "{why}");
    }
}
