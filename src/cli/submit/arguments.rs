//! What `submit` is asked for, and the plan that it makes.

use anyhow::anyhow;
use clap::{ArgGroup, Args};

use crate::cli::Stop;
use crate::cli::measure_args::{MeasureArgs, in_folder, load};
use crate::cli::reporting::Show;
use regatta::submit::Plan;
use regatta::submit::devices;
use regatta::suite::Suite;
use regatta::versions::spec::Spec;

/// Measure a suite in shards on a cluster, and judge the whole
///
/// With --slurm: a job array measures the shards, a task each; a job behind it has those that
/// died, or owe fresh invocations, measured on by a further array, and merges when nothing is
/// left. This command waits, prints the answer and exits with its code: 0, 1, 2 and 3 mean what
/// they mean for `gate`. It can be stopped: the jobs go on, and the same command waits for them
/// again. Where they ended without a verdict, the same command goes on with what is left.
///
/// With --kubernetes: prints the manifests of an indexed Job, of its volume and of the Job that
/// merges, and the commands that apply them. Nothing is asked of a cluster.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("scheduler").required(true),
    // Which shard a task measures is not asked for here.
    mut_arg("shard", |arg| arg.hide(true)),
    after_help = "Examples:\n  \
        regatta submit --slurm native --shards 8 --partition gpu --gres gpu:h200:1\n  \
        regatta submit --slurm native --shards 8 --dry-run        # prints the scripts\n  \
        regatta submit --slurm quick --shards 4 --run --sbatch=--exclusive\n  \
        regatta submit --kubernetes native --shards 8 --image registry.example.org/regatta:1\n\n\
        The whole's run and reports are in reports/SUITE, the scripts and logs of tasks in\n\
        reports/SUITE/slurm. docs/SCALE.md has a library's nightly on a cluster, in a page."
)]
pub struct SubmitArgs {
    /// To Slurm, by its own commands
    #[arg(long, group = "scheduler")]
    slurm: bool,

    /// Print manifests for Kubernetes
    #[arg(long, group = "scheduler", requires = "image")]
    pub kubernetes: bool,

    /// In how many shards [default for Slurm: one for each GPU that `sinfo` tells of]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub shards: Option<u32>,

    /// Measure and judge what the suite itself demands: `run` in place of `gate`
    #[arg(long, conflicts_with_all = ["baseline", "baselines", "against"])]
    pub run: bool,

    /// Hold it against another version instead, each shard of both in turn in one task
    /// (`regatta gate --help`)
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["baseline", "baselines"])]
    pub against: Vec<Spec>,

    /// The baseline to hold it against [default: the suite's name]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    /// How often shards that died are begun again; each goes on where it was
    #[arg(long, value_name = "K", default_value_t = 3)]
    tries: u32,

    /// GPUs of each task [default: what the suite's workers need]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1024))]
    gpus: Option<u64>,

    /// Processor cores of each task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus_per_task: Option<u32>,

    #[command(flatten)]
    pub show: Show,

    #[command(flatten)]
    pub measure: MeasureArgs,

    #[command(flatten)]
    pub of_slurm: OfSlurm,

    #[command(flatten)]
    pub of_kubernetes: OfKubernetes,
}

/// What Slurm alone is told.
#[derive(Args, Debug)]
#[command(next_help_heading = "Slurm")]
pub struct OfSlurm {
    /// The resources of each task, `none` for none [default: gpu:N for N GPUs]
    #[arg(long, value_name = "LIST", conflicts_with_all = ["kubernetes", "gpus"])]
    pub gres: Option<String>,

    /// The partition of all jobs
    #[arg(long, value_name = "NAME", conflicts_with = "kubernetes")]
    pub partition: Option<String>,

    /// The account of all jobs
    #[arg(long, value_name = "NAME", conflicts_with = "kubernetes")]
    pub account: Option<String>,

    /// The longest time of each job, as sbatch takes it: `30`, `4:00:00`. A shard that does
    /// not end within it goes on in its next try
    #[arg(long, value_name = "TIME", conflicts_with = "kubernetes")]
    pub time: Option<String>,

    /// Another option of sbatch, for all jobs: `--sbatch=--constraint=h200`
    #[arg(
        long,
        value_name = "OPTION",
        allow_hyphen_values = true,
        conflicts_with = "kubernetes"
    )]
    pub sbatch: Vec<String>,

    /// Print a shell script that submits by hand, and submit nothing. Needs no Slurm
    #[arg(long, conflicts_with_all = ["kubernetes", "json", "no_wait"])]
    pub dry_run: bool,

    /// Do not wait: print the jobs and end with 0
    #[arg(long, conflicts_with_all = ["kubernetes", "json"])]
    pub no_wait: bool,
}

/// What Kubernetes alone is told.
#[derive(Args, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct OfKubernetes {
    /// The image of all tasks: it has regatta, `sh`, and what the suite's workers need
    #[arg(long, value_name = "IMAGE", conflicts_with = "slurm")]
    pub image: Option<String>,

    /// The namespace [default: that of whoever applies]
    #[arg(long, value_name = "NAME", conflicts_with = "slurm")]
    pub namespace: Option<String>,

    /// How large the volume of runs and reports is
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10Gi",
        conflicts_with = "slurm"
    )]
    pub volume: String,

    /// The volume's class, which has to serve several nodes at once (ReadWriteMany) [default:
    /// the cluster's]
    #[arg(long, value_name = "NAME", conflicts_with = "slurm")]
    pub storage_class: Option<String>,
}

impl SubmitArgs {
    /// The suite, as the tasks will read it: what is wrong with it is found before anything is
    /// submitted.
    ///
    /// # Errors
    /// Whatever is wrong with it: exit code 2.
    pub fn suite(&self) -> Result<Suite, Stop> {
        if let Some(shard) = &self.measure.shard.shard {
            return Err(Stop::Usage(anyhow!(
                "--shard {shard}: submit says itself which shard each task measures; say in how \
                 many: --shards N"
            )));
        }
        load(&self.measure)
    }

    /// GPUs of each task.
    pub fn gpus(&self, suite: &Suite) -> u64 {
        let needed = || devices::gpus(suite, self.measure.environment.as_deref());
        self.gpus.unwrap_or_else(needed)
    }

    /// What is measured in shards, into a folder.
    pub fn plan(&self, suite: &Suite, shards: u32, out: String, gpus: u64) -> Plan {
        let words =
            |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
        let mut measure = words(&[if self.run { "run" } else { "gate" }]);
        measure.extend(self.measure.handed_on());
        let against = self.against.iter();
        measure.extend(against.map(|version| format!("--against={version}")));
        if let Some(baseline) = &self.baseline {
            measure.push(format!("--baseline={baseline}"));
        }
        let baselines = in_folder(&self.measure.baselines);
        measure.extend(baselines.clone());
        if let Some(costs) = &self.measure.shard.costs {
            measure.push(format!("--costs={costs}"));
        }
        let mut merge = Vec::new();
        for (option, given) in [
            ("--strict", self.strict),
            ("--json", self.show.json),
            ("--all", self.show.all),
            ("--quiet", self.measure.quiet),
        ] {
            merge.extend(given.then(|| option.to_owned()));
        }
        merge.extend(baselines.clone());
        let quiet = self.measure.quiet.then(|| "--quiet".to_owned());
        Plan {
            suite: suite.name.clone(),
            shards,
            measure,
            next: baselines.into_iter().chain(quiet).collect(),
            merge,
            // No command may take it for an option.
            out: match out.starts_with('-') {
                true => format!("./{out}"),
                false => out,
            },
            tries: self.tries,
            gpus,
            cores: self.cpus_per_task,
        }
    }
}

/// A path as text, which scripts and manifests are.
///
/// # Errors
/// One that is no UTF-8: exit code 2.
pub fn text_of(path: &std::path::Path) -> Result<String, Stop> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Stop::Usage(anyhow!(
            "{}: this path is not UTF-8, and cannot be written into a script",
            path.display()
        ))
    })
}
