//! How often a comparison is wrong, and what it sees: comparisons dealt from the pairs of one
//! long one of the same code.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::RngExt;
use rand::seq::SliceRandom;
use rayon::prelude::*;

use super::batches::decided;
use super::draw::Place;
use super::rate::Rate;
use crate::attention::CaseId;
use crate::judge::Options;
use crate::judge::judgement::{Judgement, VerdictOutcome, Word};
use crate::record::side::{CaseRecord, Side, Status, median};
use crate::units::{Nanoseconds, Ratio, Share};

/// What is dealt.
#[derive(Clone, Copy, Debug)]
pub struct Deal {
    /// Pairs that every case has.
    pub pairs: usize,
    /// Fresh pairs that a case gets at the most.
    pub fresh: u32,
    /// The smallest change that counts.
    pub floor: Share,
    /// What is planted in one case of each comparison, where anything is.
    pub planted: Share,
    /// Comparisons, with a change and without.
    pub comparisons: u32,
}

/// What was said.
#[derive(Clone, Debug, Default)]
pub struct Dealt {
    /// Comparisons without a change that were called worse.
    pub red: Rate,
    /// Those that could not say.
    pub unsaid: Rate,
    /// Cases that were called worse without a change, and how often.
    pub wrong: BTreeMap<CaseId, usize>,
    /// Of each case, its median time, and how often what was planted in it was called.
    pub seen: BTreeMap<CaseId, (Nanoseconds, Rate)>,
}

/// Deals comparisons from two runs that were measured in turn: pairs of invocations without
/// using one twice, a coin deciding which of a pair is the base. `None` where there are too few
/// for one.
pub fn dealt(base: &Side, head: &Side, deal: &Deal) -> Option<Dealt> {
    let whole = |record: &CaseRecord| record.status == Status::Measured;
    let cases = base.cases.iter().filter_map(|(case, record)| {
        let other = head.cases.get(case)?;
        (whole(record) && whole(other)).then_some((case, (record, other)))
    });
    let cases: BTreeMap<&CaseId, (&CaseRecord, &CaseRecord)> = cases.collect();
    let pairs = cases
        .values()
        .map(|(b, h)| b.device_ns.len().min(h.device_ns.len()));
    let pairs = pairs.min()?;
    if pairs < deal.pairs + deal.fresh as usize {
        return None;
    }
    let names: Vec<&CaseId> = cases.keys().copied().collect();
    let one = |number: u32| {
        let place = Place {
            seed: 1,
            experiment: 1 << 21,
            sweep: u64::from(number),
        };
        let mut rng = place.generator(0);
        let mut order: Vec<(usize, bool)> = (0..pairs).map(|at| (at, rng.random())).collect();
        order.shuffle(&mut rng);
        let said = |planted: Option<&CaseId>| {
            let times = Times {
                cases: &cases,
                order: &order,
                planted: planted.map(|case| (case, Ratio(1.0 + deal.planted.0))),
            };
            times.judged((base, head), deal)
        };
        let clean = said(None);
        let wrong = clean.rows.iter().filter(|row| row.word == Word::Regressed);
        let wrong = wrong.map(|row| (row.case.clone(), 1)).collect();
        let clean = clean.verdict.outcome;
        let changed = names[number as usize % names.len()];
        let judgement = said(Some(changed));
        let mut rows = judgement.rows.iter();
        let called = rows.any(|row| row.case == *changed && row.word == Word::Regressed);
        let time = median(&cases[changed].0.device_ns).unwrap_or(Nanoseconds::ZERO);
        Dealt {
            red: Rate::once(clean == VerdictOutcome::Failed),
            unsaid: Rate::once(clean == VerdictOutcome::NotJudged),
            wrong,
            seen: BTreeMap::from([(changed.clone(), (time, Rate::once(called)))]),
        }
    };
    let all = (0..deal.comparisons).into_par_iter().map(one);
    Some(all.reduce(Dealt::default, Dealt::plus))
}

impl Dealt {
    fn plus(mut self, other: Dealt) -> Dealt {
        self.red = self.red.plus(other.red);
        self.unsaid = self.unsaid.plus(other.unsaid);
        for (case, count) in other.wrong {
            *self.wrong.entry(case).or_default() += count;
        }
        for (case, (time, rate)) in other.seen {
            let own = self.seen.entry(case).or_insert((time, Rate::default()));
            own.1 = own.1.plus(rate);
        }
        self
    }
}

/// Pairs in the order in which they are dealt; `true`: the sides of that pair change places.
struct Times<'a> {
    cases: &'a BTreeMap<&'a CaseId, (&'a CaseRecord, &'a CaseRecord)>,
    order: &'a [(usize, bool)],
    planted: Option<(&'a CaseId, Ratio)>,
}

impl Times<'_> {
    /// Times of base and head of a case, of these pairs in their order.
    fn of(
        &self,
        case: &CaseId,
        pairs: &[(usize, bool)],
        list: fn(&CaseRecord) -> &Vec<Nanoseconds>,
    ) -> (Vec<Nanoseconds>, Vec<Nanoseconds>) {
        let Some((base, head)) = self.cases.get(case) else {
            return Default::default();
        };
        let factor = match self.planted {
            Some((planted, factor)) if planted == case => factor,
            _ => Ratio::ONE,
        };
        let both = pairs.iter().filter_map(|&(at, swapped)| {
            let pair = (*list(base).get(at)?, *list(head).get(at)?);
            let (base, head) = match swapped {
                true => (pair.1, pair.0),
                false => pair,
            };
            Some((base, head * factor))
        });
        both.unzip()
    }

    fn judged(&self, (base, head): (&Side, &Side), deal: &Deal) -> Judgement {
        let empty = |side: &Side| {
            let mut side = side.clone();
            side.cases.retain(|case, _| self.cases.contains_key(case));
            side.header
                .plan
                .retain(|case| self.cases.contains_key(case));
            side.header.settings.invocations = deal.pairs as u32;
            let rules = &mut side.header.rules;
            rules.expectations.clear();
            rules.limits.clear();
            rules.policy.floor = deal.floor;
            rules.policy.floors.clear();
            rules.policy.confirm = deal.fresh;
            for record in side.cases.values_mut() {
                for list in [
                    &mut record.confirm_ns,
                    &mut record.host_ns,
                    &mut record.cpu_ns,
                    &mut record.first_call_ns,
                ] {
                    list.clear();
                }
            }
            side
        };
        let (mut before, mut after) = (empty(base), empty(head));
        let first = &self.order[..deal.pairs];
        for case in self.cases.keys() {
            let (base, head) = self.of(case, first, |record| &record.device_ns);
            for (side, times) in [(&mut before, base), (&mut after, head)] {
                if let Some(record) = side.cases.get_mut(*case) {
                    record.device_ns = times;
                }
            }
        }
        let options = Options {
            wants_base: true,
            batches: true,
            ..Options::default()
        };
        let give = |case: &CaseId, more: Range<usize>, (base, head): (&mut Side, &mut Side)| {
            let more = &self.order[deal.pairs + more.start..deal.pairs + more.end];
            let (of_base, of_head) = self.of(case, more, |record| &record.device_ns);
            for (side, times) in [(base, of_base), (head, of_head)] {
                if let Some(record) = side.cases.get_mut(case) {
                    record.confirm_ns.extend(times);
                }
            }
        };
        decided((&mut before, &mut after), &options, give)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::header::{Turn, TurnSide};
    use crate::record::testing::{side, timed};

    fn sides(noise: f64) -> (Side, Side) {
        let value = |case: usize, at: usize, salt: usize| {
            let step = ((case * 31 + at * 17 + at * at * 7 + salt) % 23) as f64 / 23.0 - 0.48;
            1e5 * (case + 1) as f64 * (1.0 + 3.4 * noise * step)
        };
        let of = |turn: TurnSide, salt: usize| {
            let ids: Vec<String> = (1..=6)
                .map(|n| format!("cpu/flash:s{},d64", 64 * n))
                .collect();
            let cases = ids.iter().enumerate().map(|(case, id)| {
                let values: Vec<f64> = (0..40).map(|at| value(case, at, salt)).collect();
                (id.as_str(), timed(&values))
            });
            let mut side = side("a", cases.collect());
            side.header.turn = Some(Turn {
                pair: "one".to_owned(),
                side: turn,
                of: Vec::new(),
                stands_in: BTreeMap::new(),
            });
            side
        };
        (of(TurnSide::Base, 0), of(TurnSide::Head, 5))
    }

    #[test]
    fn what_is_planted_is_seen_where_it_is_larger_than_the_noise() {
        let deal = Deal {
            pairs: 5,
            fresh: 30,
            floor: Share(0.005),
            planted: Share(0.02),
            comparisons: 60,
        };
        let (base, head) = sides(0.002);
        let quiet = dealt(&base, &head, &deal).unwrap();
        assert_eq!(quiet.red.share(), Share(0.0));
        assert_eq!(quiet.seen.len(), 6);
        assert!(
            quiet
                .seen
                .values()
                .all(|(_, rate)| rate.share() > Share(0.9))
        );
        let (base, head) = sides(0.05);
        let noisy = dealt(&base, &head, &deal).unwrap();
        assert!(
            noisy
                .seen
                .values()
                .all(|(_, rate)| rate.share() < Share(0.5))
        );
        let many = Deal { pairs: 11, ..deal };
        assert!(dealt(&base, &head, &many).is_none(), "40 pairs are too few");
    }
}
