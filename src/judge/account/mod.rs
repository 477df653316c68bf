//! The account of a change: where the time went, as arithmetic.
//!
//! Operations of two sides are laid side by side; what each takes more is a line
//! ([`operations`]). What the clock read beyond them is the device's way from one operation to
//! the next, and where the clock holds the host, waiting for it ([`between`]). Recording
//! stretches gaps, so they explain no more than the clock saw beyond the operations, and no
//! more than was recorded. What is left is not explained, and said to be.

mod asked;
mod between;
mod operations;

pub use asked::Asked;

use crate::judge::judgement::{Account, AccountLine, Item};
use crate::units::Nanoseconds;

/// Lines that are kept one by one.
const KEPT: usize = 12;

/// Makes the account.
pub fn account(asked: &Asked) -> Account {
    let mut lines = operations::lines(asked);
    lines.extend(between::lines(asked));
    lines.retain(|line| line.growth_ns.0 != 0.0);
    lines.sort_by(|a, b| b.growth_ns.0.abs().total_cmp(&a.growth_ns.0.abs()));
    let rest = lines.split_off(lines.len().min(KEPT));
    if !rest.is_empty() {
        let count = rest.len() as u32;
        let growth = rest.iter().map(|line| line.growth_ns).sum();
        lines.push(AccountLine::of(Item::Others { count }, growth));
    }
    let change_ns = asked.times.growth();
    let explained: Nanoseconds = lines.iter().map(|line| line.growth_ns).sum();
    Account {
        change_ns,
        lines,
        unexplained_ns: change_ns - explained,
    }
}

#[cfg(test)]
mod tests;
