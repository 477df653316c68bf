//! What of structure fails, warns and is not judged: with times and without, by default and as a
//! suite says.

use regatta::judge::judgement::{Row, VerdictOutcome};
use regatta::judge::{Options, judge};
use regatta::record::side::Side;
use regatta::record::{baseline, run_file};
use regatta::suite;

use super::{judged, place};
use crate::common::Place;

#[test]
fn a_suite_says_how_changes_are_taken() {
    let place = place(
        "[policy.structure]\nfill = \"warn\"\nkernel-replaced = \"fail\"\n\
         [[policy.structure.rule]]\nname = \"*copy*\"\naction = \"ignore\"\n",
    );
    for (fault, expected) in [("grid", 0), ("kernel", 1), ("copies", 0), ("spills", 1)] {
        let (code, judgement) = judged(&place, fault, &["--structure-only"]);
        assert_eq!(code, expected, "{fault}: {judgement:#}");
    }
}

#[test]
fn what_a_suite_cannot_say_of_structure_is_told_with_its_place() {
    let place = Place::new();
    for (more, complaint) in [
        (
            "[policy.structure]\nfil = \"fail\"\n",
            "did you mean `fill`?",
        ),
        (
            "[policy.structure]\nfill = \"error\"\n",
            "policy.structure.fill = \"error\": use `fail`, `warn` or `ignore`",
        ),
        (
            "[[policy.structure.rule]]\naction = \"warn\"\n",
            "matches every case",
        ),
        (
            "[[policy.structure.rule]]\nname = \"*\"\nkind = \"gird\"\naction = \"warn\"\n",
            "did you mean `grid`?",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 16 }\ncount = \"blocks\"\n",
            "limits nothing; give `at_least` or `at_most`",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 17 }\ncount = \"blocks\"\nat_most = 1\n",
            "limit \"n\": `case` selects no case of this suite",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 16 }\ncount = \"copies\"\n\
             kernel = \"*\"\nat_most = 1\n",
            "is not counted by kernel",
        ),
    ] {
        let suite = "schema = 1\ndescription = \"d\"\n[workers.fake]\ncommand = [\"true\"]\n\
                     [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = 32\nhead_dim = 16\n";
        place.write("s.toml", &format!("{suite}{more}"));
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(stderr.contains(complaint), "{more}: {stderr}");
    }
}

/// What an H200 launched, as committed: with -1 handed over, and as it should be.
#[test]
fn the_lost_sentinel_fails_by_limits_and_by_structure_alone() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sample = root.join("reports/samples/xformers-0.0.26/run.jsonl");
    let run = run_file::read(&sample).unwrap();
    let baseline = root.join("baselines/xformers-backward/h200-132sm.jsonl");
    let mut base = baseline::read(&baseline).unwrap();
    let mut head = Side::from_run("0.0.26", &run);
    for side in [&mut base, &mut head] {
        side.header.rules = suite::load("xformers-0.0.26").unwrap().rules;
        side.header.settings.structure_only = true;
        for record in side.cases.values_mut() {
            record.device_ns.clear();
            record.host_ns.clear();
        }
    }
    let alone = |side: &Side| judge(side, None, &Options::default());
    let good = alone(&base);
    assert_eq!(
        good.verdict.outcome,
        VerdictOutcome::Passed,
        "{:?}",
        good.verdict
    );
    assert_eq!(good.limits.len(), 6);
    let bad = alone(&head);
    assert_eq!(bad.verdict.outcome, VerdictOutcome::Failed);
    assert!(
        bad.verdict.reasons[0].starts_with("6 limits are broken"),
        "{:?}",
        bad.verdict
    );

    let compared = judge(&head, Some(&base), &Options::default());
    let failed = compared.rows.iter().filter(|row| row.fails_by_structure());
    let failed: Vec<&Row> = failed.collect();
    assert_eq!(failed.len(), 6, "{:?}", compared.verdict);
    assert!(
        failed
            .iter()
            .all(|row| !row.case.0.contains("num_splits_key"))
    );
    let reported = compared
        .rows
        .iter()
        .find(|row| row.case.0 == "torch/efficient:s10000,d32,bwd");
    let told = reported.unwrap().structure_told();
    let kernel = "fmha_cutlassB_f32_aligned_64x64_k32_sm80";
    assert_eq!(
        told[0],
        format!("fill 132 of 132 SMs → 1 of 132 SMs of {kernel}")
    );
    assert!(
        told.contains(&format!("grid 157x1x1 → 1x1x1 of {kernel}")),
        "{told:?}"
    );
}
