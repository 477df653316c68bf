//! Where the time of a command went, in a line.

use regatta_measure::laps::Spent;
use regatta_worker::units::{Elapsed, Nanoseconds, Share};

/// The least share of the whole that is worth a name.
const LEAST: Share = Share(0.005);

/// `2 min 39 s: base 70 s, head 71 s, starting workers 9 s, judging 1 s`. `took` is all of it,
/// the rest what the phases of each side took; `base` is that of one that was measured in turn.
pub fn took(took: Nanoseconds, head: Spent, base: Option<Spent>) -> String {
    let mut all = head;
    all += base.unwrap_or_default();
    let sides = match base {
        Some(base) => vec![("base", base.cases), ("head", head.cases)],
        None => vec![("measuring", head.cases)],
    };
    let others: [(&str, Nanoseconds); 4] = [
        ("starting workers", all.workers),
        ("setting up", all.setting_up),
        ("judging", all.judging),
        ("writing reports", all.reporting),
    ];
    let parts = sides.into_iter().chain(others);
    let parts = parts.filter(|(_, time)| time.share_of(took) >= LEAST);
    let parts: Vec<String> = parts
        .map(|(name, time)| format!("{name} {}", Elapsed(time)))
        .collect();
    match parts.is_empty() {
        true => Elapsed(took).to_string(),
        false => format!("{}: {}", Elapsed(took), parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_counted_and_what_is_nothing_is_left_out() {
        let seconds = Nanoseconds::of_seconds;
        let base = Spent {
            cases: seconds(70.0),
            ..Spent::default()
        };
        let head = Spent {
            cases: seconds(71.0),
            workers: seconds(9.0),
            judging: seconds(1.0),
            reporting: seconds(0.1),
            ..Spent::default()
        };
        let whole = seconds(159.0);
        assert_eq!(
            took(whole, head, Some(base)),
            "2 min 39 s: base 1 min 10 s, head 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
        assert_eq!(
            took(whole, head, None),
            "2 min 39 s: measuring 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
    }
}
