//! Projections in suites: only variants that say so are asked for them.

use crate::common::Place;
use regatta_core::record::types::Outcome;

const SUITE: &str = "description = \"layers\"\n\
    [measure]\ninvocations = 1\nsamples = 2\nbudget_ms = 10\ncache = \"hot\"\n\
    [[sweep]]\nvariants = [\"cpu/flash\"]\nheads = 2\nseq = 16\nhead_dim = 8\n\
    projection = [\"all-gather\", \"reduce-scatter\"]\nhidden = 32\nranks = 2\n";

#[test]
fn attention_is_not_taken_for_a_projection() {
    let place = Place::new();
    place.write("layers.toml", SUITE);
    let (_, _, stderr) = place.ran(&["run", "./layers.toml"]);
    let run = place.run("layers");
    let ids: Vec<&str> = run.header.plan.iter().map(|id| id.0.as_str()).collect();
    let problem = "cpu/flash:h2,s16,d8";
    assert_eq!(
        ids,
        [format!("{problem},ag32,r2"), format!("{problem},rs32,r2")],
        "{stderr}"
    );
    for entry in &run.entries {
        let Outcome::Unsupported { reason } = &entry.outcome else {
            panic!("{}: {:?}", entry.case, entry.outcome)
        };
        assert_eq!(reason, "`flash` does attention, not projections");
    }
    let csv = std::fs::read_to_string(place.path().join("reports/layers/cases.csv")).unwrap();
    let header = csv.lines().next().unwrap();
    assert!(
        header.contains(",direction,projection,hidden,ranks,"),
        "{header}"
    );
    assert!(csv.contains(",forward,all-gather,32,2,"), "{csv}");
}

#[test]
fn axes_of_a_projection_need_one_another() {
    for (axes, says) in [
        (
            "hidden = 32",
            "`hidden` is of a projection; add `projection",
        ),
        ("ranks = 2", "`ranks` is of a projection"),
        (
            "projection = \"all-gather\"\nranks = 2",
            "a projection needs `hidden`",
        ),
        (
            "projection = \"all-gather\"\nhidden = 32",
            "a projection needs `ranks`",
        ),
        (
            "projection = \"gather\"",
            "use `all-gather`, `reduce-scatter`",
        ),
        (
            "projection = \"all-gather\"\nhidden = 8\nranks = 3",
            "ranks = 3 does not divide the 16 rows",
        ),
        (
            "projection = \"all-gather\"\nhidden = 8\nranks = 2\nmask = \"causal\"",
            "has no mask of its own",
        ),
    ] {
        let place = Place::new();
        let (head, _) = SUITE.split_once("projection").unwrap();
        place.write("layers.toml", &format!("{head}{axes}\n"));
        let (_, stderr) = exits!(place, 2, ["run", "./layers.toml"]);
        assert!(stderr.contains(says), "{axes}: {stderr}");
    }
}
