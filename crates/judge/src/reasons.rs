//! Why a row's word is what it is, in sentences with the figures.

use super::rule::{Because, Ruling, SuiteRuling};
use super::statistics::needed_per_side;
use regatta_worker::units::{Ratio, Share, counted};

/// Why a ruling says what it says; `None` where the word and its figures are enough.
pub fn told(ruling: &Ruling, floor: Share, suite: Option<&SuiteRuling>) -> Option<String> {
    let change = Ratio(ruling.change.exp()).told();
    let (base, head) = ruling.sizes;
    let interval = || {
        let [low, high] = [ruling.interval.0, ruling.interval.1].map(|end| Ratio(end.exp()));
        format!("anything from {} to {}", low.told(), high.told())
    };
    let suite = suite.map_or_else(String::new, |suite| {
        Ratio(suite.change.exp()).told().to_string()
    });
    match ruling.because {
        Because::Decided => None,
        Because::Unmistakable => Some(format!(
            "{head} against {base} invocations are few, but they do not overlap, and lie many \
             times apart: {change}"
        )),
        Because::TooFew => Some(format!(
            "{change}, but {head} against {base} invocations cannot decide; {} a side could",
            needed_per_side(0.01)
        )),
        Because::Wide => Some(format!(
            "it may be {}, and the floor is {floor}; {}",
            interval(),
            takes(ruling)
        )),
        Because::WithTheSuite => Some(format!(
            "{change}, as the whole suite is ({suite}); its own part is within the floor of {floor}"
        )),
        Because::OneSession => Some(format!(
            "{change}, which may be the day: one stored session does not say how far days lie \
             apart"
        )),
        Because::AgainstTheSuite => Some(format!(
            "{change}, where the whole suite is {suite}: beside the others it is slower beyond \
             the floor of {floor}"
        )),
    }
}

/// What would decide it.
fn takes(ruling: &Ruling) -> String {
    match ruling.takes {
        Some(more) => format!(
            "about {} could decide, if it stays so",
            counted(more as usize, "more invocation")
        ),
        None => format!(
            "the {} of the base are too few to decide it",
            counted(ruling.sizes.0, "invocation")
        ),
    }
}

/// Invocations that remember each other.
pub fn memory(memory: f64) -> String {
    format!(
        "invocations resemble those before them (correlation {memory:.1}): something drifts \
         slowly, so that they tell less than their number; every row takes account of it"
    )
}

/// What a single stored session cannot tell.
pub fn one_session() -> String {
    "the base is one stored session: what differs between days, or between builds of the same \
     code, reads as a change; `baseline save --add` keeps up to eight sessions, from three on \
     their spread is judged by"
        .to_owned()
}
