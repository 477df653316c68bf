//! Contents of the inputs of a case, one set for each seed that samples are taken on.

use super::kernel::{Buffers, Operands};
use super::tensors::{OutOfMemory, Tensor};

/// One set: what a call reads.
pub struct Set {
    operands: Operands,
    /// Where backward alone is timed: what the forward before it left, `out` and `lse`.
    saved: Option<(Tensor, Tensor)>,
}

impl Set {
    /// Keeps what is in place now; `lse` where the kernel's forward left it.
    ///
    /// # Errors
    /// When it does not fit into memory.
    pub fn keep(of: &Buffers, lse: Option<&Tensor>) -> Result<Set, OutOfMemory> {
        let x = &of.operands;
        let saved = lse.map(|lse| Ok((of.saved.out.duplicate()?, lse.duplicate()?)));
        Ok(Set {
            operands: Operands {
                q: x.q.duplicate()?,
                k: x.k.duplicate()?,
                v: x.v.duplicate()?,
                dout: x.dout.duplicate()?,
            },
            saved: saved.transpose()?,
        })
    }

    /// Puts it in place, at the addresses that are there.
    pub fn put(&self, into: &mut Buffers, lse: Option<&mut Tensor>) {
        let (from, to) = (&self.operands, &mut into.operands);
        to.q.replace(&from.q);
        to.k.replace(&from.k);
        to.v.replace(&from.v);
        to.dout.replace(&from.dout);
        if let Some((saved_out, saved_lse)) = &self.saved {
            into.saved.out.replace(saved_out);
            match lse {
                Some(lse) => lse.replace(saved_lse),
                None => into.saved.lse.replace(saved_lse),
            }
        }
    }
}
