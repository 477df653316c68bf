//! From a run's file to its side, without the run in between: an entry is read, reduced into
//! its case, and gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Side;
use super::reduce::{Fold, assembled};
use crate::record::RecordError;
use crate::record::run_file::{Looks, each};
use crate::record::types::{Entry, Run};
use crate::suite::Settings;

impl Side {
    /// Reads a run's file and reduces it; the run comes back without its entries.
    ///
    /// # Errors
    /// As [`run_file::read`](crate::record::run_file::read).
    pub fn read(path: &Path, label: &str) -> Result<(Run, Side), RecordError> {
        let mut folding = Folding {
            settings: Settings::default(),
            folds: Vec::new(),
            late: BTreeSet::new(),
        };
        let run = each(path, &mut folding)?;
        if !folding.late.is_empty() {
            let mut again = Again {
                late: &folding.late,
                found: BTreeMap::new(),
            };
            each(path, &mut again)?;
            for (place, invocations) in again.found {
                let mut fold = Fold::new(&folding.settings);
                for entry in invocations.values() {
                    fold.add(entry);
                }
                folding.folds[place] = fold;
            }
        }
        let side = assembled(label.to_owned(), &run, folding.folds);
        Ok((run, side))
    }
}

/// Every case of a run, as far as its file was read.
struct Folding {
    settings: Settings,
    folds: Vec<Fold>,
    /// Cases with an invocation that stands behind a later one: what was torn is measured
    /// last.
    late: BTreeSet<usize>,
}

impl Looks for Folding {
    fn begin(&mut self, run: &Run) {
        self.settings = run.header.settings.clone();
        self.folds = vec![Fold::new(&self.settings); run.header.plan.len()];
    }

    fn look(&mut self, place: usize, entry: Entry) {
        if !self.folds[place].add(&entry) {
            self.late.insert(place);
        }
    }
}

/// The invocations of the late cases, which are few, all at once and in their order.
struct Again<'f> {
    late: &'f BTreeSet<usize>,
    found: BTreeMap<usize, BTreeMap<u32, Entry>>,
}

impl Looks for Again<'_> {
    fn look(&mut self, place: usize, entry: Entry) {
        if self.late.contains(&place) {
            let of_case = self.found.entry(place).or_default();
            of_case.insert(entry.invocation, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Activity, DeviceState, Launch, Named, Operation, Structure, Work};
    use crate::record::run_file::{Opening, RunWriter};
    use crate::record::testing::header;
    use crate::record::types::{Fault, Measurement, Outcome, Owed};
    use crate::record::{run_file, types::BaseId};
    use regatta_worker::attention::{CaseId, ParamValue};
    use regatta_worker::protocol::Measured;
    use regatta_worker::units::{Nanoseconds, quantities};

    /// Everything that a measurement can hold.
    fn full(ns: f64) -> Outcome {
        let ran = Operation::new(Work::Kernel(Named::default()), 0, ns as u64);
        Outcome::Measured(Measurement {
            samples: Measured {
                device_ns: quantities([ns, 2.5 * ns, 0.1 + ns]),
                host_ns: quantities([9.0, 8.0, 7.0]),
                state: Some(DeviceState {
                    sm_mhz: Some(1980.0),
                    ..DeviceState::default()
                }),
                ..Measured::default()
            },
            first_call_ns: Nanoseconds(1e6),
            effective: [("num_splits_key".to_owned(), ParamValue::Int(157))].into(),
            errors: [("dq".to_owned(), 2e-5), ("dk".to_owned(), 0.5 / ns)].into(),
            structure: Some(Structure {
                launches: vec![Launch {
                    name: "a \"kernel\" }".to_owned(),
                    ..Launch::default()
                }],
                ..Structure::default()
            }),
            activity: Some(Box::new(Activity {
                operations: vec![ran],
                ..Activity::default()
            })),
            errors_after: [("dq".to_owned(), 1.25e-7)].into(),
            ..Measurement::default()
        })
    }

    fn written(outcomes: &[(usize, u32, Outcome)], owed: Option<Owed>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut header = header();
        header.plan = (0..4)
            .map(|n| CaseId(format!("cpu/a:s{},d64", 64 + n)))
            .collect();
        let (mut writer, _) = RunWriter::open(folder.path(), &header, &Opening::default()).unwrap();
        for (case, invocation, outcome) in outcomes {
            let entry = Entry {
                case: header.plan[*case].clone(),
                invocation: *invocation,
                outcome: outcome.clone(),
                start: None,
            };
            writer.append(&entry).unwrap();
        }
        if let Some(owed) = owed {
            writer.owe(owed).unwrap();
        }
        folder
    }

    /// Streamed or read whole and then reduced, a side is the same.
    #[test]
    fn a_side_is_the_same_however_it_is_read() {
        let mut outcomes = Vec::new();
        for invocation in 0..7 {
            for case in 0..3 {
                outcomes.push((case, invocation, full(100.0 + f64::from(invocation))));
            }
        }
        // One that was torn is measured last; one fails, one is refused, one is not there.
        outcomes.rotate_left(2);
        outcomes[8].2 = Outcome::Failed {
            reason: "it died".to_owned(),
            fault: Fault::Crash,
            log: String::new(),
        };
        outcomes[3].2 = Outcome::Unsupported {
            reason: "no".to_owned(),
        };
        let owed = Owed {
            base: BaseId {
                name: "s".to_owned(),
                sum: String::new(),
            },
            cases: vec![CaseId("cpu/a:s64,d64".to_owned())],
            fresh: 3,
        };
        let folder = written(&outcomes, Some(owed));
        let path = folder.path().join(run_file::RUN_FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        let torn = text.lines().nth(5).unwrap()[..90].to_owned();
        let twice = text.lines().nth(6).unwrap().to_owned();
        text += &format!("{torn}\n{twice}\r\n\n");
        std::fs::write(&path, text).unwrap();

        let mut whole = run_file::read(&path).unwrap();
        let (run, side) = Side::read(&path, "run").unwrap();
        assert_eq!(side, Side::from_run("run", &whole));
        assert_eq!(side.damage.len(), 3, "{:?}", side.damage);
        whole.entries.clear();
        assert_eq!(run, whole);
    }
}
