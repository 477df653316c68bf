//! Later invocations of a case, whose results the first one's were held to float64 for.

use super::*;
use regatta_worker::protocol::Digests;

/// A worker that compares digests, and computes a reference only where they differ.
#[derive(Clone)]
struct Comparing {
    /// Of the results of the first call, and of the last one, in each process started.
    results: Vec<[&'static str; 2]>,
    /// What its reference would show.
    error: f64,
    /// True: it leaves errors out whatever it was told.
    lazy: bool,
    asked: Rc<RefCell<Vec<Digests>>>,
    started: usize,
}

struct Started(Comparing, Hello);

impl Comparing {
    fn errors_of(&self, known: Digests, digests: &Digests) -> BTreeMap<String, TensorError> {
        let same = self.lazy || known == *digests;
        self.asked.borrow_mut().push(known);
        match same {
            true => BTreeMap::new(),
            false => errors(self.error),
        }
    }
}

impl Conversation for Started {
    fn ask(&mut self, body: RequestBody, _: Duration) -> Result<ReplyBody, HostError> {
        let Started(worker, _) = self;
        let [first, last] = worker.results[worker.started - 1];
        let digests = |word: &str| Digests::from([("out".to_owned(), word.to_owned())]);
        Ok(match body {
            RequestBody::Prepare(request) => {
                let ReplyBody::Prepared(right) = prepared(0.0) else {
                    unreachable!()
                };
                ReplyBody::Prepared(Prepared {
                    tuned: Vec::new(),
                    first_call_parts: None,
                    errors: worker.errors_of(request.known, &digests(first)),
                    digests: digests(first),
                    ..right
                })
            }
            RequestBody::Measure(request) => {
                let ReplyBody::Measured(mut right) = measured(4, Some((6, 0.0))) else {
                    unreachable!()
                };
                let checked = right.checked.as_mut().unwrap();
                checked.digests = digests(last);
                checked.errors = worker.errors_of(request.known, &digests(last));
                ReplyBody::Measured(right)
            }
            RequestBody::Release => ReplyBody::Released,
            _ => ReplyBody::Census(Census::default()),
        })
    }

    fn hello(&self) -> &Hello {
        &self.1
    }
}

impl Launcher for Comparing {
    fn start(&mut self, _: &str) -> Result<Box<dyn Conversation>, HostError> {
        self.started += 1;
        // Only the first invocation's results are right.
        if self.started > 1 {
            self.error = 0.5;
        }
        Ok(Box::new(Started(self.clone(), hello())))
    }
}

/// What became of one case in an invocation for each pair of results, and what was known.
fn invocations(results: &[[&'static str; 2]], lazy: bool) -> (Vec<Outcome>, Vec<Digests>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, SUITE).unwrap();
    let suite = suite::load(path.to_str().unwrap()).unwrap();
    let mut worker = Comparing {
        results: results.to_vec(),
        error: 1e-7,
        lazy,
        asked: Rc::default(),
        started: 0,
    };
    let asked = worker.asked.clone();
    let mut outcomes = Vec::new();
    let mut known = Known::default();
    for invocation in 0..results.len() as u32 {
        let block = Block {
            worker: "mine".to_owned(),
            invocation,
            cases: suite.cases[..1].to_vec(),
        };
        let mut keep = |entry: &Entry| {
            outcomes.push(entry.outcome.clone());
            Ok::<(), Infallible>(())
        };
        let clock = Hand::default();
        Session::new(&suite, &mut worker, &clock, &mut known)
            .run(&[block], &mut Silent, &mut keep)
            .unwrap();
    }
    (outcomes, asked.take())
}

fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { reason, fault, .. } => {
            assert_eq!(*fault, Fault::WrongResult, "{reason}");
            reason
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_results_have_the_errors_that_were_found_first() {
    let (outcomes, known) = invocations(&[["a", "b"]; 3], false);
    for outcome in &outcomes {
        let Outcome::Measured(measurement) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(measurement.errors["out"], 1e-7);
        assert_eq!(measurement.errors_after["out"], 1e-7);
    }
    assert!(known[0].is_empty() && known[1].is_empty(), "{known:?}");
    for pair in known[2..].chunks(2) {
        assert_eq!((&*pair[0]["out"], &*pair[1]["out"]), ("a", "b"));
    }
}

#[test]
fn a_wrong_result_of_a_later_invocation_is_found() {
    let (outcomes, _) = invocations(&[["a", "b"], ["a", "b"], ["wrong", "b"]], false);
    assert!(reason(&outcomes[2]).starts_with("wrong result: out"));
    let (outcomes, _) = invocations(&[["a", "b"], ["a", "b"], ["a", "wrong"]], false);
    assert!(reason(&outcomes[2]).starts_with("wrong result after timing: out"));
}

#[test]
fn results_that_nobody_held_to_float64_need_errors_of_their_own() {
    for results in [[["a", "b"]; 2], [["a", "b"], ["c", "b"]]] {
        let (outcomes, _) = invocations(&results, true);
        for outcome in &outcomes {
            assert!(reason(outcome).contains("reports no error for out"));
        }
    }
}
