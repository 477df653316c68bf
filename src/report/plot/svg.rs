//! From what plotters writes to what the page takes.
//!
//! plotters writes an element a line, with a colour, an opacity and a font each.
//! Here colours become classes, fonts the page's own, and neighbouring marks of
//! one kind a single path, which makes a strip plot ten times smaller.

use std::collections::HashMap;
use std::fmt::Write;

use super::ink::Ink;

/// The figure with classes for colours and a name for screen readers.
pub(super) fn themed(raw: &str, size: (u32, u32), title: &str, description: &str) -> String {
    let mut writer = Themed {
        out: String::with_capacity(raw.len() / 4),
        open: None,
    };
    let (width, height) = size;
    let _ = write!(
        writer.out,
        r#"<svg class="plot" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"><title>{}</title><desc>{}</desc>"#,
        escaped(title),
        escaped(description),
    );
    let mut lines = raw.lines();
    while let Some(line) = lines.next() {
        let (tag, attributes) = element(line);
        if tag == "text" {
            let content = lines.next().unwrap_or_default();
            writer.text(&attributes, content);
        } else {
            writer.mark(tag, &attributes);
        }
    }
    writer.close();
    writer.out.push_str("</svg>");
    writer.out
}

type Attributes<'a> = HashMap<&'a str, &'a str>;

/// `<tag a="1" b="2"/>` in its parts.
fn element(line: &str) -> (&str, Attributes<'_>) {
    let inside = line.trim_start_matches('<');
    let (tag, rest) = inside.split_once(' ').unwrap_or((inside, ""));
    let mut parts = rest.split('"');
    let mut attributes = HashMap::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        attributes.insert(name.trim().trim_end_matches('='), value);
    }
    (tag, attributes)
}

/// The ink of a colour that [`Ink::code`] made.
fn ink(colour: &str) -> Option<&'static str> {
    let number = usize::from_str_radix(colour.strip_prefix('#')?, 16).ok()?;
    Ink::ALL.get(number).map(|ink| ink.class())
}

struct Themed {
    out: String,
    /// The opening of the path that is being written, for the next mark to join.
    open: Option<String>,
}

impl Themed {
    fn mark(&mut self, tag: &str, attributes: &Attributes) {
        let get = |name: &str| attributes.get(name).copied().unwrap_or_default();
        let opacity = match get("opacity") {
            "1" | "" => String::new(),
            opacity => format!(r#" opacity="{opacity}""#),
        };
        let stroke = || {
            let class = ink(get("stroke")).unwrap_or("text");
            let width = get("stroke-width");
            format!(r#"<path class="s-{class}" stroke-width="{width}"{opacity} d=""#)
        };
        let fill = ink(get("fill")).unwrap_or("text");
        match tag {
            "line" => {
                let ends = format!("M{} {}L{} {}", get("x1"), get("y1"), get("x2"), get("y2"));
                self.join(stroke(), &ends);
            }
            "polyline" => {
                let points: Vec<&str> = get("points").split_whitespace().collect();
                self.join(
                    stroke(),
                    &format!("M{}", points.join("L").replace(',', " ")),
                );
            }
            "circle" => {
                // A line of no length with round ends is a dot.
                let width = 2 * get("r").parse::<u32>().unwrap_or(1);
                let opening =
                    format!(r#"<path class="s-{fill} dots" stroke-width="{width}"{opacity} d=""#);
                self.join(opening, &format!("M{} {}h0", get("cx"), get("cy")));
            }
            "rect" => {
                self.close();
                let _ = write!(
                    self.out,
                    r#"<rect class="f-{fill}"{opacity} x="{}" y="{}" width="{}" height="{}"/>"#,
                    get("x"),
                    get("y"),
                    get("width"),
                    get("height")
                );
            }
            "polygon" => {
                self.close();
                let points = get("points").trim();
                let _ = write!(
                    self.out,
                    r#"<polygon class="f-{fill}"{opacity} points="{points}"/>"#
                );
            }
            _ => {}
        }
    }

    fn text(&mut self, attributes: &Attributes, content: &str) {
        self.close();
        let get = |name: &str| attributes.get(name).copied().unwrap_or_default();
        let size: f64 = get("font-size").parse().unwrap_or(11.0);
        let anchor = match get("text-anchor") {
            "start" => String::new(),
            anchor => format!(r#" text-anchor="{anchor}""#),
        };
        // plotters has escaped the content already.
        let _ = write!(
            self.out,
            r#"<text class="f-{}" x="{}" y="{}" dy=".35em" font-size="{size:.0}"{anchor}>{content}</text>"#,
            ink(get("fill")).unwrap_or("text"),
            get("x"),
            get("y"),
        );
    }

    /// Adds to the open path when it is of this kind, or opens one.
    fn join(&mut self, opening: String, data: &str) {
        if self.open.as_ref() != Some(&opening) {
            self.close();
            self.out.push_str(&opening);
            self.open = Some(opening);
        }
        self.out.push_str(data);
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.out.push_str("\"/>");
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_kind_become_one_path() {
        let raw = "<svg width=\"9\">\n\
            <circle cx=\"1\" cy=\"2\" r=\"3\" opacity=\"1\" fill=\"#000005\" stroke=\"none\" stroke-width=\"1\"/>\n\
            <circle cx=\"4\" cy=\"5\" r=\"3\" opacity=\"1\" fill=\"#000005\" stroke=\"none\" stroke-width=\"1\"/>\n\
            <text x=\"1\" y=\"2\" dy=\"0.5ex\" text-anchor=\"end\" font-family=\"sans-serif\" font-size=\"11\" opacity=\"1\" fill=\"#000001\">\n\
            a &lt; b\n</text>\n</svg>\n";
        assert_eq!(
            themed(raw, (9, 9), "<t>", "d"),
            "<svg class=\"plot\" viewBox=\"0 0 9 9\" width=\"9\" height=\"9\" role=\"img\">\
             <title>&lt;t&gt;</title><desc>d</desc>\
             <path class=\"s-head dots\" stroke-width=\"6\" d=\"M1 2h0M4 5h0\"/>\
             <text class=\"f-muted\" x=\"1\" y=\"2\" dy=\".35em\" font-size=\"11\" \
             text-anchor=\"end\">a &lt; b</text></svg>"
        );
    }
}
