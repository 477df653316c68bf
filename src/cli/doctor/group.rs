//! A group of what was looked at: a head, and a line each with what would help below it.

use owo_colors::{OwoColorize, Style};

use super::super::indented;
use super::finding::{Check, CheckState};
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{one_line, shorten, width};

/// Columns of the word before each row.
const MARK: usize = 8;

/// Columns before what belongs to a row.
const BELOW: usize = 2 + MARK;

/// Columns of what a row is of, at the most.
const LONGEST_NAME: usize = 18;

/// A line of a group, and what belongs to it.
pub(super) struct GroupRow {
    pub(super) state: CheckState,
    pub(super) name: String,
    pub(super) detail: String,
    /// A word and what it says.
    pub(super) below: Vec<(&'static str, String)>,
}

impl GroupRow {
    pub(super) fn new(finding: &Check) -> GroupRow {
        let fix = (!finding.fix.is_empty()).then(|| ("fix", finding.fix.clone()));
        GroupRow {
            state: finding.state,
            name: one_line(&finding.name),
            detail: one_line(&finding.detail),
            below: fix.into_iter().collect(),
        }
    }
}

pub(super) fn rows(findings: &[Check]) -> Vec<GroupRow> {
    findings.iter().map(GroupRow::new).collect()
}

/// A head, and a line for each row with what would help below it; empty where there is none.
/// What is broken is told whole.
pub(super) fn group(head: &str, rows: &[GroupRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n", head.style(Style::new().bold()));
    let names = rows.iter().map(|row| width(&row.name));
    let column = names.max().unwrap_or(0).min(LONGEST_NAME);
    for row in rows {
        let name = shorten(&row.name, LONGEST_NAME);
        let before = 2 + MARK + column + 2;
        let padding = " ".repeat(column - width(&name) + 2);
        let mark = row.state.mark();
        let blanks = " ".repeat(MARK - mark.len());
        let mark = mark.style(row.state.style());
        let detail = match row.state {
            CheckState::Broken => indented(&row.detail, before, before),
            _ => shorten(&row.detail, COLUMNS - before),
        };
        text += &format!("  {mark}{blanks}{name}{padding}{}\n", detail.trim());
        for (word, said) in &row.below {
            let said = format!("{word}: {}", one_line(said));
            text += &indented(&said, BELOW, BELOW + 5);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: CheckState, name: &str, detail: &str, fix: &str) -> GroupRow {
        GroupRow::new(&Check {
            what: String::new(),
            name: name.to_owned(),
            state,
            detail: detail.to_owned(),
            fix: fix.to_owned(),
        })
    }

    #[test]
    fn a_line_for_each_and_what_would_help_below_it() {
        let long = "/a/folder/with/a/name".repeat(6);
        let broken = format!("{} {long}", "words ".repeat(12));
        #[rustfmt::skip]
        let rows = [
            row(CheckState::Ok, "cpu", "3 variants on A CPU", ""),
            row(CheckState::Absent, "a-worker-of-a-very-long-name", &"words ".repeat(30), "do this"),
            row(CheckState::Slow, "torch", "slow to start", &"try again ".repeat(12)),
            row(CheckState::Broken, "reports", &broken, "elsewhere"),
        ];
        let text = group("Workers", &rows);
        let plain = anstream::adapter::strip_str(&text).to_string();
        insta::assert_snapshot!(plain);
        let too_long = plain.lines().filter(|line| width(line) > COLUMNS);
        // A path that is broken stays whole.
        assert_eq!(too_long.count(), 1);
        assert_eq!(group("Nothing", &[]), "");
    }
}
