//! Replies that another process than the worker sends.

use std::fs;

use crate::common::Place;

/// A suite of the worker of the shell.
const SUITE: &str = "[measure]\ninvocations = 1\n[workers]\nw = [\"sh\", \"w.sh\"]\n\
                     [[sweep]]\nvariants = [\"w/v\"]\nseq = 8\nhead_dim = 8\n";

/// A worker of the shell, whose introduction and whose later reply are written by itself or by a
/// child (`sh -c`).
fn worker(introduces: &str, prepares: &str) -> String {
    let hello = r#"{"id":1,"type":"hello","protocol":1,"worker":"w","versions":{},"device":{"kind":"cpu","name":"x","memory_bytes":1000000000,"facts":{}},"variants":[{"name":"v","summary":"","dtypes":["f32"],"directions":["forward"],"parameters":{}}]}"#;
    let reply = r#"{"id":2,"type":"unsupported","reason":"as the worker says"}"#;
    let write = |who: &str, text: &str| match who {
        "itself" => format!("printf '%s\\n' '{text}' >&4\n"),
        _ => format!("sh -c 'printf \"%s\\\\n\" \"$0\" >&4' '{text}'\n"),
    };
    format!(
        "printf '\\n' >&4\nread -r line <&3\n{}read -r line <&3\n{}read -r line <&3\n",
        write(introduces, hello),
        write(prepares, reply)
    )
}

#[test]
fn a_reply_of_another_process_than_the_workers_is_refused() {
    for (introduces, prepares, says) in [
        ("itself", "itself", "as the worker says"),
        ("itself", "child", "wrote on the channel of the worker"),
        ("child", "itself", "wrote on the channel of the worker"),
    ] {
        let place = Place::new();
        place.write("w.sh", &worker(introduces, prepares));
        place.write("s.toml", SUITE);
        let (code, stdout, stderr) = place.ran(&["run", "./s.toml"]);
        let words: Vec<&str> = stdout
            .split_whitespace()
            .chain(stderr.split_whitespace())
            .collect();
        let text = words.join(" ");
        assert_ne!(code, 0, "{text}");
        assert!(text.contains(says), "{introduces} {prepares}: {text}");
    }
}

#[test]
fn a_baseline_that_a_worker_rewrites_when_it_starts_judges_nothing() {
    let place = Place::new();
    place.write("s.toml", SUITE);
    fs::create_dir_all(place.path().join("baselines/s")).unwrap();
    let baseline = place.path().join("baselines/s/machine.jsonl");
    fs::write(&baseline, "").unwrap();
    place.write(
        "w.sh",
        &format!(
            "echo >>{}\n{}",
            baseline.display(),
            worker("itself", "itself")
        ),
    );
    let (code, _, stderr) = place.ran(&["gate", "./s.toml"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("changed while the workers started"),
        "{stderr}"
    );
}
