//! Two commands at once that make the same shared folder: each answers as it does alone.

use std::process::{Output, Stdio};

use crate::common::{Place, fake_worker};

/// Pairs of commands, over all folders.
const PAIRS: usize = 40;

/// Starts both before either ends.
fn both(place: &Place, commands: [&[&str]; 2]) -> [Output; 2] {
    let started = commands.map(|words| {
        let mut command = place.regatta(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    });
    started.map(|child| child.wait_with_output().unwrap())
}

/// A repository whose suite builds a file in 0.3 s and whose worker needs it.
fn repository() -> Place {
    let place = Place::new();
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        "[build]\ncommand = [\"sh\", \"make.sh\"]\nmakes = [\"made\"]\n",
    );
    place.edit("s.toml", "invocations = 5", "invocations = 1");
    place.write("make.sh", "echo 1 >made\nsleep 0.3\necho 2 >>made\n");
    place.write(
        "worker.sh",
        &format!(
            "test \"$(wc -l <made)\" = 2 || exit 7\nexec {} \"$@\"\n",
            fake_worker().display()
        ),
    );
    place.edit(
        "s.toml",
        &format!("fake = [\"{}\"", fake_worker().display()),
        "fake = [\"sh\", \"worker.sh\"",
    );
    place.write(
        ".gitignore",
        "made\nreports\ncache\nother\nstarts\nregatta.toml\n",
    );
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "."]);
    place.git(&["commit", "-q", "-m", "one"]);
    // The working tree is built by its owner.
    place.write("made", "1\n2\n");
    place
}

#[test]
#[ignore = "takes some minutes"]
fn two_commands_at_once_answer_as_one_after_the_other() {
    for pair in 0..PAIRS {
        let (place, commands): (Place, [&[&str]; 2]) = match pair % 3 {
            0 => (Place::new(), [&["doctor", "--json"], &["list", "quick"]]),
            1 => {
                let place = Place::new();
                place.write(
                    "regatta.toml",
                    "[environments.own]\nrequirements = [\"six==1.17.0\"]\n",
                );
                let make: &[&str] = &["env", "make", "own"];
                (place, [make, make])
            }
            _ => (
                repository(),
                [
                    &["gate", "./s.toml", "--base", "git:main", "--out", "other/a"],
                    &["gate", "./s.toml", "--base", "git:main", "--out", "other/b"],
                ],
            ),
        };
        for output in both(&place, commands) {
            assert!(output.status.success(), "pair {pair}: {output:?}");
        }
    }
}
