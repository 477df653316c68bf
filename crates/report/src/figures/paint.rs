//! Marks of a sheet, painted by plotters.

use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::prelude::*;
use plotters::style::text_anchor::{Pos, VPos};
use plotters::style::{FontStyle, TextStyle, register_font};

use super::{At, Drawn, Sheet};
use crate::RenderError;
use crate::text::{escaped, one_line, shorten_middle};

/// Letters of a picture: Inter by Rasmus Andersson, of which `font/OFL.txt` is the licence.
const LETTERS: [(FontStyle, &[u8]); 2] = [
    (FontStyle::Normal, include_bytes!("font/Inter-Regular.otf")),
    (FontStyle::Bold, include_bytes!("font/Inter-SemiBold.otf")),
];

/// The number of plotters' pixels for one of a sheet: plotters uses whole pixels.
const FINE: f64 = 4.0;

/// Every colour of figures, by its name in the style sheet.
pub(super) const INKS: [&str; 18] = [
    "page", "text", "muted", "line", "band", "base", "head", "slow", "fast", "auto", "doubt", "k0",
    "k1", "k2", "k3", "k4", "k5", "k6",
];

/// A colour of the style sheet of pages.
fn ink(name: &str, dark: bool) -> RGBColor {
    let sheet = include_str!("../html/style.css");
    let (light, night) = sheet
        .split_once("prefers-color-scheme: dark")
        .unwrap_or((sheet, ""));
    let mark = format!("--{name}: #");
    let mut parts = if dark { night } else { light }.split(&*mark);
    let digits = parts.nth(1).and_then(|rest| rest.get(..6));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let [_, r, g, b] = code.unwrap_or(0x80_80_80).to_be_bytes();
    RGBColor(r, g, b)
}

/// A font for plotters, whose size is the height of a line, not of a letter.
fn font(size: f64, bold: bool) -> FontDesc<'static> {
    static KNOWN: OnceLock<()> = OnceLock::new();
    KNOWN.get_or_init(|| {
        for (style, bytes) in LETTERS {
            // Every test would notice a font that cannot be read.
            let _ = register_font("Inter", style, bytes);
        }
    });
    let style = if bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    FontDesc::new(FontFamily::Name("Inter"), 1.24 * size, style)
}

/// Width of a text in pixels.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let (wide, _) = font(FINE * size, bold).box_size(text).unwrap_or_default();
    f64::from(wide) / FINE
}

/// The text, shortened in its middle if it is wider than `room`.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    let mut columns = text.chars().count();
    let mut short = text.to_owned();
    while columns > 4 && width(&short, size, false) > room {
        columns -= 1;
        short = shorten_middle(text, columns);
    }
    short
}

/// Breaks a text between words, into lines that are at most as wide as `room`.
pub(super) fn wrapped(text: &str, size: f64, bold: bool, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in one_line(text).split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size, bold) <= room => {
                *line = format!("{line} {word}");
            }
            _ => lines.push(fitted(word, size, room)),
        }
    }
    lines
}

/// Paints the marks on a backend. Texts are moved down by `below` times their size, to correct the
/// backend's alignment.
fn paint<B: DrawingBackend>(
    backend: &mut B,
    sheet: &Sheet,
    colour: impl Fn(&'static str) -> RGBColor,
    below: f64,
) -> Result<(), RenderError> {
    let fine = |value: f64| (FINE * value).round() as i32;
    let place = |(x, y): At| (fine(x), fine(y));
    for mark in &sheet.marks {
        let colour = colour(mark.ink);
        let done = match &mark.shape {
            Drawn::Line(points, width) => {
                let points: Vec<_> = points.iter().copied().map(place).collect();
                backend.draw_path(points, &colour.stroke_width(fine(*width) as u32))
            }
            Drawn::Area(points, opacity) => {
                let points: Vec<_> = points.iter().copied().map(place).collect();
                backend.fill_polygon(points, &colour.mix(*opacity))
            }
            Drawn::Dot(at, radius) => {
                backend.draw_circle(place(*at), fine(*radius) as u32, &colour, true)
            }
            Drawn::Text((x, y), text, size, anchor, bold) => {
                let style = TextStyle {
                    font: font(FINE * size, *bold),
                    color: colour.to_backend_color(),
                    pos: Pos::new(*anchor, VPos::Center),
                };
                backend.draw_text(text, &style, place((*x, y + below * size)))
            }
        };
        done.map_err(|problem| RenderError::Figure(problem.to_string()))?;
    }
    backend
        .present()
        .map_err(|problem| RenderError::Figure(problem.to_string()))
}

/// Elements of an `<svg>` of the sheet, with the tips of its marks.
fn elements(
    sheet: &Sheet,
    wide: f64,
    colour: impl Fn(&'static str) -> RGBColor,
) -> Result<String, RenderError> {
    let mut drawn = String::new();
    let size = [wide, sheet.height].map(|side| (FINE * side) as u32);
    let mut backend = SVGBackend::with_string(&mut drawn, size.into());
    paint(&mut backend, sheet, colour, 0.0)?;
    drop(backend);
    let filled = |shape: &Drawn| matches!(shape, Drawn::Area(..) | Drawn::Dot(..));
    let mut filled = sheet.marks.iter().filter(|mark| filled(&mark.shape));
    let mut out = String::new();
    // The backend writes one tag on each line, its own `<svg>` first.
    for line in drawn.lines().skip(1).filter(|line| *line != "</svg>") {
        let shape = ["circle", "polygon"]
            .into_iter()
            .find(|shape| line.strip_prefix('<').is_some_and(|l| l.starts_with(shape)));
        let tip = shape
            .and_then(|_| filled.next())
            .map_or("", |mark| &mark.tip);
        match shape {
            Some(shape) if !tip.is_empty() => {
                let tip = escaped(&one_line(tip));
                out += line.trim_end_matches("/>");
                out += &format!("><title>{tip}</title></{shape}>");
            }
            _ => out += line,
        }
        out.push('\n');
    }
    // Removes attributes with default values, and the space after the last point.
    for (long, short) in [
        (r#" opacity="1""#, ""),
        (r#" stroke="none""#, ""),
        (r#" text-anchor="start""#, ""),
        (r#" "/>"#, r#""/>"#),
    ] {
        out = out.replace(long, short);
    }
    Ok(out)
}

/// The beginning of an `<svg>`, with its title and description for screen readers.
fn head(sheet: &Sheet, wide: f64, attributes: &str, title: &str, about: &str) -> String {
    let tall = sheet.height;
    let [title, about] = [title, about].map(|text| escaped(&one_line(text)));
    format!(
        r#"<svg {attributes} viewBox="0 0 {} {}" width="{wide}" height="{tall}" role="img"><title>{title}</title><desc>{about}</desc>"#,
        FINE * wide,
        FINE * tall,
    )
}

/// An inline `<svg>` whose colours are variables of the page's style sheet, in the page's letters.
pub(crate) fn inline(
    sheet: &Sheet,
    wide: f64,
    title: &str,
    about: &str,
) -> Result<String, RenderError> {
    // Each colour encodes the index of its name, and is replaced afterwards.
    let place = |name| INKS.iter().position(|ink| *ink == name).unwrap_or(0);
    let mut text = elements(sheet, wide, |name| RGBColor(0, 0, place(name) as u8))?;
    for (place, name) in INKS.iter().enumerate() {
        text = text.replace(&format!("#{place:06X}"), &format!("var(--{name})"));
    }
    let text = text
        .replace(r#" font-family="Inter""#, "")
        .replace('\n', "");
    Ok(head(sheet, wide, r#"class="plot""#, title, about) + &text + "</svg>")
}

/// A file of SVG, with its letters.
pub(super) fn svg(
    sheet: &Sheet,
    wide: f64,
    title: &str,
    about: &str,
    dark: bool,
) -> Result<String, RenderError> {
    let attributes = r#"xmlns="http://www.w3.org/2000/svg" fill="none" stroke-linejoin="round""#;
    let mut text = String::from("<!-- regatta: a figure -->\n");
    text += &head(sheet, wide, attributes, title, about);
    text += "<style>text { font-variant-numeric: tabular-nums }\n";
    for ((_, bytes), weight) in LETTERS.iter().zip(["normal", "bold"]) {
        text += &format!(
            "@font-face {{ font-family: Inter; font-weight: {weight}; src: url(data:font/otf;base64,{}) }}\n",
            base64(bytes)
        );
    }
    let RGBColor(r, g, b) = ink("page", dark);
    text += &format!(
        "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#{r:02X}{g:02X}{b:02X}\"/>\n"
    );
    text += &elements(sheet, wide, |name| ink(name, dark))?;
    let family = r#"font-family="Inter, system-ui, sans-serif""#;
    Ok(text.replace(r#"font-family="Inter""#, family) + "</svg>\n")
}

/// A file of PNG, with two pixels for one of the sheet.
pub(super) fn png(sheet: &Sheet, wide: f64, dark: bool) -> Result<Vec<u8>, RenderError> {
    // Each pixel is the mean of four.
    let [wide, tall] = [wide, sheet.height].map(|side| (FINE / 2.0 * side) as usize);
    let RGBColor(r, g, b) = ink("page", dark);
    let mut fine = [r, g, b].repeat(4 * wide * tall);
    let size = (2 * wide as u32, 2 * tall as u32);
    // The bitmap backend draws letters at the middle of their line.
    let mut backend = BitMapBackend::with_buffer(&mut fine, size);
    paint(&mut backend, sheet, |name| ink(name, dark), 0.26)?;
    drop(backend);
    let mut rows = Vec::with_capacity(tall * (3 * wide + 1));
    for pair in fine.chunks_exact(12 * wide) {
        // The filter type of a row: none.
        rows.push(0);
        let (upper, lower) = pair.split_at(6 * wide);
        for x in 0..3 * wide {
            let left = 6 * (x / 3) + x % 3;
            let two = |row: &[u8]| u16::from(row[left]) + u16::from(row[left + 3]);
            rows.push(((two(upper) + two(lower)) / 4) as u8);
        }
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], data: &[u8]| {
        let body = [kind, data].concat();
        file.extend((data.len() as u32).to_be_bytes());
        file.extend(&body);
        file.extend(crc32fast::hash(&body).to_be_bytes());
    };
    let [wide, tall] = [wide, tall].map(|side| (side as u32).to_be_bytes());
    // Eight bits each of red, green and blue.
    chunk(b"IHDR", &[&wide[..], &tall, &[8, 2, 0, 0, 0]].concat());
    chunk(b"tEXt", b"Software\0regatta");
    let pixels = miniz_oxide::deflate::compress_to_vec_zlib(&rows, 6);
    chunk(b"IDAT", &pixels);
    chunk(b"IEND", &[]);
    Ok(file)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|place| u32::from(*three.get(place).unwrap_or(&0)));
        let all = a << 16 | b << 8 | c;
        for digit in 0..4 {
            let value = (all >> (18 - 6 * digit) & 63) as usize;
            let is_filled = digit <= three.len();
            text.push(if is_filled { DIGITS[value].into() } else { '=' });
        }
    }
    text
}
