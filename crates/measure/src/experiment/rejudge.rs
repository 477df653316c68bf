//! Judges a stored run again with the base and the pairs that it had when it was measured.

use std::path::{Path, PathBuf};
use std::slice;

use super::ExperimentError;
use super::stored::{StoredRun, baseline_of, find, read};
use regatta_core::record::baseline::Store;
use regatta_core::record::run_file::RUN_FILE;
use regatta_core::record::{BaseId, Side, in_turn};
use regatta_judge::judgement::Judgement;
use regatta_judge::{self as judge, Options};

/// A stored run with its judgement.
pub struct Rejudged {
    /// The run that is judged.
    pub head: StoredRun,
    /// The base of the comparison.
    pub base: Option<Side>,
    /// The judgement.
    pub judgement: Judgement,
}

impl Rejudged {
    fn new(head: StoredRun, base: Option<Side>, options: &Options) -> Rejudged {
        let judgement = judge::judge(&head.side, base.as_ref(), options);
        Rejudged {
            head,
            base,
            judgement,
        }
    }
}

/// The head's run file if `name` is the folder of a comparison.
pub fn head_of_comparison(name: &str) -> Option<PathBuf> {
    let folder = Path::new(name);
    let head = folder.join("head").join(RUN_FILE);
    (!folder.join(RUN_FILE).exists() && head.is_file()).then_some(head)
}

/// Judges a run again, including runs of a gate or a comparison.
///
/// # Errors
/// The run's base cannot be read, or has changed since: exit code 2.
pub fn rejudge(mut head: StoredRun, store: &Store) -> Result<Rejudged, ExperimentError> {
    let folder = head.path.parent().unwrap_or(Path::new(".")).to_owned();
    let name = folder.display().to_string();
    let comparison = folder.parent().filter(|_| folder.ends_with("head"));
    if comparison.is_some() {
        head.side.label = label(&head.side).unwrap_or(name.clone());
    }
    if let (Some(_), Some(comparison)) = (&head.side.header.pairing, comparison) {
        let base = beside(&comparison.join("base"), &head.side)?.ok_or_else(|| {
            ExperimentError::Usage(format!(
                "{}: no base lies beside it that was measured in pairs with it; --base RUN compares it \
                 with another run",
                comparison.display()
            ))
        })?;
        return Ok(Rejudged::new(head, Some(base), &Options::COMPARISON));
    }
    let judged = head.run.end.as_ref().and_then(|end| end.judged.as_ref());
    let Some(id) = judged.and_then(|judged| judged.base.clone()) else {
        return Ok(Rejudged::new(head, None, &Options::ALONE));
    };
    let base = match comparison {
        Some(_) => stored_run(&id, store)?,
        None => baseline_of(store, &id.name, &head.side.header)?
            .filter(|base| base.id == id)
            .map(|base| base.side),
    };
    let base = base.ok_or_else(|| {
        ExperimentError::Usage(format!(
            "{name} was judged against `{}`, which changed since or is gone; --base RUN compares it \
             with another run",
            id.name
        ))
    })?;
    let options = match comparison {
        Some(_) => Options::COMPARISON,
        None => Options::GATE,
    };
    let mut rejudged = Rejudged::new(head, Some(base), &options);
    if let Some(pairs) = pairs_of(&folder, &rejudged.head.side)? {
        rejudged.judgement = judge::with_pairs(rejudged.judgement, pairs, &options);
    }
    Ok(rejudged)
}

/// The run that `compare --base run:NAME` used as its base; `None` if it has changed since.
fn stored_run(id: &BaseId, store: &Store) -> Result<Option<Side>, ExperimentError> {
    let stored = find(slice::from_ref(&id.name), store, None)?;
    Ok((stored.checksum() == id.sum).then_some(stored.side))
}

/// The judgement of the pairs that a gate measured; `None` if it measured none.
fn pairs_of(folder: &Path, head: &Side) -> Result<Option<Judgement>, ExperimentError> {
    let [base_folder, head_folder] = ["base", "head"].map(|side| folder.join("pairs").join(side));
    let path = head_folder.join(RUN_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let mut pairs = read(&path, "")?.side;
    // An earlier gate may have left these pairs.
    if pairs.header.started < head.header.started {
        return Ok(None);
    }
    pairs.label = label(&pairs).unwrap_or_default();
    let base = beside(&base_folder, &pairs)?;
    Ok(base.map(|base| judge::judge(&pairs, Some(&base), &Options::COMPARISON)))
}

/// The base that was measured in pairs with `head`.
fn beside(folder: &Path, head: &Side) -> Result<Option<Side>, ExperimentError> {
    let path = folder.join(RUN_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let mut base = read(&path, "")?.side;
    base.label = label(&base).unwrap_or_default();
    let paired = in_turn(&base.header, &head.header);
    Ok(paired.then(|| base.as_base_of(&head.header)))
}

/// The requested versions of a side.
fn label(side: &Side) -> Option<String> {
    Some(side.header.pairing.as_ref()?.version.join(" "))
}
