//! TOML read with positions, so that every complaint names file, line, key and value.

use std::cell::RefCell;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use super::source::{DocumentError, Source};
use super::source::{LONGEST_QUOTE, Lines, plain};

/// Longest list: more values than these are a slip of the pen.
const LONGEST_LIST: usize = 10_000;

impl Source {
    /// Parses the text and hands its root table to `read`, which must have asked
    /// for every key that is there.
    ///
    /// # Errors
    /// Malformed TOML, whatever `read` complains of, and keys nobody asked for.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&Table<'_>) -> Result<T, DocumentError>,
    ) -> Result<T, DocumentError> {
        let lines = Lines::of(self);
        let root = DeTable::parse(&self.text).map_err(|error| DocumentError {
            label: self.label.clone(),
            line: error.span().map_or(0, |span| lines.number(span.start)),
            key: String::new(),
            message: format!("malformed TOML: {}", error.message().replace('\n', "; ")),
        })?;
        let table = Table::new(&lines, root.get_ref(), String::new(), 0);
        let value = read(&table)?;
        table.finish()?;
        Ok(value)
    }
}

/// A table that remembers which of its keys were asked for.
pub struct Table<'a> {
    lines: &'a Lines<'a>,
    entries: &'a DeTable<'a>,
    path: String,
    line: usize,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    fn new(lines: &'a Lines<'a>, entries: &'a DeTable<'a>, path: String, line: usize) -> Table<'a> {
        Table {
            lines,
            entries,
            path,
            line,
            known: RefCell::new(Vec::new()),
        }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: &'static str) -> Option<Value<'a>> {
        self.known.borrow_mut().push(key);
        self.entries
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, value)| self.value(key, value))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When it is not there.
    pub fn require(&self, key: &'static str) -> Result<Value<'a>, DocumentError> {
        self.get(key)
            .ok_or_else(|| self.error(format!("`{key}` is missing")))
    }

    /// Every key with its value, for tables whose keys are names.
    pub fn entries(&self) -> Vec<(String, Value<'a>)> {
        self.entries
            .iter()
            .map(|(name, value)| {
                let name = name.get_ref().to_string();
                let value = self.value(&name, value);
                (name, value)
            })
            .collect()
    }

    fn value(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        let key = plain(key, LONGEST_QUOTE);
        let path = match self.path.as_str() {
            "" => key,
            path => format!("{path}.{key}"),
        };
        Value {
            lines: self.lines,
            path,
            line: self.lines.number(value.span().start),
            value: value.get_ref(),
        }
    }

    /// Where it stands: file, line and key.
    pub fn place(&self) -> String {
        let error = self.error("");
        error.to_string().trim_end_matches(": ").to_owned()
    }

    /// The folder of the file that it stands in, from which paths in it are.
    pub fn folder(&self) -> &'a Path {
        let file = Path::new(&self.lines.source.label);
        file.parent().unwrap_or(Path::new(""))
    }

    /// An error about this table.
    pub fn error(&self, message: impl Into<String>) -> DocumentError {
        DocumentError {
            label: self.lines.source.label.clone(),
            line: self.line,
            key: self.path.clone(),
            message: message.into(),
        }
    }

    /// Refuses keys that nobody asked for.
    ///
    /// # Errors
    /// The first unknown key, with the nearest known one.
    pub fn finish(&self) -> Result<(), DocumentError> {
        let known = self.known.borrow();
        for (name, value) in self.entries.iter() {
            let name = name.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let mut error = self.value(name, value).error("unknown key");
            error.message += &match nearest(name, known.iter().copied()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => format!("; known here: {}", known.join(", ")),
            };
            return Err(error);
        }
        Ok(())
    }
}

/// A value and where it stands.
pub struct Value<'a> {
    lines: &'a Lines<'a>,
    path: String,
    line: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// An error about the key, not about what it holds.
    pub fn key_error(&self, message: impl Into<String>) -> DocumentError {
        DocumentError {
            label: self.lines.source.label.clone(),
            line: self.line,
            key: self.path.clone(),
            message: message.into(),
        }
    }

    /// An error about this value, which is quoted in it.
    pub fn error(&self, message: impl Into<String>) -> DocumentError {
        DocumentError {
            label: self.lines.source.label.clone(),
            line: self.line,
            key: match self.shown() {
                Some(text) => format!("{} = {text}", self.path),
                None => self.path.clone(),
            },
            message: message.into(),
        }
    }

    /// Where it stands: file, line, key and value.
    pub fn place(&self) -> String {
        let error = self.error("");
        error.to_string().trim_end_matches(": ").to_owned()
    }

    fn shown(&self) -> Option<String> {
        match self.value {
            DeValue::String(text) => Some(format!("\"{}\"", plain(text, LONGEST_QUOTE))),
            DeValue::Integer(number) => Some(plain(number.as_str(), LONGEST_QUOTE)),
            DeValue::Float(number) => Some(plain(number.as_str(), LONGEST_QUOTE)),
            DeValue::Boolean(truth) => Some(truth.to_string()),
            _ => None,
        }
    }

    fn wrong(&self, wanted: &str) -> DocumentError {
        self.error(format!(
            "expected {wanted}, found {}",
            self.value.type_str()
        ))
    }

    /// A string.
    ///
    /// # Errors
    /// When it is something else.
    pub fn string(&self) -> Result<String, DocumentError> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.wrong("a string")),
        }
    }

    /// An integer, or a word that stands for one: the text of it.
    ///
    /// # Errors
    /// When it is neither.
    pub fn scalar(&self) -> Result<String, DocumentError> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(_) => Ok(self.integer()?.to_string()),
            _ => Err(self.wrong("a number or a string")),
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// When it is something else, or too large.
    pub fn integer(&self) -> Result<i64, DocumentError> {
        match self.value {
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                i64::from_str_radix(&digits, number.radix())
                    .map_err(|_| self.error("this number is too large"))
            }
            _ => Err(self.wrong("a whole number")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn truth(&self) -> Result<bool, DocumentError> {
        match self.value {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => Err(self.wrong("`true` or `false`")),
        }
    }

    /// An integer within a range.
    ///
    /// # Errors
    /// When it is something else, or outside.
    pub fn integer_within(&self, least: i64, most: i64) -> Result<i64, DocumentError> {
        let number = self.integer()?;
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(self.error(format!("must be from {least} to {most}")))
        }
    }

    /// A finite number.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self) -> Result<f64, DocumentError> {
        match self.value {
            DeValue::Integer(_) => Ok(self.integer()? as f64),
            DeValue::Float(number) => match number.as_str().replace('_', "").parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(value),
                _ => Err(self.error("must be a finite number")),
            },
            _ => Err(self.wrong("a number")),
        }
    }

    /// A table.
    ///
    /// # Errors
    /// When it is something else.
    pub fn table(&self) -> Result<Table<'a>, DocumentError> {
        match self.value {
            DeValue::Table(entries) => Ok(Table::new(
                self.lines,
                entries,
                self.path.clone(),
                self.line,
            )),
            _ => Err(self.wrong("a table")),
        }
    }

    /// A list of strings.
    ///
    /// # Errors
    /// When it is no list, or an element is no string.
    pub fn strings(&self) -> Result<Vec<String>, DocumentError> {
        self.list()?.iter().map(Value::string).collect()
    }

    /// A string that a process can be handed: as an argument, a variable or a path.
    ///
    /// # Errors
    /// When it is something else, or holds the byte that ends such a string.
    pub fn argument(&self) -> Result<String, DocumentError> {
        let text = self.string()?;
        match text.contains('\0') {
            true => Err(self.error("no process can be handed a NUL; leave it out")),
            false => Ok(text),
        }
    }

    /// A list of such strings.
    ///
    /// # Errors
    /// When it is no list, or an element is none.
    pub fn arguments(&self) -> Result<Vec<String>, DocumentError> {
        self.list()?.iter().map(Value::argument).collect()
    }

    /// The elements of a list.
    ///
    /// # Errors
    /// When it is something else.
    pub fn list(&self) -> Result<Vec<Value<'a>>, DocumentError> {
        match self.value {
            DeValue::Array(items) if items.len() > LONGEST_LIST => Err(self.error(format!(
                "lists {} values, and {LONGEST_LIST} are the most",
                items.len()
            ))),
            DeValue::Array(items) => Ok(items
                .iter()
                .enumerate()
                .map(|(i, item)| Value {
                    lines: self.lines,
                    path: format!("{}[{i}]", self.path),
                    line: self.lines.number(item.span().start),
                    value: item.get_ref(),
                })
                .collect()),
            _ => Err(self.wrong("a list")),
        }
    }

    /// The elements of a list, or the value itself where it is no list.
    ///
    /// # Errors
    /// When the list is empty: an axis without values makes no case.
    pub fn one_or_more(self) -> Result<Vec<Value<'a>>, DocumentError> {
        match self.value {
            DeValue::Array(items) if items.is_empty() => {
                Err(self.error("an empty list makes no case; give at least one value"))
            }
            DeValue::Array(_) => self.list(),
            _ => Ok(vec![self]),
        }
    }
}

/// The known name nearest to a mistyped one, if any is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
