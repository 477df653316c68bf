//! `report --spread`: how well a run knows its times, in a table.

use super::terminal::COLUMNS;
use super::text::{one_line, shorten_middle, wrap};
use regatta_judge::spread::Spread;

/// The table, at most [`COLUMNS`] wide.
pub fn table(suite: &str, spreads: &[Spread]) -> String {
    let mut text = format!("{}\n\n", one_line(suite));
    text += &format!(
        "{:>12} {:>12} {:>10} {:>10} {:>10}\n",
        "median", "invocations", "samples", "within", "between"
    );
    for spread in spreads {
        let case = shorten_middle(&one_line(&spread.case.0), COLUMNS);
        text += &format!(
            "{case}\n{:>12} {:>12} {:>10} {:>10.2} {:>10.2}\n",
            spread.median_ns, spread.invocations, spread.samples, spread.within, spread.between
        );
    }
    text.push('\n');
    let legend = "within: coefficient of variation of the samples of one invocation, the median \
                  over the invocations. between: that of the invocations' medians, which are \
                  what is judged.";
    for line in wrap(legend, COLUMNS) {
        text += &format!("{line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use regatta_judge::spread::spreads;

    #[test]
    fn every_measured_case_is_in_the_table() {
        let scene = fixture::failed();
        let spreads = spreads(&scene.head, scene.report().entries).unwrap();
        let text = table("quick", &spreads);
        for line in text.lines() {
            assert!(super::super::text::width(line) <= COLUMNS, "{line}");
        }
        assert!(!spreads.is_empty());
        insta::assert_snapshot!(text.lines().take(5).collect::<Vec<_>>().join("\n"));
    }
}
