//! Length of the work against what can be seen of it: the smallest visible difference
//! and the spread of single samples, both as shares and on logarithmic axes.

use super::canvas::{Anchor, Frame};
use super::ink::Ink;
use super::scale::{Scale, time_labels};
use crate::judge::ruler::Ruled;

const SIZE: (i32, i32) = (720, 260);
const LEFT: i32 = 76;
const RIGHT: i32 = 700;
const TOP: i32 = 28;
const BOTTOM: i32 = 206;

/// Where nothing was seen: a line of its own, below the least share of the axis.
const NOTHING: i32 = BOTTOM;

/// Where the axis of shares ends.
const LEAST: i32 = BOTTOM - 24;

/// Shares that the axis has room for: a hundredth of a percent to all of it.
const SHARES: [f64; 5] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0];

/// Name, ink and share of a series.
type Series = (&'static str, Ink, fn(&Ruled) -> f64);

/// Draws it; `None` without a length.
pub(in crate::report) fn ruler(ruled: &[Ruled]) -> Option<String> {
    let (Some(first), Some(last)) = (ruled.first(), ruled.last()) else {
        return None;
    };
    let across = Scale::log(ruled.iter().map(|ruled| ruled.nominal_ns.0), LEFT, RIGHT);
    let up = Scale::log_between(SHARES[0], SHARES[4], LEAST, TOP);
    // By logarithms 0 has no place, and it is not the least share either.
    let height = |share: f64| match share > 0.0 {
        true => up.at(share.clamp(SHARES[0], SHARES[4])),
        false => NOTHING,
    };
    let percent = |share: f64| match share {
        least if least == SHARES[0] => format!("≤ {} %", least * 100.0),
        share => format!("{} %", share * 100.0),
    };
    let series: [Series; 2] = [
        ("spread of samples", Ink::Base, |ruled| ruled.spread.0),
        ("smallest visible difference", Ink::Head, |ruled| {
            ruled.visible.0
        }),
    ];
    let description = format!(
        "smallest visible difference from {:.2} at the shortest work to {:.3} at the longest",
        first.visible, last.visible
    );
    let frame = Frame {
        title: "Smallest visible difference by length of the work",
        description: &description,
        size: SIZE,
    };
    Some(frame.draw(|canvas| {
        for share in SHARES {
            canvas.line((LEFT, up.at(share)), (RIGHT, up.at(share)), Ink::Grid, 1);
        }
        canvas.line((LEFT, NOTHING), (RIGHT, NOTHING), Ink::Grid, 1);
        canvas.text("0", (LEFT - 8, NOTHING), Anchor::End, 11, Ink::Muted);
        for share in SHARES {
            let at = (LEFT - 8, up.at(share));
            canvas.text(&percent(share), at, Anchor::End, 11, Ink::Muted);
        }
        let ticks = across.ticks(5);
        for (tick, label) in ticks.iter().zip(time_labels(&ticks)) {
            let at = (across.at(*tick), BOTTOM + 16);
            canvas.text(&label, at, Anchor::Middle, 11, Ink::Muted);
        }
        for (_, ink, share) in &series {
            let points: Vec<(i32, i32)> = ruled
                .iter()
                .map(|of| (across.at(of.nominal_ns.0), height(share(of))))
                .collect();
            canvas.path(&points, *ink, 2);
            for at in points {
                canvas.dot(at, 4, *ink);
            }
        }
        for (number, (name, ink, _)) in series.iter().enumerate() {
            let x = LEFT + 8 + 190 * number as i32;
            canvas.dot((x, 10), 4, *ink);
            canvas.text(name, (x + 10, 10), Anchor::Start, 11, Ink::Text);
        }
        let middle = ((LEFT + RIGHT) / 2, BOTTOM + 38);
        canvas.text("length of the work", middle, Anchor::Middle, 11, Ink::Muted)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanoseconds, Share};

    #[test]
    fn nothing_seen_is_below_the_least_share() {
        let of = |nominal: f64, visible: f64| Ruled {
            nominal_ns: Nanoseconds(nominal),
            read_ns: Nanoseconds(nominal),
            bias_ns: Nanoseconds::ZERO,
            spread: Share(0.01),
            visible: Share(visible),
            added: Vec::new(),
        };
        let svg = ruler(&[of(1e3, 1e-4), of(1e6, 0.0)]).unwrap();
        assert!(
            svg.contains("≤ 0.01 %") && svg.contains(">0</text>"),
            "{svg}"
        );
        let drawn = svg.split("class=\"s-head\"").nth(1).unwrap();
        assert!(
            drawn.contains(&NOTHING.to_string()) && drawn.contains(&LEAST.to_string()),
            "{svg}"
        );
    }
}
