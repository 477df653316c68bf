//! Times on a command line.

use anyhow::anyhow;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::cli::Stop;

/// A date, or a time such as `2026-05-01T12:00:00Z`; dates begin in the universal zone.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    // A time that is no timestamp, for want of a zone, would be read as its date.
    let date: Date = match text.len() {
        10 => text.parse().ok()?,
        _ => return None,
    };
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The same, or a span before `newest`: `30d`, `12h`, `8w`.
pub(super) fn since(text: &str, newest: Timestamp) -> Result<Timestamp, Stop> {
    let hours = |number: &str, each: i64| {
        let hours = number.parse::<i64>().ok().filter(|number| *number >= 0)?;
        newest
            .checked_sub(SignedDuration::from_hours(
                hours.checked_mul(each).filter(|h| *h < 1 << 24)?,
            ))
            .ok()
    };
    let before = match text.char_indices().next_back() {
        Some((at, 'h')) => hours(&text[..at], 1),
        Some((at, 'd')) => hours(&text[..at], 24),
        Some((at, 'w')) => hours(&text[..at], 24 * 7),
        _ => None,
    };
    before.or_else(|| time(text)).ok_or_else(|| {
        Stop::Usage(anyhow!(
            "--since {text}: use a span before the newest run such as 30d, 8w or 12h, a date such \
             as 2026-05-01, or a time such as 2026-05-01T12:00:00Z"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_dates_and_times_are_understood() {
        let newest: Timestamp = "2026-05-31T12:00:00Z".parse().unwrap();
        let told = |text| since(text, newest).map(|at| at.to_string()).ok();
        assert_eq!(told("30d").unwrap(), "2026-05-01T12:00:00Z");
        assert_eq!(told("1w").unwrap(), "2026-05-24T12:00:00Z");
        assert_eq!(told("12h").unwrap(), "2026-05-31T00:00:00Z");
        assert_eq!(told("2026-05-03").unwrap(), "2026-05-03T00:00:00Z");
        assert_eq!(
            told("2026-05-03T06:00:00+02:00").unwrap(),
            "2026-05-03T04:00:00Z"
        );
        for odd in [
            "",
            "d",
            "-3d",
            "99999999999999999999d",
            "9999999999d",
            "May",
            "2026-05",
            "3é",
        ] {
            assert_eq!(told(odd), None, "{odd}");
        }
    }
}
