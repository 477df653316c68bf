//! What a variant launches for a problem: entry points, grids, workspace.

mod steps;
#[cfg(test)]
mod tests;
mod variants;

pub use steps::{
    Arguments, Asked, Code, Given, Limits, NUM_SPLITS, NUM_SPLITS_KEY, Plan, Pointer, Shape, Step,
    TILE_KEYS,
};

use crate::kernels::contract::MOST_THREADS;
use crate::kernels::source::Source;
use regatta_worker::attention::{Direction, Dtype, Problem};
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;

/// A variant of this worker.
pub struct Variant {
    /// Its name within the worker.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Storage types it takes.
    pub dtypes: &'static [Dtype],
    /// Directions it runs.
    pub directions: &'static [Direction],
    /// Its parameters: all are numbers.
    pub parameters: &'static [&'static str],
    /// True when it keeps the score matrix in memory.
    pub stores_scores: bool,
    plan: fn(&Asked) -> Result<Plan, String>,
}

const NARROW: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];
const SINGLE: [Dtype; 1] = [Dtype::F32];

/// Every variant, sorted by name.
pub const VARIANTS: [Variant; 6] = [
    Variant {
        name: "flash-mma",
        summary: "fused, tensor cores through mma.sync; the class of FlashAttention-2",
        dtypes: &NARROW,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: false,
        plan: variants::mma,
    },
    Variant {
        name: "flash-simt",
        summary: "fused, float32 on the FFMA units",
        dtypes: &SINGLE,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: false,
        plan: variants::simt,
    },
    Variant {
        name: "flash-wgmma",
        summary: "fused for Hopper: TMA, mbarrier ring, wgmma, warp-specialised",
        dtypes: &NARROW,
        directions: &Direction::ALL,
        parameters: &[TILE_KEYS],
        stores_scores: false,
        plan: variants::wgmma,
    },
    Variant {
        name: "naive",
        summary: "the score matrix in memory, one thread an element",
        dtypes: &Dtype::ALL,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: true,
        plan: variants::naive,
    },
    Variant {
        name: "split-key",
        summary: "float32 backward with the key axis split over num_splits_key blocks",
        dtypes: &SINGLE,
        directions: &[Direction::Backward],
        parameters: &[NUM_SPLITS_KEY],
        stores_scores: false,
        plan: variants::split_key,
    },
    Variant {
        name: "split-kv",
        summary: "decode: keys split over num_splits blocks, then joined",
        dtypes: &Dtype::ALL,
        directions: &[Direction::Forward],
        parameters: &[NUM_SPLITS],
        stores_scores: false,
        plan: variants::split_kv,
    },
];

/// The oldest devices that any kernel is written for: cp.async, bf16.
const OLDEST: (u32, u32) = (8, 0);

impl Variant {
    /// The variant of this name.
    pub fn named(name: &str) -> Option<&'static Variant> {
        VARIANTS.iter().find(|variant| variant.name == name)
    }

    /// What the variant launches for a problem.
    ///
    /// # Errors
    /// Why it does not do this, for a reader.
    pub fn plan(&self, asked: &Asked) -> Result<Plan, String> {
        self.accepts(asked)?;
        (self.plan)(asked)
    }

    fn accepts(&self, asked: &Asked) -> Result<(), String> {
        let (problem, name) = (asked.problem, self.name);
        let (major, minor) = asked.limits.capability;
        if (major, minor) < OLDEST {
            return Err(format!(
                "cuda/{name} needs compute capability {}.{}; this device has {major}.{minor}",
                OLDEST.0, OLDEST.1
            ));
        }
        if problem.varlen.is_some() {
            return Err(format!("cuda/{name} does not take ragged batches"));
        }
        if !self.dtypes.contains(&problem.dtype) {
            let known: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
            return Err(format!(
                "cuda/{name} takes {}, not {}",
                known.join(" and "),
                problem.dtype
            ));
        }
        if !self.directions.contains(&problem.direction) {
            return Err(format!("cuda/{name} has no {}", problem.direction));
        }
        for (parameter, value) in asked.params.iter() {
            if !self.parameters.contains(&parameter.as_str()) {
                return Err(format!("cuda/{name} has no parameter `{parameter}`"));
            }
            if !Parameter::INTEGER.allows(value) {
                return Err(format!(
                    "`{parameter}` of cuda/{name} is an integer, not `{value}`"
                ));
            }
        }
        Ok(())
    }
}

/// Variants, and what each launches for a problem.
pub trait Offer {
    /// The worker's name.
    fn worker(&self) -> &str;

    /// The file of `Code::Own`, where there is one.
    fn source(&self) -> Option<&Source>;

    /// Every variant.
    fn variants(&self) -> Vec<VariantInfo>;

    /// What the variant of this name launches for a problem.
    ///
    /// # Errors
    /// Why it does not do this, or why it cannot be told what it would launch.
    fn plan(&self, name: &str, asked: &Asked) -> Result<Plan, Refusal>;
}

/// The kernels in the binary.
#[derive(Default)]
pub struct Ours;

impl Offer for Ours {
    fn worker(&self) -> &str {
        crate::NAME
    }

    fn source(&self) -> Option<&Source> {
        None
    }

    fn variants(&self) -> Vec<VariantInfo> {
        VARIANTS.iter().map(described).collect()
    }

    fn plan(&self, name: &str, asked: &Asked) -> Result<Plan, Refusal> {
        let variant = Variant::named(name);
        let variant = variant.ok_or_else(|| {
            Refusal::Unsupported(format!("the cuda worker has no variant `{name}`"))
        })?;
        variant.plan(asked).map_err(Refusal::Unsupported)
    }
}

fn described(variant: &Variant) -> VariantInfo {
    let number = |name: &&str| ((*name).to_owned(), Parameter::INTEGER);
    VariantInfo {
        name: variant.name.to_owned(),
        summary: variant.summary.to_owned(),
        dtypes: variant.dtypes.to_vec(),
        directions: variant.directions.to_vec(),
        projections: Vec::new(),
        parameters: variant.parameters.iter().map(number).collect(),
        stores_scores: variant.stores_scores,
        tf32: false,
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

fn fits(step: &Step, limits: Limits) -> Result<(), String> {
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
