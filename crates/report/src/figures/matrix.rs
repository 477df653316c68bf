//! The fastest variant of each shape: a table of variants and shapes.

use std::collections::{BTreeMap, BTreeSet};

use plotters::style::text_anchor::HPos;
use serde::Serialize;

use super::paint::{fitted, width};
use super::slice::variant;
use super::{ASIDE, Figure, LABEL, Letters, NAME, Sheet};
use crate::Report;
use crate::html::linked;
use crate::judgement::Lists;
use regatta_judge::judgement::Row;
use regatta_worker::units::{NONE, Ratio, Share, counted};

/// The largest numbers of columns and rows in a picture.
const MAX: (usize, usize) = (10, 30);

/// Times by variant and shape; the fewer of the two are the columns.
#[derive(Serialize)]
pub(crate) struct TimesMatrix {
    /// The title: the result.
    pub title: String,
    /// The parts that all shapes have in common.
    pub about: String,
    /// The heads of columns.
    pub heads: Vec<String>,
    /// The head of each row, and its cells.
    pub rows: Vec<(String, Vec<Cell>)>,
    /// The number of rows left out; empty if all are there.
    pub rest: String,
}

/// A case.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Cell {
    /// The time, or a word for the reason why it is missing; empty without a case.
    pub time: String,
    /// The ratio to the fastest time of its shape; empty for the fastest.
    pub factor: String,
    /// True if it is the fastest, or within the threshold of it.
    pub fastest: bool,
    /// The address of the case on its page.
    pub link: String,
}

/// A key that sorts names by their numbers: `s512` comes before `s4096`.
fn natural(name: &str) -> String {
    let (mut key, mut number) = (String::new(), String::new());
    for letter in name.chars().chain([' ']) {
        if letter.is_ascii_digit() {
            number.push(letter);
        } else {
            key += &format!("{number:0>20}{letter}");
            number.clear();
        }
    }
    key
}

/// The shape of a case: the part of its id between the variant and the parameters.
fn shape(row: &Row) -> &str {
    row.case.0.split(':').nth(1).unwrap_or_default()
}

impl TimesMatrix {
    /// The table; `None` if no shape has two variants.
    pub(crate) fn new(report: &Report) -> Option<TimesMatrix> {
        let threshold = report.head.header.rules.policy.threshold.0;
        let time = |row: &Row| {
            let head = row.head.as_ref();
            head.map_or(f64::INFINITY, |head| head.median_ns.0)
        };
        let mut shapes: BTreeMap<_, BTreeMap<&str, &Row>> = BTreeMap::new();
        for row in &report.judgement.rows {
            let key = (natural(shape(row)), shape(row));
            let variants = shapes.entry(key).or_default();
            let cell = variants.entry(variant(row)).or_insert(row);
            // The case with automatic parameters is taken, or else the fastest.
            let rank = |row: &Row| (row.case.0.matches(':').count(), time(row));
            if rank(row) < rank(cell) {
                *cell = row;
            }
        }
        let measured =
            |cells: &BTreeMap<&str, &Row>| cells.values().filter(|row| row.head.is_some()).count();
        let compared = shapes.values().filter(|cells| measured(cells) > 1).count();
        let variants: BTreeSet<&str> = shapes.values().flat_map(BTreeMap::keys).copied().collect();
        let variants: Vec<&str> = variants.into_iter().collect();
        // For each variant, the number of shapes for which it is about the fastest, and the
        // fastest.
        let mut wins: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut grid: Vec<Vec<Cell>> = Vec::new();
        for cells in shapes.values() {
            let times = cells.values().map(|row| time(row));
            let best = times.fold(f64::INFINITY, f64::min);
            let several = measured(cells) > 1;
            for (name, row) in cells.iter().filter(|_| several) {
                let (near, first) = wins.entry(*name).or_default();
                *near += usize::from(time(row) <= best * (1.0 + threshold));
                *first += usize::from(time(row) <= best);
            }
            let cell = |name: &&str| {
                let Some(row) = cells.get(name) else {
                    return Cell::default();
                };
                let ratio = Ratio(time(row) / best);
                let is_slower = ratio.is_finite() && ratio > Ratio::ONE;
                let measured = row.head.as_ref().map(|head| head.median_ns.to_string());
                Cell {
                    time: measured.unwrap_or_else(|| row.word.name().to_owned()),
                    factor: if is_slower {
                        ratio.factor()
                    } else {
                        String::new()
                    },
                    fastest: several && ratio.0 <= 1.0 + threshold,
                    link: linked(&row.case.0),
                }
            };
            grid.push(variants.iter().map(cell).collect());
        }
        let (best, (near, first)) = wins.iter().max_by_key(|(_, count)| **count)?;
        let within = if near == first {
            String::new()
        } else {
            format!(" or within {} of it", Share(threshold))
        };
        let shapes_won = match compared {
            1 => String::new(),
            all if *near == all => format!(" on all {all} shapes"),
            all => format!(" on {near} of {}", counted(all, "shape")),
        };
        let title = format!("{best} is fastest{within}{shapes_won}");
        let (common, names) = without_common(shapes.keys().map(|(_, name)| *name).collect());
        let mut about =
            "Time of a call, and how many times as long as the fastest it takes".to_owned();
        if !common.is_empty() {
            about = format!("{about}; every shape has {common}");
        }
        let variants: Vec<String> = variants.into_iter().map(str::to_owned).collect();
        // The fewer of the two are the columns.
        let (heads, rows) = if variants.len() > names.len() {
            let column = |place: usize| grid.iter().map(|row| row[place].clone()).collect();
            let rows = variants.into_iter().enumerate();
            let rows = rows.map(|(place, name)| (name, column(place)));
            (names, rows.collect())
        } else {
            (variants, names.into_iter().zip(grid).collect())
        };
        Some(TimesMatrix {
            title,
            about,
            heads,
            rows,
            rest: String::new(),
        })
    }

    /// The first rows, for a list of this length.
    pub(crate) fn listed(mut self, lists: Lists) -> TimesMatrix {
        self.rest = lists.rest(self.rows.len());
        self.rows.truncate(lists.most);
        self
    }

    /// The figure of its first rows and columns.
    pub(super) fn figure(self) -> Figure {
        let cut = |all: usize, most: usize, name: &str| match all.saturating_sub(most) {
            0 => String::new(),
            more => format!("; {more} more {name}"),
        };
        let rows = cut(self.rows.len(), MAX.1, "rows");
        let columns = cut(self.heads.len(), MAX.0, "columns");
        let (title, about) = (self.title.clone(), format!("{}{rows}{columns}", self.about));
        Figure::new("matrix", title, about, move |wide| self.draw(wide))
    }

    fn draw(&self, wide: f64) -> Sheet {
        const TALL: f64 = 42.0;
        let mut sheet = Sheet::default();
        let rows = || self.rows.iter().take(MAX.1);
        let columns = self.heads.len().min(MAX.0);
        let labels = rows().map(|(label, _)| width(label, 12.0, false));
        let labels = (labels.fold(0.0, f64::max) + 16.0).min(0.4 * wide);
        let column = ((wide - labels) / columns as f64).min(190.0);
        let right = |place: usize| labels + column * (place + 1) as f64;
        let heads = self.heads.iter().take(columns);
        let heads = heads.map(|head| broken(head, column - 16.0));
        let heads: Vec<Vec<String>> = heads.collect();
        let lines = heads.iter().map(Vec::len).max().unwrap_or(0);
        let top = 8.0 + 15.0 * lines as f64;
        for (place, head) in heads.iter().enumerate() {
            let first = top - 15.0 * head.len() as f64;
            for (line, text) in head.iter().enumerate() {
                let at = (right(place) - 8.0, first + 15.0 * line as f64);
                sheet.text(at, text, ASIDE, HPos::Right);
            }
        }
        let end = right(columns - 1);
        sheet.line([(0.0, top), (end, top)], 1.0, "muted");
        for (place, (label, cells)) in rows().enumerate() {
            let upper = top + TALL * place as f64;
            let y = upper + TALL / 2.0;
            let label = fitted(label, 12.0, labels - 12.0);
            sheet.text((0.0, y), label, NAME, HPos::Left);
            for (place, cell) in cells.iter().take(columns).enumerate() {
                let x = right(place);
                if cell.fastest {
                    let from = (x - column + 3.0, upper + 3.0);
                    let to = (x - 1.0, upper + TALL - 3.0);
                    sheet.area(from, to, 0.16, "fast");
                }
                let first = cell.fastest && cell.factor.is_empty();
                let raised = if cell.factor.is_empty() { 0.0 } else { 8.0 };
                let has_case = !cell.time.is_empty();
                let time = if has_case { &cell.time } else { NONE };
                let letters = Letters(12.5, "text", first);
                sheet.text((x - 8.0, y - raised), time, letters, HPos::Right);
                sheet.text((x - 8.0, y + 9.0), &cell.factor, LABEL, HPos::Right);
            }
            sheet.line([(0.0, upper + TALL), (end, upper + TALL)], 1.0, "line");
        }
        sheet.height = top + TALL * rows().count() as f64 + 2.0;
        sheet
    }
}

/// Breaks a name after its separators into lines of at most `room` pixels.
fn broken(name: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in name.split_inclusive([',', '/']) {
        match lines.last_mut() {
            Some(line) if width(&format!("{line}{part}"), 12.0, false) <= room => *line += part,
            _ => lines.push(fitted(part, 12.0, room)),
        }
    }
    lines
}

/// The parts that several shapes have in common, and the shapes without them.
fn without_common(names: Vec<&str>) -> (String, Vec<String>) {
    let parts = |name: &str| name.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut common = parts(names.first().copied().unwrap_or_default());
    common.retain(|part| names.iter().all(|name| parts(name).contains(part)));
    if names.len() < 2 {
        let names = names.into_iter().map(str::to_owned);
        return (String::new(), names.collect());
    }
    let own = |name: &&str| {
        let mut own = parts(name);
        own.retain(|part| !common.contains(part));
        if own.is_empty() {
            "default".to_owned()
        } else {
            own.join(",")
        }
    };
    let names = names.iter().map(own).collect();
    (common.join(","), names)
}
