//! One record a line, each with a checksum, so that what was torn or edited is seen
//! and the rest is kept.
//!
//! A line is a JSON object whose last member is `"sum"`: the CRC-32 (IEEE, eight hex
//! digits) of the object's text without it.

use serde::Serialize;
use serde::de::DeserializeOwned;

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
/// What is wrong with it, as a sentence.
pub fn read<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    let body = format!("{}}}", body(line)?);
    serde_json::from_str(&body).map_err(|error| format!("it holds something unknown: {error}"))
}

/// A line without its checksum, which is right, and without the brace that ends the object.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub fn body(line: &str) -> Result<&str, String> {
    let (body, rest) = line
        .rsplit_once(MARK)
        .ok_or("it is cut off or not a line of regatta's (no checksum)")?;
    let sum = rest
        .strip_suffix("\"}")
        .ok_or("it is cut off within its checksum")?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body.as_bytes());
    hasher.update(b"}");
    match format!("{:08x}", hasher.finalize()) == sum {
        true => Ok(body),
        false => Err("it was edited: its checksum does not match".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn lines_read_back_and_changes_are_seen() {
        let record = BTreeMap::from([("a", 1), ("b", 2)]);
        let line = write(&record).unwrap();
        assert_eq!(line, "{\"a\":1,\"b\":2,\"sum\":\"cf41ce83\"}\n");
        let line = line.trim_end();
        let back: BTreeMap<String, i32> = read(line).unwrap();
        assert_eq!(back["b"], 2);
        let edited = line.replace("\"b\":2", "\"b\":3");
        let error = read::<BTreeMap<String, i32>>(&edited).unwrap_err();
        assert!(error.contains("edited"), "{error}");
        for end in 0..line.len() {
            assert!(read::<BTreeMap<String, i32>>(&line[..end]).is_err());
        }
    }
}
