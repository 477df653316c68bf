//! What workers print, and what is said of those that do not come up.

use std::fs;

use crate::common::Place;

const HELLO: &str = r#"
open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1); <$in>;
print $out '{"id":1,"type":"hello","protocol":1,"worker":"mine","device":{"kind":"cpu","name":"x","memory_bytes":1000000000},"variants":[{"name":"x","dtypes":["f32"],"directions":["forward"]}]}', "\n";
"#;

fn suite(place: &Place, command: &str) {
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[measure]\ninvocations = 1\ntimeout_s = 2\n\
             [workers]\nmine = [{command}]\n\
             [[sweep]]\nvariants = \"mine/x\"\nseq = 8\nhead_dim = 8\n"
        ),
    );
}

/// A place with a suite of a worker in Perl that answers `hello` and goes on like this.
fn place(then: &str) -> Place {
    let place = Place::new();
    place.write("w.pl", &format!("{HELLO}{then}\n"));
    suite(&place, "\"perl\", \"-MIO::Handle\", \"w.pl\"");
    place
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_fault_is_told_and_not_the_last_line() {
    let place = place(
        "exit unless <$in>; $| = 1;\n\
         print \"RuntimeError: CUDA error: an illegal memory access was encountered\\n\";\n\
         print \"[rank $_] destroying process group\\n\" for 1 .. 30; exit 7;",
    );
    let (_, stdout, _) = place.ran(&["run", "./s.toml"]);
    let said = words(&stdout);
    assert!(
        said.contains("RuntimeError: CUDA error: an illegal memory access"),
        "{stdout}"
    );
    assert!(!said.contains("[rank 30]"), "{stdout}");
    let run = fs::read_to_string(place.path().join("reports/s/run.jsonl")).unwrap();
    assert!(
        run.contains("RuntimeError") && run.contains("[rank 30]"),
        "{run}"
    );
    assert!(!run.contains("[rank 3]"), "an excerpt, not the log: {run}");
}
