//! One run of all parts of a suite.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use jiff::Timestamp;

use super::Part;
use crate::attention::CaseId;
use crate::output::Draft;
use crate::record::RecordError;
use crate::record::run_file::{DraftedRun, RunWriter};
use crate::record::shard::{Merged, MergedShard};
use crate::record::side::Side;
use crate::record::types::{Owed, RunHeader};

/// The header of the run that parts make together, and its plan with the number of the part
/// that each case is of. `argv` is the command that makes it.
pub fn joined_header(parts: &[Part], argv: Vec<String>) -> RunHeader {
    let of_part = |part: &Part| {
        let index = part.place().index;
        let plan = part.run.header.plan.iter().cloned();
        plan.map(|case| (case, index)).collect::<Vec<_>>()
    };
    let mut of: Vec<(CaseId, u32)> = parts.iter().flat_map(of_part).collect();
    // As a suite has its cases: by what they are, not by how that is written.
    of.sort_by_cached_key(|(id, _)| (id.case().ok(), id.clone()));
    let shards = parts.iter().map(|part| MergedShard {
        index: part.place().index,
        started: part.run.header.started,
        hosts: hosts(part),
        cases: part.run.header.plan.len(),
    });
    let merged = Merged {
        merged: Timestamp::now(),
        shards: shards.collect(),
        shard_of: of.iter().map(|(_, index)| *index).collect(),
    };
    let mut header = parts[0].run.header.clone();
    let starts = parts.iter().map(|part| part.run.header.started);
    header.started = starts.min().unwrap_or(header.started);
    for part in parts {
        let own = &part.run.header;
        header.built.extend(own.built.clone());
        header.peaks.extend(own.peaks.clone());
    }
    if let Some(turn) = &mut header.turn {
        let pairs = parts
            .iter()
            .filter_map(|part| part.run.header.turn.as_ref());
        let pairs: Vec<&str> = pairs.map(|turn| turn.pair.as_str()).collect();
        turn.pair = format!("merged-{:08x}", crc32fast::hash(pairs.join(" ").as_bytes()));
    }
    header.plan = of.into_iter().map(|(case, _)| case).collect();
    header.argv = argv;
    header.shard = None;
    header.merged = Some(merged);
    header
}

/// The hosts that a part was measured on, in their order.
fn hosts(part: &Part) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for host in part.run.parts.iter().filter_map(|one| one.host.as_ref()) {
        if found.last() != Some(host) {
            found.push(host.clone());
        }
    }
    found
}

/// What parts found together.
pub fn joined_side(parts: &[Part], header: &RunHeader, label: &str) -> Side {
    let cases = parts.iter().flat_map(|part| part.side.cases.clone());
    Side {
        label: label.to_owned(),
        header: header.clone(),
        cases: cases.collect(),
        damage: Vec::new(),
    }
}

/// The batches of fresh invocations that parts were asked for, as one run would have been.
pub fn owed_of(parts: &[Part]) -> Vec<Owed> {
    let mut batches: BTreeMap<u32, Owed> = BTreeMap::new();
    let mut cases: BTreeMap<u32, BTreeSet<CaseId>> = BTreeMap::new();
    for owed in parts.iter().flat_map(|part| &part.run.owed) {
        batches.entry(owed.fresh).or_insert_with(|| owed.clone());
        let of_batch = cases.entry(owed.fresh).or_default();
        of_batch.extend(owed.cases.iter().cloned());
    }
    let batches = batches.into_iter().map(|(fresh, batch)| Owed {
        cases: cases.remove(&fresh).into_iter().flatten().collect(),
        ..batch
    });
    batches.collect()
}

/// Drafts the run that parts make together in a folder: their lines, as they are.
///
/// # Errors
/// When it cannot be written, a part can no longer be read, or another process writes there.
pub fn draft(folder: &Path, header: &RunHeader, parts: &[Part]) -> Result<DraftedRun, RecordError> {
    RunWriter::draft(folder, header, &owed_of(parts), |to| {
        for part in parts {
            lines(&part.path, to)?;
        }
        Ok(())
    })
}

/// The beginning of the line of an entry.
const ENTRY: &[u8] = b"{\"kind\":\"entry\"";

/// So much is written at once.
const MANY: usize = 1 << 18;

/// Copies the entries of a run, of which none is damaged.
fn lines(path: &Path, to: &mut Draft) -> Result<(), RecordError> {
    let io = |error| RecordError::io(path, error);
    let mut file = BufReader::with_capacity(MANY, File::open(path).map_err(io)?);
    let mut kept = Vec::with_capacity(2 * MANY);
    loop {
        let before = kept.len();
        let read = file.read_until(b'\n', &mut kept).map_err(io)?;
        match kept[before..].starts_with(ENTRY) {
            false => kept.truncate(before),
            // The last one may have no end.
            true if !kept.ends_with(b"\n") => kept.push(b'\n'),
            true => {}
        }
        if kept.len() >= MANY || read == 0 {
            to.add(&kept)?;
            kept.clear();
        }
        if read == 0 {
            return Ok(());
        }
    }
}
