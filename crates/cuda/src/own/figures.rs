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
