//! Unchanged code whose starts are slow now and then, on both sides alike: no gate calls it.

use serde_json::Value;

use crate::common::{Place, fake_worker};

/// Gates of each kind.
const GATES: usize = 200;

/// The exit code of a comparison of this program with itself. A share of all starts, in percent, takes
/// so many percent longer.
fn compared(share: u32, percent: u32) -> (i32, Value) {
    let place = Place::new();
    let worker = fake_worker().display().to_string();
    let script = format!("+{percent}%@~{share}");
    place.write(
        "s.toml",
        &format!(
            "description = \"slow starts\"\n[workers]\n\
             fake = [{worker:?}, \"--script\", \"{script}\"]\n\
             [measure]\nsamples = 8\ntimeout_s = 60\n\
             [[sweep]]\nvariants = [\"fake/steady\"]\nseq = [32, 48]\nhead_dim = 16\n",
        ),
    );
    let words = ["compare", "./s.toml", "--base", "here", "--json", "--quiet"];
    let (code, stdout, stderr) = place.ran(&words);
    (code, serde_json::from_str(&stdout).expect(&stderr))
}

#[test]
#[ignore = "takes some minutes"]
fn slow_starts_of_both_sides_alike_are_no_regression() {
    let mut inconclusive = 0;
    for gate in 0..GATES {
        let (share, percent) = [(10, 900), (20, 200), (33, 40), (50, 100)][gate % 4];
        let (code, verdict) = compared(share, percent);
        assert!(
            [0, 3].contains(&code),
            "{share} % of starts, +{percent} %: {code} {verdict}"
        );
        inconclusive += usize::from(code == 3);
    }
    println!("0 of {GATES} gates are red, {inconclusive} inconclusive");
}
