//! One self-contained page: it needs no network and no font, and works from a file.
//!
//! The template escapes everything except figures, which escape their own text. Cases are data that
//! the page's script draws on demand; without scripts, the worst cases are a table.

mod context;
mod data;
mod expectation;
mod measured;
mod samples;

use std::io::Write;

use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, Value, context};

use self::context::{LIMITS, LISTED, PageContext, PageLimits, WORST, sign};
use self::samples::plots;
pub(crate) use self::samples::taken;
use super::document::{Block, Document, ListItem, Tone, cleaned};
use super::figures::{self, Figure, TimesMatrix};
use super::judgement::{Lists, list, verdict, verdicts};
use super::summary::{RowList, reproduce};
use super::text::{link_part, one_line};
use super::{RenderError, Report};
use regatta_core::record::RunHeader;
use regatta_judge::axes::AxisTable;
use regatta_judge::judgement::{Row, tally};
use regatta_worker::joined::Joined;
use regatta_worker::units::counted;

/// Writes `index.html`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    Ok(out.write_all(filled(report, LIMITS)?.as_bytes())?)
}

/// The page as text.
fn filled(report: &Report, limits: PageLimits) -> Result<String, RenderError> {
    let page = page(&PageContext::new(report, limits)?)?;
    rendered(include_str!("page.html"), page)
}

impl Document {
    /// One self-contained page.
    ///
    /// # Errors
    /// When the template does not fit its data.
    pub fn page(mut self) -> Result<String, RenderError> {
        self.clean();
        let page = context! { style => STYLE, document => Serde(self) };
        rendered(include_str!("document.html"), page)
    }
}

/// The style of every page.
const STYLE: &str = include_str!("style.css");

/// Fills in a template. Values are escaped, as minijinja does for the template's file extension,
/// and a missing value is an error.
fn rendered(template: &str, view: Value) -> Result<String, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("breakable", breakable);
    environment.add_filter("prose", prose);
    environment.add_template("shared.html", include_str!("shared.html"))?;
    environment.add_template("page.html", template)?;
    Ok(environment.get_template("page.html")?.render(view)?)
}

/// An id in which a line may break after separators, and nowhere else.
fn breakable(id: &str) -> Value {
    let mut out = String::new();
    for c in id.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            ',' | ':' => {
                out.push(c);
                out.push_str("<wbr>");
            }
            c => out.push(c),
        }
    }
    Value::from_safe_string(out)
}

/// A sentence, in which text between backticks is set as code.
fn prose(text: &str) -> Value {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return Value::from(text);
    }
    let parts = parts.into_iter().enumerate().map(|(place, part)| {
        let part = HtmlEscape(part);
        if place.is_multiple_of(2) {
            part.to_string()
        } else {
            format!("<code>{part}</code>")
        }
    });
    Value::from_safe_string(parts.collect())
}

/// The link to a case by its id. The script makes the same links.
pub(crate) fn linked(id: &str) -> String {
    format!("#case={}", link_part(id, "-_.~,:/@="))
}

/// The parts of the script, in the order of their dependencies.
const SCRIPT: &str = concat!(
    include_str!("script/details.js"),
    include_str!("script/sweep.js"),
    include_str!("script/table.js"),
);

/// Which worker measured the peaks of a device, and how: `torch by torch.matmul of 8192 x 8192`.
pub(crate) fn roof(header: &RunHeader) -> String {
    let peaks = header.peaks.iter();
    let peaks = peaks.map(|(worker, peak)| one_line(&format!("{worker} by {}", peak.how)));
    peaks.joined("; ")
}

/// The values for the page's template.
fn page(context: &PageContext) -> Result<Value, RenderError> {
    let judgement = context.report.judgement;
    let header = &context.report.head.header;
    let rows: Vec<&Row> = judgement.rows.iter().collect();
    let table = AxisTable::new(rows.iter().map(|row| &row.case));
    let worst = LISTED.shown(&context.summary.places).iter();
    let worst = verdicts(worst.map(|&place| rows[place])).with_rest(LISTED.rest(rows.len()));
    let mut verdict = verdict(judgement);
    verdict.clean();
    let linked = |blocks| context.linked(cleaned(blocks));
    let overrides = measured::overrides(&header.suite).into_iter();
    let overrides = overrides.map(|text| format!("Parameters were overridden: {text}."));
    let notes = overrides.chain(judgement.notes.iter().cloned());
    let report = context.report;
    let compared = judgement.is_comparison();
    let inline = |figure: Figure| {
        Ok::<_, RenderError>([figure.title.clone(), figure.about.clone(), figure.inline()?])
    };
    let forest = figures::changes(report, &context.summary);
    let forest = forest.map(inline).transpose()?;
    let curves = figures::along_axes(report).into_iter().map(inline);
    let curves = curves.collect::<Result<Vec<_>, RenderError>>()?;
    let words = tally(judgement.rows.iter().map(|row| row.word)).into_iter();
    let words = words.map(|(word, count)| {
        let name = word.of_case(compared);
        (name, Tone::from_word(word), sign(word), count)
    });
    Ok(context! {
        style => vec![STYLE, include_str!("page.css")],
        script => SCRIPT,
        plots => plots(&table),
        roof => roof(header),
        data => data::document(context, &table),
        verdict => Serde(verdict),
        forest => forest,
        matrix => Serde(TimesMatrix::new(report).filter(|_| !compared).map(|matrix| matrix.listed(LISTED))),
        curves => curves,
        description => one_line(&header.suite.description),
        notes => notes.map(|note| one_line(&note)).collect::<Vec<_>>(),
        changes => Serde(linked(changes(context))),
        expectations => Serde(linked(expectation::blocks(context)?)),
        in_full => in_full(context),
        count => rows.len(),
        words => Serde(words.collect::<Vec<_>>()),
        compared => compared,
        worst => Serde(cleaned(vec![Block::Table(worst)])),
        measured => Serde(cleaned(measured::blocks(context))),
    })
}

/// The lists of cases; the first cases of each have their details.
fn changes(context: &PageContext) -> Vec<Block> {
    let lists = Lists {
        most: WORST,
        elsewhere: ", which the table below has, the worst first",
    };
    let summary = &context.summary;
    let mut blocks = Vec::new();
    for (of, rows) in &summary.lists {
        let [title, table] = list(*of, rows, lists);
        blocks.push(title);
        blocks.push(if *of == RowList::Missing {
            missing(rows)
        } else {
            table
        });
        if let Some(first) = rows.first().filter(|_| of.tone() == Tone::Bad) {
            let again = reproduce(context.report, &first.case.0);
            blocks.push(Block::Command(vec![again]));
        }
    }
    blocks
}

/// Missing cases, an item for each reason.
fn missing(rows: &[&Row]) -> Block {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let reason = row.reason.as_deref().unwrap_or("not measured");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, cases)) => cases.push(&row.case.0),
            None => reasons.push((reason, vec![&row.case.0])),
        }
    }
    let items = reasons.into_iter().map(|(reason, cases)| {
        let number = counted(cases.len(), "case");
        ListItem::new(number, reason).with_below(vec![cases.join(" ")])
    });
    Block::List(items.collect())
}

fn in_full(context: &PageContext) -> String {
    if context.few() {
        return String::new();
    }
    format!(
        "{} can be opened, those to act upon first; the others are figures in the table. \
         Everything about every case is in cases.csv and samples.csv, which --output csv=DIR writes.",
        counted(context.in_full.len(), "case")
    )
}

#[cfg(test)]
mod tests;
