//! Structure: exact differences of what one call does, and limits on it.
//!
//! Exact facts need no statistics: one call tells them, and they hold on a device that
//! is throttled or shared. How each is taken is the suite's policy
//! ([`regatta_core::suite::structural`]).

mod changes;
mod counts;
mod found;
mod instructions;
mod limits;
mod standing;
mod vanished;

pub use changes::{changes, changes_of};
pub use found::Pair;
pub use limits::limits;
pub use standing::{multiprocessors, not_comparable};
pub use vanished::vanished;
