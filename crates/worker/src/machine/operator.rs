//! What the text of an operator tells: the part of a training step, and the name that stands
//! for a group of launches.
//!
//! The names are PyTorch's (torch/csrc/autograd/function.h, torch/optim/optimizer.py), as its
//! `emit_nvtx` marks them, or those of ranges that a program marks itself.

use serde::{Deserialize, Serialize};

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StepPart {
    /// The forward pass; what has no backward pass is one, too.
    Forward,
    /// The backward pass, with what is computed again in it.
    Backward,
    /// The optimizer.
    Optimizer,
}

impl StepPart {
    /// The word for it.
    pub fn text(self) -> &'static str {
        match self {
            StepPart::Forward => "forward",
            StepPart::Backward => "backward",
            StepPart::Optimizer => "optimizer",
        }
    }
}

/// The function of autograd's that calls each node of a backward pass.
const NODE: &str = "autograd::engine::evaluate_function: ";

/// Which part of a step an operator belongs to; `None` where its text does not tell. What a
/// framework says goes before what a program calls its ranges.
pub fn part(operator: &str) -> Option<StepPart> {
    let levels = || operator.split('/');
    if levels().any(|level| level.starts_with("Optimizer.")) {
        return Some(StepPart::Optimizer);
    }
    if levels().any(|level| level.starts_with(NODE) || is_node(level)) {
        return Some(StepPart::Backward);
    }
    let word = |level: &str| match level.to_ascii_lowercase().as_str() {
        "forward" | "fwd" => Some(StepPart::Forward),
        "backward" | "bwd" => Some(StepPart::Backward),
        "optimizer" | "optimizer_step" | "optimizer.step" => Some(StepPart::Optimizer),
        _ => None,
    };
    // The inner range is the narrower one.
    let own = levels().rev().find_map(word);
    own.or_else(|| levels().any(is_operator).then_some(StepPart::Forward))
}

/// The name that stands for the launches of one operator, however it is made: of a
/// framework's operators the outermost (`aten::scaled_dot_product_attention`, `MmBackward0`),
/// else the range within the program's outermost one, without the number that tells one of
/// its turns from the next.
pub fn family(operator: &str) -> &str {
    if let Some(level) = operator.split('/').find(|level| is_operator(level)) {
        return level.strip_prefix(NODE).unwrap_or(level);
    }
    let mut levels = operator.split('/');
    let outermost = levels.next().unwrap_or(operator);
    without_number(levels.next().unwrap_or(outermost))
}

/// True for the name of a framework's operator, not of a program's own range. The recorder
/// goes by the same rule (`crates/probe/src/census/ranges.rs`).
pub fn is_operator(name: &str) -> bool {
    let function = name.ends_with("Func") || name.ends_with("Function");
    name.contains("::") || name.starts_with("Optimizer.") || function || is_node(name)
}

/// True for a node of a backward pass: `MmBackward0`, `FlashAttnFuncBackward`.
fn is_node(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    // The word alone is a program's own.
    name.len() > "Backward".len() && name.ends_with("Backward")
}

/// `step 17` and `layers.3` without their number.
fn without_number(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let separated = bare.trim_end_matches([' ', '_', '.', '#', '-', ':', '=']);
    match bare.len() < name.len() && separated.len() < bare.len() && !separated.is_empty() {
        true => separated,
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framework_tells_the_part() {
        for (operator, expected) in [
            ("aten::mm", Some(StepPart::Forward)),
            ("step/FlashAttnFunc", Some(StepPart::Forward)),
            (
                "step/autograd::engine::evaluate_function: MmBackward0/aten::mm",
                Some(StepPart::Backward),
            ),
            ("train/MmBackward0/aten::mm", Some(StepPart::Backward)),
            (
                "step/Optimizer.step#AdamW.step/aten::_fused_adamw_",
                Some(StepPart::Optimizer),
            ),
            ("step/forward/layer", Some(StepPart::Forward)),
            // Computed again, in a range that the program calls forward.
            (
                "autograd::engine::evaluate_function: CheckpointFunctionBackward/forward/aten::mm",
                Some(StepPart::Backward),
            ),
            ("step/backward/aten::copy_", Some(StepPart::Backward)),
            ("step", None),
            ("", None),
        ] {
            assert_eq!(part(operator), expected, "{operator}");
        }
    }

    #[test]
    fn launches_of_one_operator_have_one_name() {
        const SDPA: &str = "aten::scaled_dot_product_attention";
        for (operator, expected) in [
            ("step/layer/aten::scaled_dot_product_attention", SDPA),
            (
                "step/aten::scaled_dot_product_attention/aten::_flash_attention_forward",
                SDPA,
            ),
            (SDPA, SDPA),
            (
                "FlashAttnFunc/flash_attn::_flash_attn_forward",
                "FlashAttnFunc",
            ),
            (
                "step/autograd::engine::evaluate_function: MmBackward0/aten::mm",
                "MmBackward0",
            ),
            (
                "Optimizer.step#AdamW.step/aten::_fused_adamw_",
                "Optimizer.step#AdamW.step",
            ),
            ("step 17/layers.3/attention", "layers"),
            ("step 17", "step"),
            ("fp16", "fp16"),
            ("17", "17"),
            ("backward", "backward"),
        ] {
            assert_eq!(family(operator), expected, "{operator}");
        }
    }
}
