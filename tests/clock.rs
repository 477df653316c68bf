//! How well times are known: the ruler, the spread of a run, and what a sample is.

use crate::common::Place;

#[test]
fn the_ruler_rules_the_processor_wherever_it_runs() {
    let place = Place::new();
    let (stdout, stderr) = exits!(place, 0, ["doctor", "--ruler", "--json", "--out", "ruler"]);
    let clocks: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let cpu = &clocks[1];
    assert_eq!(cpu["clock"], "cpu", "{stderr}");
    let ruled = cpu["ruling"]["ruled"].as_array().unwrap();
    assert_eq!(ruled.len(), 9);
    for length in ruled {
        assert_eq!(length["added"].as_array().unwrap().len(), 4);
        let nominal = length["nominal_ns"].as_f64().unwrap();
        assert!(length["read_ns"].as_f64().unwrap() >= nominal, "{length}");
    }
    for name in ["ruler.html", "ruler.csv", "ruler.txt"] {
        assert!(place.path().join("ruler").join(name).is_file(), "{name}");
    }
}

#[test]
fn the_rulers_folder_is_refused_before_anything_is_ruled() {
    let place = Place::new();
    place.write("taken", "a file");
    let (_, stderr) = exits!(place, 2, ["doctor", "--ruler", "--out", "taken"]);
    assert!(stderr.contains("taken"), "{stderr}");
    assert!(!stderr.contains("ruling the"), "{stderr}");
}

#[test]
fn the_spread_of_a_run_is_printed_and_a_baseline_has_none() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    let (stdout, _) = exits!(place, 0, ["report", "reports/s", "--spread"]);
    assert!(
        stdout.contains("within") && stdout.contains("between"),
        "{stdout}"
    );
    assert_eq!(stdout.matches("fake/steady:").count(), 6, "{stdout}");
    let (stdout, _) = exits!(place, 0, ["report", "reports/s", "--spread", "--json"]);
    let runs: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let cases = runs[0]["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    assert_eq!(cases[0]["invocations"], 5);
    exits!(place, 0, ["baseline", "save", "main", "reports/s"]);
    let (_, stderr) = exits!(place, 2, ["report", "main", "--spread"]);
    assert!(stderr.contains("keeps no samples"), "{stderr}");
}

#[test]
fn a_worker_that_ignores_what_a_sample_is_fails_its_cases() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let text = std::fs::read_to_string(place.path().join("s.toml")).unwrap();
    place.write(
        "s.toml",
        &text.replace("[measure]\n", "[measure]\ngraph = true\n"),
    );
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stdout.contains("does not replay CUDA graphs"), "{stdout}");
}
