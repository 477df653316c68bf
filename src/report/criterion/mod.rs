//! A run in the files of criterion, for its tools and for `critcmp`.
//!
//! Every sample of the regular invocations is in `sample.json`, one call each, with
//! the invocation it is of; fresh invocations that confirmed a suspicion are left out,
//! as their cases were chosen for what they showed. The intervals in `estimates.json`
//! come from resampling invocations first and samples within them second
//! (`resample`): criterion's own resampling, which it does again on
//! `--load-baseline`, takes the samples for independent, and its intervals are too
//! narrow by as much as invocations differ.

mod resample;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::RenderError;
use crate::attention::{CaseId, work};
use crate::record::criterion::{Identity, Sample};
use crate::record::side::{Side, Status, is_time};
use crate::record::types::{Outcome, Run};

/// Criterion's statistics need two.
const FEWEST_SAMPLES: usize = 2;

/// What there is of a run in criterion's terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Files, their paths from criterion's folder, and their text.
    pub files: Vec<(PathBuf, String)>,
    /// Planned cases that have no files, and why.
    pub left_out: Vec<(CaseId, String)>,
}

/// The four files of every measured case, in folders named `baseline`.
///
/// # Errors
/// Only where JSON cannot be written.
pub fn tree(run: &Run, baseline: &str) -> Result<Tree, RenderError> {
    let side = Side::from_run("head", run);
    let mut taken = BTreeSet::new();
    let mut tree = Tree::default();
    for id in &run.header.plan {
        // A call over several problems does no known number of operations.
        let one = side.cases.get(id).is_none_or(|record| !record.several);
        let case = id.case().ok().filter(|_| one);
        let flops = case.map(|case| work::flops(&case.problem));
        // Taken even without files: criterion numbers every benchmark it hears of.
        let identity = Identity::of(id, flops, &mut taken);
        let invocations = invocations(run, id);
        let samples: usize = invocations.iter().map(|(_, times)| times.len()).sum();
        let reason = match side.cases.get(id).map(|record| &record.status) {
            Some(Status::Measured) if samples >= FEWEST_SAMPLES => None,
            Some(Status::Measured) => Some(format!("{samples} samples; criterion needs two")),
            Some(Status::Unsupported { reason }) => Some(format!("unsupported: {reason}")),
            Some(Status::Failed { reason, .. }) => Some(format!("failed: {reason}")),
            Some(Status::Missing { reason }) => Some(reason.clone()),
            None => Some("it is not in the run".to_owned()),
        };
        if let Some(reason) = reason {
            tree.left_out.push((id.clone(), reason));
            continue;
        }
        let folder = PathBuf::from(&identity.directory_name).join(baseline);
        let times: Vec<&[f64]> = invocations.iter().map(|(_, t)| t.as_slice()).collect();
        let mut add = |name: &str, text: String| tree.files.push((folder.join(name), text));
        add("benchmark.json", json(&identity)?);
        add(
            "estimates.json",
            json(&resample::estimates(&times, run.header.settings.seed))?,
        );
        add("sample.json", json(&sample(&invocations))?);
        add("tukey.json", json(&resample::fences(&times))?);
    }
    Ok(tree)
}

/// Usable device times of a case in each regular invocation, as criterion's files hold
/// them: plain numbers, ours in nanoseconds.
fn invocations(run: &Run, id: &CaseId) -> Vec<(u32, Vec<f64>)> {
    let planned = run.header.settings.invocations;
    let own = run.entries.iter();
    let own = own.filter(|entry| entry.case == *id && entry.invocation < planned);
    let mut found: Vec<(u32, Vec<f64>)> = own
        .filter_map(|entry| match &entry.outcome {
            Outcome::Measured(measurement) => {
                let times = measurement.device_ns.iter().copied();
                let times = times.filter(|time| is_time(*time)).map(|time| time.0);
                Some((entry.invocation, times.collect()))
            }
            _ => None,
        })
        .collect();
    found.retain(|(_, times)| !times.is_empty());
    found.sort_by_key(|(invocation, _)| *invocation);
    found
}

fn sample(invocations: &[(u32, Vec<f64>)]) -> Sample {
    let times: Vec<f64> = invocations.iter().flat_map(|(_, t)| t).copied().collect();
    let of = invocations
        .iter()
        .flat_map(|(number, times)| std::iter::repeat_n(*number, times.len()));
    Sample {
        sampling_mode: "Flat".to_owned(),
        iters: vec![1.0; times.len()],
        invocations: Some(of.collect()),
        times,
    }
}

fn json(value: &impl Serialize) -> Result<String, RenderError> {
    Ok(serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::criterion;
    use crate::report::{files, fixture};
    use crate::units::quantities;

    #[test]
    fn medians_of_invocations_come_back() {
        let scene = fixture::failed();
        let side = Side::from_run("head", &scene.head);
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(&scene.head, "main").unwrap();
        assert!(!tree.files.is_empty());
        for _ in 0..2 {
            files::write_tree(dir.path(), &tree).unwrap();
        }
        let read = criterion::read(dir.path(), "main").unwrap();
        let measured = side.cases.values().filter(|c| c.status == Status::Measured);
        assert_eq!(read.len(), measured.count());
        for benchmark in read {
            let identity = benchmark.identity;
            let function = identity.function_id.unwrap();
            let id = CaseId(format!("{}:{function}", identity.group_id));
            assert_eq!(benchmark.invocations, side.cases[&id].device_ns, "{id}");
        }
    }

    #[test]
    fn several_problems_a_call_have_no_throughput() {
        let mut scene = fixture::failed();
        let rates = |run: &Run| -> Vec<bool> {
            let tree = tree(run, "main").unwrap();
            let named = |(path, _): &&(PathBuf, String)| path.ends_with("benchmark.json");
            let identities = tree.files.iter().filter(named);
            let identities = identities.map(|(_, text)| serde_json::from_str(text).unwrap());
            identities
                .map(|identity: Identity| identity.throughput.is_some())
                .collect()
        };
        let plain = rates(&scene.head);
        assert!(plain.contains(&true));
        for entry in &mut scene.head.entries {
            if let Outcome::Measured(measurement) = &mut entry.outcome {
                measurement.several = true;
            }
        }
        let several = rates(&scene.head);
        assert_eq!(several.len(), plain.len());
        assert!(several.iter().all(|known| !known));
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let scene = fixture::failed();
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(&scene.head, "main").unwrap();
        let (name, _) = tree.files.last().unwrap();
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "{}").unwrap();
        let error = files::write_tree(dir.path(), &tree).unwrap_err();
        assert!(
            error.to_string().contains("--criterion-baseline"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        let written = criterion::read(dir.path(), "main").unwrap();
        assert!(written.is_empty(), "nothing else was: {written:?}");
    }

    #[test]
    fn what_is_no_time_is_no_sample() {
        let mut scene = fixture::failed();
        for entry in &mut scene.head.entries {
            if let Outcome::Measured(measurement) = &mut entry.outcome {
                measurement.device_ns = quantities([f64::NAN, 0.0, -1.0, f64::INFINITY]);
            }
        }
        let tree = tree(&scene.head, "main").unwrap();
        assert!(tree.files.is_empty());
        let needs = |(_, reason): &(CaseId, String)| reason.contains("criterion needs two");
        assert!(tree.left_out.iter().any(needs), "{:?}", tree.left_out);
    }

    #[test]
    fn a_case_without_a_time_is_left_out_with_its_reason() {
        let scene = fixture::incomplete();
        let tree = tree(&scene.head, "main").unwrap();
        let reasons: Vec<&str> = tree.left_out.iter().map(|(_, r)| r.as_str()).collect();
        assert!(
            reasons.iter().any(|r| r.starts_with("failed: ")),
            "{reasons:?}"
        );
        let files = tree.files.len() / 4 + tree.left_out.len();
        assert_eq!(files, scene.head.header.plan.len());
    }
}
