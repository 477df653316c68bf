//! Names of kernels and operators: shortened for readers, normalised for comparison, and
//! classified.
//!
//! Names of operators are PyTorch's (torch/csrc/autograd/function.h, torch/optim/optimizer.py), as
//! its `emit_nvtx` marks them, or those of ranges that a program marks itself.

use serde::{Deserialize, Serialize};

use crate::words;

/// [`short`] without template arguments: the kind of kernel.
pub fn plain(name: &str) -> String {
    let name = short(name);
    name.split('<').next().unwrap_or_default().to_owned()
}

/// A kernel's name without return type, leading namespaces and argument types, cut at eighty
/// characters. Template arguments stay, because they are often the only difference between two
/// kernels.
pub fn short(name: &str) -> String {
    const MAX_LENGTH: usize = 80;
    let name = name.strip_prefix("void ").unwrap_or(name);
    let name = name.replace("(anonymous namespace)::", "");
    let name = name.split('(').next().unwrap_or_default();
    let plain = name.find('<').unwrap_or(name.len());
    let start = name[..plain].rfind("::").map_or(0, |at| at + 2);
    let cut: String = name[start..].chars().take(MAX_LENGTH).collect();
    if cut.len() < name[start..].len() {
        format!("{cut}...")
    } else {
        cut
    }
}

/// A kernel's name without what may differ between two builds of the same source:
///
/// - identifiers that begin with `_GLOBAL__N_` and `<unnamed>` read `(anonymous
///   namespace)`: compilers number or hash anonymous namespaces;
/// - a namespace `_INTERNAL_...`, which nvcc derives from a file's path, is dropped;
/// - Triton's suffix of argument specialisations, `_0d1d2de`, is dropped;
/// - a last `_` with 16 or more hexadecimal digits, letters and digits among them, is
///   dropped: that is a hash of the source or of a configuration;
/// - a leading `void ` is dropped, and spaces stay only between two words: demanglers
///   disagree on them.
///
/// Template arguments, their order, and the types of arguments stay: they are code.
pub fn normalised(name: &str) -> String {
    let name = name.trim();
    let name = name.strip_prefix("void ").unwrap_or(name);
    let name = name.replace("<unnamed>", ANONYMOUS);
    let mut out = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some(first) = rest.chars().next() {
        if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if word.starts_with("_GLOBAL__N_") {
                out.push_str(ANONYMOUS);
            } else if word.starts_with("_INTERNAL_") && rest.starts_with("::") {
                rest = &rest[2..];
            } else {
                if out.ends_with(' ') && !out.trim_end().ends_with(is_word) {
                    out.truncate(out.trim_end().len());
                }
                out.push_str(word);
            }
        } else {
            rest = &rest[first.len_utf8()..];
            if first != ' ' {
                out.truncate(out.trim_end().len());
                out.push(first);
            } else if out.ends_with(is_word) {
                out.push(' ');
            }
        }
    }
    let plain = out.strip_suffix("(anonymous namespace)");
    match plain {
        Some(_) => out,
        None => without_suffix(&out).to_owned(),
    }
}

const ANONYMOUS: &str = "(anonymous namespace)";

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The name without Triton's specialisations and without a hash.
fn without_suffix(name: &str) -> &str {
    let mut name = name;
    while let Some((before, last)) = name.rsplit_once('_')
        && !before.is_empty()
        && (is_specialisation(last) || is_hash(last))
    {
        name = before;
    }
    name
}

/// `0d1d2de3c`: argument numbers from 0, of which at least one is marked as divisible (`d`, `e`) or
/// constant (`c`).
fn is_specialisation(word: &str) -> bool {
    word.starts_with('0')
        && word.contains(['d', 'c'])
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "dec".contains(c))
}

fn is_hash(word: &str) -> bool {
    word.len() >= 16
        && word.chars().all(|c| c.is_ascii_hexdigit())
        && word.contains(|c: char| c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_alphabetic())
}

/// Words in the names of kernels that only move, fill or convert data.
const MOVING: [&str; 5] = ["copy", "memset", "fill", "transpose", "cat"];

/// Words of operators that only move, view or convert, as torch.compile names them.
const FUSED_MOVES: [&str; 16] = [
    "to",
    "copy",
    "clone",
    "cat",
    "transpose",
    "permute",
    "view",
    "slice",
    "expand",
    "unsqueeze",
    "squeeze",
    "t",
    "fill",
    "zeros",
    "ones",
    "full",
];

/// True for the name of a kernel that moves data and does not compute.
pub fn moves_data(kernel: &str) -> bool {
    let name = kernel.to_ascii_lowercase();
    // torch.compile lists fused operators in the name. A conversion among others is not a copy.
    if let Some((_, fused)) = name
        .split_once("_fused_")
        .filter(|_| name.starts_with("triton_"))
    {
        let mut operators = fused.split('_').filter(|word| !word.is_empty());
        return operators
            .all(|word| word.bytes().all(|b| b.is_ascii_digit()) || FUSED_MOVES.contains(&word));
    }
    let is_word = |word: &str| {
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|other| other == word)
    };
    // `cat` and `fill` occur inside of longer words; the others are significant anywhere.
    let moves = MOVING.iter().any(|&moving| match moving {
        "cat" | "fill" => is_word(moving),
        moving => name.contains(moving),
    });
    // PyTorch's elementwise kernels apply any function. A kernel that adds is not a copy; one whose
    // name was cut before the function most likely is.
    let function = || name.contains("functor") || name.contains("lambda");
    let elementwise = name.contains("elementwise");
    moves || (elementwise && (name.contains("fillfunctor") || !function()))
}

words! {
    "part of a step",
    /// A part of a training step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum StepPart {
        /// The forward pass, or any work without a backward pass.
        Forward = "forward",
        /// The backward pass, including forward work that it repeats.
        Backward = "backward",
        /// The optimizer.
        Optimizer = "optimizer",
    }
}

/// Autograd's function that calls each node of a backward pass.
const NODE: &str = "autograd::engine::evaluate_function: ";

/// The part of a step that an operator belongs to; `None` if its name does not show it. The
/// framework's names take precedence over the program's ranges.
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
    // The innermost range is the most specific.
    let own = levels().rev().find_map(word);
    own.or_else(|| levels().any(is_operator).then_some(StepPart::Forward))
}

/// A name for the launches of one operator in any of its forms. It is the outermost of the
/// framework's operators (`aten::linear`, `MmBackward0`). Without one, it is the range within the
/// program's outermost range, without a number that counts iterations.
pub fn family(operator: &str) -> &str {
    if let Some(level) = operator.split('/').find(|level| is_operator(level)) {
        return level.strip_prefix(NODE).unwrap_or(level);
    }
    let mut levels = operator.split('/');
    let outermost = levels.next().unwrap_or(operator);
    without_number(levels.next().unwrap_or(outermost))
}

/// True for the name of a framework's operator, false for a program's own range. The recorder
/// applies the same rule (`crates/probe/src/census/ranges.rs`).
pub fn is_operator(name: &str) -> bool {
    let function = name.ends_with("Func") || name.ends_with("Function");
    name.contains("::") || name.starts_with("Optimizer.") || function || is_node(name)
}

/// True for a node of a backward pass: `MmBackward0`, `FlashAttnFuncBackward`.
fn is_node(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    // The word alone is a program's own range.
    name.len() > "Backward".len() && name.ends_with("Backward")
}

/// `step 17` and `layers.3` without the number.
fn without_number(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let separated = bare.trim_end_matches([' ', '_', '.', '#', '-', ':', '=']);
    if bare.len() < name.len() && separated.len() < bare.len() && !separated.is_empty() {
        separated
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_move_data_are_known_by_their_names() {
        for name in [
            "void at::native::elementwise_kernel<128, 4>(int)",
            "at::native::(anonymous namespace)::CatArrayBatchedCopy<float>",
            "void cub::fill<int>(int*)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<\
             at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)",
        ] {
            assert!(moves_data(name), "{name}");
        }
        for name in [
            "flash_fwd_kernel",
            "void at::native::vectorized_elementwise_kernel<8, \
             at::native::CUDAFunctorOnSelf_add<c10::BFloat16>>(int)",
            "fmha_cutlassB_f32",
            "concatenated_gemm",
            "backfilled",
        ] {
            assert!(!moves_data(name), "{name}");
        }
    }

    #[test]
    fn what_is_not_code_goes() {
        for (name, expected) in [
            (
                "void flash_fwd<float, 64>(Params)",
                "flash_fwd<float,64>(Params)",
            ),
            (
                "flash_fwd<float,64> (Params)",
                "flash_fwd<float,64>(Params)",
            ),
            ("A<B<int> >(unsigned int*)", "A<B<int>>(unsigned int*)"),
            (
                "void _GLOBAL__N__3f2a90c1_12_split_cu_9c81_77::split(float*)",
                "(anonymous namespace)::split(float*)",
            ),
            (
                "<unnamed>::split(float*)",
                "(anonymous namespace)::split(float*)",
            ),
            (
                "(anonymous namespace)::split(float *)",
                "(anonymous namespace)::split(float*)",
            ),
            ("_INTERNAL_0a1b_4_a_cu_12::run()", "run()"),
            ("_attn_fwd_0d1d2de34d", "_attn_fwd"),
            ("_attn_fwd", "_attn_fwd"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("kernel_9f86d081884c7d65", "kernel"),
            ("kernel_1234567890123456", "kernel_1234567890123456"),
            ("fmha_f32_64x64_k32_sm80", "fmha_f32_64x64_k32_sm80"),
        ] {
            assert_eq!(normalised(name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_code_stays() {
        let different = |a, b| assert_ne!(normalised(a), normalised(b));
        different("flash<float, 64>()", "flash<float, 128>()");
        different("flash<int, float>()", "flash<float, int>()");
        different("flash(float*)", "flash(double*)");
        different("fusion_1", "fusion_2");
        different("unsigned_kernel(unsigned int)", "unsigned_kernel(unsigned)");
    }

    #[test]
    fn it_is_its_own_normal_form() {
        for name in [
            "void a<b, c >( d e )",
            "_GLOBAL__N__1::k_0d1d",
            "",
            " ",
            "x  y",
        ] {
            let once = normalised(name);
            assert_eq!(normalised(&once), once, "{name}");
        }
    }

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
            // Computed again during backward, in a range that the program calls forward.
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
        const LINEAR: &str = "aten::linear";
        for (operator, expected) in [
            ("step/layer/aten::linear", LINEAR),
            ("step/aten::linear/aten::addmm", LINEAR),
            (LINEAR, LINEAR),
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
            ("step 17/layers.3/mlp", "layers"),
            ("step 17", "step"),
            ("fp16", "fp16"),
            ("17", "17"),
            ("backward", "backward"),
        ] {
            assert_eq!(family(operator), expected, "{operator}");
        }
    }
}
