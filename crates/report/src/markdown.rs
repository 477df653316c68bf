//! A document as Markdown, for a comment on a pull request.
//!
//! GitHub refuses comments of more than 65,536 characters, so a document ends before [`LARGEST`]
//! bytes and says what it left out.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::document::{Block, Document, Table, Tone};
use super::judgement;
use super::text::{one_line, shorten};
use super::{RenderError, Report};
use regatta_core::text::plain_name;
use regatta_judge::judgement::Judgement;
use regatta_worker::units::NONE;

/// Writes `report.md`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn io::Write) -> Result<(), RenderError> {
    let text = judgement::markdown(report).markdown();
    let text = mark(&report.judgement.suite) + &text;
    Ok(out.write_all(text.as_bytes())?)
}

/// The first line, by which a later run finds its comment; GitHub does not show it.
fn mark(suite: &str) -> String {
    format!("<!-- regatta: {} -->\n", plain_name(suite))
}

/// A verdict without a run, with its reason. `judgement.suite` is as the command names it.
pub(super) fn refusal(judgement: &Judgement) -> String {
    let suite = Path::new(&judgement.suite).file_stem();
    let suite = suite.map_or(judgement.suite.as_str().into(), |stem| {
        stem.to_string_lossy()
    });
    let document = Document {
        tone: Tone::Doubtful,
        word: "inconclusive".to_owned(),
        subject: suite.clone().into_owned(),
        body: vec![Block::Log(judgement.verdict.reasons.join("\n"))],
        ..Document::default()
    };
    mark(&suite) + &document.markdown()
}

/// The longest paragraph, in columns.
const REASON: usize = 240;

/// The largest document in bytes, without its last line.
const LARGEST: usize = 60_000;

impl Document {
    pub(crate) fn markdown(mut self) -> String {
        self.clean();
        let sign = match self.tone {
            Tone::Calm => "",
            Tone::Good => "✅ ",
            Tone::Bad => "❌ ",
            Tone::Doubtful => "⚠️ ",
        };
        let title = [&self.word, &self.subject].map(|part| prose(part));
        let mut out = format!("### {sign}{}\n", title.join(": "));
        if !self.sentence.is_empty() {
            let _ = writeln!(out, "\n{}", prose(&self.sentence));
        }
        let blocks: Vec<&Block> = self.summary.iter().chain(&self.body).collect();
        for (place, block) in blocks.iter().enumerate() {
            let before = out.len();
            lay(&mut out, block);
            if out.len() > LARGEST {
                out.truncate(before);
                let left = blocks.len() - place;
                let _ = writeln!(out, "\nThe last {left} parts have no room here.");
                break;
            }
        }
        out
    }
}

fn lay(out: &mut String, block: &Block) {
    let _ = match block {
        Block::Heading(title, rest, _) => {
            let _ = writeln!(out, "\n#### {}", prose(title));
            if rest.is_empty() {
                Ok(())
            } else {
                writeln!(out, "\n{}", prose(rest))
            }
        }
        Block::Text(paragraphs) => {
            for paragraph in paragraphs {
                let _ = writeln!(out, "\n{}", escaped(paragraph));
            }
            Ok(())
        }
        Block::Note(line) => writeln!(out, "\n{}", prose(line)),
        Block::List(items) => {
            if !items.is_empty() {
                out.push('\n');
            }
            for item in items {
                let lead = if item.lead.is_empty() {
                    String::new()
                } else {
                    format!("**{}**: ", prose(&item.lead))
                };
                let below = item.below.iter().map(|line| format!("<br>{}", prose(line)));
                let below: String = below.collect();
                let _ = writeln!(out, "- {lead}{}{below}", prose(&item.text));
            }
            Ok(())
        }
        Block::Table(of) => table(out, of),
        Block::Log(text) => writeln!(out, "\n```text\n{}\n```", text.replace('`', "\'")),
        Block::Command(words) => writeln!(out, "\n```sh\n{}\n```", words.join(" ")),
        Block::Details(title, blocks) => {
            let _ = writeln!(out, "\n<details><summary>{}</summary>", prose(title));
            blocks.iter().for_each(|block| lay(out, block));
            writeln!(out, "\n</details>")
        }
        Block::Figure(_) | Block::Page(_) => Ok(()),
    };
}

fn table(out: &mut String, table: &Table) -> std::fmt::Result {
    for line in &table.each {
        writeln!(out, "\nEach: {}", prose(line))?;
    }
    let right = "--:|".repeat(table.heads.len());
    let heads: String = table
        .heads
        .iter()
        .map(|head| format!(" {head} |"))
        .collect();
    writeln!(out, "\n| {} |{heads}\n|---|{right}", table.label)?;
    for row in &table.rows {
        let label = match (table.ids, row.label.is_empty()) {
            (true, false) => code(&row.label),
            _ => prose(&row.label),
        };
        let below = row.below.iter().map(|line| format!("<br>{}", prose(line)));
        // Brackets around an interval must not make a link.
        let figure = |c: char| c.is_ascii_digit() || "[]+-.,% x".contains(c);
        let cells = row.cells.iter().map(|cell| match cell {
            cell if cell.is_empty() => format!(" {NONE} |"),
            cell if cell.chars().all(figure) => format!(" {cell} |"),
            cell => format!(" {} |", escaped(cell)),
        });
        let (below, cells): (String, String) = (below.collect(), cells.collect());
        writeln!(out, "| {label}{below} |{cells}")?;
    }
    if table.rest.is_empty() {
        Ok(())
    } else {
        writeln!(out, "\n{}", prose(&table.rest))
    }
}

/// Text as Markdown prose on one line, which is also valid inside a table.
fn prose(text: &str) -> String {
    escaped(&shorten(text, REASON))
}

/// Escapes a line as Markdown prose without shortening it.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // An empty comment keeps GitHub from linking people and issues.
            '@' | '#' => {
                out.push(c);
                out.push_str("<!---->");
            }
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text from outside as a code span on one line, which is also valid inside a table.
fn code(text: &str) -> String {
    let text = shorten(&one_line(text), REASON);
    // A code span cannot hold a backtick, nor a table's cell a bar.
    format!("`{}`", text.replace('`', "'").replace('|', "¦"))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fixture::{self, difference};
    use regatta_judge::judgement::{Cause, Word};

    #[test]
    fn comments_read_well() {
        let shown = |scene: fixture::Scene| scene.shown(Format::Markdown);
        insta::assert_snapshot!("a_failed_gate", shown(fixture::failed()));
        insta::assert_snapshot!("hostile_reasons_stay_text", shown(fixture::incomplete()));
        insta::assert_snapshot!("a_refused_comparison", shown(fixture::refused()));
    }

    #[test]
    fn differences_that_are_not_shown_are_counted() {
        let mut scene = fixture::failed();
        let one = difference("torch.packages.numpy", "1", "2");
        scene.judgement.differences = vec![one; crate::judgement::MAX_MARKDOWN + 3];
        let text = scene.shown(Format::Markdown);
        assert!(text.contains("\nand 3 more\n"), "{text}");
    }

    #[test]
    fn a_comment_has_a_largest_size() {
        let mut scene = fixture::large(4);
        let row = scene.judgement.rows.iter();
        let mut row = row.max_by_key(|row| row.word).unwrap().clone();
        scene.judgement.rows = vec![row.clone(); 2000];
        row.reason = Some("word ".repeat(4_000));
        row.word = Word::Error;
        for case in 0..100 {
            let evidence = format!("{case} {}", "x".repeat(300));
            row.findings = vec![fixture::finding(Cause::CopiesAdded, &evidence, None); 50];
            scene.judgement.rows.push(row.clone());
        }
        let text = scene.shown(Format::Markdown);
        assert!(text.len() < 65_536 && text.contains("have no room here"));
    }
}
