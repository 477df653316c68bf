//! An autotuner tunes again, and so does for lengths it has not seen.

use super::events_added::{calls, within};
use super::{Pair, finding};
use crate::attention::ParamValue;
use crate::judge::judgement::Finding;

/// The count of autotuning runs that found no configuration kept.
pub(super) const AUTOTUNE: &str = "triton_autotune";

/// Finds more autotuning runs in a steady call, told against the lengths that it saw.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = calls(pair, AUTOTUNE).filter(|(base, head)| head > base)?;
    let of = match pair.head.effective.get("lengths") {
        Some(ParamValue::Int(1)) => " in a call of one length".to_owned(),
        Some(ParamValue::Int(lengths)) => format!(" in {lengths} lengths"),
        _ => " in a call".to_owned(),
    };
    let times = if head == 1 {
        "once"
    } else {
        &format!("{head} times")
    };
    let within = within(pair.head, AUTOTUNE);
    Some(finding(
        "retuned",
        format!("retuned {times}{of}, was {base}{within}"),
        0.97,
    ))
}
