//! TOML read by serde, with positions: every complaint names file, line, key and value.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest value that a message quotes, in characters.
const LONGEST_QUOTE: usize = 120;

/// Longest message, in characters: others quote values too.
const LONGEST_MESSAGE: usize = 2000;

/// Longest list: more values than these are a slip of the pen.
const LONGEST_LIST: usize = 10_000;

/// A TOML text and what to call it in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlText {
    /// A path, or `built-in suite quick`.
    pub label: String,
    /// The whole text.
    pub text: String,
}

/// Something in a suite or configuration file that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The file.
    pub label: String,
    /// Counts from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The key's path, such as `sweep[1].direction`; may be empty.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.label, LONGEST_MESSAGE))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", plain(&self.message, LONGEST_MESSAGE))
    }
}

impl TomlText {
    /// An error about the file as a whole.
    pub fn error(&self, message: impl Into<String>) -> DocumentError {
        DocumentError {
            label: self.label.clone(),
            line: 0,
            key: String::new(),
            message: message.into(),
        }
    }
}

/// The way from the root of a document to a value: `sweep[1].params.num_splits_key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Key(String),
    Index(usize),
}

impl KeyPath {
    /// A key of the root table.
    pub fn root(key: &str) -> KeyPath {
        KeyPath::default().key(key)
    }

    /// A key of the table at this path.
    pub fn key(&self, key: &str) -> KeyPath {
        self.with(PathStep::Key(key.to_owned()))
    }

    /// An element of the list at this path.
    pub fn index(&self, index: usize) -> KeyPath {
        self.with(PathStep::Index(index))
    }

    fn with(&self, step: PathStep) -> KeyPath {
        KeyPath(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Key(key) => {
                    let dot = if place > 0 { "." } else { "" };
                    write!(f, "{dot}{}", plain(key, LONGEST_QUOTE))?;
                }
            }
        }
        Ok(())
    }
}

/// A parsed text, which knows where each value stands.
pub struct TomlDocument<'a> {
    source: &'a TomlText,
    root: Spanned<DeTable<'a>>,
    /// Where each line ends, in bytes.
    line_ends: Vec<usize>,
}

impl<'a> TomlDocument<'a> {
    /// Parses a text.
    ///
    /// # Errors
    /// Malformed TOML, a list of more than 10,000 values, and a NUL in a string.
    pub fn parse(source: &'a TomlText) -> Result<TomlDocument<'a>, DocumentError> {
        let bytes = source.text.bytes().enumerate();
        let line_ends = bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut document = TomlDocument {
            source,
            root: Spanned::new(0..0, DeTable::default()),
            line_ends: line_ends.collect(),
        };
        document.root = DeTable::parse(&source.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let twice = error.message() == "duplicate key";
            let key = source.text.get(span.clone()).filter(|_| twice);
            DocumentError {
                label: source.label.clone(),
                line: document.line(span.start),
                key: plain(key.unwrap_or_default(), LONGEST_QUOTE),
                message: match key {
                    Some(_) => "the key stands there twice; keep one of them".to_owned(),
                    None => format!("malformed TOML: {}", error.message().replace('\n', "; ")),
                },
            }
        })?;
        let mut objection = None;
        document.visit(&mut |path, _, value| {
            let why = match value.get_ref() {
                DeValue::Array(items) if items.len() > LONGEST_LIST => Some(format!(
                    "lists {} values, and {LONGEST_LIST} are the most",
                    items.len()
                )),
                DeValue::String(text) if text.contains('\0') => {
                    Some("no process can be handed a NUL; leave it out".to_owned())
                }
                _ => None,
            };
            if let (Some(why), None) = (why, &objection) {
                objection = Some((KeyPath(path.to_vec()), why));
            }
        });
        match objection {
            Some((path, why)) => Err(document.error(&path, why)),
            None => Ok(document),
        }
    }

    /// What the text says, as a type whose keys are those that there are.
    ///
    /// # Errors
    /// An unknown key with the nearest known one, or a value that its key cannot have.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, DocumentError> {
        let deserializer = toml::de::Deserializer::from(self.root.clone());
        T::deserialize(deserializer).map_err(|error| {
            let (path, is_key) = match error.span() {
                Some(span) => self.find(&span),
                None => (KeyPath::default(), false),
            };
            self.error(&path, in_plain_words(error.message(), is_key))
        })
    }

    /// An error about what stands at a path: a value, which is quoted, or a table.
    pub fn error(&self, path: &KeyPath, message: impl Into<String>) -> DocumentError {
        let value = self.get(path);
        let shown = value.and_then(|value| match value.get_ref() {
            DeValue::String(text) => Some(format!("\"{}\"", plain(text, LONGEST_QUOTE))),
            DeValue::Integer(number) => Some(plain(number.as_str(), LONGEST_QUOTE)),
            DeValue::Float(number) => Some(plain(number.as_str(), LONGEST_QUOTE)),
            DeValue::Boolean(truth) => Some(truth.to_string()),
            _ => None,
        });
        DocumentError {
            label: self.source.label.clone(),
            line: value.map_or(0, |value| self.line(value.span().start)),
            key: match shown {
                Some(text) => format!("{path} = {text}"),
                None => path.to_string(),
            },
            message: message.into(),
        }
    }

    /// Where a value stands: file, line, key and value.
    pub fn place(&self, path: &KeyPath) -> String {
        let error = self.error(path, "");
        error.to_string().trim_end_matches(": ").to_owned()
    }

    /// The folder of the file, from which paths in it are.
    pub fn folder(&self) -> &'a Path {
        let file = Path::new(&self.source.label);
        file.parent().unwrap_or(Path::new(""))
    }

    /// The line of a byte, from 1.
    fn line(&self, offset: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < offset)
    }

    fn get(&self, path: &KeyPath) -> Option<&Spanned<DeValue<'a>>> {
        let (first, rest) = path.0.split_first()?;
        let PathStep::Key(first) = first else {
            return None;
        };
        let mut value = entry(self.root.get_ref(), first)?;
        for step in rest {
            value = match (step, value.get_ref()) {
                (PathStep::Key(key), DeValue::Table(table)) => entry(table, key)?,
                (PathStep::Index(index), DeValue::Array(items)) => items.get(*index)?,
                _ => return None,
            };
        }
        Some(value)
    }

    /// The path of the value at these bytes, and whether they are its key's.
    fn find(&self, span: &std::ops::Range<usize>) -> (KeyPath, bool) {
        let mut found = (KeyPath::default(), false);
        self.visit(&mut |path, key, value| {
            let is_key = key.as_ref() == Some(span);
            if is_key || value.span() == *span && !found.1 {
                found = (KeyPath(path.to_vec()), is_key);
            }
        });
        found
    }

    /// Goes through all values, a table before what is in it, with their paths and the bytes of
    /// their keys.
    fn visit(&self, each: &mut Visitor<'_, 'a>) {
        visit_table(self.root.get_ref(), &mut Vec::new(), each);
    }
}

type Visitor<'v, 'a> =
    dyn FnMut(&[PathStep], Option<std::ops::Range<usize>>, &Spanned<DeValue<'a>>) + 'v;

fn visit_table<'a>(table: &DeTable<'a>, path: &mut Vec<PathStep>, each: &mut Visitor<'_, 'a>) {
    for (key, value) in table.iter() {
        path.push(PathStep::Key(key.get_ref().to_string()));
        visit_value(Some(key.span()), value, path, each);
        path.pop();
    }
}

fn visit_value<'a>(
    key: Option<std::ops::Range<usize>>,
    value: &Spanned<DeValue<'a>>,
    path: &mut Vec<PathStep>,
    each: &mut Visitor<'_, 'a>,
) {
    each(path, key, value);
    match value.get_ref() {
        DeValue::Table(table) => visit_table(table, path, each),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(PathStep::Index(index));
                visit_value(None, item, path, each);
                path.pop();
            }
        }
        _ => {}
    }
}

fn entry<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
    let mut entries = table.iter();
    entries
        .find(|(name, _)| name.get_ref() == key)
        .map(|(_, value)| value)
}

/// What serde says, in the words of who writes TOML; `is_key` where it is about a key.
fn in_plain_words(message: &str, is_key: bool) -> String {
    let quoted = |text: &str| -> Vec<String> {
        let words = text.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    let unknown = ["unknown field ", "unknown variant "];
    if let Some(rest) = unknown.iter().find_map(|what| message.strip_prefix(what)) {
        let names = quoted(rest);
        let (name, known) = names
            .split_first()
            .map_or(("", &[][..]), |(name, known)| (name.as_str(), known));
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return match is_key {
            true => unknown_key(name, &known),
            false => format!("use {}", alternatives(&known)),
        };
    }
    if let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .or(message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "))
    {
        let expected = match expected {
            "u32" | "u64" | "i64" => "a whole number",
            "f64" => "a number",
            "a sequence" => "a list",
            "a boolean" => "`true` or `false`",
            "a map" => "a table",
            text if text.starts_with("struct ") => "a table",
            text => text,
        };
        let found = found.split(['"', '`']).next().unwrap_or(found).trim();
        let found = match found {
            "sequence" => "list",
            "map" => "table",
            "floating point" => "float",
            text => text,
        };
        return format!("expected {expected}, found {found}");
    }
    message.to_owned()
}

/// What to say of a key that there is not.
pub(super) fn unknown_key(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

/// `a`, `b` or `c`, each in backticks.
fn alternatives(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// At most so many characters of a text, in one line: what a terminal would obey is spelled
/// out.
fn plain(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(most) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(most).is_some() {
        shown.push_str("...");
    }
    shown
}

/// The known name nearest to a mistyped one, if any is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Names that are listed beside the nearest one, at the most.
const LISTED: usize = 8;

/// The hint for a name that is none of `known`: the nearest one, and all that there are where these
/// are few or none is near.
pub fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = nearest(name, known.iter().copied());
    match (near, known.len()) {
        (_, 0) => "there is none".to_owned(),
        (Some(near), 1..=LISTED) => {
            format!("did you mean `{near}`? there are {}", known.join(", "))
        }
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, _) => format!("there are {}", known.join(", ")),
    }
}
