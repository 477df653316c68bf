//! The scripts of a job array and of the job behind it, as `sbatch` takes them.

use std::fmt::Write;

use super::{Plan, ROUNDS, command, label};
use crate::record::run_file::RUN_FILE;
use crate::report::text::shell_quoted;

/// What Slurm is told beside the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// The program, as the nodes find it.
    pub program: String,
    /// Resources of each task: `gpu:1`.
    pub gres: Option<String>,
    /// The partition of all jobs.
    pub partition: Option<String>,
    /// The account of all jobs.
    pub account: Option<String>,
    /// The longest time of each job.
    pub time: Option<String>,
    /// Further options of all jobs, as `sbatch` takes them.
    pub more: Vec<String>,
}

/// The two scripts, and where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// The name of all jobs. It is of the folder of reports, so that what is submitted can be
    /// found again.
    pub name: String,
    /// The folder of scripts and logs.
    pub folder: String,
    /// Measures a shard: an array.
    pub task: String,
    /// Comes behind an array: has what is left measured on, or judges.
    pub behind: String,
    /// Where the exit code of the whole will be.
    pub exit_code: String,
}

/// The script of a task, within [`Scripts::folder`].
pub const TASK: &str = "task.sh";

/// The script of the job behind the tasks, within [`Scripts::folder`].
pub const BEHIND: &str = "behind.sh";

/// Within [`Scripts::folder`]: what `merge` printed.
pub const ANSWER: &str = "answer";

/// Within [`Scripts::folder`]: what the job behind the last tasks said on standard error.
pub const SAID: &str = "said";

/// Within the folder of reports: the exit code of the whole, written last.
pub const EXIT_CODE: &str = "exit-code";

/// Why a path or an option cannot stand in a script of Slurm.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} `{}` cannot be written into a script of Slurm: {why}",
    text.escape_debug()
)]
pub struct Unwritable {
    /// The option.
    pub what: &'static str,
    /// What was given.
    pub text: String,
    /// Why not.
    pub why: &'static str,
}

impl Scripts {
    /// The scripts of a plan; `place` is the absolute path of its folder of reports.
    ///
    /// # Errors
    /// An option that has several lines, and a folder whose name `sbatch` would read otherwise.
    pub fn of(plan: &Plan, slurm: &Slurm, place: &str) -> Result<Scripts, Unwritable> {
        let unwritable = |what, text: &str, why| {
            Err(Unwritable {
                what,
                text: text.to_owned(),
                why,
            })
        };
        let options = [
            ("--gres", &slurm.gres),
            ("--partition", &slurm.partition),
            ("--account", &slurm.account),
            ("--time", &slurm.time),
        ];
        let given = options
            .into_iter()
            .filter_map(|(what, value)| Some((what, value.as_ref()?)));
        let more = slurm.more.iter().map(|word| ("--sbatch", word));
        for (what, text) in given.chain(more).chain([("--out", &plan.out)]) {
            if text.chars().any(char::is_control) {
                return unwritable(what, text, "it has more than one line");
            }
        }
        if plan.out.contains('\\') {
            return unwritable("--out", &plan.out, "sbatch takes `\\` for its own");
        }
        let name = format!(
            "regatta-{}-{:08x}",
            label(&plan.suite),
            crc32fast::hash(place.as_bytes())
        );
        let root = plan.out.trim_end_matches('/');
        let folder = format!("{root}/slurm");
        Ok(Scripts {
            task: task(plan, slurm, &name, &folder),
            behind: behind(plan, slurm, &name, &folder),
            name,
            folder,
            exit_code: format!("{root}/{EXIT_CODE}"),
        })
    }

    /// The paths of both scripts and their texts.
    pub fn files(&self) -> [(String, &str); 2] {
        [(TASK, &self.task), (BEHIND, &self.behind)]
            .map(|(name, text)| (format!("{}/{name}", self.folder), text.as_str()))
    }

    /// What submits the array.
    pub fn submit_tasks(&self) -> Vec<String> {
        let task = format!("{}/{TASK}", self.folder);
        ["sbatch", "--parsable", &task].map(str::to_owned).into()
    }

    /// What submits the job behind the array of this number.
    pub fn submit_behind(&self, array: &str) -> Vec<String> {
        let behind = format!("{}/{BEHIND}", self.folder);
        let dependency = format!("--dependency=afterany:{array}");
        ["sbatch", "--parsable", &dependency, &behind]
            .map(str::to_owned)
            .into()
    }

    /// A script that writes both and submits them: what a person reads, or runs.
    pub fn by_hand(&self) -> String {
        let folder = shell_quoted(&self.folder);
        let exit_code = shell_quoted(&self.exit_code);
        let mut text = format!("mkdir -p {folder}\nrm -f {exit_code} {folder}/*.code\n");
        for (path, script) in self.files() {
            let mut end = "END".to_owned();
            while script.lines().any(|line| line == end) {
                end.push('_');
            }
            let path = shell_quoted(&path);
            let _ = write!(text, "cat >{path} <<'{end}'\n{script}{end}\n");
        }
        let [(task, _), (behind, _)] = self.files();
        let _ = writeln!(
            text,
            "array=$(sbatch --parsable {}) &&\n  \
             sbatch --parsable --dependency=\"afterany:${{array%%;*}}\" {}",
            shell_quoted(&task),
            shell_quoted(&behind),
        );
        text
    }
}

/// An option in a script: what `sbatch` reads as one word.
fn directive(option: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if option.chars().all(plain) {
        return format!("#SBATCH {option}\n");
    }
    let escaped = option.replace('\\', "\\\\").replace('"', "\\\"");
    match escaped.split_once('=') {
        Some((name, value)) => format!("#SBATCH {name}=\"{value}\"\n"),
        None => format!("#SBATCH \"{escaped}\"\n"),
    }
}

/// Options that both scripts have; `log` is within the folder.
fn directives(slurm: &Slurm, name: &str, folder: &str, log: &str) -> String {
    let log = format!("{}/{log}", folder.replace('%', "%%"));
    let mut options = vec![
        format!("--job-name={name}"),
        "--requeue".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--output={log}"),
    ];
    let named = [
        ("partition", &slurm.partition),
        ("account", &slurm.account),
        ("time", &slurm.time),
    ];
    for (option, value) in named {
        options.extend(value.as_ref().map(|value| format!("--{option}={value}")));
    }
    options.extend(slurm.more.iter().cloned());
    options.iter().map(|option| directive(option)).collect()
}

fn task(plan: &Plan, slurm: &Slurm, name: &str, folder: &str) -> String {
    let shards = plan.shards;
    let mut options = directive(&format!("--array=1-{shards}"));
    options += &directives(slurm, name, folder, "%a.log");
    if let Some(gres) = &slurm.gres {
        options += &directive(&format!("--gres={gres}"));
    }
    if let Some(cores) = plan.cores {
        options += &directive(&format!("--cpus-per-task={cores}"));
    }
    let measure = command(&slurm.program, &plan.measure);
    let out = shell_quoted(&plan.out);
    let folder = shell_quoted(folder);
    format!(
        "#!/bin/sh\n\
         # Measures one shard of the suite: task I of this array measures shard I of {shards}.\n\
         # Begun again after it was killed or pre-empted, or its node failed, it goes on where\n\
         # it was.\n\
         {options}\n\
         shard=$SLURM_ARRAY_TASK_ID\n\
         # Its exit code is left here, unless something ends it first.\n\
         code={folder}/$shard.code\n\
         rm -f \"$code\"\n\
         echo \"shard $shard, on $SLURMD_NODENAME:\"\n\
         {measure} \\\n  \
         --shard \"$shard/{shards}\" --out {out}\n\
         ended=$?\n\
         echo \"$ended\" >\"$code\"\n\
         exit \"$ended\"\n"
    )
}

fn behind(plan: &Plan, slurm: &Slurm, name: &str, folder: &str) -> String {
    let shards = plan.shards;
    let tries = plan.tries;
    let options = directives(slurm, name, folder, "behind.log");
    let program = &slurm.program;
    let into = plan.shards_folder();
    let words = |words: &[&str], more: &[String]| {
        let words = words.iter().map(|&word| word.to_owned());
        let words: Vec<String> = words.chain(more.iter().cloned()).collect();
        command(program, &words)
    };
    let next = words(&["next", &into], &plan.next);
    let merge = words(&["merge", &into, "--out", &plan.out], &plan.merge);
    let code = shell_quoted(&format!("{}/{EXIT_CODE}", plan.out.trim_end_matches('/')));
    let into = shell_quoted(&into);
    let task = shell_quoted(&format!("{folder}/{TASK}"));
    let this = shell_quoted(&format!("{folder}/{BEHIND}"));
    let folder = shell_quoted(folder);
    format!(
        r#"#!/bin/sh
# Comes behind the tasks of {TASK}. Shards that have something left are measured on by a further
# array, which has such a job behind it too; when nothing is left, all are judged together.
# Arguments: how often shards that died were begun again, and how many arrays there were.
{options}
died=${{1:-0}} round=${{2:-1}}
folder={folder}

# Slurm began this job again: it ends where the further array is there already.
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then
  others=$(squeue --me --noheader --name={name} --format=%A | grep -cvx "$SLURM_JOB_ID")
  [ "$others" = 0 ] || exit 0
fi
# Not begun, killed in the middle, or owing fresh invocations: a number a line.
if ! left=$({next}); then
  # It cannot tell where no shard has begun.
  [ -n "$(find {into} -name {RUN_FILE} 2>/dev/null | head -n 1)" ] || left=$(seq {shards})
fi
exec 2>"$folder/{SAID}"
# What an earlier submission left is whole too: a shard that no task of this one measured is none.
for shard in $(seq {shards}); do
  [ "$(cat "$folder/$shard.code" 2>/dev/null)" = 0 ] || left="$left $shard"
done
left=$(echo $left | tr ' ' '\n' | sort -nu)
lost= refused=
for shard in $left; do
  case $(cat "$folder/$shard.code" 2>/dev/null) in
    0) ;;                                 # it ended well: fresh invocations are owed
    2) refused="$refused $shard" ;;       # the command line or a file is wrong
    *) lost="$lost $shard" ;;
  esac
done
if [ "$(echo $refused | wc -w)" = {shards} ]; then
  set -- $refused
  echo "no shard was measured; this is the log of shard $1:" >&2
  tail -n 20 "$folder/$1.log" >&2
  : >"$folder/{ANSWER}"
  code=2
else
  go=$left
  if [ -n "$lost" ]; then
    died=$((died + 1))
    if [ "$died" -gt {tries} ]; then
      echo "given up after {tries} further tries:$lost" >&2
      go=
    fi
  fi
  if [ -n "$refused" ] || [ "$round" -ge {ROUNDS} ]; then go=; fi
  if [ -n "$go" ]; then
    array=$(sbatch --parsable --array="$(echo $go | tr ' ' ,)" {task}) &&
      sbatch --parsable --dependency="afterany:${{array%%;*}}" {this} "$died" $((round + 1)) &&
      exit 0
    echo "sbatch, asked from a node, did not take:" $go >&2
  fi
  {merge} >"$folder/{ANSWER}"
  code=$?
  if [ -n "$lost$refused" ] && [ "$code" = 0 ]; then
    echo "no task of this submission ended well for shards:$lost$refused" >&2
    code=3
  fi
fi
echo "$code" >"$folder/code.new" && mv "$folder/code.new" {code}
exit "$code"
"#
    )
}

#[cfg(test)]
mod tests;
