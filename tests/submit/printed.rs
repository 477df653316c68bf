//! What is printed to be read, or run by hand.

use super::SUBMIT;
use super::standin::Slurm;

#[test]
fn a_dry_run_prints_what_is_submitted_and_does_nothing() {
    let slurm = Slurm::new();
    let words = [
        &SUBMIT[..],
        &[
            "--dry-run",
            "--partition",
            "gpu",
            "--sbatch=--comment=two words",
        ],
        &["--time", "30", "--cpus-per-task", "2", "--costs", "old one"],
    ]
    .concat();
    // What is wrong with the suite is said before anything is printed.
    let nothing = [&words[..], &["--filter", "it's *"]].concat();
    assert_eq!(slurm.ran(&nothing).0, 2);
    let (code, stdout, stderr) = slurm.ran(&[&words[..], &["--filter", "*s32*"]].concat());
    assert_eq!(code, 0, "{stderr}");
    for line in [
        "#SBATCH --array=1-4",
        "#SBATCH --requeue",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=30",
        "#SBATCH --comment=\"two words\"",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --cpus-per-task=2",
        "  --shard \"$shard/4\" --out reports/s",
    ] {
        assert!(
            stdout.lines().any(|there| there == line),
            "{line}\n{stdout}"
        );
    }
    assert!(
        stdout.contains(" run ./s.toml '--filter=*s32*' '--costs=old one' \\\n"),
        "{stdout}"
    );
    assert!(slurm.file("calls").is_none() && slurm.file("reports/s/slurm/task.sh").is_none());
    // No command takes a folder for an option.
    let odd = [&SUBMIT[..], &["--dry-run", "--out=-x"]].concat();
    let (code, stdout, stderr) = slurm.ran(&odd);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("mkdir -p ./-x/slurm\n"), "{stdout}");
    // A suite that needs no GPU asks for none, nor one of which that is said.
    let none = [&SUBMIT[..], &["--dry-run", "--gres", "none"]].concat();
    assert!(!slurm.ran(&none).1.contains("gres"));
    let quick = ["submit", "--slurm", "quick", "--shards", "2", "--dry-run"];
    assert!(!slurm.ran(&quick).1.contains("gres"));
}

#[test]
fn both_sides_of_a_comparison_are_in_one_task() {
    let slurm = Slurm::new();
    let words = [
        "submit",
        "--slurm",
        "./s.toml",
        "--shards",
        "2",
        "--dry-run",
    ];
    let against = [&words[..], &["--against", "env:old"]].concat();
    let (code, stdout, stderr) = slurm.ran(&against);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains(" gate ./s.toml --against=env:old "),
        "{stdout}"
    );
    let baseline = [&against[..], &["--baseline", "b"]].concat();
    assert_eq!(slurm.ran(&baseline).0, 2);
}

#[test]
fn what_is_printed_can_be_run_by_hand() {
    let slurm = Slurm::new();
    let (_, script, _) = slurm.ran(&[&SUBMIT[..], &["--dry-run"]].concat());
    let path = format!("{}/bin:/usr/bin:/bin", slurm.place.path().display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-e", "-c", &script]).env("PATH", &path);
    assert!(
        shell
            .current_dir(slurm.place.path())
            .status()
            .unwrap()
            .success()
    );
    let by_hand = slurm.calls("sbatch");
    let scripts =
        ["task.sh", "behind.sh"].map(|name| slurm.file(&format!("reports/s/slurm/{name}")));
    slurm.answers("last", &Slurm::ends(0));
    assert_eq!(slurm.ran(&SUBMIT).0, 0);
    assert_eq!(slurm.calls("sbatch")[by_hand.len()..], by_hand);
    let own = ["task.sh", "behind.sh"].map(|name| slurm.file(&format!("reports/s/slurm/{name}")));
    assert_eq!(scripts, own);
}

#[test]
fn a_shard_for_each_gpu_that_takes_work() {
    let slurm = Slurm::new();
    slurm.does(
        "sinfo",
        "printf 'a|gpu:h200:8(S:0-1)|idle\\nb|gpu:4|down\\n'",
    );
    let words = [
        "submit",
        "--slurm",
        "./s.toml",
        "--run",
        "--dry-run",
        "--partition",
        "p",
    ];
    let (code, stdout, stderr) = slurm.ran(&words);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("#SBATCH --array=1-8\n"), "{stdout}");
    assert!(slurm.calls("sinfo")[0].ends_with("--partition=p"));
    let two = [&words[..], &["--gpus", "2"]].concat();
    let (_, stdout, _) = slurm.ran(&two);
    assert!(stdout.contains("#SBATCH --array=1-4\n") && stdout.contains("--gres=gpu:2\n"));
}
