//! The time breakdown of a change as rows of a waterfall.

use serde::Serialize;

use super::text::one_line;
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{Account, MetricRow, Row};
use regatta_worker::units::Nanoseconds;

/// An account, as templates take it.
#[derive(Serialize)]
pub struct AccountView {
    /// `+3.20 µs`, or of another time than the device's `first call +21.0 ms`.
    pub(super) change: String,
    /// All of it in a line.
    pub(super) sentence: String,
    /// The largest first, what is not explained last.
    pub(super) lines: Vec<LineView>,
}

/// One row of the waterfall. Places are percent of its width.
#[derive(Serialize)]
pub(super) struct LineView {
    /// What it is of.
    pub(super) what: String,
    /// `+1.70`.
    pub(super) growth: String,
    pub(super) from: f64,
    pub(super) width: f64,
    /// True where it takes longer.
    pub(super) longer: bool,
}

impl AccountView {
    /// The breakdowns of a row: of its device time, and of each other metric that regressed.
    pub(super) fn all(row: &Row) -> Vec<AccountView> {
        let named = |of: &MetricRow, account: &Account| {
            let account = AccountView::new(account);
            AccountView {
                change: format!("{} {}", of.metric.text(), account.change),
                ..account
            }
        };
        let first = row.regressed().next();
        let other = first.filter(|of| of.metric != Metric::Device);
        let own = row.account.as_ref().map(|account| match other {
            None => AccountView::new(account),
            Some(of) => named(of, account),
        });
        let beside = row.regressed();
        let beside = beside.filter_map(|of| Some(named(of, of.account.as_ref()?)));
        own.into_iter().chain(beside).collect()
    }

    /// Lays an account out.
    pub(super) fn new(account: &Account) -> AccountView {
        let lines = account.told_lines();
        let mut at = 0.0;
        let mut ends = vec![0.0];
        for (_, growth) in &lines {
            at += growth.0;
            ends.push(at);
        }
        let least = ends.iter().copied().fold(0.0, f64::min);
        let most = ends.iter().copied().fold(0.0, f64::max);
        let place = |at: f64| match most > least {
            true => ((at - least) / (most - least) * 1_000.0).round() / 10.0,
            false => 0.0,
        };
        let rows = lines.into_iter().zip(ends.windows(2));
        AccountView {
            change: account.change_ns.signed(),
            sentence: one_line(&account.to_string()),
            lines: rows
                .map(|((what, growth), ends)| {
                    let (from, to) = (place(ends[0].min(ends[1])), place(ends[0].max(ends[1])));
                    LineView {
                        what: one_line(&what),
                        growth: growth.signed_beside(account.change_ns),
                        from,
                        width: to - from,
                        longer: growth > Nanoseconds::ZERO,
                    }
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_judge::judgement::{AccountLine, Item};

    #[test]
    fn bars_begin_where_the_one_before_ended() {
        let line = |item, growth| AccountLine::new(item, Nanoseconds(growth));
        let view = AccountView::new(&Account {
            change_ns: Nanoseconds(600.0),
            lines: vec![line(Item::Waiting, 1_000.0), line(Item::Gaps, -400.0)],
            unexplained_ns: Nanoseconds::ZERO,
        });
        let bars = view.lines.iter().map(|of| (of.from, of.width, of.longer));
        assert!(bars.eq([(0.0, 100.0, true), (60.0, 40.0, false)]));
        assert_eq!(view.lines[1].growth, "-400");
    }
}
