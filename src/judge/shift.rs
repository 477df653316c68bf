//! The part of every change that belongs to the machine.

use super::floor::beyond;
use super::judgement::CommonShift;
use crate::record::side::median;
use crate::units::{Ratio, Share};

/// Fewer cases than these cannot tell a machine's drift from their own changes.
const FEWEST_CASES: usize = 5;

/// Smaller shifts are left in: they matter less than the uncertainty of estimating
/// them.
const SMALLEST: Share = Share(0.01);

/// So many of the cases must take part before a shift is called common.
const SHARE: f64 = 2.0 / 3.0;

/// A case takes part when its own change is at least the shift over this, and at
/// most the shift times this, on the scale of logarithms.
const SPREAD: f64 = 2.0;

/// Estimates what most cases have in common, from each case's ratio of head to
/// base, and says in a sentence what was done about it.
///
/// It is the median of the ratios. It is removed when it exceeds 1 %, at least two
/// thirds of the cases share it (same sign, within a factor of two) and it does
/// **not** exceed the floor. Beyond the floor it stays in every row: a change to
/// code that all cases run through looks exactly like a slow machine, and a judge
/// that subtracts it would hide the largest regression there is. Removing at most
/// the floor also means that a case which did not take part cannot be carried
/// over the floor by the removal alone.
///
/// There is one shift for all workers. Where host and device drift apart, the
/// cases disagree, and nothing is removed.
pub fn common_shift(ratios: &[Ratio], floor: Share) -> (Option<CommonShift>, Option<String>) {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.0.ln()).collect();
    let (Some(shift), true) = (median(&logs), logs.len() >= FEWEST_CASES) else {
        return (None, None);
    };
    let takes_part = |log: &&f64| log.signum() == shift.signum() && within(log.abs(), shift.abs());
    let sharing = logs.iter().filter(takes_part).count();
    let ratio = Ratio(shift.exp());
    let matters = shift.abs() > SMALLEST.0.ln_1p();
    let shared = sharing as f64 >= SHARE * logs.len() as f64;
    let removed = matters && shared && !beyond(ratio, floor);
    let found = CommonShift {
        ratio,
        cases: logs.len(),
        removed,
        beyond_floor: beyond(ratio, floor),
    };
    (Some(found), sentence(&found, sharing, floor))
}

fn within(log: f64, shift: f64) -> bool {
    (shift / SPREAD..=shift * SPREAD).contains(&log)
}

fn sentence(shift: &CommonShift, sharing: usize, floor: Share) -> Option<String> {
    let change = shift.ratio.told();
    let cases = shift.cases;
    // A slower whole keeps a run from passing, and the verdict says so: once is enough.
    if shift.ratio > Ratio::ONE && shift.beyond_floor {
        return None;
    }
    if shift.removed {
        return Some(format!(
            "{sharing} of {cases} cases share a shift of about {change}, which is within the \
             floor: it is taken for the machine's and divided out of every row"
        ));
    }
    beyond(shift.ratio, floor).then(|| {
        format!(
            "at least half of the {cases} cases moved together, in the median {change}: the \
             machine, or one change that all of them run through; nothing was divided out"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::quantities;

    const FLOOR: Share = Share(0.05);

    fn shifted(ratios: &[f64]) -> (Option<CommonShift>, Option<String>) {
        common_shift(&quantities::<Ratio>(ratios.iter().copied()), FLOOR)
    }

    fn removed(ratios: &[f64]) -> Option<bool> {
        shifted(ratios).0.map(|shift| shift.removed)
    }

    #[test]
    fn a_small_shift_of_most_cases_is_removed_and_said() {
        let (shift, note) = shifted(&[1.03, 1.028, 1.032, 1.031, 1.5, 1.029]);
        let shift = shift.unwrap();
        assert!(shift.removed && (shift.ratio.0 - 1.03).abs() < 0.001);
        let note = note.unwrap();
        assert!(note.starts_with("5 of 6 cases share a shift of about 3.0 % slower"));
    }

    #[test]
    fn a_shift_beyond_the_floor_is_never_hidden() {
        let (shift, note) = shifted(&[1.2, 1.21, 1.19, 1.2, 1.2]);
        assert!(!shift.unwrap().removed);
        assert_eq!(note, None, "the verdict tells it");
        let (_, note) = shifted(&[0.8, 0.81, 0.79, 0.8, 0.8]);
        assert!(note.unwrap().contains("nothing was divided out"));
    }

    #[test]
    fn few_cases_small_shifts_and_disagreement_remove_nothing() {
        assert_eq!(removed(&[1.03; 4]), None);
        assert_eq!(removed(&[]), None);
        assert_eq!(removed(&[1.005; 10]), Some(false));
        // The median is 3 %, but half of the cases did not move.
        assert_eq!(
            removed(&[1.0, 1.0, 1.0, 1.0, 1.03, 1.03, 1.03, 1.03, 1.03]),
            Some(false)
        );
        assert_eq!(removed(&[1.0 / 1.03; 6]), Some(true));
    }

    #[test]
    fn removal_alone_carries_no_case_over_the_floor() {
        let mut ratios = vec![1.0 / 1.0499; 9];
        ratios.push(1.0);
        let shift = shifted(&ratios).0.unwrap();
        assert!(shift.removed && !beyond(shift.ratio.inverse(), FLOOR));
    }
}
