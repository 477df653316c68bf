//! Lines in their order, and what they leave.

use crate::judgement::{Account, AccountLine, Item};
use regatta_worker::units::Nanoseconds;

/// Lines that are kept one by one.
const KEPT: usize = 12;

/// The largest lines first, the smallest as one, and what is left.
pub fn settled(change_ns: Nanoseconds, mut lines: Vec<AccountLine>) -> Account {
    lines.retain(|line| line.growth_ns.0 != 0.0);
    lines.sort_by(|a, b| b.growth_ns.0.abs().total_cmp(&a.growth_ns.0.abs()));
    let rest = lines.split_off(lines.len().min(KEPT));
    if !rest.is_empty() {
        let count = rest.len() as u32;
        let growth = rest.iter().map(|line| line.growth_ns).sum();
        lines.push(AccountLine::of(Item::Others { count }, growth));
    }
    let explained: Nanoseconds = lines.iter().map(|line| line.growth_ns).sum();
    Account {
        change_ns,
        lines,
        unexplained_ns: change_ns - explained,
    }
}
