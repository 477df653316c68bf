//! Two ways to look at the values of a case: a moderated t, and exact ranks.

use super::memory::Memory;
use super::moderated::{Prior, Variance, pooled, variance};
use super::ranks::{Ranked, Tables};
use super::sessions::{Between, Held};
use super::suite::Shared;
use super::terms::{END, Plan, SuiteRuling};
use crate::statistics::{one_sample_centre, t_upper, t_upper_quantile};

/// The variance of Hodges and Lehmann's centre over that of a mean, for normal values.
const OF_A_CENTRE: f64 = 1.05;

/// What is known beside the values of the case.
pub struct Known<'a> {
    /// How much cases vary.
    pub prior: Prior,
    /// How much the differences within pairs do, of sides that were measured in turn.
    pub apart: Prior,
    /// Whether invocations remember each other.
    pub memory: Memory,
    /// How sessions of the base differ.
    pub between: Option<&'a Between>,
    /// What all cases share.
    pub suite: Option<&'a (SuiteRuling, Shared)>,
    /// The error that a case may spend, in one direction, over all looks.
    pub error: f64,
    /// How the values came to be.
    pub plan: &'a Plan,
}

/// One way to look.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Head over base.
    pub change: f64,
    /// One-sided p of what is the case's own.
    pub p: f64,
    /// Interval of the change that leaves one in twenty out at each end.
    pub ends: (f64, f64),
    /// The same with one in forty.
    pub wide: (f64, f64),
    /// Half of the first, now and at the last look.
    pub half: (f64, f64),
    /// How many standard errors the error of the last look is away.
    pub last: f64,
}

/// The values of both sides.
pub struct Sides<'a> {
    /// Of the base.
    pub base: &'a [f64],
    /// Of the head.
    pub head: &'a [f64],
    /// Differences within pairs, of sides that were measured in turn; none of others.
    pub differences: &'a [f64],
    /// How many there are at the last look.
    pub most: (usize, usize),
    /// What all cases share.
    pub out: f64,
    /// The error of the last look.
    pub last: f64,
}

impl Sides<'_> {
    /// By a moderated t of the differences within pairs: what both of a pair share, such as a
    /// moment of load, is in none of them.
    pub fn by_pairs(&self, known: &Known) -> View {
        let now = self.differences.len();
        let own = known.apart.moderate(self.differences);
        let of_mean = |values: usize| {
            let inflated = known.memory.inflation(values as f64, now.min(10) as f64);
            (OF_A_CENTRE * own.value * inflated / values as f64).sqrt()
        };
        let (error, last) = (of_mean(now), of_mean(self.most.1.max(now)));
        let change = one_sample_centre(self.differences);
        self.seen_by_t(change, (error, last), own.degrees)
    }

    /// By a moderated t.
    pub fn by_t(&self, known: &Known, held: Option<&Held>) -> View {
        // A side of few that is quiet by luck is no quieter than both together.
        let both = known
            .prior
            .shrink(pooled(variance(self.base), variance(self.head)));
        let moderate = |side: &[f64]| {
            let own = known.prior.moderate(side);
            match own.value < both.value {
                true => Variance {
                    value: both.value,
                    degrees: own.degrees,
                },
                false => own,
            }
        };
        let head = moderate(self.head);
        let centre = one_sample_centre(self.head);
        let of_mean = |variance: Variance, values: usize, now: usize| {
            let inflated = known.memory.inflation(values as f64, now.min(10) as f64);
            OF_A_CENTRE * variance.value * inflated / values as f64
        };
        let now = self.head.len();
        let (mine, mine_last) = (of_mean(head, now, now), of_mean(head, self.most.1, now));
        let (before, theirs, theirs_last, degrees) = match held {
            Some(held) => {
                // What a session varies by, beyond what its invocations explain.
                let sessions = known.between.map_or(1, Between::sessions) as f64;
                let each = self.base.len() as f64 / sessions;
                let beyond = held.spread.value - OF_A_CENTRE * head.value / each;
                let theirs = held.spread.value / sessions + beyond.max(0.0);
                (held.centre, theirs, theirs, held.spread.degrees)
            }
            None => {
                let base = moderate(self.base);
                let values = self.base.len();
                let theirs = of_mean(base, values, values);
                let both = theirs + mine;
                let degrees =
                    both * both / (theirs * theirs / base.degrees + mine * mine / head.degrees);
                let last = of_mean(base, self.most.0, values);
                (one_sample_centre(self.base), theirs, last, degrees)
            }
        };
        let errors = ((theirs + mine).sqrt(), (theirs_last + mine_last).sqrt());
        self.seen_by_t(centre - before, errors, degrees)
    }

    /// A change whose standard error is this now and that at the last look.
    fn seen_by_t(&self, change: f64, (error, last): (f64, f64), degrees: f64) -> View {
        let (end, wide) = (
            t_upper_quantile(END, degrees),
            t_upper_quantile(END / 2.0, degrees),
        );
        let around = |by: f64| (change - by * error, change + by * error);
        View {
            change,
            p: t_upper((change - self.out).abs() / error, degrees),
            ends: around(end),
            wide: around(wide),
            half: (end * error, end * last),
            last: t_upper_quantile(self.last, degrees.max(10.0)),
        }
    }

    /// By exact ranks.
    pub fn by_ranks(&self, tables: &mut Tables) -> View {
        let Ranked {
            shift,
            p,
            low,
            high,
            wide,
        } = tables.ranked(self.base, self.head, self.out);
        let half = (high - low) / 2.0;
        let inverse = |(n, m): (usize, usize)| 1.0 / n as f64 + 1.0 / m as f64;
        let narrows = (inverse(self.most) / inverse((self.base.len(), self.head.len()))).sqrt();
        View {
            change: shift,
            p,
            ends: (low, high),
            wide,
            half: (half.max(shift - low).max(high - shift), half * narrows),
            last: t_upper_quantile(self.last, f64::INFINITY),
        }
    }
}
