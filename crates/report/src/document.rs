//! An answer as a document: written once, shown on a terminal and as a page.

use serde::Serialize;

use crate::RenderError;
use crate::account::AccountView;
use crate::exporter::{STYLE, rendered};
use crate::figures::LegendView;
use crate::screen::{COLUMNS, Grid, Screen, Tone, laid_out};
use crate::text::one_line;
use owo_colors::Style;

/// An answer.
#[derive(Default, Serialize)]
pub(crate) struct Document {
    /// What a window with its page is called.
    pub title: String,
    /// What it means.
    pub tone: Tone,
    /// How it begins on a terminal: a line, and what is below it.
    #[serde(skip)]
    pub first_lines: Vec<String>,
    /// What stands over the page's headline.
    pub kicker: String,
    /// The page's headline.
    pub headline: String,
    /// What belongs to the headline.
    pub summary: Vec<Block>,
    /// The rest.
    pub body: Vec<Block>,
}

/// A part of a document.
#[derive(Serialize)]
#[serde(tag = "kind", content = "is", rename_all = "snake_case")]
pub(crate) enum Block {
    /// What follows, and a sentence on it.
    Heading(String, String),
    /// Paragraphs.
    Text(Vec<String>),
    /// A line that belongs to what it follows.
    Note(String),
    /// Sentences.
    List(Vec<Item>),
    /// A table, and on a terminal at most so many of its rows and the line that counts the rest.
    Table {
        grid: Grid,
        most: usize,
        rest: String,
    },
    /// Words for a shell.
    Command(Vec<String>),
    /// Where the time of a change went.
    Account(AccountView),
    /// An SVG with the legend of its colours; of a page alone.
    Figure(String, Vec<LegendView>),
    /// What a terminal has no room for.
    Page(Vec<Block>),
}

/// An entry of a list, with what is said of it.
#[derive(Default, Serialize)]
pub(crate) struct Item {
    /// What it is about; empty where the text says so.
    pub lead: String,
    pub text: String,
    pub below: Vec<String>,
}

impl From<String> for Item {
    fn from(text: String) -> Item {
        Item {
            text,
            ..Item::default()
        }
    }
}

impl Block {
    /// Sentences with nothing below them.
    pub(crate) fn list(sentences: impl IntoIterator<Item = String>) -> Block {
        Block::List(sentences.into_iter().map(Item::from).collect())
    }

    /// A heading by itself.
    pub(crate) fn heading(title: &str) -> Block {
        Block::Heading(title.to_owned(), String::new())
    }

    /// A table that a terminal has room for.
    pub(crate) fn table(grid: Grid) -> Block {
        let (most, rest) = (usize::MAX, String::new());
        Block::Table { grid, most, rest }
    }

    fn lay(&self, screen: &mut Screen, after: Option<&Block>) {
        match self {
            Block::Heading(title, rest) => {
                screen.line("");
                match rest.is_empty() {
                    true => screen.painted(&one_line(title), Style::new().bold()),
                    false => screen.hanging(0, &format!("{title}: {rest}")),
                }
            }
            Block::Text(paragraphs) => {
                screen.line("");
                for paragraph in paragraphs {
                    screen.hanging(0, paragraph);
                }
            }
            Block::Note(line) => screen.hanging(0, line),
            Block::List(items) => {
                for item in items {
                    match item.lead.is_empty() {
                        true => screen.hanging(2, &item.text),
                        false => screen.hanging(2, &format!("{}: {}", item.lead, item.text)),
                    }
                    for line in &item.below {
                        screen.wrapped(4, line);
                    }
                }
            }
            Block::Table { grid, most, rest } => {
                if !matches!(after, Some(Block::Heading(_, said)) if said.is_empty()) {
                    screen.line("");
                }
                grid.print(screen, *most);
                if grid.rows.len() > *most {
                    screen.hanging(2, rest);
                }
            }
            Block::Command(words) => {
                let whole = words.join(" ");
                // It is never cut: broken between its words where it is too long for a line.
                match whole.len() + 4 <= COLUMNS {
                    true => screen.line(format!("    {whole}")),
                    false => screen.line(format!("    {}", words.join(" \\\n      "))),
                }
            }
            Block::Account(account) => screen.hanging(2, &account.sentence),
            Block::Figure(..) | Block::Page(_) => {}
        }
    }

    /// Text from outside, on one line and without what a page would obey.
    fn clean(&mut self) {
        let clean = |text: &mut String| *text = one_line(text);
        match self {
            Block::Heading(title, rest) => [title, rest].into_iter().for_each(clean),
            Block::Text(paragraphs) => paragraphs.iter_mut().for_each(clean),
            Block::Note(line) => clean(line),
            Block::List(items) => {
                for item in items {
                    [&mut item.lead, &mut item.text].into_iter().for_each(clean);
                    item.below.iter_mut().for_each(clean);
                }
            }
            Block::Table { grid, .. } => {
                for row in &mut grid.rows {
                    clean(&mut row.label);
                    let cells = row.cells.iter_mut();
                    cells.chain(&mut row.below).for_each(clean);
                }
            }
            Block::Command(words) => words.iter_mut().for_each(clean),
            Block::Page(blocks) => blocks.iter_mut().for_each(Block::clean),
            Block::Account(_) | Block::Figure(..) => {}
        }
    }
}

impl Document {
    /// For a terminal, at most eighty columns wide, but for commands; colour is all that `colour`
    /// adds.
    pub(crate) fn text(mut self, colour: bool) -> String {
        let blocks = self.summary.iter_mut().chain(&mut self.body);
        blocks.for_each(Block::clean);
        laid_out(colour, usize::MAX, |screen| {
            for (number, line) in self.first_lines.iter().enumerate() {
                match (number, self.tone) {
                    (0, Tone::Calm) => screen.hanging(0, line),
                    (0, tone) => screen.painted(line, tone.strong()),
                    _ => screen.wrapped(2, line),
                }
            }
            let mut after = None;
            for block in self.summary.iter().chain(&self.body) {
                block.lay(screen, after);
                after = Some(block);
            }
        })
    }

    /// As one self-contained page.
    ///
    /// # Errors
    /// When the template does not fit its data.
    pub(crate) fn page(mut self) -> Result<String, RenderError> {
        #[derive(Serialize)]
        struct DocumentView {
            style: &'static str,
            document: Document,
        }
        let blocks = self.summary.iter_mut().chain(&mut self.body);
        blocks.for_each(Block::clean);
        for text in [&mut self.title, &mut self.kicker, &mut self.headline] {
            *text = one_line(text);
        }
        let view = DocumentView {
            style: STYLE,
            document: self,
        };
        rendered(include_str!("html/document.html"), view)
    }
}
