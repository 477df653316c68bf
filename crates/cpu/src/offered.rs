//! What the worker `cpu` can run.

use std::collections::BTreeMap;

use super::split_key::NUM_SPLITS_KEY;
use regatta_worker::attention::{Direction, Dtype};
use regatta_worker::protocol::{Parameter, VariantInfo};

/// The parameter that says how inputs of the other layout are taken.
pub const ACCESS: &str = "access";
pub const VIEWS: &str = "views";
pub const COPIES: &str = "copies";

/// What it can run.
pub(super) fn variants() -> Vec<VariantInfo> {
    let words = [VIEWS, COPIES].map(str::to_owned).to_vec();
    let access = (ACCESS.to_owned(), Parameter::Words(words));
    let splits = (NUM_SPLITS_KEY.to_owned(), Parameter::INTEGER);
    let info = |name: &str, summary: &str, parameters| VariantInfo {
        name: name.to_owned(),
        summary: summary.to_owned(),
        dtypes: Dtype::ALL.to_vec(),
        directions: Direction::ALL.to_vec(),
        projections: Vec::new(),
        parameters,
        stores_scores: name == "naive",
        tf32: false,
    };
    vec![
        info(
            "flash",
            "tiles and an online softmax; parallel over batch, heads and tiles",
            BTreeMap::from([access.clone()]),
        ),
        info(
            "naive",
            "the score matrix in memory; parallel over batch and heads",
            BTreeMap::from([access.clone()]),
        ),
        info(
            "split-key",
            "parallel over batch, heads and num_splits_key splits of the keys, nothing else",
            BTreeMap::from([access, splits]),
        ),
    ]
}
