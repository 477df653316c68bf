//! Where the time of a command went, in a line.

use regatta_core::record::spent::{Phase, Spent};
use regatta_worker::units::{Elapsed, Nanoseconds, Share};

/// The least share of the whole that is worth a name.
const LEAST: Share = Share(0.005);

/// `2 min 39 s: base 70 s, head 71 s, starting workers 9 s, judging 1 s`. `took` is all of it,
/// the rest what the phases of each side took; `base` is that of one that was measured in turn.
pub fn took(took: Nanoseconds, head: &Spent, base: Option<&Spent>) -> String {
    let mut all = head.clone();
    base.inspect(|base| all.add_all(base));
    let sum = |phases: &[Phase]| phases.iter().filter_map(|phase| all.of(*phase)).sum();
    let sides = match base {
        Some(base) => vec![("base", base.of_case()), ("head", head.of_case())],
        None => vec![("measuring", head.of_case())],
    };
    let others: [(&str, Nanoseconds); 4] = [
        (
            "starting workers",
            sum(&[Phase::Preflight, Phase::Starting, Phase::Ending]),
        ),
        ("setting up", sum(&[Phase::SettingUp])),
        ("judging", sum(&[Phase::Judging])),
        ("writing reports", sum(&[Phase::Reporting])),
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

    fn spent(phases: &[(Phase, f64)]) -> Spent {
        let mut spent = Spent::default();
        for (phase, seconds) in phases {
            spent.add(*phase, Nanoseconds::of_seconds(*seconds));
        }
        spent
    }

    #[test]
    fn both_sides_are_counted_and_what_is_nothing_is_left_out() {
        let base = spent(&[(Phase::Preparing, 60.0), (Phase::Measuring, 10.0)]);
        let head = spent(&[
            (Phase::Measuring, 71.0),
            (Phase::Starting, 8.0),
            (Phase::Ending, 1.0),
            (Phase::Judging, 1.0),
            (Phase::Reporting, 0.1),
        ]);
        let whole = Nanoseconds::of_seconds(159.0);
        assert_eq!(
            took(whole, &head, Some(&base)),
            "2 min 39 s: base 1 min 10 s, head 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
        assert_eq!(
            took(whole, &head, None),
            "2 min 39 s: measuring 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
    }
}
