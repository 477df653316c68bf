//! Checks results of declared operators: against a reference that runs in a process of its own, or
//! the head's against the base's.
//!
//! A worker writes the results of a call into a folder. A reference is started like a worker, by
//! the name `reference:OPERATOR`. It draws the inputs again from the seed, computes in float64, and
//! reports the error of each result. It imports no code under test, so that code cannot influence
//! it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::interrupt;
use crate::verify::Rejected;
use crate::worker::{Conversation, Launcher};
use regatta_core::record::Fault;
use regatta_core::temporary;
use regatta_worker::operator::{Operands, Operator, OutputTensor};
use regatta_worker::protocol::{Compare, ReplyBody, RequestBody, TensorError};
use regatta_worker::tolerance::ErrorSums;

/// The worker that serves the reference of an operator.
pub fn reference_worker(operator: &str) -> String {
    format!("{REFERENCE_PREFIX}{operator}")
}

/// The prefix of a reference worker's name.
pub const REFERENCE_PREFIX: &str = "reference:";

/// The folder of results, and the reference processes that are running.
#[derive(Default)]
pub struct DeclaredResults {
    folder: Option<TempDir>,
    references: BTreeMap<String, Box<dyn Conversation>>,
}

impl DeclaredResults {
    /// The folder into which this side's worker of `block` writes the results of one case after the
    /// other. Blocks that run at the same time have separate folders.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn folder(&mut self, block: usize) -> Result<PathBuf, String> {
        let unmade = |error: io::Error| format!("no folder for results: {error}");
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => {
                let made = temporary::folder("results").map_err(unmade)?;
                interrupt::leaves(made.path().to_owned());
                made
            }
        };
        let path = self.folder.insert(folder).path().join(block.to_string());
        fs::create_dir_all(&path).map_err(unmade)?;
        Ok(path)
    }

    /// Compares the results in a folder with the operator's reference, if it has one.
    ///
    /// # Errors
    /// A result is wrong, or could not be checked.
    pub fn check(
        &mut self,
        launcher: &mut dyn Launcher,
        operator: &Operator,
        (operands, seed, results): (&Operands, u64, &Path),
        limit: Duration,
        after_timing: bool,
    ) -> Result<BTreeMap<String, f64>, Rejected> {
        let Some(reference) = &operator.reference else {
            return Ok(BTreeMap::new());
        };
        let unchecked = |reason: String| Rejected {
            fault: Fault::Unchecked,
            reason: format!("the reference {reference} could not check the result: {reason}"),
        };
        let compare = Compare {
            operands: operands.clone(),
            seed,
            results: Some(results.to_owned()),
        };
        let name = reference_worker(&operator.name);
        let mut worker = match self.references.remove(&name) {
            Some(worker) => worker,
            None => launcher
                .start(&name)
                .map_err(|error| unchecked(error.to_string()))?,
        };
        let reply = worker.ask(RequestBody::Compare(compare), limit);
        let reply = reply.map_err(|error| unchecked(error.to_string()))?;
        self.references.insert(name, worker);
        match reply {
            ReplyBody::Compared { errors } => {
                let held_to = format!(
                    "; it is compared with {reference} in float64. Where another formula is meant, \
                     change that function, or leave `reference` out of operator `{}`: then pairs \
                     compare the head's results with the base's",
                    operator.name
                );
                within(operands, &errors, after_timing, &held_to)
            }
            ReplyBody::Failed { reason } | ReplyBody::Unavailable { reason } => {
                Err(unchecked(reason))
            }
            other => Err(unchecked(format!("it answered {other:?}"))),
        }
    }
}

/// Compares the head's results with the base's for the same inputs.
///
/// # Errors
/// A difference exceeds the tolerance, or results cannot be read.
pub fn compare_sides(
    operator: &str,
    operands: &Operands,
    (base, head): (&Path, &Path),
    after_timing: bool,
) -> Result<BTreeMap<String, f64>, Rejected> {
    let mut errors = BTreeMap::new();
    for output in &operands.outputs {
        let name = &output.name;
        let error = difference(output, (base, head)).map_err(Rejected::unusable)?;
        let error = error.ok_or_else(|| Rejected {
            fault: Fault::Unchecked,
            reason: format!(
                "the base's result {name} has elements that are not finite, and operator \
                 `{operator}` has no other reference: draw inputs whose results are finite, or \
                 give it a `reference`"
            ),
        })?;
        errors.insert(name.clone(), error);
    }
    let held_to = format!(
        "; operator `{operator}` has no reference, so the head's results are compared with the \
         base's on the same inputs. Where the change is meant, give the output a `tolerance`, or the \
         operator a `reference`"
    );
    within(operands, &errors, after_timing, &held_to)
}

/// Compares each error with the limit of its output.
fn within(
    operands: &Operands,
    errors: &BTreeMap<String, TensorError>,
    after_timing: bool,
    held_to: &str,
) -> Result<BTreeMap<String, f64>, Rejected> {
    let when = if after_timing { " after timing" } else { "" };
    let mut kept = BTreeMap::new();
    for output in &operands.outputs {
        let name = &output.name;
        let wrong = |why: String| Rejected {
            fault: Fault::WrongResult,
            reason: format!("wrong result{when}: {name}: {why}{held_to}"),
        };
        let error = errors.get(name).and_then(|error| error.relative_l2);
        let error = error.ok_or_else(|| {
            wrong("the result has elements that are not finite or were never written".to_owned())
        })?;
        if error > output.limit {
            let (limit, dtype) = (output.limit, output.dtype);
            let why = if limit > 0.0 {
                format!(
                    "relative L2 error {error:.1e} is above the {limit:.1e} allowed for {dtype}"
                )
            } else {
                format!("relative L2 error {error:.1e}, and {dtype} is compared exactly")
            };
            return Err(wrong(why));
        }
        kept.insert(name.clone(), error);
    }
    Ok(kept)
}

/// The error of the head's output relative to the base's; `None` if the base's output has elements
/// that are not finite.
fn difference(
    output: &OutputTensor,
    (base, head): (&Path, &Path),
) -> Result<Option<TensorError>, String> {
    const AT_ONCE: usize = 1 << 16;
    let [mut base, mut head] = [open(output, base)?, open(output, head)?];
    let mut sums = ErrorSums::new();
    let mut is_finite = true;
    let mut left: u64 = output.shape.iter().product();
    while left > 0 {
        let count = left.min(AT_ONCE as u64) as usize;
        if output.dtype.is_whole() {
            let right = read(&mut base, count, i64::from_le_bytes)?;
            sums.compare_whole(&read(&mut head, count, i64::from_le_bytes)?, &right);
        } else {
            let right = read(&mut base, count, f32::from_le_bytes)?;
            let right: Vec<f64> = right.into_iter().map(f64::from).collect();
            sums.compare(&read(&mut head, count, f32::from_le_bytes)?, &right);
            is_finite &= right.iter().all(|number| number.is_finite());
        }
        left -= count as u64;
    }
    Ok(is_finite.then(|| sums.error()))
}

fn open(output: &OutputTensor, folder: &Path) -> Result<BufReader<File>, String> {
    let (ending, bytes) = output.dtype.written();
    let path = folder.join(format!("{}.{ending}", output.name));
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let size = file.metadata().map_or(0, |file| file.len());
    let wanted = bytes * output.shape.iter().product::<u64>();
    if size != wanted {
        return Err(format!("{} has {size} bytes, not {wanted}", path.display()));
    }
    Ok(BufReader::new(file))
}

fn read<const BYTES: usize, T>(
    file: &mut BufReader<File>,
    count: usize,
    number: fn([u8; BYTES]) -> T,
) -> Result<Vec<T>, String> {
    let mut bytes = vec![0; BYTES * count];
    let read = file.read_exact(&mut bytes);
    read.map_err(|error| format!("the results cannot be read: {error}"))?;
    let (words, _) = bytes.as_chunks::<BYTES>();
    Ok(words.iter().map(|word| number(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::operator::ElementType;

    fn operands(shape: &[u64], dtype: ElementType, limit: f64) -> Operands {
        Operands {
            outputs: vec![OutputTensor {
                name: "y".to_owned(),
                shape: shape.to_vec(),
                dtype,
                limit,
                in_place: None,
            }],
            ..Operands::default()
        }
    }

    fn floats() -> Operands {
        operands(&[2, 3], ElementType::F32, 5e-6)
    }

    fn with_file(name: &str, bytes: &[u8]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        folder
    }

    fn write(values: [f32; 6]) -> TempDir {
        with_file("y.f32", &values.map(f32::to_le_bytes).concat())
    }

    #[test]
    fn blocks_that_run_at_the_same_time_have_a_folder_each() {
        let mut results = DeclaredResults::default();
        let mut folder = |block| results.folder(block).unwrap();
        let first = folder(0);
        assert!(first.is_dir());
        assert_eq!(first, folder(0));
        let other = folder(1);
        assert_ne!(first, other);
        assert!(other.is_dir());
    }

    #[test]
    fn the_base_is_the_reference_where_an_operator_has_none() {
        let base = write([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let compare = |head: [f32; 6]| {
            let head = write(head);
            let sides = (base.path(), head.path());
            compare_sides("o", &floats(), sides, false).map_err(|rejected| rejected.reason)
        };
        assert_eq!(compare([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()["y"], 0.0);
        let reason = compare([1.0, 2.0, 3.0, 4.0, 5.0, 6.1]).unwrap_err();
        assert!(
            reason.starts_with("wrong result: y: relative L2 error 1.0e-2 is above the 5.0e-6")
        );
        assert!(reason.contains("compared with the base's"), "{reason}");
        let reason = compare([1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN]).unwrap_err();
        assert!(reason.starts_with("wrong result: y: the result has elements that are not finite"));
        let broken = write([1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN]);
        for head in [broken.path(), base.path()] {
            let rejected = compare_sides("o", &floats(), (broken.path(), head), false);
            let rejected = rejected.unwrap_err();
            assert_eq!(rejected.fault, Fault::Unchecked);
            assert!(
                rejected
                    .reason
                    .starts_with("the base's result y has elements")
            );
        }
    }

    /// Pairs of different whole numbers that are equal as float32, and equal as float64.
    #[test]
    fn whole_numbers_are_compared_exactly() {
        let operands = operands(&[2], ElementType::I64, 0.0);
        let write = |values: [i64; 2]| with_file("y.i64", &values.map(i64::to_le_bytes).concat());
        let base = write([1 << 60, -3]);
        let compare = |head: [i64; 2]| {
            let head = write(head);
            let sides = (base.path(), head.path());
            compare_sides("o", &operands, sides, false).map_err(|rejected| rejected.reason)
        };
        assert_eq!(compare([1 << 60, -3]).unwrap()["y"], 0.0);
        for head in [[(1 << 60) + 1, -3], [1 << 60, 3]] {
            let reason = compare(head).unwrap_err();
            assert!(reason.starts_with("wrong result: y: relative L2 error"));
            let expected = ", and i64 is compared exactly;";
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn results_of_another_size_are_no_use() {
        let (base, head) = (write([0.0; 6]), with_file("y.f32", &[0; 8]));
        let sides = (base.path(), head.path());
        let rejected = compare_sides("o", &floats(), sides, false).unwrap_err();
        let expected = "has 8 bytes, not 24";
        assert!(rejected.reason.contains(expected), "{rejected}");
        assert_eq!(rejected.fault, Fault::Other);
    }
}
