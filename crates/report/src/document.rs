//! An answer as a document: composed once, and shown on a terminal, in Markdown and as a page.

use serde::Serialize;

use crate::text::{one_line, shorten};
use regatta_judge::judgement::Word;
use regatta_worker::joined::Joined;

/// The longest text of a document, in columns; `run.jsonl` and the JSON have the full text.
pub(crate) const MAX_COLUMNS: usize = 4000;

/// The longest line of a log, in columns.
const LOG_LINE: usize = 240;

/// An answer.
#[derive(Default, Serialize)]
pub struct Document {
    /// The title of its page.
    pub title: String,
    /// The line above the page's headline.
    pub kicker: String,
    /// The tone of the verdict.
    pub tone: Tone,
    /// The verdict in a word or two; empty without a verdict.
    pub word: String,
    /// The subject that was judged; a page has it in its title.
    pub subject: String,
    /// The verdict in a sentence.
    pub sentence: String,
    /// Blocks that belong to the headline.
    pub summary: Vec<Block>,
    /// The blocks below the headline.
    pub body: Vec<Block>,
}

/// The tone of a word or a figure, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// It needs no action.
    #[default]
    Calm,
    /// Better.
    Good,
    /// Worse.
    Bad,
    /// It may be better or worse.
    Doubtful,
}

impl Tone {
    /// The tone of a case's word.
    pub fn from_word(word: Word) -> Tone {
        match word {
            Word::Regressed | Word::Error => Tone::Bad,
            Word::Improved => Tone::Good,
            Word::Missing | Word::Inconclusive => Tone::Doubtful,
            _ => Tone::Calm,
        }
    }
}

/// A part of a document.
#[derive(Serialize)]
#[serde(tag = "kind", content = "is", rename_all = "snake_case")]
pub enum Block {
    /// A heading, and a sentence about the blocks below it.
    Heading(String, String, Tone),
    /// Paragraphs.
    Text(Vec<String>),
    /// A line that belongs to the block after it.
    Note(String),
    /// Sentences.
    List(Vec<ListItem>),
    /// A table: labels with figures.
    Table(Table),
    /// Lines that are shown as they are.
    Log(String),
    /// Words for a shell.
    Command(Vec<String>),
    /// An SVG; only pages have figures.
    Figure(String),
    /// Blocks that Markdown and pages fold away, and a terminal leaves out.
    Details(String, Vec<Block>),
    /// Blocks that only pages show.
    Page(Vec<Block>),
}

/// An entry of a list.
#[derive(Default, Serialize)]
pub struct ListItem {
    /// The subject; empty if the text names it.
    pub lead: String,
    /// The tone of the lead.
    pub tone: Tone,
    /// The statement about it.
    pub text: String,
    /// Paragraphs that belong to it.
    pub below: Vec<String>,
}

/// A table: labels, and figures to the right of them.
#[derive(Default, Serialize)]
pub struct Table {
    /// The head of the labels.
    pub label: &'static str,
    /// The heads of the figures. A column without a figure is not shown.
    pub heads: Vec<&'static str>,
    /// The rows, in the order in which they are shown.
    pub rows: Vec<TableRow>,
    /// True if the labels are case ids, whose common tokens a terminal prints only once.
    pub ids: bool,
    /// Sentences that apply to every row.
    pub each: Vec<String>,
    /// The number of rows left out and the format that has them; empty if all are shown.
    pub rest: String,
}

/// A row of a table.
#[derive(Default, Serialize)]
pub struct TableRow {
    /// The name of the row: a case, a kernel, a fact.
    pub label: String,
    /// The address of the case on its page; empty without one.
    pub link: String,
    /// One cell for each head; an empty one is unknown.
    pub cells: Vec<String>,
    /// The tone of the last figure.
    pub tone: Tone,
    /// Paragraphs that belong to the row.
    pub below: Vec<String>,
}

impl ListItem {
    /// An item without paragraphs below it.
    pub fn new(lead: impl Into<String>, text: impl Into<String>) -> ListItem {
        ListItem {
            lead: lead.into(),
            text: text.into(),
            ..ListItem::default()
        }
    }

    /// Adds paragraphs below it.
    pub fn with_below(self, below: Vec<String>) -> ListItem {
        ListItem { below, ..self }
    }
}

impl From<String> for ListItem {
    fn from(text: String) -> ListItem {
        ListItem {
            text,
            ..ListItem::default()
        }
    }
}

impl Block {
    /// A list of sentences without paragraphs below them.
    pub fn list(sentences: impl IntoIterator<Item = String>) -> Block {
        Block::List(sentences.into_iter().map(ListItem::from).collect())
    }

    /// Named values.
    pub fn facts(facts: impl IntoIterator<Item = (impl Into<String>, String)>) -> Block {
        let item = |(lead, text)| ListItem::new(lead, text);
        Block::List(facts.into_iter().map(item).collect())
    }

    /// A heading without a sentence.
    pub fn heading(title: impl Into<String>) -> Block {
        Block::Heading(title.into(), String::new(), Tone::Calm)
    }

    /// The heading of a list with `count` entries: `Regressed (3)`.
    pub fn counted(title: &str, count: usize, tone: Tone) -> Block {
        Block::Heading(format!("{title} ({count})"), String::new(), tone)
    }

    /// Makes every text one line of at most [`MAX_COLUMNS`] columns without control characters, and
    /// drops columns without a figure.
    pub(crate) fn clean(&mut self) {
        let clean = |text: &mut String| *text = shorten(&one_line(text), MAX_COLUMNS);
        match self {
            Block::Heading(title, rest, _) => [title, rest].into_iter().for_each(clean),
            Block::Text(paragraphs) => paragraphs.iter_mut().for_each(clean),
            Block::Note(line) => clean(line),
            Block::List(items) => {
                for item in items {
                    [&mut item.lead, &mut item.text].into_iter().for_each(clean);
                    item.below.iter_mut().for_each(clean);
                }
            }
            Block::Table(table) => {
                table.each.iter_mut().for_each(clean);
                for row in &mut table.rows {
                    clean(&mut row.label);
                    let cells = row.cells.iter_mut();
                    cells.chain(&mut row.below).for_each(clean);
                }
                table.drop_empty_columns();
            }
            Block::Log(text) => {
                let cleaned = crate::text::clean(text);
                let lines = cleaned.lines().map(|line| shorten(line, LOG_LINE));
                *text = lines.joined("\n");
            }
            Block::Command(words) => words.iter_mut().for_each(clean),
            Block::Details(_, blocks) | Block::Page(blocks) => {
                blocks.iter_mut().for_each(Block::clean);
            }
            Block::Figure(_) => {}
        }
    }
}

impl TableRow {
    /// A row with nothing below it.
    pub fn new(label: impl Into<String>, cells: Vec<String>) -> TableRow {
        TableRow {
            label: label.into(),
            cells,
            ..TableRow::default()
        }
    }

    /// Adds paragraphs below it.
    pub fn with_below(self, below: Vec<String>) -> TableRow {
        TableRow { below, ..self }
    }
}

impl Table {
    /// A table with these rows, and nothing around them.
    pub fn new(
        label: &'static str,
        heads: Vec<&'static str>,
        rows: impl IntoIterator<Item = TableRow>,
    ) -> Table {
        Table {
            label,
            heads,
            rows: rows.into_iter().collect(),
            ..Table::default()
        }
    }

    /// Sets the line on rows that were left out, which may be empty.
    pub fn with_rest(self, rest: String) -> Table {
        Table { rest, ..self }
    }

    fn drop_empty_columns(&mut self) {
        let filled = |place: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.cells.get(place));
            cells.any(|cell| !cell.is_empty())
        };
        let kept: Vec<bool> = (0..self.heads.len()).map(filled).collect();
        let keep = |place: usize| kept.get(place).copied().unwrap_or(false);
        let mut place = 0..;
        self.heads.retain(|_| keep(place.next().unwrap_or(0)));
        for row in &mut self.rows {
            // The tone belongs to the last figure, and is dropped with it.
            if !kept.last().copied().unwrap_or(true) {
                row.tone = Tone::Calm;
            }
            let mut place = 0..;
            row.cells.retain(|_| keep(place.next().unwrap_or(0)));
        }
    }
}

/// Cleans the texts of blocks, so that they are safe to show.
pub(crate) fn cleaned(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.iter_mut().for_each(Block::clean);
    blocks
}

impl Document {
    pub(crate) fn clean(&mut self) {
        let blocks = self.summary.iter_mut().chain(&mut self.body);
        blocks.for_each(Block::clean);
        for text in [
            &mut self.title,
            &mut self.kicker,
            &mut self.subject,
            &mut self.sentence,
        ] {
            *text = shorten(&one_line(text), MAX_COLUMNS);
        }
    }
}
