//! Records, one on each line with a checksum, so that a torn or edited line is detected and the
//! others are kept.
//!
//! A line is a JSON object whose last member is `"sum"`: the CRC-32 (IEEE, eight hexadecimal
//! digits) of the object's text without that member.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{RecordError, check_schema};
use crate::input::{self, Damage};
use crate::text::one_line;

const MARK: &str = ",\"sum\":\"";

/// The line of a record, line feed included.
///
/// # Errors
/// When the record cannot be written as a JSON object.
pub fn write<T: Serialize>(record: &T) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(record)?;
    let sum = crc32fast::hash(text.as_bytes());
    text.pop();
    text.push_str(&format!("{MARK}{sum:08x}\"}}\n"));
    Ok(text)
}

/// Reads a line back.
///
/// # Errors
/// The fault in it, as a sentence.
pub fn read<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    check(line)?;
    parse(line)
}

/// The kind of a line, from its first member.
pub fn kind(line: &str) -> Option<&str> {
    let (kind, _) = line.strip_prefix("{\"kind\":\"")?.split_once('"')?;
    Some(kind)
}

/// Checks the checksum of a line.
///
/// # Errors
/// The fault in it, as a sentence.
pub fn check(line: &str) -> Result<(), String> {
    let (body, rest) = line
        .rsplit_once(MARK)
        .ok_or("it is cut off or not a line of regatta's (no checksum)")?;
    let sum = rest
        .strip_suffix("\"}")
        .ok_or("it is cut off within its checksum")?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body.as_bytes());
    hasher.update(b"}");
    if format!("{:08x}", hasher.finalize()) == sum {
        Ok(())
    } else {
        Err("it was edited: its checksum does not match".to_owned())
    }
}

/// Parses the object of a line. Unknown members, such as the checksum, are ignored.
///
/// # Errors
/// The fault in it, as a sentence.
pub fn parse<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line)
        .map_err(|error| one_line(&format!("it holds something unknown: {error}")))
}

/// The lines of a file of records, one at a time.
#[derive(Debug)]
pub struct Lines<'p> {
    path: &'p Path,
    file: BufReader<io::Take<File>>,
    most: u64,
    longest: u64,
    bytes: Vec<u8>,
    /// The number of the line that was read last, from 1.
    pub number: usize,
    /// True if the line that was read last ends with a line feed.
    pub whole: bool,
}

impl<'p> Lines<'p> {
    /// Opens a file of at most `most` bytes. Of each line, at most `longest` bytes are read.
    ///
    /// # Errors
    /// When it cannot be opened, or is larger.
    pub fn open(path: &'p Path, most: u64, longest: u64) -> Result<Lines<'p>, RecordError> {
        let file = input::open(path, most).map_err(|error| RecordError::io(path, error))?;
        Ok(Lines {
            path,
            // A file under /proc says that it is empty, and another may grow meanwhile.
            file: BufReader::with_capacity(1 << 18, file.take(most + 1)),
            most,
            longest,
            bytes: Vec::new(),
            number: 0,
            whole: true,
        })
    }

    /// The next line without its line feed; `None` at the end. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<Cow<'_, str>>, RecordError> {
        let io = |error| RecordError::io(self.path, error);
        let length = input::line(&mut self.file, self.longest, &mut self.bytes).map_err(io)?;
        if self.file.get_ref().limit() == 0 && self.file.buffer().is_empty() {
            return Err(io(input::too_large(self.most)));
        }
        if length == input::Line::None {
            return Ok(None);
        }
        self.number += 1;
        self.whole = length == input::Line::Whole;
        let line = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // The check of a whole text is several times as fast as the search for invalid bytes.
        Ok(Some(match str::from_utf8(line) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(line),
        }))
    }

    /// Reads the first line, which has the schema of the file. `wanted` is the kind of record.
    ///
    /// # Errors
    /// When the file is empty, of another schema, or the line is damaged or of another kind.
    pub fn first<T: DeserializeOwned>(&mut self, wanted: &str) -> Result<T, RecordError> {
        let path = self.path;
        let Some(text) = self.next_line()? else {
            return Err(RecordError::invalid(path, 1, "the file is empty"));
        };
        check_schema(path, &text)?;
        let of_kind = |()| {
            if kind(&text) == Some(wanted) {
                parse(&text)
            } else {
                Err(format!("it is not the first line of a {wanted}"))
            }
        };
        let first = check(&text).and_then(of_kind);
        first.map_err(|problem| RecordError::invalid(path, 1, problem))
    }

    /// Reads the next line; `None` at the end, and the fault of a damaged line.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<Result<T, String>>, RecordError> {
        Ok(self.next_line()?.map(|text| read(&text)))
    }

    /// The fault in the line that was read last.
    pub fn damage(&self, problem: String) -> Damage {
        Damage {
            line: self.number,
            problem,
        }
    }

    /// An error about the line that was read last.
    pub fn invalid(&self, problem: impl Into<String>) -> RecordError {
        RecordError::invalid(self.path, self.number, problem)
    }

    /// The number of bytes of the line that was read last.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn lines_read_back_and_changes_are_seen() {
        #[derive(Serialize, Deserialize)]
        struct Record {
            a: u32,
            b: u32,
        }
        let line = write(&Record { a: 1, b: 2 }).unwrap();
        assert_eq!(line, "{\"a\":1,\"b\":2,\"sum\":\"cf41ce83\"}\n");
        let line = line.trim_end();
        let back: Record = read(line).unwrap();
        assert_eq!((back.a, back.b), (1, 2));
        let edited = line.replace("\"b\":2", "\"b\":3");
        let error = read::<Record>(&edited).err().unwrap();
        assert!(error.contains("edited"), "{error}");
        for end in 0..line.len() {
            assert!(read::<Record>(&line[..end]).is_err());
        }
    }
}
