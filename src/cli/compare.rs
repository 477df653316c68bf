//! `regatta compare`: two versions, measured in pairs and judged.

use clap::Args;

use super::reporting::{self, JudgedArgs};
use super::{Ended, watch};
use regatta_measure::experiment::Experiment;
use regatta_measure::versions::Spec;

/// Measure two versions in pairs, and judge which is slower
///
/// Processes of both versions alternate on one device, in pairs of random order. What five pairs
/// do not decide is measured up to 35 times. Exits 0 when nothing of the head is worse or may be,
/// 1 when something is, 2 when a version cannot be made, 3 when it is inconclusive. A comparison
/// that was stopped resumes. Expectations and limits of the suite are left to `run` and `gate`.
#[derive(Args, Debug)]
#[command(after_long_help = "A version (SPEC) is\n  \
    pypi:jax==0.5.0          releases, in an environment that is made for them;\n                           \
    several as one: pypi:jax==0.5.0,jaxlib==0.5.0\n  \
    git:HEAD~1               a revision of this checkout, built by the suite's [build]\n  \
    lock:old.txt             what a lock lists (pip freeze --all), and nothing else\n  \
    env:old                  an environment of the suite or regatta.toml\n  \
    worker:mine=./old/serve  another command for a worker\n  \
    cuda/flash-mma           a variant, against one on the other side\n  \
    cpu/split-key.num_splits_key=1\n                           \
    a parameter, as --set takes it\n  \
    run:reports/quick        a stored run or a baseline (as the base alone)\n  \
    here                     the suite as it stands\n\n\
    Examples:\n  \
    regatta compare jax-sdpa --base pypi:jax==0.5.0 --head pypi:jax==0.5.1\n  \
    regatta compare ./mine.toml --base git:main\n  \
    regatta compare quick --base cpu/naive --head cpu/flash")]
pub struct CompareArgs {
    /// The base version; repeat the option to combine specs
    #[arg(long, value_name = "SPEC", required = true)]
    base: Vec<Spec>,

    /// The head version
    #[arg(long, value_name = "SPEC", default_value = "here")]
    head: Vec<Spec>,

    #[command(flatten)]
    judged: JudgedArgs,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &CompareArgs) -> Ended {
    args.judged.run(|| compare(args))
}

fn compare(args: &CompareArgs) -> Ended {
    watch();
    let request = args.judged.measure.request();
    let experiment = Experiment::compare(&request, &args.base, &args.head, false)?;
    reporting::conclude(&mut experiment.run()?, &args.judged.answers)
}
