//! Lists of cases as the judge's sentences write them.

use crate::attention::CaseId;

/// The first few cases by name, the others by number.
pub fn list<'a>(cases: impl IntoIterator<Item = &'a CaseId>) -> String {
    const NAMED: usize = 3;
    let all: Vec<&CaseId> = cases.into_iter().collect();
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let text = named.join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}
