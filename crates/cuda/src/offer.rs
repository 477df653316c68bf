//! What a worker of CUDA kernels offers: regatta's own kernels, or somebody's file.

use super::plan::{Asked, Plan, VARIANTS, Variant};
use crate::kernels::source::Source;
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;

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

    /// True when a backward pass reads more of the forward before it than `out` and `lse`.
    fn remembers_forward(&self, name: &str) -> bool;
}

/// The kernels in the binary.
#[derive(Default)]
pub struct Ours;

impl Offer for Ours {
    fn worker(&self) -> &str {
        super::NAME
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

    fn remembers_forward(&self, name: &str) -> bool {
        Variant::named(name).is_some_and(|variant| variant.stores_scores)
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
