//! The account of a change: where the time went, as arithmetic.
//!
//! Operations of two sides are laid side by side; what each takes more is a line
//! ([`operations`]). What the clock read beyond them is the device's way from one operation to
//! the next, and where the clock holds the host, waiting for it ([`between`]). Recording
//! stretches gaps, so they explain no more than the clock saw beyond the operations, and no
//! more than was recorded. What is left is not explained, and said to be.

mod asked;
mod between;
mod first_call;
mod host;
mod operations;
mod settled;

pub use asked::Asked;
pub use first_call::of_first_call;
pub use host::{Host, of_host};

use self::settled::settled;
use crate::judgement::Account;

/// Makes the account.
pub fn account(asked: &Asked) -> Account {
    let mut lines = operations::lines(asked);
    lines.extend(between::lines(asked));
    settled(asked.times.growth(), lines)
}

#[cfg(test)]
mod tests;
