//! Memory for tiles, kept by each thread from one task to the next.

use std::cell::Cell;

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with one slice for each of `sizes`. Their contents are left over from
/// whatever used them last.
pub fn lend<const N: usize, R>(sizes: [usize; N], f: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    // Taken, not borrowed: a panic in `f` then costs the buffer, and no state.
    let mut buffer = SCRATCH.take();
    let total = sizes.iter().sum();
    if buffer.len() < total {
        buffer.resize(total, 0.0);
    }
    let mut rest = buffer.as_mut_slice();
    let slices = sizes.map(|size| {
        let (slice, tail) = std::mem::take(&mut rest).split_at_mut(size);
        rest = tail;
        slice
    });
    let result = f(slices);
    SCRATCH.set(buffer);
    result
}
