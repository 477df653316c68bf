//! Makes text from outside the process safe to show.
//!
//! Workers pass on the output of libraries: colour codes, progress bars, megabytes of C++ template
//! names. None of it may move a cursor, break a table or hide neighbouring text.

use std::borrow::Cow;

/// The text without terminal sequences and control characters, except line ends.
pub fn clean(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    let text = text
        .replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\t', " ");
    let shown = |c: &char| *c == '\n' || !(c.is_control() || hides(*c));
    text.chars().filter(shown).collect()
}

/// True for a character that is invisible, reorders a line, or is forbidden in XML 1.0.
pub fn hides(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}'
        | '\u{e0000}'..='\u{e007f}')
}

/// JSON with line ends and tabs in strings replaced by spaces, and with each other control
/// character and each character that reorders text escaped: `\u001b` becomes a backslash, a u and
/// four digits. So no string in it can begin a line, move a cursor or hide neighbouring text,
/// wherever it is printed.
pub fn json_of_plain_text(json: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_control() || hides(c);
    if !json.contains('\\') && !json.contains(is_odd) {
        return Cow::Borrowed(json);
    }
    let mut plain = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(at) = rest.find(|c| c == '\\' || is_odd(c)) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match rest.as_bytes() {
            [b'\\', b'u', ..] => {
                let code = rest
                    .get(2..6)
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok());
                // Half of a surrogate pair is not escaped, so that the pair stays whole.
                if code.and_then(char::from_u32).is_some_and(is_odd) {
                    plain.push('\\');
                }
                rest.len().min(6)
            }
            [b'\\', kind, ..] if kind.is_ascii() => {
                if b"nrt".contains(kind) {
                    plain.push(' ');
                    rest = &rest[2..];
                    continue;
                }
                if b"bf".contains(kind) {
                    plain.push('\\');
                }
                2
            }
            _ => {
                let c = rest.chars().next().unwrap_or_default();
                // A line end between two values is outside of any string.
                match c {
                    '\\' | '\n' | '\r' | '\t' => plain.push(c),
                    odd => {
                        for unit in odd.encode_utf16(&mut [0; 2]) {
                            plain.push_str(&format!("\\\\u{unit:04x}"));
                        }
                    }
                }
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        let length = rest.ceil_char_boundary(length);
        plain.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// True if `word` is in a list of words that are separated by white space.
pub fn is_listed(word: &str, list: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// The text on one line, with single spaces.
pub fn one_line(text: &str) -> String {
    let cleaned = clean(text);
    let words: Vec<&str> = cleaned.split_whitespace().collect();
    words.join(" ")
}

/// The largest number of bytes of a reason, because every report cleans and measures all of it.
const REASON: usize = 16_384;

/// The text of a reason, cut where it is longer than 16 KiB.
pub fn reason(text: &str) -> String {
    if text.len() <= REASON {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(REASON)])
    }
}

/// A name that is valid in any file system and markup: characters other than ASCII letters, digits
/// and `-_.` become dashes, so two names may become the same.
pub fn plain_name(name: &str) -> String {
    name.replace(
        |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)),
        "-",
    )
}

/// At most `columns` columns of the text; `…` replaces a cut end.
pub fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += char_width(c);
        if used > columns {
            break;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out.push('…');
    out
}

/// At most `columns` columns of the text, cut in the middle, because both ends of a case id
/// distinguish cases.
pub fn shorten_middle(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let keep = columns.saturating_sub(1);
    let front: String = chars.iter().take(keep.div_ceil(2)).collect();
    let back = keep / 2;
    let back: String = chars[chars.len().saturating_sub(back)..].iter().collect();
    format!("{front}…{back}")
}

/// The first `most` texts, and the number of the others: `a, b, and 3 more`.
pub fn listed<T: ToString>(
    texts: impl IntoIterator<Item = T>,
    most: usize,
    separator: &str,
) -> String {
    let mut texts = texts.into_iter();
    let first = texts.by_ref().take(most);
    let mut parts: Vec<String> = first.map(|text| text.to_string()).collect();
    let more = texts.count();
    parts.extend((more > 0).then(|| format!("and {more} more")));
    parts.join(separator)
}

/// Breaks a text between words into lines of at most `columns` columns. A longer word is cut,
/// except a path, which gets its own line so that it can be copied.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_long_path = |word: &str| word.contains('/') && width(word) > columns;
        if is_long_path(word) {
            lines.push(word.to_owned());
            continue;
        }
        let word = shorten(word, columns);
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&word) <= columns => *line += &format!(" {word}"),
            _ => lines.push(word),
        }
    }
    lines
}

/// The number of columns of a text on a terminal.
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// The number of columns of a character: 2 for East Asian wide characters and emoji, 0 for
/// combining ones. The ranges of UAX #11 that are likely in messages of libraries.
fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The text as XML content, or as an attribute in double quotes. [`clean`] drops the
/// characters that XML forbids.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Percent-encodes a text for a link (RFC 3986), except letters, digits and `kept`.
pub fn link_part(text: &str, kept: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            out.push(char::from(byte))
        } else {
            out += &format!("%{byte:02X}")
        }
    }
    out
}

/// The text as one argument of a POSIX shell.
pub fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words as one line for a POSIX shell.
pub fn shell_command(words: &[String]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| shell_quoted(&one_line(word)))
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn terminal_sequences_and_controls_are_gone() {
        let nasty = "\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7} a\tb\r\nc\u{8}\u{0}\u{202e}d";
        assert_eq!(clean(nasty), "red a b\ncd");
        assert_eq!(one_line(nasty), "red a b cd");
        assert_eq!(clean("a\u{61c}b\u{2029}c\u{e0041}d"), "abcd");
        assert_eq!(clean("\u{1b}["), "");
        assert_eq!(clean("\u{1b}]0;never ended"), "");
        assert_eq!(clean("50%\r100%"), "50%\n100%");
    }

    #[test]
    fn strings_of_json_hold_no_control_characters() {
        let value = json!({"a\n::error::x": "\u{1b}[2J\r\n\t\u{202e}\u{85}\u{2028} \\n \"q\" é𝄞"});
        let plain = json_of_plain_text(&value.to_string()).into_owned();
        let read: serde_json::Value = serde_json::from_str(&plain).unwrap();
        let ascii = plain.replace("𝄞", "\\ud834\\udd1e");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json_of_plain_text(&ascii)).unwrap(),
            read
        );
        let text = r#"\u001b[2J   \u202e\u0085\u2028 \n "q" é𝄞"#;
        assert_eq!(read, json!({"a ::error::x": text}));
        assert!(matches!(
            json_of_plain_text("{\"a\":[1,2]}"),
            Cow::Borrowed(_)
        ));
        let broken = ["\\", "\\u12", "\\u12é", "\\é"];
        for text in broken {
            assert_eq!(json_of_plain_text(text), text);
        }
    }

    #[test]
    fn shortening_keeps_what_tells_apart() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdef", 4), "abc…");
        assert_eq!(shorten_middle("abcdefgh", 5), "ab…gh");
        assert_eq!(shorten("メモリ不足", 5), "メモ…");
    }

    #[test]
    fn a_quote_does_not_end_an_argument() {
        assert_eq!(shell_quoted("a'b"), r"'a'\''b'");
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(text in "\\PC{0,200}", columns in 2usize..40) {
            for line in wrap(&text, columns) {
                let is_path = line.contains('/') && !line.contains(' ');
                prop_assert!(width(&line) <= columns || is_path, "{line}");
            }
            prop_assert!(width(&shorten(&text, columns)) <= columns);
        }
    }
}
