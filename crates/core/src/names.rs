//! Names as files and comments can have them.

/// A name as one that any file system and any markup takes: what is no ASCII letter or digit
/// and none of `-_.` is a dash. Two names may become one.
pub fn plain_name(name: &str) -> String {
    name.replace(
        |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)),
        "-",
    )
}
