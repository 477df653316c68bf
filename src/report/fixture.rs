//! Judgements built by hand, for the tests of every format.

use std::collections::BTreeMap;

use crate::attention::{CaseId, Launch, ParamValue, Structure};
use crate::judge::judgement::*;
use crate::record::side::{Side, median};
use crate::record::types::*;
use crate::report::Report;
use crate::suite::rules::{Expectation, Metric, Policy, Rules, Selector};

/// What a report is made of, owned.
pub struct Scene {
    pub judgement: Judgement,
    pub head: Run,
    pub base: Option<Side>,
}

impl Scene {
    pub fn report(&self) -> Report<'_> {
        Report {
            judgement: &self.judgement,
            head: &self.head,
            base: self.base.as_ref(),
        }
    }
}

/// A reason as a hostile or merely verbose library would give it.
pub fn nasty_reason() -> String {
    format!(
        "<script>alert('x')</script> \u{1b}[31mCUDA error\u{1b}[0m:\nout of memory | 50% \
         & \"quoted\" `ticks` メモリ不足 \u{202e}desrever\u{0} ]]> {}",
        "template<int, int> ".repeat(105)
    )
}

/// Noise that is the same in every run of the tests, within ±1.
fn noise(seed: usize) -> f64 {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^= state >> 32;
    (state % 20_001) as f64 / 10_000.0 - 1.0
}

fn header(invocations: u32) -> RunHeader {
    let facts = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect::<BTreeMap<_, _>>()
    };
    let selector = |value: &str| {
        Selector(BTreeMap::from([(
            "num_splits_key".to_owned(),
            vec![value.to_owned()],
        )]))
    };
    RunHeader {
        schema: 1,
        method: 1,
        tool: "0.1.0".into(),
        argv: ["regatta", "gate", "quick", "--baseline", "main"]
            .map(String::from)
            .into(),
        started: "2026-11-20T15:00:00Z".parse().unwrap(),
        git: Some(Git {
            revision: "3bbb45b0c0ffee00000000000000000000000000".into(),
            dirty: true,
        }),
        suite: SuiteRecord {
            name: "quick".into(),
            description: "A few shapes of every variant".into(),
            overrides: Vec::new(),
        },
        rules: Rules {
            expectations: vec![Expectation {
                name: "automatic splits as good as the best explicit ones".into(),
                case: selector("auto"),
                against: Selector(BTreeMap::from([(
                    "num_splits_key".to_owned(),
                    ["1", "4", "16", "64", "256"].map(String::from).into(),
                )])),
                within: 1.1,
                metric: Metric::Device,
            }],
            policy: Policy::default(),
        },
        settings: Settings {
            invocations,
            warmup: 3,
            samples: 30,
            min_samples: 5,
            budget_ms: 400,
            cache: "cold".into(),
            seed: 42,
        },
        machine: Fingerprint {
            name: "h200-132sm".into(),
            hard: facts(&[
                ("driver", "580.95.05"),
                ("gpu", "NVIDIA H200"),
                ("power_limit_w", "700"),
                ("sms", "132"),
            ]),
            soft: facts(&[("host", "runner-7"), ("kernel", "6.1.0")]),
        },
        workers: vec![WorkerRecord {
            name: "torch".into(),
            device_kind: "cuda".into(),
            device: "NVIDIA H200".into(),
            versions: facts(&[("cuda", "13.0"), ("torch", "2.9.1")]),
        }],
        plan: Vec::new(),
    }
}

fn structure(blocks: u32) -> Structure {
    Structure {
        launches: vec![
            Launch {
                name: "fmha_cutlassB_f32_aligned_64x64_k32_sm80<float, true>".into(),
                grid: [blocks, 1, 1],
                block: [128, 1, 1],
                registers: Some(168),
                shared_bytes: Some(49_152),
            },
            Launch {
                name: "zero_fill".into(),
                grid: [40, 1, 1],
                block: [256, 1, 1],
                registers: None,
                shared_bytes: None,
            },
        ],
        counts: BTreeMap::from([("copies".to_owned(), 0), ("allocations".to_owned(), 3)]),
    }
}

fn timing(invocations_ns: Vec<f64>, samples: u64) -> Timing {
    let median_ns = median(&invocations_ns).unwrap_or(f64::NAN);
    Timing {
        median_ns,
        min_ns: invocations_ns.iter().copied().fold(f64::INFINITY, f64::min),
        max_ns: invocations_ns.iter().copied().fold(0.0, f64::max),
        invocations_ns,
        host_ns: Some(14_250.0),
        first_call_ns: Some(median_ns * 40.0),
        tflops: 1.2e7 / median_ns,
        gbps: 4.4e6 / median_ns,
        samples,
    }
}

/// Builds a run, its base and their judgement a case at a time.
struct Builder {
    head: Run,
    base: Run,
    rows: Vec<Row>,
}

impl Builder {
    fn new(invocations: u32) -> Builder {
        let empty = |header| Run {
            header,
            entries: Vec::new(),
            end: Some(RunEnd {
                finished: "2026-11-20T15:02:10Z".parse().unwrap(),
            }),
            damage: Vec::new(),
        };
        let mut base = header(invocations);
        base.workers[0]
            .versions
            .insert("torch".into(), "2.8.0".into());
        Builder {
            head: empty(header(invocations)),
            base: empty(base),
            rows: Vec::new(),
        }
    }

    /// Adds samples around a time to one side; returns the invocations' medians.
    fn samples(run: &mut Run, id: &str, ns: f64, confirm: u32, blocks: u32) -> Vec<f64> {
        let case = CaseId(id.to_owned());
        if !run.header.plan.contains(&case) {
            run.header.plan.push(case.clone());
        }
        let mut medians = Vec::new();
        for invocation in 0..run.header.settings.invocations + confirm {
            let seed = id.len() * 7919 + invocation as usize * 131 + ns as usize;
            let level = ns * (1.0 + 0.004 * noise(seed));
            let device_ns: Vec<f64> = (0..30)
                .map(|i| level * (1.0 + 0.003 * noise(seed + 17 * i).powi(3).abs()))
                .collect();
            medians.extend(median(&device_ns));
            run.entries.push(Entry {
                case: case.clone(),
                invocation,
                outcome: Outcome::Measured(Measurement {
                    host_ns: vec![14_250.0; device_ns.len()],
                    clock_mhz: vec![1980.0; device_ns.len()],
                    device_ns,
                    first_call_ns: ns * 40.0,
                    peak_bytes: Some(9_437_184),
                    effective: BTreeMap::from([(
                        "num_splits_key".to_owned(),
                        ParamValue::Int(i64::from(blocks)),
                    )]),
                    errors: BTreeMap::from([("dq".to_owned(), 3.1e-7), ("dk".to_owned(), 2.9e-7)]),
                    structure: (invocation == 0).then(|| structure(blocks)),
                }),
            });
        }
        medians
    }

    fn row(&mut self, id: &str, word: Word) -> &mut Row {
        self.rows.push(Row {
            case: CaseId(id.to_owned()),
            word,
            reason: None,
            allowed: false,
            head: None,
            base: None,
            change: None,
            findings: Vec::new(),
        });
        self.rows.last_mut().unwrap()
    }

    fn measured(&mut self, id: &str, ns: f64, blocks: u32) -> &mut Row {
        let medians = Self::samples(&mut self.head, id, ns, 0, blocks);
        let row = self.row(id, Word::Measured);
        row.head = Some(timing(medians, 150));
        row
    }

    fn compared(&mut self, id: &str, word: Word, base_ns: f64, head_ns: f64) -> &mut Row {
        let confirm = if word == Word::Regressed { 5 } else { 0 };
        let base = Self::samples(&mut self.base, id, base_ns, 0, 157);
        let blocks = if head_ns > 20.0 * base_ns { 1 } else { 157 };
        let head = Self::samples(&mut self.head, id, head_ns, confirm, blocks);
        let row = self.row(id, word);
        row.head = Some(timing(head, 150));
        row.base = Some(timing(base, 150));
        let ratio = head_ns / base_ns;
        row.change = Some(Change {
            ratio,
            low: ratio * 0.994,
            high: ratio * 1.006,
            confidence: 0.968,
            p: if word == Word::Same { 0.42 } else { 0.0022 },
            reachable_p: 0.0022,
            smallest_effect: 0.018,
            stage: if confirm > 0 {
                Stage::Confirm
            } else {
                Stage::Screen
            },
        });
        row
    }

    fn failed(&mut self, id: &str, reason: &str) -> &mut Row {
        let case = CaseId(id.to_owned());
        self.head.header.plan.push(case.clone());
        self.head.entries.push(Entry {
            case,
            invocation: 0,
            outcome: Outcome::Failed {
                reason: reason.to_owned(),
                log: "last words\u{1b}[0m of </pre> the worker".into(),
            },
        });
        let row = self.row(id, Word::NotMeasured);
        row.reason = Some(reason.to_owned());
        row
    }

    fn unsupported(&mut self, id: &str, reason: &str) -> &mut Row {
        let case = CaseId(id.to_owned());
        self.head.header.plan.push(case.clone());
        let reason = reason.to_owned();
        self.head.entries.push(Entry {
            case,
            invocation: 0,
            outcome: Outcome::Unsupported {
                reason: reason.clone(),
            },
        });
        let row = self.row(id, Word::Unsupported);
        row.reason = Some(reason);
        row
    }

    fn judged(mut self, with_base: bool, outcome: VerdictOutcome, reasons: &[&str]) -> Scene {
        self.rows.sort_by(|a, b| a.case.cmp(&b.case));
        self.head.header.plan.sort();
        let side = |label: &str, header: &RunHeader| SideSummary {
            label: label.into(),
            suite: header.suite.name.clone(),
            started: header.started.to_string(),
            machine: header.machine.name.clone(),
            revision: Some("3bbb45b0c0ffee+".into()),
            invocations: header.settings.invocations,
        };
        Scene {
            judgement: Judgement {
                suite: "quick".into(),
                head: side("reports/quick", &self.head.header),
                base: with_base.then(|| side("main", &self.base.header)),
                incomparable: Vec::new(),
                differences: Vec::new(),
                common_shift: None,
                rows: self.rows,
                expectations: Vec::new(),
                notes: Vec::new(),
                verdict: Verdict {
                    outcome,
                    reasons: reasons.iter().map(ToString::to_string).collect(),
                },
            },
            base: with_base.then(|| Side::from_run("main", &self.base)),
            head: self.head,
        }
    }
}

fn difference(field: &str, base: &str, head: &str) -> Difference {
    Difference {
        field: field.into(),
        base: base.into(),
        head: head.into(),
    }
}

/// A run without a baseline, nothing against it.
pub fn passed() -> Scene {
    let mut b = Builder::new(5);
    for (variant, ns) in [("naive", 2_640_000.0), ("flash", 118_600.0)] {
        for seq in [128, 1024] {
            let id = format!("cpu/{variant}:h8,s{seq},d64,causal");
            b.measured(&id, ns * f64::from(seq) / 128.0, 8);
        }
    }
    b.unsupported("cpu/flash:h8,s128,d64,bf16", "flash takes f32 alone");
    b.judged(
        false,
        VerdictOutcome::Passed,
        &["4 cases measured, none fell short"],
    )
}

/// A gate that failed in every way it can.
pub fn failed() -> Scene {
    let mut b = Builder::new(5);
    let auto = "torch/efficient:s10000,d32,bwd";
    let findings = [
        (
            "less-parallel",
            "grid of fmha_cutlassB_f32_aligned_64x64_k32_sm80 157 → 1 blocks",
            0.97,
        ),
        (
            "parameter-changed",
            "num_splits_key auto became 1 (was 157)",
            0.95,
        ),
    ];
    b.compared(auto, Word::Regressed, 1_030_000.0, 105_600_000.0)
        .findings = findings
        .map(|(cause, evidence, confidence)| Finding {
            cause: cause.into(),
            evidence: evidence.into(),
            confidence,
        })
        .into();
    b.compared(
        "torch/sdpa-cudnn@2.9.1:b4,h32,kv8,s4096,sk8192,d128,bf16,causal,bhsd,bwd",
        Word::Regressed,
        2_640_000.0,
        2_965_000.0,
    );
    b.compared(
        "cuda/flash-mma:h8,s4096,d128,f16",
        Word::Improved,
        412_000.0,
        331_000.0,
    );
    b.compared(
        "cuda/flash-mma:h8,s8192,d128,f16",
        Word::Improved,
        1_412_000.0,
        431_000.0,
    );
    for (splits, ns) in [
        (1, 105.2e6),
        (4, 27.1e6),
        (16, 7.4e6),
        (64, 2.1e6),
        (256, 1.04e6),
    ] {
        let id = format!("{auto}:num_splits_key={splits}");
        b.compared(&id, Word::Same, ns, ns * 1.001);
    }
    b.compared("cpu/flash:h8,s128,d64", Word::Same, 118_600.0, 118_500.0)
        .findings = vec![Finding {
        cause: "copies-added".into(),
        evidence: "copies 0 → 1".into(),
        confidence: 0.6,
    }];
    b.compared(
        "cpu/flash:h8,s256,d64",
        Word::Inconclusive,
        218_600.0,
        228_500.0,
    )
    .reason = Some("the interval reaches over the floor of 5 %".into());
    b.failed(
        "cuda/flash:s8192,d64,f16",
        "the result differs from float64: out 0.31, at most 0.004",
    );
    let mut scene = b.judged(
        true,
        VerdictOutcome::Failed,
        &[
            "2 of 12 cases regressed",
            "1 expectation is broken",
            "1 case was not measured",
        ],
    );
    let judgement = &mut scene.judgement;
    judgement.differences = vec![difference("torch.versions.torch", "2.8.0", "2.9.1")];
    judgement.common_shift = Some(CommonShift {
        ratio: 1.012,
        cases: 9,
        removed: true,
    });
    judgement.notes =
        vec!["line 7 of reports/quick/run.jsonl could not be read: it is cut off".into()];
    judgement.expectations = vec![
        ExpectationResult {
            name: "automatic splits as good as the best explicit ones".into(),
            case: CaseId(auto.into()),
            against: Some(CaseId(format!("{auto}:num_splits_key=256"))),
            metric: Metric::Device,
            within: 1.1,
            ratio: Some(101.4),
            low: Some(101.0),
            high: Some(101.9),
            held: Held::Broken,
            reason: None,
        },
        ExpectationResult {
            name: "the direct call is no slower than the wrapper".into(),
            case: CaseId("cpu/flash:h8,s128,d64".into()),
            against: None,
            metric: Metric::Host,
            within: 1.05,
            ratio: None,
            low: None,
            high: None,
            held: Held::NotJudged,
            reason: Some("cpu/naive:h8,s128,d64 was not measured".into()),
        },
    ];
    scene.head.damage = vec![Damage {
        line: 7,
        problem: "it is cut off".into(),
    }];
    scene
}

/// A run with cases that failed, each worse than the one before.
pub fn incomplete() -> Scene {
    let mut b = Builder::new(5);
    b.measured("cpu/flash:h8,s128,d64", f64::NAN, 8);
    b.measured("cpu/flash:h8,s256,d64", 0.0, 8);
    b.failed("cpu/naive:h8,s128,d64", &nasty_reason());
    b.failed("cpu/naive:h8,s256,d64", &"x".repeat(2000));
    b.failed("cpu/naive:h8,s512,d64", "").allowed = true;
    b.unsupported("cpu/naive:h8,s1024,d64,bf16", "line one\nline two");
    b.failed("not/a-case:\"><b>'id'", "its id does not parse");
    b.judged(
        false,
        VerdictOutcome::NotJudged,
        &[
            "3 of 7 cases were not measured",
            "no baseline is named `main` for h200-132sm",
        ],
    )
}

/// Two sides that must not be compared.
pub fn refused() -> Scene {
    let mut b = Builder::new(5);
    b.measured("cpu/flash:h8,s128,d64", 118_600.0, 8);
    let mut scene = b.judged(
        true,
        VerdictOutcome::NotJudged,
        &["the two sides are not comparable"],
    );
    scene.judgement.incomparable = vec![
        difference("gpu", "NVIDIA H100 80GB HBM3", "NVIDIA H200"),
        difference("driver", "570.86.10", "580.95.05"),
    ];
    scene
}

/// Many cases, for the size of a page.
pub fn large(cases: usize) -> Scene {
    let mut b = Builder::new(10);
    for i in 0..cases {
        let id = format!(
            "torch/sdpa-{}:b{},h16,s{},d64,bf16,causal,bwd",
            ["flash", "efficient", "cudnn"][i % 3],
            1 + i / 12,
            1024 << (i / 3 % 4)
        );
        let ratio = 1.0 + 0.02 * noise(i);
        let word = if i % 97 == 5 {
            Word::Regressed
        } else {
            Word::Same
        };
        let ratio = if word == Word::Regressed {
            ratio * 1.2
        } else {
            ratio
        };
        b.compared(
            &id,
            word,
            1e5 * (i + 1) as f64,
            1e5 * (i + 1) as f64 * ratio,
        );
    }
    b.judged(true, VerdictOutcome::Failed, &["some cases regressed"])
}

/// Nothing at all.
pub fn empty() -> Scene {
    Builder::new(0).judged(false, VerdictOutcome::NotJudged, &[])
}
