//! The figures of a problem that formulas name.

use crate::argument::{DeviceProblem, DeviceTensor};
use regatta_worker::attention::Problem;

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

/// The figures of one problem.
pub struct Figures {
    sized: DeviceProblem,
    element_bytes: u64,
    sms: u32,
}

impl Figures {
    /// Those of a problem, on a device with so many multiprocessors.
    pub fn of(problem: &Problem, sms: u32) -> Figures {
        Figures {
            sized: DeviceProblem::sized(problem, 1),
            element_bytes: problem.dtype.bytes(),
            sms,
        }
    }

    /// What the scores are multiplied by.
    pub fn scale(&self) -> f32 {
        self.sized.scale
    }

    /// The figure of this name; `None` for a name that is none. Lengths count elements, also
    /// those of strides; `mask_left` and `mask_right` are -1 where they are unbounded, and a
    /// query `i` sees a key `j` where `band_low <= j - i <= band_high`.
    pub fn get(&self, name: &str) -> Option<i64> {
        if let Some((tensor, axis)) = name.split_once('.') {
            let strides = self.tensor(tensor)?;
            return match axis {
                "batch" => Some(strides.batch),
                "seq" => Some(strides.seq),
                "head" => Some(strides.head),
                _ => None,
            };
        }
        let (low, high) = self.sized.band();
        let found = match name {
            "batch" => self.sized.batch,
            "heads" => self.sized.heads,
            "kv_heads" => self.sized.kv_heads,
            "seq_q" => self.sized.seq_q,
            "seq_k" => self.sized.seq_k,
            "head_dim" => self.sized.head_dim,
            "head_dim_v" => self.sized.head_dim_v,
            "mask_left" => self.sized.mask_left,
            "mask_right" => self.sized.mask_right,
            "mask_bottom_right" => self.sized.mask_align,
            "band_low" => low,
            "band_high" => high,
            "element_bytes" => return i64::try_from(self.element_bytes).ok(),
            "sms" => return Some(self.sms.into()),
            _ => return None,
        };
        Some(found.into())
    }

    fn tensor(&self, name: &str) -> Option<&DeviceTensor> {
        Some(match name {
            "q" => &self.sized.q,
            "k" => &self.sized.k,
            "v" => &self.sized.v,
            "out" => &self.sized.out,
            "dout" => &self.sized.dout,
            "dq" => &self.sized.dq,
            "dk" => &self.sized.dk,
            "dv" => &self.sized.dv,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_value() {
        let problem: Problem = "b2,h8,kv2,s9,sk5,d8,dv4,causal-br,bhsd,f16"
            .parse()
            .unwrap();
        let figures = Figures::of(&problem, 132);
        let tensors = TENSORS
            .iter()
            .flat_map(|t| ["batch", "seq", "head"].map(|axis| format!("{t}.{axis}")));
        for name in FIGURES.iter().map(|n| (*n).to_owned()).chain(tensors) {
            assert!(is_figure(&name), "{name}");
            assert!(figures.get(&name).is_some(), "{name}");
        }
        let of = |name: &str| figures.get(name).unwrap();
        assert_eq!([of("kv_heads"), of("head_dim_v"), of("sms")], [2, 4, 132]);
        assert_eq!([of("mask_left"), of("mask_right")], [-1, 0]);
        assert_eq!(of("band_high"), -4);
        assert_eq!([of("v.head"), of("v.seq"), of("element_bytes")], [20, 4, 2]);
        for name in ["q", "q.dim", "x.seq", "scale"] {
            assert!(!is_figure(name) && figures.get(name).is_none());
        }
    }
}
