use super::*;

fn plan() -> Plan {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Plan {
        suite: "quick".to_owned(),
        shards: 4,
        measure: words(&["gate", "quick", "--filter", "it's *"]),
        next: words(&["--baselines", "kept here"]),
        merge: words(&["--strict"]),
        out: "reports/quick".to_owned(),
        tries: 3,
        gpus: 1,
        cores: Some(2),
    }
}

fn slurm() -> Slurm {
    Slurm {
        program: "/opt/regatta".to_owned(),
        gres: Some("gpu:h200:1".to_owned()),
        partition: Some("night".to_owned()),
        more: vec!["--comment=a \"b\" # c".to_owned()],
        ..Slurm::default()
    }
}

#[test]
fn scripts_are_read_by_a_person() {
    let scripts = Scripts::of(&plan(), &slurm(), "/shared/reports/quick").unwrap();
    insta::assert_snapshot!(scripts.by_hand());
}

#[test]
fn a_shell_reads_every_script() {
    let mut odd = plan();
    odd.out = "it's $(here) %a".to_owned();
    for plan in [plan(), odd] {
        let scripts = Scripts::of(&plan, &slurm(), "/x").unwrap();
        for script in [&scripts.task, &scripts.behind, &scripts.by_hand()] {
            let mut shell = std::process::Command::new("sh");
            let status = shell.args(["-n", "-c", script]).status().unwrap();
            assert!(status.success(), "{script}");
        }
    }
}

#[test]
fn what_sbatch_would_read_otherwise_is_escaped_or_refused() {
    assert_eq!(
        directive("--comment=a \"b\" # c"),
        "#SBATCH --comment=\"a \\\"b\\\" # c\"\n"
    );
    assert_eq!(directive("--time=1:00:00"), "#SBATCH --time=1:00:00\n");
    let mut percent = plan();
    percent.out = "100%a".to_owned();
    let scripts = Scripts::of(&percent, &slurm(), "/x").unwrap();
    assert!(
        scripts.task.contains("--output=100%%a/slurm/%a.log\n"),
        "{}",
        scripts.task
    );
    let mut two_lines = slurm();
    two_lines.account = Some("a\n#SBATCH --uid=0".to_owned());
    let error = Scripts::of(&plan(), &two_lines, "/x").unwrap_err();
    assert_eq!(error.what, "--account");
    let mut back = plan();
    back.out = "a\\b".to_owned();
    assert_eq!(
        Scripts::of(&back, &slurm(), "/x").unwrap_err().what,
        "--out"
    );
}

#[test]
fn jobs_are_named_after_suite_and_place() {
    let name = |place| Scripts::of(&plan(), &slurm(), place).unwrap().name;
    assert_eq!(name("/a"), name("/a"));
    assert_ne!(name("/a"), name("/b"));
    assert!(name("/a").starts_with("regatta-quick-"));
}

/// A folder in which the script behind the tasks is run, with programs in place of regatta and
/// Slurm's.
struct Behind {
    folder: tempfile::TempDir,
}

/// What came of it.
struct Came {
    /// What was submitted.
    submitted: Vec<String>,
    /// The exit code that was left.
    code: Option<String>,
    /// What was said.
    said: String,
}

impl Behind {
    /// After tasks of four shards that left these exit codes; `next` is what regatta answers when
    /// asked what is left.
    fn after(codes: &[(u32, &str)], next: &str) -> Behind {
        let folder = tempfile::tempdir().unwrap();
        let behind = Behind { folder };
        let regatta = format!("case $1 in\nnext) {next} ;;\nmerge) echo \"$*\"; exit 1 ;;\nesac\n");
        behind.program("regatta", &regatta);
        behind.program(
            "sbatch",
            "echo \"$*\" >>submitted; [ ! -e full ] || exit 1; echo '12;cluster'\n",
        );
        behind.program("squeue", "printf '9\\n10\\n'\n");
        std::fs::create_dir_all(behind.path("whole/slurm")).unwrap();
        std::fs::write(behind.path("whole/slurm/1.log"), "error: no such suite\n").unwrap();
        for (shard, code) in codes {
            let name = format!("whole/slurm/{shard}.code");
            std::fs::write(behind.path(&name), format!("{code}\n")).unwrap();
        }
        behind
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script with these arguments and variables.
    fn ran(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Came {
        let mut slurm = slurm();
        slurm.program = self.path("regatta").to_str().unwrap().to_owned();
        let mut plan = plan();
        plan.out = "whole".to_owned();
        let scripts = Scripts::of(&plan, &slurm, "/x").unwrap();
        let path = format!("{}:/usr/bin:/bin", self.folder.path().display());
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &scripts.behind, "behind.sh"])
            .args(arguments);
        shell.env("PATH", path).envs(variables.iter().copied());
        shell.current_dir(self.folder.path()).output().unwrap();
        let read = |name: &str| std::fs::read_to_string(self.path(name)).ok();
        Came {
            submitted: read("submitted")
                .unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect(),
            code: read("whole/exit-code").map(|code| code.trim().to_owned()),
            said: read("whole/slurm/said").unwrap_or_default(),
        }
    }
}

const WELL: [(u32, &str); 4] = [(1, "0"), (2, "0"), (3, "0"), (4, "0")];

#[test]
fn when_nothing_is_left_all_are_judged_together() {
    let behind = Behind::after(&WELL, "true");
    let came = behind.ran(&[], &[]);
    assert_eq!(came.submitted, [""; 0]);
    assert_eq!(came.code.as_deref(), Some("1"));
    let answer = std::fs::read_to_string(behind.path("whole/slurm/answer")).unwrap();
    assert_eq!(answer, "merge whole/shards --out whole --strict\n");
}

#[test]
fn fresh_invocations_that_are_owed_use_up_no_try() {
    let came = Behind::after(&WELL, "printf '2\\n4\\n'").ran(&["3", "7"], &[]);
    assert_eq!(
        came.submitted,
        [
            "--parsable --array=2,4 whole/slurm/task.sh",
            "--parsable --dependency=afterany:12 whole/slurm/behind.sh 3 8"
        ]
    );
    assert_eq!(came.code, None);
}

#[test]
fn shards_that_died_are_begun_again_so_often() {
    let codes = [(1, "0"), (3, "0"), (4, "143")];
    let left = "printf '2\\n4\\n'";
    let came = Behind::after(&codes, left).ran(&["2", "3"], &[]);
    assert_eq!(came.submitted.len(), 2);
    assert!(
        came.submitted[1].ends_with("behind.sh 3 4"),
        "{}",
        came.submitted[1]
    );
    // Then the rest is judged, which says what is missing.
    let came = Behind::after(&codes, left).ran(&["3", "4"], &[]);
    assert_eq!(came.submitted, [""; 0]);
    assert_eq!(came.code.as_deref(), Some("1"));
    assert!(
        came.said.contains("given up after 3 further tries: 2 4"),
        "{}",
        came.said
    );
}

#[test]
fn where_no_shard_has_begun_all_are_begun_again() {
    let came = Behind::after(&[], "exit 3").ran(&[], &[]);
    assert_eq!(
        came.submitted[0],
        "--parsable --array=1,2,3,4 whole/slurm/task.sh"
    );
    // Where some have, and it cannot tell, judging says why.
    let behind = Behind::after(&WELL, "exit 3");
    std::fs::create_dir_all(behind.path("whole/shards/1-of-4")).unwrap();
    std::fs::write(behind.path("whole/shards/1-of-4/run.jsonl"), "").unwrap();
    assert_eq!(behind.ran(&[], &[]).code.as_deref(), Some("1"));
}

#[test]
fn a_wrong_command_line_is_not_tried_again() {
    let all = [(1, "2"), (2, "2"), (3, "2"), (4, "2")];
    let came = Behind::after(&all, "seq 4").ran(&[], &[]);
    assert_eq!(came.submitted, [""; 0]);
    assert_eq!(came.code.as_deref(), Some("2"));
    assert!(came.said.contains("error: no such suite"), "{}", came.said);
    let one = [(1, "0"), (2, "2"), (3, "0"), (4, "0")];
    let came = Behind::after(&one, "echo 2").ran(&[], &[]);
    assert_eq!((came.submitted.len(), came.code.as_deref()), (0, Some("1")));
}

#[test]
fn what_no_task_of_this_submission_measured_does_not_pass() {
    let passes = |behind: Behind| {
        behind.program("regatta", "[ $1 != merge ] || echo \"$*\"\n");
        behind
    };
    // All that is there is whole, and is what an earlier submission left.
    let all = [(1, "2"), (2, "2"), (3, "2"), (4, "2")];
    let came = passes(Behind::after(&all, "")).ran(&[], &[]);
    assert_eq!(came.code.as_deref(), Some("2"));
    let came = passes(Behind::after(&[], "")).ran(&[], &[]);
    assert!(
        came.submitted[0].contains("--array=1,2,3,4"),
        "{:?}",
        came.submitted
    );
    for one in [
        [(1, "0"), (2, "0"), (3, "2"), (4, "0")],
        [(1, "0"), (2, "3"), (3, "0"), (4, "0")],
    ] {
        let came = passes(Behind::after(&one, "")).ran(&["9", "9"], &[]);
        assert_eq!(came.code.as_deref(), Some("3"), "{}", came.said);
        assert!(
            came.said.contains("ended well for shards: "),
            "{}",
            came.said
        );
    }
    let came = passes(Behind::after(&WELL, "")).ran(&[], &[]);
    assert_eq!(came.code.as_deref(), Some("0"));
}

#[test]
fn what_cannot_be_submitted_is_said_and_the_rest_judged() {
    let behind = Behind::after(&WELL, "echo 3");
    std::fs::write(behind.path("full"), "").unwrap();
    let came = behind.ran(&[], &[]);
    assert_eq!(came.code.as_deref(), Some("1"));
    assert!(came.said.contains("did not take: 3"), "{}", came.said);
}

#[test]
fn begun_again_by_slurm_it_submits_nothing_twice() {
    let behind = Behind::after(&WELL, "echo 3");
    let again = [("SLURM_RESTART_COUNT", "1"), ("SLURM_JOB_ID", "9")];
    let came = behind.ran(&[], &again);
    assert_eq!((came.submitted.len(), came.code), (0, None));
    behind.program("squeue", "echo 9\n");
    assert_eq!(behind.ran(&[], &again).submitted.len(), 2);
}
