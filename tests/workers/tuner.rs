//! The tuner of `fake/tuned`: it chooses a block size, and the smaller one takes longer.

use std::path::Path;

use regatta_worker::case::ParamValue;
use regatta_worker::protocol::{Parameter, Prepare};
use regatta_worker::serve::Refusal;

/// The parameter that a tuner chooses, and those that follow from it.
const BLOCK: &str = "BLOCK_M";
const WARPS: &str = "num_warps";

/// The choice for the prepared case.
#[derive(Clone, Default)]
pub struct Chosen {
    block: Option<i64>,
    /// Times are as long whatever is chosen.
    alike: bool,
    /// The names of parameters that were not asked for.
    pub tuned: Vec<String>,
}

impl Chosen {
    /// By the parameter's name.
    pub fn effective(&self) -> Vec<(String, ParamValue)> {
        let values = |block: i64| {
            let pairs = [(BLOCK, block), (WARPS, block / 16)];
            pairs.map(|(name, value)| (name.to_owned(), ParamValue::Int(value)))
        };
        self.block
            .map_or_else(Vec::new, |block| values(block).to_vec())
    }

    /// By what factor the call takes longer than with the larger block.
    pub fn slows(&self) -> f64 {
        match self.block {
            Some(64) if !self.alike => 1.3,
            _ => 1.0,
        }
    }
}

/// The parameters of a variant beside those that all take.
pub fn parameters(variant: &str) -> Vec<(&'static str, Parameter)> {
    match variant {
        "tuned" => vec![(BLOCK, Parameter::Integer), (WARPS, Parameter::Integer)],
        _ => Vec::new(),
    }
}

/// Tunes: `how` is a block size; or `flips`, which takes the other one in every second process,
/// and needs a file for it; or `flips-alike`, whose two are as good.
pub fn chosen(case: &Prepare, how: Option<&str>, state: Option<&Path>) -> Result<Chosen, Refusal> {
    if !case.variant.starts_with("tuned") {
        return Ok(Chosen::default());
    }
    let alike = how == Some("flips-alike");
    let by_itself = match how {
        Some("flips" | "flips-alike") => flipped(case, state)?,
        Some(block) => block.parse().map_err(|_| format!("--tuner {block}?"))?,
        None => 128,
    };
    let asked = |name| match case.params.get(name) {
        ParamValue::Int(asked) => Some(asked),
        ParamValue::Word(_) => None,
    };
    let block = asked(BLOCK).or(asked(WARPS).map(|warps| warps * 16));
    if let Some(block) = block.filter(|block| ![64, 128].contains(block)) {
        let reason = format!("no configuration has BLOCK_M = {block}; there are 64 and 128");
        return Err(Refusal::Failed(reason));
    }
    let free = [BLOCK, WARPS].into_iter().filter(|_| block.is_none());
    Ok(Chosen {
        block: Some(block.unwrap_or(by_itself)),
        alike,
        tuned: free.map(str::to_owned).collect(),
    })
}

/// 128, and at every second time that the case is prepared 64: a line of the file each.
fn flipped(case: &Prepare, state: Option<&Path>) -> Result<i64, Refusal> {
    let path = state.ok_or("--tuner flips needs --state FILE")?;
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let problem = case.problem.attention().expect("attention");
    let line = format!("{} {}", problem.seq_q, problem.direction);
    let before = text.lines().filter(|before| **before == line).count();
    std::fs::write(path, format!("{text}{line}\n")).map_err(|error| error.to_string())?;
    Ok(if before % 2 == 0 { 128 } else { 64 })
}
