//! The variants of a CUDA file, and their launches for a problem. The file is one of regatta's own
//! kernels, or a user's: `workers.mine = "attention.cu"` with the launch contract `attention.toml`
//! beside it. Clock, inputs, checks and counts are the same for both.

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::contract::{self, ANY, Contract, ContractLaunch, ContractVariant, at};
use crate::expression::problem_figures;
use crate::kernels::arch::Arch;
use crate::kernels::source::{self, KernelSource};
use crate::plan::{Plan, PlanRequest, PlannedLaunch};
use regatta_worker::attention::{Attention, Mask};
use regatta_worker::case::ParamValue;
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;

/// The kernels of one worker.
pub struct Offer {
    /// The worker's name.
    pub name: String,
    contract: Contract,
    /// The user's CUDA file. Regatta's own files are in the binary.
    pub source: Option<KernelSource>,
}

/// Reads a user's kernel file, with the compiler options of the launch contract beside it if there
/// is one.
///
/// # Errors
/// A file cannot be read, or the contract has a fault.
pub fn source(file: &Path) -> Result<KernelSource, String> {
    let source = KernelSource::read(file)?;
    let beside = file.with_extension("toml");
    if beside.exists() {
        Ok(source.with_options(&contract::read(&beside)?.options))
    } else {
        Ok(source)
    }
}

impl Offer {
    /// Regatta's own kernels.
    pub fn ours() -> Offer {
        Offer {
            name: crate::NAME.to_owned(),
            contract: contract::ours().clone(),
            source: None,
        }
    }

    /// Reads a CUDA file and its contract, for a worker named `name`.
    ///
    /// # Errors
    /// A file cannot be read, or the contract has a fault.
    pub fn read(name: &str, file: &Path, contract: &Path) -> Result<Offer, String> {
        let contract = contract::read(contract)?;
        let source = KernelSource::read(file)?.with_options(&contract.options);
        Ok(Offer {
            name: name.to_owned(),
            source: Some(source),
            contract,
        })
    }

    /// Every variant, sorted by name.
    pub fn variants(&self) -> Vec<VariantInfo> {
        let info = |(name, variant): (&String, &ContractVariant)| VariantInfo {
            name: name.clone(),
            summary: variant.summary.clone(),
            dtypes: variant.dtypes.clone(),
            directions: match variant.directions.as_slice() {
                [] if variant.backward.is_empty() => vec![Direction::Forward],
                [] => Direction::ALL.to_vec(),
                listed => listed.to_vec(),
            },
            parameters: variant
                .parameters
                .keys()
                .map(|name| (name.clone(), Parameter::Integer))
                .collect(),
            stores_scores: variant.stores_scores,
            ..VariantInfo::default()
        };
        self.contract.variants.iter().map(info).collect()
    }

    /// Plans the launches of a variant for a problem, within the device's limits.
    ///
    /// # Errors
    /// `Unsupported` if the variant does not support the case. A formula without a value, or with a
    /// value that no launch can have, is a mistake in the contract and not `Unsupported`, because
    /// an unsupported case would pass a gate.
    pub fn plan(&self, name: &str, asked: &PlanRequest) -> Result<Plan, Refusal> {
        let (worker, p, limits) = (&self.name, asked.problem, asked.limits);
        let mut variants = self.variants().into_iter();
        let declared = variants.find(|variant| variant.name == name);
        let (Some(variant), Some(declared)) = (self.contract.variants.get(name), declared) else {
            let why = format!("the {worker} worker has no variant `{name}`");
            return Err(Refusal::Unsupported(why));
        };
        let checked = declared.check(worker, &p.clone().into(), asked.params);
        checked.map_err(Refusal::Unsupported)?;
        let unsupported = |why: String| Refusal::Unsupported(format!("{worker}/{name} {why}"));
        if let Some(why) = refuses(variant, p) {
            return Err(unsupported(why));
        }
        let contract = |why: String| Refusal::from(format!("[variants.{name}] {why}"));
        let number = |name: &str| match asked.params.get(name) {
            ParamValue::Int(number) => Some(number),
            ParamValue::Word(_) => None,
        };
        let parameters = variant.effective(number, p, limits).map_err(contract)?;
        let figures = problem_figures(p, limits, &parameters);
        for condition in &variant.requires {
            let holds = condition.holds(&figures).map_err(at("requires"));
            if !holds.map_err(contract)? {
                return Err(unsupported(format!("requires {condition}")));
            }
        }
        let planned = |pass: &str, launches: &[ContractLaunch]| {
            let launches = launches.iter().enumerate();
            let taken = launches
                .filter(|(_, launch)| launch.dtypes.is_empty() || launch.dtypes.contains(&p.dtype));
            let planned = taken.map(|(at, launch)| {
                let planned = launch.planned(p, limits, &parameters);
                planned.map_err(|why| match why {
                    Refusal::Unsupported(why) => unsupported(why),
                    why => contract(format!("{pass} {}, {why}", at + 1)),
                })
            });
            planned.collect::<Result<Vec<PlannedLaunch>, Refusal>>()
        };
        let workspace = variant.workspace_bytes.value(&figures);
        let workspace = workspace.map_err(at("workspace_bytes")).map_err(contract)?;
        let backward = if p.direction.has_backward() {
            planned("backward", &variant.backward)?
        } else {
            Vec::new()
        };
        let splits = NUM_SPLITS.iter().find_map(|name| parameters.get(*name));
        let plan = Plan {
            forward: planned("forward", &variant.forward)?,
            backward,
            workspace_bytes: u64::try_from(workspace).map_err(|_| {
                let formula = &variant.workspace_bytes;
                contract(format!("workspace_bytes: `{formula}` is {workspace}"))
            })?,
            num_splits: splits.map_or(1, |splits| u32::try_from(*splits).unwrap_or(1)),
            effective: parameters
                .iter()
                .map(|(name, value)| (name.clone(), ParamValue::Int(*value)))
                .collect(),
        };
        let arch = Arch::of_device(limits.capability.0, limits.capability.1);
        for launch in plan.forward.iter().chain(&plan.backward) {
            let own = self.source.as_ref().map(|source| source.name.as_str());
            let file = launch.file.as_deref().or(own).unwrap_or_default();
            if let Some(why) = source::refuses(file, arch) {
                return Err(unsupported(format!("is not for {arch}: {why}")));
            }
            launch.fits(limits).map_err(Refusal::Unsupported)?;
        }
        Ok(plan)
    }
}

/// Names of parameters whose value becomes `num_splits` of `problem.cuh`: xFormers' and PyTorch's
/// for a backward pass, and FlashAttention's for decoding.
const NUM_SPLITS: [&str; 2] = ["num_splits_key", "num_splits"];

/// The reason for which the contract does not support a problem, apart from `requires`.
fn refuses(variant: &ContractVariant, problem: &Attention) -> Option<String> {
    let layout = problem.layout;
    let planes = u64::from(problem.batch) * u64::from(problem.heads);
    // The kernels and `problem.cuh` use indices of this size.
    if planes >= 1 << 16 {
        return Some(format!(
            "takes fewer than 65536 for batch × heads, not {planes}"
        ));
    }
    if problem.varlen.is_some() {
        return Some("does not take ragged batches".to_owned());
    }
    if !variant.layouts.contains(&layout) {
        return Some(format!("does not take the layout {layout}"));
    }
    let square = problem.is_square();
    let same = |name: &String| {
        let mask = name.parse::<Mask>().map(|mask| mask.canonical(square));
        // A causal mask without alignment does not match a problem that needs one.
        mask.is_ok_and(|mask| mask == problem.mask) && Mask::parse(name, square).is_ok()
    };
    let takes = |name: &String| name == ANY || same(name);
    let name = problem.mask.name(square);
    (!variant.masks.iter().any(takes)).then(|| format!("does not take the mask {name}"))
}
