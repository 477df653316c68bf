//! Parts of a case's tensors: planes that lie next to each other, which kernels take as a
//! smaller problem at other addresses.

use std::ops::Range;

use super::argument::{DeviceProblem, DeviceTensor};
use regatta_worker::attention::Problem;
use regatta_worker::attention::reference::checked_runs;

/// Which rows of the logical tensors a tensor has: one a query head, or one a key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// `q`, `out`, `dout`, `dq`.
    Query,
    /// `k`, `v`, `dk`, `dv`.
    Key,
}

/// Some key-value heads of some sequences, with the query heads that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    batch: u32,
    batches: u32,
    kv_head: u32,
    kv_heads: u32,
}

impl View {
    /// All of a problem.
    pub fn whole(p: &Problem) -> View {
        View {
            batch: 0,
            batches: p.batch,
            kv_head: 0,
            kv_heads: p.kv_heads,
        }
    }

    /// What a check after timing compares.
    pub fn checked(p: &Problem) -> Vec<View> {
        let runs = checked_runs(p.batch as usize * p.kv_heads as usize);
        runs.into_iter()
            .flat_map(|run| View::of_run(p, run))
            .collect()
    }

    /// All of a problem in pieces of about an eighth, of a plane at the least.
    pub fn eighths(p: &Problem) -> Vec<View> {
        let planes = p.batch as usize * p.kv_heads as usize;
        let each = planes.div_ceil(8);
        let runs = (0..planes).step_by(each);
        runs.flat_map(|start| View::of_run(p, start..(start + each).min(planes)))
            .collect()
    }

    /// The planes of a run: what is left of its first sequence, whole sequences, and what
    /// there is of its last one.
    fn of_run(p: &Problem, run: Range<usize>) -> Vec<View> {
        let heads = p.kv_heads as usize;
        let mut views = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let (batch, kv_head) = (at / heads, at % heads);
            let left = run.end - at;
            let (batches, kv_heads) = match kv_head == 0 && left >= heads {
                true => (left / heads, heads),
                false => (1, left.min(heads - kv_head)),
            };
            views.push(View {
                batch: batch as u32,
                batches: batches as u32,
                kv_head: kv_head as u32,
                kv_heads: kv_heads as u32,
            });
            at += batches * kv_heads;
        }
        views
    }

    /// The problem that the view is.
    pub fn problem(&self, p: &Problem) -> Problem {
        Problem {
            batch: self.batches,
            heads: self.kv_heads * (p.heads / p.kv_heads),
            kv_heads: self.kv_heads,
            ..p.clone()
        }
    }

    /// A tensor of the whole problem, from where the view begins.
    pub fn tensor(&self, p: &Problem, tensor: &DeviceTensor, heads: Heads) -> DeviceTensor {
        let head = match heads {
            Heads::Query => self.kv_head * (p.heads / p.kv_heads),
            Heads::Key => self.kv_head,
        };
        let elements = i64::from(self.batch) * tensor.batch + i64::from(head) * tensor.head;
        DeviceTensor {
            data: tensor.data + elements.unsigned_abs() * p.dtype.bytes(),
            ..*tensor
        }
    }

    /// What the reference's kernels are told of the view.
    pub fn figures(&self, p: &Problem, whole: &DeviceProblem) -> DeviceProblem {
        let small = self.problem(p);
        let queries = |tensor| self.tensor(p, tensor, Heads::Query);
        let keys = |tensor| self.tensor(p, tensor, Heads::Key);
        DeviceProblem {
            q: queries(&whole.q),
            k: keys(&whole.k),
            v: keys(&whole.v),
            dout: queries(&whole.dout),
            batch: small.batch as i32,
            heads: small.heads as i32,
            kv_heads: small.kv_heads as i32,
            ..*whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(id: &str) -> Problem {
        id.parse().unwrap()
    }

    fn planes(p: &Problem, views: &[View]) -> Vec<u32> {
        let of = |view: &View| {
            let (batch, batches, head, heads) =
                (view.batch, view.batches, view.kv_head, view.kv_heads);
            (batch..batch + batches).flat_map(move |b| (head..head + heads).map(move |h| (b, h)))
        };
        let planes = views.iter().flat_map(of);
        planes.map(|(b, h)| b * p.kv_heads + h).collect()
    }

    #[test]
    fn views_are_the_planes_of_the_check_and_together_all_of_them() {
        for id in [
            "s8,d8",
            "b3,h8,kv4,s8,d8",
            "b70,h6,kv3,s8,d8",
            "h128,s8,d8",
            "b99,s8,d8",
        ] {
            let p = problem(id);
            let all = p.batch * p.kv_heads;
            let checked = View::checked(&p);
            let wanted: Vec<u32> = checked_runs(all as usize)
                .into_iter()
                .flatten()
                .map(|plane| plane as u32)
                .collect();
            assert_eq!(planes(&p, &checked), wanted, "{id}");
            assert!(checked.len() <= 15, "{id}: {checked:?}");
            let eighths = View::eighths(&p);
            assert_eq!(planes(&p, &eighths), (0..all).collect::<Vec<u32>>(), "{id}");
            assert!(eighths.len() <= 24, "{id}");
            assert_eq!(
                planes(&p, &[View::whole(&p)]),
                (0..all).collect::<Vec<u32>>()
            );
        }
    }
}
