//! Reads TOML by serde with positions, so that every error names file, line, key and value.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest value that a message quotes, in characters.
const MAX_QUOTE: usize = 120;

/// The longest message, in characters: messages of libraries quote values as well.
const MAX_MESSAGE: usize = 2000;

/// The longest list: more values are a mistake.
const MAX_LIST: usize = 10_000;

/// A TOML text, with its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlText {
    /// A path, or `built-in suite quick`.
    pub label: String,
    /// The whole text.
    pub text: String,
}

/// An error in a suite or configuration file: file, line, key and value, the fault, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(String);

impl DocumentError {
    /// An error about a file as a whole.
    pub fn new(label: &str, message: &str) -> DocumentError {
        let label = plain(label, MAX_MESSAGE);
        DocumentError(format!("{label}: {}", plain(message, MAX_MESSAGE)))
    }
}

/// The path of a key of the table at `path`: `sweep[1].params`.
pub(super) fn key(path: &str, key: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{}", plain(key, MAX_QUOTE))
}

/// The place of a value, in bytes.
struct ValueSpan {
    /// The key, unless the value is an element of a list.
    key: Option<Range<usize>>,
    value: Range<usize>,
    /// The value as text, for messages.
    shown: String,
}

/// A parsed text, with the place of each value.
pub struct TomlDocument<'a> {
    source: &'a TomlText,
    /// The places by path; a table precedes its values.
    places: BTreeMap<String, ValueSpan>,
    /// The end of each line, in bytes.
    line_ends: Vec<usize>,
}

impl<'a> TomlDocument<'a> {
    /// Reads a text as a type, whose fields are the only keys.
    ///
    /// # Errors
    /// Malformed TOML, a list of more than 10,000 values, a NUL in a string, an unknown key with
    /// the nearest known one, or a value that its key cannot have.
    pub fn read<T: DeserializeOwned>(
        source: &'a TomlText,
    ) -> Result<(TomlDocument<'a>, T), DocumentError> {
        let bytes = source.text.bytes().enumerate();
        let line_ends = bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut document = TomlDocument {
            source,
            places: BTreeMap::new(),
            line_ends: line_ends.collect(),
        };
        let root = DeTable::parse(&source.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let twice = error.message() == "duplicate key";
            match source.text.get(span.clone()).filter(|_| twice) {
                Some(name) => {
                    let error = "the key stands there twice; keep one of them";
                    document.error_at(Some(span.start), &key("", name), error)
                }
                None => {
                    let error = error.message().replace('\n', "; ");
                    document.error_at(Some(span.start), "", &format!("malformed TOML: {error}"))
                }
            }
        })?;
        visit_table("", root.get_ref(), &mut document.places)
            .map_err(|(path, why)| document.error(&path, why))?;
        let read = T::deserialize(toml::de::Deserializer::from(root)).map_err(|error| {
            let (path, is_key) = match error.span() {
                Some(span) => document.find(&span),
                None => ("", false),
            };
            document.error(path, in_plain_words(error.message(), is_key))
        })?;
        Ok((document, read))
    }

    /// An error about the value at a path, which is quoted, or about a table.
    pub fn error(&self, path: &str, message: impl AsRef<str>) -> DocumentError {
        let place = self.places.get(path);
        let shown = place.map_or("", |place| place.shown.as_str());
        let at = place.map(|place| place.value.start);
        self.error_at(at, &format!("{path}{shown}"), message.as_ref())
    }

    fn error_at(&self, at: Option<usize>, key: &str, message: &str) -> DocumentError {
        let file = self.file_and_line(at);
        let key = if key.is_empty() {
            ""
        } else {
            &format!(": {key}")
        };
        let message = plain(message, MAX_MESSAGE);
        DocumentError(format!("{file}{key}: {message}"))
    }

    /// The place of a value: file, line, key and value.
    pub fn place(&self, path: &str) -> String {
        let place = self.places.get(path);
        let file = self.file_and_line(place.map(|place| place.value.start));
        format!("{file}: {path}{}", place.map_or("", |place| &place.shown))
    }

    /// The file, and the line of a byte in it, from 1.
    fn file_and_line(&self, at: Option<usize>) -> String {
        let label = plain(&self.source.label, MAX_MESSAGE);
        match at {
            Some(at) => {
                let line = 1 + self.line_ends.partition_point(|end| *end < at);
                format!("{label}:{line}")
            }
            None => label,
        }
    }

    /// True if the document has a value or table at a path.
    pub fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// The keys of the table at a path, in the order of the text.
    pub fn in_order<'k>(&self, path: &str, keys: impl Iterator<Item = &'k String>) -> Vec<String> {
        let place = |name: &String| self.places.get(&key(path, name)).map(|at| at.value.start);
        let mut keys: Vec<String> = keys.cloned().collect();
        keys.sort_by_key(place);
        keys
    }

    /// The folder of the file, to which paths in it are relative.
    pub fn folder(&self) -> &'a Path {
        let file = Path::new(&self.source.label);
        file.parent().unwrap_or(Path::new(""))
    }

    /// The path of the value at a range of bytes, and true if the range is its key's.
    fn find(&self, span: &Range<usize>) -> (&str, bool) {
        let is_key = |(_, place): &(&String, &ValueSpan)| place.key.as_ref() == Some(span);
        if let Some((path, _)) = self.places.iter().find(is_key) {
            return (path, true);
        }
        let is_value = |(_, place): &(&String, &ValueSpan)| place.value == *span;
        let value = self.places.iter().rfind(is_value);
        (value.map_or("", |(path, _)| path), false)
    }
}

fn visit_table(
    path: &str,
    table: &DeTable<'_>,
    places: &mut BTreeMap<String, ValueSpan>,
) -> Result<(), (String, String)> {
    let mut entries = table.iter();
    entries.try_for_each(|(name, value)| {
        visit(key(path, name.get_ref()), Some(name.span()), value, places)
    })
}

/// Records the places of a value and of all values in it.
///
/// # Errors
/// The path of a value that is never valid, and the reason.
fn visit(
    path: String,
    key: Option<Range<usize>>,
    value: &Spanned<DeValue<'_>>,
    places: &mut BTreeMap<String, ValueSpan>,
) -> Result<(), (String, String)> {
    let shown = match value.get_ref() {
        DeValue::String(text) => format!(" = \"{}\"", plain(text, MAX_QUOTE)),
        DeValue::Integer(number) => format!(" = {}", plain(number.as_str(), MAX_QUOTE)),
        DeValue::Float(number) => format!(" = {}", plain(number.as_str(), MAX_QUOTE)),
        DeValue::Boolean(truth) => format!(" = {truth}"),
        _ => String::new(),
    };
    let place = ValueSpan {
        key,
        value: value.span(),
        shown,
    };
    places.insert(path.clone(), place);
    match value.get_ref() {
        DeValue::Table(table) => visit_table(&path, table, places),
        DeValue::Array(items) if items.len() > MAX_LIST => {
            let (there, most) = (items.len(), MAX_LIST);
            Err((
                path,
                format!("lists {there} values, and {most} are the most"),
            ))
        }
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| visit(format!("{path}[{index}]"), None, item, places)),
        DeValue::String(text) if text.contains('\0') => Err((
            path,
            "no process can be handed a NUL; leave it out".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Rewords a message of serde for people who write TOML; `is_key` is true if it is about a key.
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
        return if is_key {
            unknown_key(name, &known)
        } else {
            format!("use {}", alternatives(&known))
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
        let kind = found.split(['"', '`']).next().unwrap_or(found).trim();
        let kind = match kind {
            "sequence" => "list",
            "map" => "table",
            "floating point" => "float",
            text => text,
        };
        if kind == "integer" && ["a whole number", "any value"].contains(&expected) {
            return "the number is out of range".to_owned();
        }
        return format!("expected {expected}, found {kind}");
    }
    message.to_owned()
}

/// The message about an unknown key.
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

/// At most `most` characters of a text, on one line, with control characters escaped.
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

/// `; did you mean `main`?`, where a known name is near.
pub fn or_near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// The known name that is most similar to `name`, if one is similar enough.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The largest number of names in a hint.
const LISTED: usize = 8;

/// The hint for a name that is not in `known`: the nearest name, and all names if they are few or
/// none is near.
pub fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = nearest(name, known.iter().copied());
    match (near, known.len()) {
        (_, 0) => "none exist".to_owned(),
        (Some(near), 1..=LISTED) => {
            format!("did you mean `{near}`? there are {}", known.join(", "))
        }
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, _) => format!("there are {}", known.join(", ")),
    }
}
