//! Removes secrets from the text of workers and programs.

use super::{
    HIDDEN, address, has_digit, has_file_ending, has_letter, has_token, is_name, is_number, kept,
    names_a_secret, secret_at_end,
};

/// A message without values that are secrets by their name, their form or their place in an
/// address.
pub fn message(text: &str) -> String {
    let text = &without_private_keys(text);
    let mut hides_rest = false;
    // The quote that ends a value of several words.
    let mut quoted: Option<char> = None;
    let mut option: Option<String> = None;
    let (mut is_name_alone, mut is_assigned) = (false, false);
    let parts = text.split_inclusive([' ', '\n', ',']).flat_map(|part| {
        // The pairs of a connection or a query.
        let is_pairs = !part.contains("://") && part.contains('=');
        part.split_inclusive(move |c| is_pairs && ";&?#".contains(c))
    });
    let words = parts.map(|part| {
        let word = part.trim_end_matches([' ', '\n', ',', ';', '&', '?', '#']);
        if word.is_empty() {
            return part.to_owned();
        }
        // `['serve', '--token', 'VALUE']`, as Python prints a command.
        let bare = word.trim_matches(|c| "[]()'\"".contains(c));
        let asked = option.take().filter(|_| !bare.starts_with('-'));
        let is_listed = part.ends_with(' ') || bare.len() < word.len();
        if let Some(name) = secret_at_end(bare)
            && bare.starts_with('-')
            && is_listed
        {
            option = Some(name.to_owned());
        }
        let lower = word.to_ascii_lowercase();
        let named = named_value(word);
        let heads = named.is_some_and(|(name, value)| {
            value.is_empty()
                && word.ends_with(':')
                && !word.contains('=')
                && !counts(name)
                && !name.ends_with("Error")
        });
        // `token = VALUE`, `environ["TOKEN"] = VALUE`.
        let follows_name = is_name_alone;
        let is_value = std::mem::take(&mut is_assigned);
        is_assigned = ["=", ":", "=>", "->"].contains(&word) && is_name_alone;
        let alone = bare.rsplit(['[', '(', '{', '"', '\'']).next();
        let alone = alone.unwrap_or_default().trim_matches('_');
        is_name_alone = names_a_secret(alone)
            && is_name(alone)
            && !counts(alone)
            && !has_file_ending(alone)
            && named.is_none();
        // `token Ab12Cd`.
        let is_value =
            is_value || follows_name && bare.len() >= 6 && has_digit(bare) && has_letter(bare);
        let opens = heads || lower == "bearer";
        let is_quoted = quoted.is_some();
        quoted = quoted.filter(|quote| !word.contains(*quote) && !part.ends_with('\n'));
        let is_hidden = hides_rest || is_quoted || has_token(word);
        hides_rest |= opens;
        if is_hidden {
            return format!("{HIDDEN}{}", &part[word.len()..]);
        }
        let value = if is_value {
            word
        } else {
            named.map_or("", |(_, value)| value)
        };
        let scheme = value.trim_matches(['"', '\'']).to_ascii_lowercase();
        hides_rest |= ["basic", "bearer", "token"].contains(&scheme.as_str());
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        quoted = quote.filter(|quote| value.matches(*quote).count() == 1 && !part.ends_with('\n'));
        let shown = match word.split_once("://") {
            _ if asked.is_some() => {
                kept(word, &asked.unwrap_or_default(), &|_, _| HIDDEN.to_owned())
            }
            Some((scheme, rest)) if rest.contains(['@', '?']) || rest.contains('=') => {
                address(scheme, rest, &|_, _| HIDDEN.to_owned())
            }
            None if !value.is_empty()
                && !is_number(value.trim_end_matches([':', ')', ']', '}'])) =>
            {
                format!("{}{HIDDEN}", &word[..word.len() - value.len()])
            }
            _ => word.to_owned(),
        };
        format!("{shown}{}", &part[word.len()..])
    });
    words.collect()
}

/// A text without the private keys and certificates in it.
fn without_private_keys(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, key)) = rest.split_once("-----BEGIN ") {
        kept += &format!("{before}{HIDDEN}");
        // Behind the last line's own dashes.
        let end = key.split_once("-----END ");
        rest = end
            .and_then(|(_, end)| end.split_once("-----"))
            .map_or("", |(_, after)| after);
    }
    kept + rest
}

/// The name of a secret in a word, and its value: `X-Api-Key:VALUE`, `//host/:_authToken=VALUE`,
/// `<password>VALUE`.
fn named_value(word: &str) -> Option<(&str, &str)> {
    let ends = word.match_indices(['=', ':', '>']);
    let mut named = ends.filter_map(|(at, _)| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let before = word[..at].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = before.rsplit(|c| !is_part(c)).next()?;
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        // `multi_token.py:9: KeyError` names a line.
        let is_place = has_file_ending(name) && !word.contains('=');
        let is_secret = names_a_secret(name) && is_name(name) && !is_place;
        is_secret.then(|| (name, &word[at + 1..]))
    });
    named.next()
}

/// `KeyError: missing key: head_dim` has no secret.
fn counts(name: &str) -> bool {
    ["key", "keys", "tokens"].contains(&name)
}
