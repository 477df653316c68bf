//! Causes as templates take them.

use serde::Serialize;

use super::text::one_line;
use regatta_judge::judgement::Finding;

/// A cause with its evidence.
#[derive(Serialize)]
pub(super) struct FindingView {
    pub(super) cause: String,
    pub(super) evidence: String,
    /// What of the change it accounts for; empty where that is not known.
    pub(super) share: String,
}

/// Findings, in their order.
pub(super) fn findings(found: &[Finding]) -> Vec<FindingView> {
    let view = |finding: &Finding| FindingView {
        cause: finding.cause.to_string(),
        evidence: one_line(&finding.evidence()),
        share: finding
            .share
            .map_or_else(String::new, |share| share.to_string()),
    };
    found.iter().map(view).collect()
}
