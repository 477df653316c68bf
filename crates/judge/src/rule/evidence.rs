//! One case: what its values show, by two ways to look, and what more of them would.

use super::ranks::Tables;
use super::suite::Shared;
use super::terms::{APART, FEWEST, MANY, REACHES, TWICE, gap, may_call, unmistakable};
use super::terms::{BETWEEN_SESSIONS, Because, Ruling, Series, SuiteRuling};
use super::views::{Known, Sides, View};
use crate::judgement::Word;
use crate::statistics::reachable_p;

/// What a normal value exceeds in one of twenty: a decision that falls in 95 of 100.
const SURE: f64 = 1.645;

/// What is stated as seen is a little more than the formula says, which knows the variance
/// no better than the values do.
const MARGIN: f64 = 1.08;

/// More invocations than these are not asked for: they would not help.
const MOST_ASKED: f64 = 200.0;

/// The values of a case.
pub struct Values<'a> {
    /// Without what its invocations share.
    pub case: &'a Series,
    /// With it.
    pub raw: &'a Series,
    /// The head's less the base's of each pair, where they were measured in turn.
    pub differences: &'a [f64],
}

/// What the values of a case show.
pub struct Evidence<'a> {
    known: &'a Known<'a>,
    /// True where sessions of it are known.
    held: bool,
    shared: Shared,
    /// Logarithm of the floor's ratio.
    floor: f64,
    sizes: (usize, usize),
    /// Head's invocations at the last look.
    most: usize,
    /// Error that this look may spend, of one way to look.
    error: f64,
    /// By how much the sides lie apart: the slowest of the faster against the fastest of
    /// the slower; below 0 where they overlap.
    gap: f64,
    by_t: View,
    by_ranks: Option<View>,
}

impl<'a> Evidence<'a> {
    /// Looks at the values of case number `at`.
    pub fn of(
        at: usize,
        values: &Values,
        known: &'a Known<'a>,
        tables: &mut Tables,
    ) -> Evidence<'a> {
        let &Values {
            case,
            raw,
            differences,
        } = values;
        let held = known.between.and_then(|between| between.held(at));
        let base = match held {
            Some(held) => held.pooled.clone(),
            None => case.base.all(),
        };
        let head = case.head.all();
        let looks = &known.plan.looks;
        let most = head
            .len()
            .max(case.head.regular.len() + looks.most() as usize);
        let more_base = match known.plan.beside {
            true => most - head.len(),
            false => 0,
        };
        let shared = known.suite.map_or(Shared::default(), |(_, shared)| *shared);
        let share = looks.share(case.head.fresh.len() as u32);
        let last = known.error * looks.last_share() / 2.0;
        let sides = Sides {
            base: &base,
            head: &head,
            differences,
            most: (base.len() + more_base, most),
            out: shared.out,
            last,
        };
        let differs = held.filter(|held| held.differs);
        let ranks = differs.is_none() && !known.memory.is_found();
        Evidence {
            by_t: match differences.is_empty() {
                true => sides.by_t(known, differs),
                false => sides.by_pairs(known),
            },
            by_ranks: ranks.then(|| sides.by_ranks(tables)),
            known,
            held: held.is_some(),
            shared,
            floor: case.floor.ln_1p(),
            sizes: (base.len(), head.len()),
            most,
            error: known.error * share / 2.0,
            gap: gap(&raw.base.all(), &raw.head.all()),
        }
    }

    /// What is said of it.
    pub fn ruling(&self) -> Ruling {
        let view = self.told();
        let change = self.judged(view.change);
        let called = self.called();
        let (word, because) = match called {
            Some((word, because)) => (word, because),
            None if self.same() => (Word::Same, Because::Decided),
            None => (Word::Inconclusive, self.why_open(&view)),
        };
        let off = change - view.change;
        let against = because == Because::AgainstTheSuite;
        // What moved with the suite is told by its row, where that says that it is worse.
        let told = because == Because::WithTheSuite && self.suite_is_worse();
        let slower = change > self.floor && !told;
        let undecided = word == Word::Inconclusive;
        Ruling {
            word,
            because,
            change,
            interval: (view.wide.0 + off, view.wide.1 + off),
            p: (2.0 * self.views().map(|v| v.p).fold(0.5, f64::min)).min(1.0),
            seen: self.seen(),
            looks_worse: undecided && (slower || against),
            open: undecided && self.open(),
            sizes: self.sizes,
            takes: self.takes(change),
        }
    }

    fn views(&self) -> impl Iterator<Item = View> {
        [Some(self.by_t), self.by_ranks].into_iter().flatten()
    }

    /// The view that knows more: its figures are shown.
    fn told(&self) -> View {
        let narrow = |best: View, view: View| match view.half.0 < best.half.0 {
            true => view,
            false => best,
        };
        self.views().fold(self.by_t, narrow)
    }

    /// The change that is held to the floor: the whole of it where the suite's share is
    /// real, else without what chance gave to all.
    fn judged(&self, change: f64) -> f64 {
        match self.shared.real {
            true => change,
            false => change - self.shared.out,
        }
    }

    fn called(&self) -> Option<(Word, Because)> {
        let unmistakable = unmistakable(self.sizes.0, self.sizes.1, self.gap);
        let change = self.judged(self.by_t.change);
        if unmistakable && change.abs() > self.floor && !self.told_by_the_suite() {
            let because = match self.enough() {
                true => Because::Decided,
                false => Because::Unmistakable,
            };
            return Some((direction(change), because));
        }
        let shown = self.views().find(|view| self.shows(view))?;
        let word = direction(self.judged(shown.change));
        (self.enough() && !(word == Word::Improved && self.a_day_could(&shown)))
            .then_some((word, Because::Decided))
    }

    /// True when so many invocations may call a change that is not many times beyond.
    fn enough(&self) -> bool {
        let (base, head) = self.sizes;
        may_call(base, head, self.gap)
    }

    fn shows(&self, view: &View) -> bool {
        let own = view.change - self.shared.out;
        let change = self.judged(view.change);
        view.p <= self.error && own * change > 0.0 && self.nearest(view) > self.floor
    }

    /// The end of the interval that is nearest to no change.
    fn nearest(&self, view: &View) -> f64 {
        match self.judged(view.change) > 0.0 {
            true => self.judged(view.ends.0),
            false => -self.judged(view.ends.1),
        }
    }

    /// True when it is faster by no more than sessions may differ, as far as is known.
    fn a_day_could(&self, view: &View) -> bool {
        let sure = self.held || self.known.plan.beside && !self.known.memory.is_found();
        !sure && self.nearest(view) <= self.floor + BETWEEN_SESSIONS
    }

    fn same(&self) -> bool {
        let enough = self.sizes.0.min(self.sizes.1) >= FEWEST;
        let within = |view: View| {
            let own = view.change - self.shared.out;
            let half = view.half.0;
            own.abs() + half <= self.floor && self.judged(view.change).abs() <= self.floor
        };
        enough && self.views().any(within)
    }

    /// True when its own part is shown to be within the floor, of a suite that moved.
    fn with_the_suite(&self) -> bool {
        let within = |view: View| (view.change - self.shared.out).abs() + view.half.0 <= self.floor;
        self.shared.real && self.views().any(within)
    }

    /// The same, where the suite's own row says that it regressed.
    fn told_by_the_suite(&self) -> bool {
        self.with_the_suite()
            && self
                .suite()
                .is_some_and(|suite| suite.word == Word::Regressed)
    }

    /// True where the suite's own row keeps the run from passing.
    fn suite_is_worse(&self) -> bool {
        let worse = |suite: &SuiteRuling| suite.word == Word::Regressed || suite.looks_worse;
        self.suite().is_some_and(worse)
    }

    fn suite(&self) -> Option<&'a SuiteRuling> {
        self.known.suite.map(|(suite, _)| suite)
    }

    fn why_open(&self, view: &View) -> Because {
        let fewest = self.sizes.0.min(self.sizes.1);
        let own_low = view.ends.0 - self.shared.out;
        if self.with_the_suite() {
            Because::WithTheSuite
        } else if self.shared.real && self.shared.out < 0.0 && own_low > self.floor {
            Because::AgainstTheSuite
        } else if self.views().any(|view| self.shows(&view)) && self.enough() {
            Because::OneSession
        } else if !self.enough() || fewest < FEWEST {
            Because::TooFew
        } else {
            Because::Wide
        }
    }

    /// True when more invocations could decide: what is seen now, moved as far as chance may
    /// have held it back, would be shown at the last look.
    fn open(&self) -> bool {
        if self.sizes.1 >= self.most || self.with_the_suite() {
            return false;
        }
        if self.sizes.1 < FEWEST || !self.enough() {
            return true;
        }
        let (now, last) = self.halves();
        let moved = 2.0 / SURE * (now * now - last * last).max(0.0).sqrt();
        let change = self.judged(self.told().change).abs();
        let same = (change - moved).max(0.0) + last <= self.floor;
        same || change + moved - last > self.floor
    }

    /// The narrowest half intervals, now and at the last look.
    fn halves(&self) -> (f64, f64) {
        let least = |of: fn(&View) -> f64| {
            let all = self.views().map(|view| of(&view));
            all.fold(f64::INFINITY, f64::min)
        };
        (least(|v| v.half.0), least(|v| v.half.1))
    }

    fn seen(&self) -> f64 {
        let (base, _) = self.sizes;
        let fewest = base.min(self.most);
        if reachable_p(base, self.most) > REACHES && fewest < APART {
            return match fewest {
                FEWEST => TWICE.exp_m1(),
                2 => MANY.exp_m1(),
                _ => f64::INFINITY,
            };
        }
        let least = |view: View| {
            let error = view.half.1 / SURE * MARGIN;
            let beyond = self.floor + view.half.1 * MARGIN + SURE * error;
            beyond.max((view.last + SURE) * error)
        };
        self.views()
            .map(least)
            .fold(f64::INFINITY, f64::min)
            .exp_m1()
    }

    /// How many more invocations of the head would decide what is seen now, if it stays.
    fn takes(&self, change: f64) -> Option<u32> {
        let (base, head) = (self.sizes.0 as f64, self.sizes.1 as f64);
        let (now, _) = self.halves();
        let distance = (change.abs() - self.floor).abs();
        // Half an interval shrinks as the root of what both sides add: 1 / n + 1 / m.
        let needed = (distance / now).powi(2) * (1.0 / base + 1.0 / head) - 1.0 / base;
        let more = 1.0 / needed - head;
        (needed > 0.0 && more <= MOST_ASKED).then(|| more.ceil().max(1.0) as u32)
    }
}

fn direction(change: f64) -> Word {
    match change > 0.0 {
        true => Word::Regressed,
        false => Word::Improved,
    }
}
