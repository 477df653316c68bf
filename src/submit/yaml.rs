//! YAML of values, as a person would write it.
//!
//! Strings stand in double quotes by the rules of JSON, which are those of YAML too, unless they
//! are plain words; several lines stand as a block. So no text can be read as anything else.

use std::fmt::Write;

use serde_json::Value;

/// The value as a document of YAML, without a line that begins one.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, 0);
    out
}

fn put(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let _ = write!(out, "{indent}{}:", scalar(name));
                under(out, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(out, "{indent}-");
                match item {
                    // The first field beside the dash, the others under it.
                    Value::Object(fields) if !fields.is_empty() => {
                        let mut inner = String::new();
                        put(&mut inner, item, depth + 1);
                        out.push(' ');
                        out.push_str(inner.trim_start());
                    }
                    item => under(out, item, depth + 1),
                }
            }
        }
        value => {
            let _ = writeln!(out, "{indent}{}", flow(value));
        }
    }
}

/// What stands behind `name:` or `-`.
fn under(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            put(out, value, depth);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            put(out, value, depth);
        }
        Value::String(text) if is_block(text) => {
            out.push_str(" |\n");
            for line in text.lines() {
                if !line.is_empty() {
                    let _ = write!(out, "{}{line}", "  ".repeat(depth));
                }
                out.push('\n');
            }
        }
        value => {
            let _ = writeln!(out, " {}", flow(value));
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Numbers, words and what is empty are the same in both.
        value => value.to_string(),
    }
}

/// True of text that a block gives back as it is: it ends in one end of a line, its first line
/// begins with no space, and every character is one that YAML prints.
fn is_block(text: &str) -> bool {
    let Some(body) = text.strip_suffix('\n') else {
        return false;
    };
    let first = body.chars().next();
    first.is_some_and(|c| !c.is_whitespace())
        && !body.ends_with('\n')
        && body.chars().all(|c| c == '\n' || printable(c))
}

fn printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}')
        && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// A string in quotes, unless it is a word that nothing but a string can be.
fn scalar(text: &str) -> String {
    const OTHERS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if begins && text.chars().all(word) && !OTHERS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if printable(c) => quoted.push(c),
            c => {
                let mut units = [0u16; 2];
                match u32::from(c) {
                    // Beyond what four digits hold, eight do.
                    beyond @ 0x1_0000.. => {
                        let _ = write!(quoted, "\\U{beyond:08x}");
                    }
                    _ => {
                        let _ = write!(quoted, "\\u{:04x}", c.encode_utf16(&mut units)[0]);
                    }
                }
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_written_by_hand() {
        let value = json!({
            "name": "regatta-quick",
            "count": 4,
            "empty": {},
            "words": ["sh", "-c", "set -u\n\n  echo 'a: b'\n"],
            "rules": [{ "action": "Ignore", "on": [{ "type": "x" }] }, { "action": "yes" }],
            "version": "1.0",
            "path": "/reports",
        });
        assert_eq!(
            document(&value),
            "count: 4\nempty: {}\nname: regatta-quick\npath: /reports\nrules:\n  - action: Ignore\n    \
             \"on\":\n      - type: x\n  - action: \"yes\"\nversion: \"1.0\"\nwords:\n  - sh\n  - \"-c\"\n  \
             - |\n    set -u\n\n      echo 'a: b'\n"
        );
    }

    #[test]
    fn odd_text_is_quoted() {
        for (text, expected) in [
            ("a: b #c", "\"a: b #c\""),
            ("say \"x\\y\"", "\"say \\\"x\\\\y\\\"\""),
            ("two\nlines", "\"two\\u000alines\""),
            ("\u{7f}\u{85}\u{2028}", "\"\\u007f\\u0085\\u2028\""),
            ("\u{1f6a3}", "\"\\U0001f6a3\""),
            ("NULL", "\"NULL\""),
            ("0x10", "\"0x10\""),
            (" lead\n", "\" lead\\u000a\""),
            ("", "\"\""),
        ] {
            assert_eq!(document(&json!(text)), format!("{expected}\n"));
        }
    }
}
