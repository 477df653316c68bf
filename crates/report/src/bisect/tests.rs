//! Answers of every kind, as they are shown.

use super::*;
use crate::terminal::COLUMNS;
use crate::text::width;
use regatta_judge::judgement::Word;
use regatta_measure::versions::apart;
use regatta_measure::versions::hunt::{CaseReading, Outcome, Side, Stretch};
use regatta_measure::versions::search::Reading;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Share};

fn of(ratio: f64) -> CaseReading {
    CaseReading {
        case: CaseId("jax/sdpa:b1,h8,s512,d64,f32,causal,both".to_owned()),
        reading: Some(Reading {
            ratio: Ratio(ratio),
            low: Ratio(0.98 * ratio),
            high: Ratio(1.02 * ratio),
            word: if ratio > 1.05 {
                Word::Regressed
            } else {
                Word::Same
            },
        }),
        base_ns: Some(Nanoseconds(31.1e6)),
        head_ns: Some(Nanoseconds(31.1e6 * ratio)),
        sees: Some(Share(0.031)),
        cause: (ratio > 1.05).then(|| "workspace: 25182208 → 44040192 bytes".to_owned()),
        reason: None,
    }
}

fn version(number: &str) -> Version {
    Version {
        spec: format!("pypi:jax=={number}"),
        name: format!("jax {number}"),
        subject: None,
        author: None,
        date: None,
        parents: Vec::new(),
    }
}

fn commit(name: &str, subject: &str) -> Version {
    Version {
        spec: format!("git:{name}0123456789abcdef0123456789abcdef"),
        name: name.to_owned(),
        subject: Some(subject.to_owned()),
        author: Some("Ann <b>".to_owned()),
        date: Some("2026-11-22".to_owned()),
        parents: Vec::new(),
    }
}

fn tried(base: &Version, head: &Version, ratio: Option<f64>) -> Tried {
    Tried {
        base: base.spec.clone(),
        head: head.spec.clone(),
        outcome: match ratio {
            Some(ratio) => Outcome::Measured {
                cases: vec![of(ratio)],
            },
            None => Outcome::Unusable {
                side: Side::Head,
                reason: "ERROR: No matching distribution found for jaxlib==0.5.2 <i>".to_owned(),
            },
        },
    }
}

struct Scene {
    question: Question,
    row: Vec<Version>,
    tried: Vec<Tried>,
    ending: Ending,
    moved: Vec<Moved>,
    apart: Vec<Verdict>,
}

impl Scene {
    fn of(row: Vec<Version>, ratios: &[(usize, Option<f64>)], ending: Ending) -> Scene {
        let tried = ratios
            .iter()
            .map(|&(at, ratio)| tried(&row[0], &row[at], ratio))
            .collect();
        Scene {
            question: Question {
                suite: "jax-sdpa".to_owned(),
                plan: String::new(),
                good: row[0].spec.clone(),
                bad: row[row.len() - 1].spec.clone(),
                towards: Towards::Bad,
                first_parent: false,
                row: Vec::new(),
                processor: false,
                tool: String::new(),
            },
            row,
            tried,
            ending,
            moved: Vec::new(),
            apart: Vec::new(),
        }
    }

    /// What is shown, checked for what all of it has in common.
    fn shown(&self) -> (String, String) {
        let suite = ["jax-sdpa".to_owned(), "-f".to_owned(), "a b".to_owned()];
        let bisect = Bisect {
            question: &self.question,
            row: &self.row,
            tried: &self.tried,
            ending: &self.ending,
            moved: &self.moved,
            apart: &self.apart,
            suite: &suite,
        };
        let (text, page) = (text(&bisect), page(&bisect).unwrap());
        for line in text.lines() {
            assert!(width(line) <= COLUMNS, "{line}");
        }
        for outside in ["http://", "https://", "src=", "url(", "<i>", "<b>,"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let json: serde_json::Value = serde_json::from_str(&bisect.json().unwrap()).unwrap();
        assert!(json["answer"].is_string());
        (text, page)
    }
}

fn releases() -> Vec<Version> {
    ["0.4.38", "0.5.0", "0.5.1", "0.5.2", "0.5.3"]
        .map(version)
        .into()
}

fn found(before: Version, after: Version, suspects: Vec<Version>) -> Ending {
    Ending::Found(Box::new(Found {
        before,
        after,
        suspects,
        case: of(1.74),
        others: vec![of(1.2)],
        merged_by: None,
        by_merging: false,
    }))
}

#[test]
fn a_release_that_was_found() {
    let row = releases();
    let ending = found(row[1].clone(), row[2].clone(), Vec::new());
    let ratios = [(4, Some(1.72)), (3, None), (2, Some(1.74)), (1, Some(0.98))];
    let mut scene = Scene::of(row, &ratios, ending);
    scene.moved = apart::moved("jax==0.5.0\njaxlib==0.5.0\n", "jax==0.5.1\njaxlib==0.5.1\n");
    scene.apart = vec![
        Verdict {
            package: "jax".to_owned(),
            name: "jax 0.5.1 with jaxlib 0.5.0".to_owned(),
            case: None,
            reason: Some("jaxlib is version 0.5.0, but this version of jax wants 0.5.1".to_owned()),
        },
        Verdict {
            package: "jaxlib".to_owned(),
            name: "jaxlib 0.5.1 with jax 0.5.0".to_owned(),
            case: Some(of(1.73)),
            reason: None,
        },
    ];
    let (text, page) = scene.shown();
    insta::assert_snapshot!(text);
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(page.contains("&lt;i&gt;"));
}

#[test]
fn a_version_that_gave_back_a_part_is_not_called_good_again() {
    let row = releases();
    let ending = found(row[3].clone(), row[4].clone(), Vec::new());
    let ratios = [(4, Some(1.22)), (2, Some(1.74)), (3, Some(1.74))];
    let mut scene = Scene::of(row, &ratios, ending);
    scene.question.towards = Towards::Fixed;
    scene.question.processor = true;
    let (text, page) = scene.shown();
    assert!(text.starts_with("PARTLY BETTER"), "{text}");
    for shown in [text, page] {
        assert!(
            shown.contains("and is still 22.0 % slower than jax 0.4.38"),
            "{shown}"
        );
        assert!(shown.contains("by processor time"), "{shown}");
    }
    let good = [(4, Some(1.0)), (2, Some(1.74)), (3, Some(1.74))];
    let good = Scene {
        tried: Scene::of(scene.row.clone(), &good, scene.ending.clone()).tried,
        ..scene
    };
    let (text, _) = good.shown();
    assert!(
        text.contains("jax 0.5.3 is the first version that is good again"),
        "{text}"
    );
}

#[test]
fn a_commit_that_was_found() {
    let row = vec![
        commit("1a2b3c4", "Begin"),
        commit("2b3c4d5", "Go on"),
        commit("3c4d5e6", "Keep <script>alert(1)</script> out of the loop"),
    ];
    let mut ending = found(row[1].clone(), row[2].clone(), Vec::new());
    if let Ending::Found(found) = &mut ending {
        found.merged_by = Some(commit("4d5e6f7", "Merge the branch"));
    }
    let (text, page) = Scene::of(row, &[(2, Some(1.74)), (1, Some(1.0))], ending).shown();
    insta::assert_snapshot!(text);
    assert!(!page.contains("<script>alert"));
}

#[test]
fn answers_that_name_no_version() {
    let row = releases();
    let one_of = found(row[1].clone(), row[4].clone(), row[2..].to_vec());
    let endings = [
        (
            one_of,
            vec![(4, Some(1.7)), (2, None), (3, None), (1, Some(1.0))],
        ),
        (
            Ending::NoDifference {
                case: Some(of(1.004)),
                looked_at: vec![row[2].clone(), row[4].clone()],
            },
            vec![(4, Some(1.004)), (2, Some(1.01))],
        ),
        (
            Ending::Spread {
                case: Some(of(1.0).case),
                parts: vec![
                    Stretch {
                        low: row[0].clone(),
                        high: row[2].clone(),
                        ratio: Ratio(1.021),
                    },
                    Stretch {
                        low: row[2].clone(),
                        high: row[4].clone(),
                        ratio: Ratio(1.019),
                    },
                ],
            },
            vec![(4, Some(1.06)), (2, Some(1.02))],
        ),
        (
            Ending::NoEnd {
                end: row[0].clone(),
                reason: "it does not import".to_owned(),
            },
            vec![],
        ),
    ];
    let mut all = String::new();
    for (ending, ratios) in endings {
        assert!(!ending.names_one());
        let (text, page) = Scene::of(row.clone(), &ratios, ending).shown();
        all += &format!("{text}\n");
        assert_eq!(page.contains("<svg"), !ratios.is_empty());
    }
    insta::assert_snapshot!(all);
}
