//! What a variant launches for a problem: entry points, grids, workspace.

mod steps;
#[cfg(test)]
mod tests;
mod variants;

pub use steps::{
    Arguments, Asked, Code, Given, Limits, NUM_SPLITS, NUM_SPLITS_KEY, Plan, PlannedLaunch,
    Pointer, TILE_KEYS,
};

use self::variants as of;
use crate::kernels::contract::MOST_THREADS;
use crate::kernels::source::KernelSource;
use regatta_worker::attention::{Direction, Dtype, Problem};
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;

/// Variants, and what each launches for a problem.
pub trait Offer {
    /// The worker's name.
    fn worker(&self) -> &str;

    /// The file of `Code::Own`, where there is one.
    fn source(&self) -> Option<&KernelSource>;

    /// Every variant.
    fn variants(&self) -> Vec<VariantInfo>;

    /// What a variant launches for a problem and parameters that it declares.
    ///
    /// # Errors
    /// Why it does not do this, or why it cannot be told what it would launch.
    fn launches(&self, name: &str, asked: &Asked) -> Result<Plan, Refusal>;

    /// What the variant of this name launches for a problem.
    ///
    /// # Errors
    /// As [`launches`](Offer::launches), and what the variant does not declare.
    fn plan(&self, name: &str, asked: &Asked) -> Result<Plan, Refusal> {
        let worker = self.worker();
        let mut variants = self.variants().into_iter();
        let checked = match variants.find(|variant| variant.name == name) {
            Some(variant) => variant.check(worker, asked.problem, asked.params),
            None => Err(format!("the {worker} worker has no variant `{name}`")),
        };
        checked.map_err(Refusal::Unsupported)?;
        self.launches(name, asked)
    }
}

type MakePlan = fn(&Asked) -> Result<Plan, String>;

/// Every variant of the kernels in the binary, sorted by name.
fn variants() -> [(VariantInfo, MakePlan); 6] {
    let variant = |name: &str, dtypes: &[Dtype], directions: &[Direction], parameter: &str| {
        let parameters = Some(parameter).filter(|name| !name.is_empty());
        VariantInfo {
            name: name.to_owned(),
            dtypes: dtypes.to_vec(),
            directions: directions.to_vec(),
            parameters: parameters
                .map(|name| (name.to_owned(), Parameter::INTEGER))
                .into_iter()
                .collect(),
            stores_scores: name == "naive",
            ..VariantInfo::default()
        }
    };
    let narrow = [Dtype::F16, Dtype::Bf16];
    let (single, any) = ([Dtype::F32], Direction::ALL);
    let all: [(_, MakePlan, &str); 6] = [
        (
            variant("flash-mma", &narrow, &any, ""),
            of::mma,
            "fused, tensor cores through mma.sync; the class of FlashAttention-2",
        ),
        (
            variant("flash-simt", &single, &any, ""),
            of::simt,
            "fused, float32 on the FFMA units",
        ),
        (
            variant("flash-wgmma", &narrow, &any, TILE_KEYS),
            of::wgmma,
            "fused for Hopper: TMA, mbarrier ring, wgmma, warp-specialised",
        ),
        (
            variant("naive", &Dtype::ALL, &any, ""),
            of::naive,
            "the score matrix in memory, one thread an element",
        ),
        (
            variant("split-key", &single, &[Direction::Backward], NUM_SPLITS_KEY),
            of::split_key,
            "float32 backward with the key axis split over num_splits_key blocks",
        ),
        (
            variant("split-kv", &Dtype::ALL, &[Direction::Forward], NUM_SPLITS),
            of::split_kv,
            "decode: keys split over num_splits blocks, then joined",
        ),
    ];
    all.map(|(variant, plan, summary)| {
        let summary = summary.to_owned();
        (VariantInfo { summary, ..variant }, plan)
    })
}

/// The oldest devices that any kernel is written for: cp.async, bf16.
const OLDEST: (u32, u32) = (8, 0);

/// The kernels in the binary.
#[derive(Default)]
pub struct Ours;

impl Offer for Ours {
    fn worker(&self) -> &str {
        crate::NAME
    }

    fn source(&self) -> Option<&KernelSource> {
        None
    }

    fn variants(&self) -> Vec<VariantInfo> {
        variants().map(|(variant, _)| variant).to_vec()
    }

    fn launches(&self, name: &str, asked: &Asked) -> Result<Plan, Refusal> {
        let unsupported = |why: String| Refusal::Unsupported(format!("cuda/{name} {why}"));
        let (major, minor) = asked.limits.capability;
        if (major, minor) < OLDEST {
            return Err(unsupported(format!(
                "needs compute capability {}.{}; this device has {major}.{minor}",
                OLDEST.0, OLDEST.1
            )));
        }
        if asked.problem.varlen.is_some() {
            return Err(unsupported("does not take ragged batches".to_owned()));
        }
        let mut all = variants().into_iter();
        let found = all.find(|(variant, _)| variant.name == name);
        let (_, plan) = found.ok_or_else(|| unsupported("is no variant".to_owned()))?;
        plan(asked).map_err(Refusal::Unsupported)
    }
}

impl Plan {
    /// Holds the launches to what a device takes.
    ///
    /// # Errors
    /// Which is too large, for a reader.
    pub fn fits(&self, problem: &Problem, limits: Limits) -> Result<(), String> {
        launchable(problem)?;
        let mut steps = self.forward.iter().chain(&self.backward);
        steps.try_for_each(|step| fits(step, limits))
    }
}

/// The limits that all files share: grid axes are 16 bits wide, indices 30.
fn launchable(problem: &Problem) -> Result<(), String> {
    let planes = u64::from(problem.batch) * u64::from(problem.heads);
    if planes >= 1 << 16 {
        return Err(format!(
            "batch × heads is {planes}; the kernels take fewer than 65536"
        ));
    }
    for (axis, length) in [("seq_q", problem.seq_q), ("seq_k", problem.seq_k)] {
        if length >= 1 << 29 {
            return Err(format!(
                "{axis} = {length}; the kernels take less than 2^29"
            ));
        }
    }
    Ok(())
}

fn fits(step: &PlannedLaunch, limits: Limits) -> Result<(), String> {
    let (entry, shape) = (&step.entry, step.shape);
    if shape.shared_bytes > limits.shared_bytes {
        return Err(format!(
            "{entry} needs {} bytes of shared memory a block; this device has {}",
            shape.shared_bytes, limits.shared_bytes
        ));
    }
    if shape.threads() > MOST_THREADS.into() {
        return Err(format!(
            "{entry} has {} threads a block; a block has at most {MOST_THREADS}",
            shape.threads()
        ));
    }
    // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    let [x, y, z] = step.grid;
    if x >= 1 << 31 || y >= 1 << 16 || z >= 1 << 16 {
        return Err(format!(
            "{entry} has a grid of {x}x{y}x{z} blocks; a device takes 2147483647x65535x65535"
        ));
    }
    Ok(())
}
