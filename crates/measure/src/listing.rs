//! Lists the calls of a suite's scripts, which are known once each script has run to its end. This
//! happens before anything is planned, on both sides of a comparison at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::SetupError;
use crate::interrupt;
use crate::worker::{Conversation, Launcher};
use crate::workers::Processes;
use regatta_core::suite::{Listed, Suite};
use regatta_core::temporary;
use regatta_worker::case::{Case, ParamValue, Params, VariantId, is_name};
use regatta_worker::operator::Problem;
use regatta_worker::protocol::{DeviceKind, Hello, ListedCall, ReplyBody, RequestBody};

/// The result of listing the calls of a script's worker.
#[derive(Clone, Debug)]
pub struct ListedWorker {
    /// The worker's hello.
    pub hello: Hello,
    /// The files that it had loaded at the end.
    pub loaded: BTreeSet<PathBuf>,
}

/// Listed workers by name.
pub type ListedWorkers = BTreeMap<String, ListedWorker>;

/// A script may take this many times the suite's time limit to run to its end.
const LONGEST_IN_LIMITS: u32 = 10;

/// The workers of a suite's scripts. Each stopped at the first call of its script.
pub struct Started {
    workers: Vec<(String, Box<dyn Conversation>)>,
    limit: Duration,
    /// The folder of their logs, kept while they run.
    _logs: TempDir,
}

impl Started {
    /// True if one of them uses a GPU: scripts that tune then run one after the other.
    pub fn are_on_gpu(&self) -> bool {
        let mut kinds = self.workers.iter();
        kinds.any(|(_, worker)| worker.hello().device.known_kind() == Some(DeviceKind::Cuda))
    }

    /// Runs each script to its end, and adds its calls to the suite's cases.
    ///
    /// # Errors
    /// A script ends with an exception, or a call has no valid case id.
    pub fn list(self, suite: &mut Suite) -> Result<ListedWorkers, SetupError> {
        let mut workers = BTreeMap::new();
        for (worker, mut conversation) in self.workers {
            let hello = conversation.hello().clone();
            let mut loaded = conversation.loaded();
            let calls = match conversation.ask(RequestBody::List, self.limit)? {
                ReplyBody::Listed { cases, files } => {
                    loaded.extend(files);
                    cases
                }
                ReplyBody::Failed { reason } => {
                    return Err(SetupError(format!("{worker}: {reason}")));
                }
                _ => {
                    return Err(SetupError(format!(
                        "worker {worker} lists no calls of a script: it answered something else"
                    )));
                }
            };
            for (order, call) in calls.into_iter().enumerate() {
                let (case, listed) = listed(&worker, order, call)?;
                if suite.listed.insert(case.id(), listed).is_none() {
                    suite.cases.push(case);
                }
            }
            workers.insert(worker, ListedWorker { hello, loaded });
        }
        let mut cases = std::mem::take(&mut suite.cases);
        in_order(suite, &mut cases);
        suite.cases = cases;
        Ok(workers)
    }
}

/// Starts the workers of a suite's scripts, in the checkout that `placed` puts them into. Returns
/// `None` if the suite has no scripts.
///
/// # Errors
/// A script does not run, or calls no timer; or `placed` fails.
pub fn start<E: From<SetupError>>(
    suite: &Suite,
    environment: Option<&str>,
    placed: impl FnOnce(Processes) -> Result<Processes, E>,
) -> Result<Option<Started>, E> {
    if suite.scripts.is_empty() {
        return Ok(None);
    }
    let logs = temporary::folder("logs").map_err(SetupError::from)?;
    interrupt::leaves(logs.path().to_owned());
    let limit = Duration::from_secs(suite.settings.timeout_s.into()) * LONGEST_IN_LIMITS;
    let folder = logs.path().to_owned();
    let processes = Processes::find(suite.scripts.iter(), suite, environment, folder)?;
    let mut processes = placed(processes.introducing(Some(limit)))?;
    let mut workers = Vec::new();
    for worker in &suite.scripts {
        let conversation = processes.start(worker).map_err(SetupError::from)?;
        workers.push((worker.clone(), conversation));
    }
    Ok(Some(Started {
        workers,
        limit,
        _logs: logs,
    }))
}

/// Adds the calls of a suite's scripts to its cases, for a suite that is not measured.
///
/// # Errors
/// As [`start`] and [`Started::list`].
pub fn list_here(suite: &mut Suite, environment: Option<&str>) -> Result<(), SetupError> {
    match start(suite, environment, Ok::<_, SetupError>)? {
        Some(started) => started.list(suite).map(drop),
        None => Ok(()),
    }
}

/// Makes the case of a listed call.
fn listed(worker: &str, order: usize, call: ListedCall) -> Result<(Case, Listed), SetupError> {
    let place = &call.place;
    if !is_name(&call.variant) {
        return Err(SetupError(format!(
            "{worker}, {place}: no case can be called `{}`",
            call.variant.escape_debug()
        )));
    }
    let mut params = Params::default();
    for (name, value) in call.params.iter() {
        // The value as it is parsed back from an id.
        let value: ParamValue = value
            .to_string()
            .parse()
            .map_err(|error| SetupError(format!("{worker}, {place}: {name}: {error}")))?;
        params.set(name, value);
    }
    let case = Case {
        variant: VariantId {
            worker: worker.to_owned(),
            name: call.variant,
            environment: None,
        },
        problem: Problem::call(),
        params,
    };
    if case.id().case().ok().as_deref() != Some(&case) {
        return Err(SetupError(format!(
            "{worker}, {place}: a case whose id cannot be read back: {case}"
        )));
    }
    let listed = Listed {
        order,
        place: call.place,
        outputs: call.outputs,
    };
    Ok((case, listed))
}

/// Sorts the calls of scripts into the order in which the scripts make them, after all other cases.
pub fn in_order(suite: &Suite, cases: &mut [Case]) {
    cases.sort_by_cached_key(|case| {
        let order = suite.listed.get(&case.id()).map(|listed| listed.order);
        (order, case.clone())
    });
}

/// Two calls that the scripts of both sides make in different order, as a sentence.
pub fn crossed(base: &Suite, head: &Suite) -> Option<String> {
    let mut cases: Vec<&Case> = head.cases.iter().collect();
    cases.retain(|case| base.listed.contains_key(&case.id()));
    cases.sort_by_key(|case| {
        (
            &case.variant.worker,
            head.listed.get(&case.id()).map(|one| one.order),
        )
    });
    let order = |case: &Case| base.listed.get(&case.id()).map(|listed| listed.order);
    let crossed = cases.windows(2).find(|two| {
        two[0].variant.worker == two[1].variant.worker && order(two[0]) > order(two[1])
    })?;
    let place = |suite: &Suite, case: &Case| suite.listed[&case.id()].place.clone();
    Some(format!(
        "the scripts of the two sides make their calls in another order, and stop at the same \
         calls: the head makes {} ({}) before {} ({}), the base after it; put them in the same \
         order, or leave one out with --filter",
        crossed[0],
        place(head, crossed[0]),
        crossed[1],
        place(head, crossed[1]),
    ))
}
