//! The figures of a problem that formulas name.

use crate::attention::Problem;
use crate::variants::cuda::argument::{DeviceProblem, DeviceTensor};

/// Every name, with what it is.
const FIGURES: [&str; 14] = [
    "batch",
    "heads",
    "kv_heads",
    "seq_q",
    "seq_k",
    "head_dim",
    "head_dim_v",
    "mask_left",
    "mask_right",
    "mask_bottom_right",
    "band_low",
    "band_high",
    "element_bytes",
    "sms",
];

/// Tensors whose strides have names: `q.seq`.
const TENSORS: [&str; 8] = ["q", "k", "v", "out", "dout", "dq", "dk", "dv"];

/// True for a name that every variant's formulas may have.
pub fn is_figure(name: &str) -> bool {
    match name.split_once('.') {
        Some((tensor, axis)) => {
            TENSORS.contains(&tensor) && ["batch", "seq", "head"].contains(&axis)
        }
        None => FIGURES.contains(&name),
    }
}

/// The figure of this name; `None` for a name that is none. Lengths count elements, also those
/// of strides; `mask_left` and `mask_right` are -1 where they are unbounded, and a query `i`
/// sees a key `j` where `band_low <= j - i <= band_high`.
pub fn figure(name: &str, problem: &Problem, sms: u32) -> Option<i64> {
    if let Some((tensor, axis)) = name.split_once('.') {
        let strides = strides(tensor, problem)?;
        return match axis {
            "batch" => Some(strides.batch),
            "seq" => Some(strides.seq),
            "head" => Some(strides.head),
            _ => None,
        };
    }
    let sized = DeviceProblem::sized(problem, 1);
    let (low, high) = sized.band();
    let found = match name {
        "batch" => sized.batch,
        "heads" => sized.heads,
        "kv_heads" => sized.kv_heads,
        "seq_q" => sized.seq_q,
        "seq_k" => sized.seq_k,
        "head_dim" => sized.head_dim,
        "head_dim_v" => sized.head_dim_v,
        "mask_left" => sized.mask_left,
        "mask_right" => sized.mask_right,
        "mask_bottom_right" => sized.mask_align,
        "band_low" => low,
        "band_high" => high,
        "element_bytes" => return Some(problem.dtype.bytes() as i64),
        "sms" => return Some(sms.into()),
        _ => return None,
    };
    Some(found.into())
}

fn strides(tensor: &str, p: &Problem) -> Option<DeviceTensor> {
    let (seq, heads, dim) = match tensor {
        "q" | "dq" => (p.seq_q, p.heads, p.head_dim),
        "out" | "dout" => (p.seq_q, p.heads, p.head_dim_v),
        "k" | "dk" => (p.seq_k, p.kv_heads, p.head_dim),
        "v" | "dv" => (p.seq_k, p.kv_heads, p.head_dim_v),
        _ => return None,
    };
    Some(DeviceTensor::new(0, seq, heads, dim, p.layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_value() {
        let problem: Problem = "b2,h8,kv2,s9,sk5,d8,dv4,causal-br,bhsd,f16"
            .parse()
            .unwrap();
        let tensors = TENSORS
            .iter()
            .flat_map(|t| ["batch", "seq", "head"].map(|axis| format!("{t}.{axis}")));
        for name in FIGURES.iter().map(|n| (*n).to_owned()).chain(tensors) {
            assert!(is_figure(&name), "{name}");
            assert!(figure(&name, &problem, 132).is_some(), "{name}");
        }
        let of = |name: &str| figure(name, &problem, 132).unwrap();
        assert_eq!([of("kv_heads"), of("head_dim_v"), of("sms")], [2, 4, 132]);
        assert_eq!([of("mask_left"), of("mask_right")], [-1, 0]);
        assert_eq!(of("band_high"), -4);
        assert_eq!([of("v.head"), of("v.seq"), of("element_bytes")], [20, 4, 2]);
        for name in ["q", "q.dim", "x.seq", "scale"] {
            assert!(!is_figure(name) && figure(name, &problem, 1).is_none());
        }
    }
}
