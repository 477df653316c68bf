//! Somebody's CUDA file as a worker: `cuda = "attention.cu"`, with its launch contract in
//! `attention.toml` beside it.
//!
//! What it launches becomes a [`Plan`], as regatta's own kernels do, so that clock, inputs,
//! checks and counts are the same for both.

mod contract;
mod expression;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::plan::{Code, Offer, Plan, PlanRequest, PlannedLaunch};
use crate::argument::DeviceProblem;
use crate::kernels::contract::BlockShape;
use crate::kernels::source::KernelSource;
use contract::{ANY, Contract, ContractLaunch, ContractVariant, Extents};
use expression::{Argument, Expression, ProblemFigures};
use regatta_worker::attention::{Direction, Mask, ParamValue, Problem};
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;

/// The kernels of one file.
pub struct OwnKernels {
    name: String,
    contract: Contract,
    source: KernelSource,
}

/// Somebody's kernel file, compiled as it is measured: by the options of the launch contract
/// beside it, where there is one.
///
/// # Errors
/// What cannot be read, or stands wrong in the contract.
pub fn source(file: &Path) -> Result<KernelSource, String> {
    let source = KernelSource::read(file)?;
    let beside = file.with_extension("toml");
    match beside.exists() {
        true => Ok(source.with_options(&contract::read(&beside)?.options)),
        false => Ok(source),
    }
}

impl OwnKernels {
    /// Reads the file and its contract, for a worker of this name.
    ///
    /// # Errors
    /// What cannot be read or stands wrong in the contract.
    pub fn read(name: &str, file: &Path, contract: &Path) -> Result<OwnKernels, String> {
        let contract = contract::read(contract)?;
        Ok(OwnKernels {
            name: name.to_owned(),
            source: KernelSource::read(file)?.with_options(&contract.options),
            contract,
        })
    }
}

impl Offer for OwnKernels {
    fn worker(&self) -> &str {
        &self.name
    }

    fn source(&self) -> Option<&KernelSource> {
        Some(&self.source)
    }

    fn variants(&self) -> Vec<VariantInfo> {
        let variants = self.contract.variants.iter();
        variants
            .map(|(name, variant)| VariantInfo {
                name: name.clone(),
                summary: variant.summary.clone(),
                dtypes: variant.dtypes.clone(),
                directions: match variant.backward.is_empty() {
                    true => vec![Direction::Forward],
                    false => Direction::ALL.to_vec(),
                },
                parameters: variant
                    .parameters
                    .keys()
                    .map(|name| (name.clone(), Parameter::INTEGER))
                    .collect(),
                ..VariantInfo::default()
            })
            .collect()
    }

    /// A case that `requires` leaves out is unsupported. A formula without a value, or with one
    /// that no launch has, is a mistake in the contract: as unsupported it would pass a gate.
    fn launches(&self, name: &str, asked: &PlanRequest) -> Result<Plan, Refusal> {
        let variant = self.contract.variants.get(name);
        let variant =
            variant.ok_or_else(|| format!("there is no variant `{}/{name}`", self.name))?;
        let mut parameters = variant.parameters.clone();
        for (name, value) in asked.params.iter() {
            if let ParamValue::Int(number) = value {
                parameters.insert(name.clone(), *number);
            }
        }
        let figures = ProblemFigures::new(asked.problem, asked.limits.sms, &parameters);
        if let Some(why) = refuses(variant, asked.problem) {
            return Err(Refusal::Unsupported(format!("{}/{name} {why}", self.name)));
        }
        let contract = |why: String| format!("[variants.{name}] {why}");
        for condition in &variant.requires {
            let holds = condition.holds(&figures);
            if !holds.map_err(|why| contract(format!("requires: {why}")))? {
                let why = format!("{}/{name} requires {condition}", self.name);
                return Err(Refusal::Unsupported(why));
            }
        }
        let steps = |pass: &str, launches: &[ContractLaunch]| {
            let launches = launches.iter().enumerate();
            let steps = launches.map(|(at, launch)| {
                let step = step(launch, asked.problem, &figures);
                step.map_err(|why| contract(format!("{pass} {}, {why}", at + 1)))
            });
            steps.collect::<Result<Vec<PlannedLaunch>, String>>()
        };
        let workspace = variant.workspace_bytes.value(&figures);
        let workspace = workspace.map_err(|why| contract(format!("workspace_bytes: {why}")))?;
        let backward = match asked.problem.direction.has_backward() {
            true => steps("backward", &variant.backward)?,
            false => Vec::new(),
        };
        let effective = parameters.iter();
        Ok(Plan {
            forward: steps("forward", &variant.forward)?,
            backward,
            workspace_bytes: u64::try_from(workspace).map_err(|_| {
                contract(format!(
                    "workspace_bytes: `{}` is {workspace}",
                    variant.workspace_bytes
                ))
            })?,
            num_splits: 1,
            effective: effective
                .map(|(name, value)| (name.clone(), ParamValue::Int(*value)))
                .collect(),
        })
    }
}

/// Why the contract leaves a problem out, whatever `requires` says.
fn refuses(variant: &ContractVariant, problem: &Problem) -> Option<String> {
    let layout = problem.layout;
    if problem.varlen.is_some() {
        return Some("does not take ragged batches".to_owned());
    }
    if !variant.layouts.contains(&layout) {
        return Some(format!("does not take the layout {layout}"));
    }
    let square = problem.is_square();
    let same = |name: &String| {
        let mask = name.parse::<Mask>().map(|mask| mask.canonical(square));
        // A causal mask whose diagonal nobody places is none of a problem that needs it placed.
        mask.is_ok_and(|mask| mask == problem.mask) && Mask::parse(name, square).is_ok()
    };
    let takes = |name: &String| name == ANY || same(name);
    let name = problem.mask.name(square);
    (!variant.masks.iter().any(takes)).then(|| format!("does not take the mask {name}"))
}

fn step(
    launch: &ContractLaunch,
    problem: &Problem,
    figures: &ProblemFigures,
) -> Result<PlannedLaunch, String> {
    let extents = |Extents([x, y, z]): &Extents, what: &str| {
        let extent = |formula: &Expression| {
            let value = formula.value(figures);
            let value = value.map_err(|why| format!("{what}: {why}"))?;
            let extent = u32::try_from(value).ok().filter(|extent| *extent > 0);
            extent.ok_or_else(|| format!("{what}: `{formula}` is {value}; it is 1 or more"))
        };
        Ok::<_, String>([extent(x)?, extent(y)?, extent(z)?])
    };
    let shared = launch.shared_bytes.value(figures);
    let shared = shared.map_err(|why| format!("shared_bytes: {why}"))?;
    let scale = DeviceProblem::sized(problem, 1).scale;
    let given = |text: &String| Argument::parse(text)?.given(scale, figures);
    let arguments: Result<_, String> = launch.arguments.iter().map(given).collect();
    Ok(PlannedLaunch {
        code: Code::Own,
        entry: launch.entry_name(problem.dtype, |name| figures.get(name))?,
        grid: extents(&launch.grid, "grid")?,
        shape: BlockShape {
            block: extents(&launch.block, "block")?,
            shared_bytes: u32::try_from(shared)
                .map_err(|_| format!("shared_bytes: `{}` is {shared}", launch.shared_bytes))?,
        },
        arguments: arguments.map_err(|why| format!("arguments: {why}"))?,
    })
}
