//! Commands of Slurm that are scripts, each of which does what it is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::Place;

/// A place with a suite `s` and commands of Slurm, each of which appends its command line to
/// `calls` and does what it is told.
pub struct Slurm {
    pub place: Place,
}

/// Answers the first question by nothing, the second by `squeue.2`, and so on.
const SQUEUE: &str = "n=$(($(cat asked 2>/dev/null || echo 0) + 1)); echo $n >asked
if [ -e squeue.$n ]; then . ./squeue.$n; elif [ $n -gt 1 ]; then . ./squeue.last; fi";

/// Runs what is submitted at once: a task after the other, then what comes behind them. A task
/// whose number is in a file's name, `lose.2`, is lost once.
const SBATCH: &str = "array=1,2,3 script= more=
for word; do
  case $word in
    --array=*) array=${word#--array=} ;;
    --*) ;;
    *) if [ -z \"$script\" ]; then script=$word; else more=\"$more $word\"; fi ;;
  esac
done
case $script in
  */task.sh)
    for i in $(echo $array | tr , ' '); do
      if [ -e lose.$i ]; then rm lose.$i; continue; fi
      SLURM_ARRAY_TASK_ID=$i sh $script >>tasks.log 2>&1
    done
    echo 7 ;;
  *) sh $script $more >>behind.log 2>&1; echo 8 ;;
esac";

impl Slurm {
    pub fn new() -> Slurm {
        let place = Place::new();
        place.suite("s", &["fake/steady"], &[], "");
        fs::create_dir(place.path().join("bin")).unwrap();
        let slurm = Slurm { place };
        slurm.does(
            "sbatch",
            "case \"$*\" in *afterany*) echo 8 ;; *) echo 7 ;; esac",
        );
        slurm.does("squeue", SQUEUE);
        slurm.does("scancel", "true");
        slurm.does(
            "scontrol",
            "echo 'JobId=8 Reason=NonZeroExitCode ExitCode=0:15'",
        );
        slurm
    }

    /// One that runs what is submitted at once, in a place with a suite `s`.
    pub fn at_once(place: Place) -> Slurm {
        fs::create_dir(place.path().join("bin")).unwrap();
        let slurm = Slurm { place };
        slurm.does("sbatch", SBATCH);
        slurm.does("squeue", "true");
        slurm
    }

    pub fn does(&self, program: &str, text: &str) {
        let path = self.place.path().join("bin").join(program);
        let text = format!("#!/bin/sh\necho {program} \"$*\" >>calls\n{text}\n");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What `squeue` does when it is asked so often; `last`: from then on.
    pub fn answers(&self, nth: &str, text: &str) {
        self.place.write(&format!("squeue.{nth}"), text);
    }

    pub fn ran(&self, words: &[&str]) -> (i32, String, String) {
        let path = format!("{}/bin:/usr/bin:/bin", self.place.path().display());
        self.place.ran_with(words, &[("PATH", &path)])
    }

    pub fn calls(&self, program: &str) -> Vec<String> {
        let text = fs::read_to_string(self.place.path().join("calls")).unwrap_or_default();
        let prefix = format!("{program} ");
        let calls = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        calls.map(str::to_owned).collect()
    }

    pub fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.place.path().join(name)).ok()
    }

    /// What the job behind the tasks does at its end.
    pub fn ends(code: u8) -> String {
        format!(
            "echo 'the answer' >reports/s/slurm/answer; echo 'what was said' >reports/s/slurm/said; \
             echo {code} >reports/s/exit-code; echo '8|N/A|COMPLETED|None'"
        )
    }
}
