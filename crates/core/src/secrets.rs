//! Keeps secrets out of files and streams: variables, command lines and a worker's text.
//!
//! Runs and baselines are committed, and printed into pull requests. So the value of a variable is
//! kept only if speed depends on it and it is known to hold no secret; other variables get a short
//! checksum. On a command line, only words that are known to be harmless are kept: the program,
//! paths, the names of options, numbers, and plain words of known options (`PLAIN_OPTIONS`).

mod message;

use crate::text::is_listed;
pub use message::message;

/// Variables whose values are kept: settings of threads, allocators, compilers and GPUs.
const KEPT_VARIABLES: &str = include_str!("kept_variables.txt");

/// Options and keys whose values are kept if they are plain words: regatta's own, and common
/// settings of benchmarks. Of a longer name the last word decides: `attn-backend`.
const PLAIN_OPTIONS: &str = include_str!("kept_options.txt");

/// Words in the names of variables and options whose values are secrets.
const SECRET: &str = "key token secret passw passphrase storepass passcode pwd cred auth cookie \
     private bearer session signature webhook";

/// Words that mark a secret only as a whole part of a name: `pass`, and not `bypass`.
const SECRET_ALONE: &str = "pass pat pin otp totp mfa pw sid sig jwt u p";

/// Names with a word of [`SECRET`] that count something, whose numeric values are kept.
const COUNTS: [&str; 2] = ["keys", "tokens"];

/// The beginnings of well-known tokens.
const TOKENS: &str = "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- hf_ sk- sk_live_ nvapi- AKIA \
     ASIA xoxb- xoxp- npm_ pypi-Ag eyJ AIza ya29. GOCSPX- xapp- dckr_pat_ SG. sk_test_ rk_live_ \
     gsk_ AGE-SECRET-KEY- xoxa- xoxr- xoxs- pk_live_ whsec_ shpat_ dop_v1_ hvs. dp.pt. lin_api_ \
     LTAI r8_ glrt- glptt- gldt- figd_ ATATT PMAK- NRAK- xai- pplx- rubygems_ pscale_tkn_ ntn_";

/// The possible first words of a version in a comparison.
const SCHEMES: [&str; 7] = ["worker", "git", "env", "pypi", "lock", "run", "script"];

/// Words that are settings under any option.
const SETTINGS: &str = "true false yes no on off auto none default all cpu cuda gpu tpu here f16 f32 f64 \
     bf16 fp8 fp16 fp32 fp64 tf32 int8 float16 float32 float64 bfloat16 half float double forward \
     backward both causal full hot cold debug release";

/// Extensions of files.
const FILE_EXTENSIONS: &str = "py pl rb sh js toml json jsonl yaml yml txt csv html md xml so o a cu cuh c cc \
     cpp h hpp rs whl trace svg png gz";

/// The text that replaces a secret.
pub const HIDDEN: &str = "***";

/// True for the name of a variable or an option whose value is a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.split_whitespace().any(|word| name.contains(word))
        || parts(&name).any(|part| is_listed(part, SECRET_ALONE))
}

/// The part of a variable that is kept: its value if that is harmless, nothing for a secret, and
/// for any other variable a checksum of 16 bits. That shows nearly every change, and too many
/// values have the same checksum for the value to be guessed from it.
pub fn variable(name: &str, value: &str) -> Option<String> {
    if is_listed(name, KEPT_VARIABLES) {
        return Some(message(value));
    }
    (!names_a_secret(name)).then(|| checksum(name, value))
}

fn checksum(name: &str, value: &str) -> String {
    let sum = crc32fast::hash(format!("{name}={value}").as_bytes()) & 0xffff;
    format!("hidden:{sum:04x}")
}

/// A command line with all but harmless words hidden.
pub fn command_line(words: &[String]) -> Vec<String> {
    line(words, &|_, _| HIDDEN.to_owned())
}

/// A command line as [`command_line`] keeps it, with a checksum of 16 bits for each hidden value
/// that is not a secret by its name, so that commands with different values stay different.
pub fn identified(words: &[String]) -> Vec<String> {
    line(words, &|name, value| {
        if names_a_secret(name) {
            HIDDEN.to_owned()
        } else {
            checksum(name, value)
        }
    })
}

/// Makes the text that stands for a hidden value, from its name and the value.
type Hide<'a> = &'a dyn Fn(&str, &str) -> String;

fn line(words: &[String], hide: Hide) -> Vec<String> {
    let mut option: Option<String> = None;
    // A name without the dash of an option, or a name with text before it.
    let mut named: Option<String> = None;
    let mut is_pem = false;
    let each = words.iter().enumerate().map(|(place, text)| {
        let name = option.take();
        let before = named.take();
        if is_pem {
            return hide("", text);
        }
        is_pem = text.starts_with("-----BEGIN");
        if before.is_some() && ["=", ":"].contains(&text.as_str()) {
            named = before;
            return text.clone();
        }
        if place > 0 {
            named = secret_at_end(text).map(str::to_owned);
        }
        if let Some(written) = flag(text) {
            return match written {
                Flag::Alone(name) => {
                    named = None;
                    option = Some(name.to_owned());
                    text.clone()
                }
                Flag::Known => text.clone(),
                Flag::Value(before, name, value) => format!("{before}{}", kept(value, name, hide)),
            };
        }
        if let Some(before) = before {
            return kept(text, &before, &|_, value| hide("", value));
        }
        match name {
            Some(name) => kept(text, &name, hide),
            None if place == 0 && !text.contains([' ', '=', ':', '?']) => program(text, hide),
            None => kept(text, "", hide),
        }
    });
    each.collect()
}

/// The name of a secret at the end of a word, whose value may be the next word: `TOKEN`,
/// `-password`, `/ApiKey`, `--args=--token`.
fn secret_at_end(text: &str) -> Option<&str> {
    let last = text.rsplit(['=', ':']).next()?;
    let name = last.trim_matches(['"', '\'', '-', '/']);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (name.chars().all(plain) && names_a_secret(name)).then_some(name)
}

/// An option of a command line.
enum Flag<'a> {
    /// The name; the next word may be its value.
    Alone(&'a str),
    /// An option of compilers, with a harmless value.
    Known,
    /// The text before its value, its name, and the value.
    Value(&'a str, &'a str, &'a str),
}

fn flag(text: &str) -> Option<Flag<'_>> {
    let name = text.strip_prefix('-')?;
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let long = name.strip_prefix('-');
    let whole = long.unwrap_or(name);
    let by_colon = whole.split_once(':');
    let by_colon = by_colon.filter(|(name, _)| long.is_some() && names_a_secret(name));
    if let Some((name, value)) = whole.split_once('=').or(by_colon) {
        let before = &text[..text.len() - value.len()];
        return is_name(name).then_some(Flag::Value(before, name, value));
    }
    match long {
        Some(name) if name.is_empty() || is_name(name) => Some(Flag::Alone(name)),
        Some(_) => None,
        None if name.len() == 1 => Some(Flag::Alone(name)),
        None if is_of_compilers(name) => Some(Flag::Known),
        // `-lc` of a shell, whose next word is a command.
        None if name.len() == 2 && name.ends_with('c') => Some(Flag::Alone("c")),
        // `-pVALUE`, and words that begin with one dash.
        None => {
            let end = name.chars().next().map_or(0, char::len_utf8) + 1;
            Some(Flag::Value(&text[..end], &text[1..end], &text[end..]))
        }
    }
}

fn is_of_compilers(name: &str) -> bool {
    let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
    let plain = rest
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    match first {
        "O" => rest.len() == 1 || rest == "fast",
        "W" | "f" => plain || rest == "PIC",
        "j" => is_number(rest),
        _ => ["shared", "pthread", "march", "gencode", "arch", "std"].contains(&name),
    }
}

/// True for a possible name of an option, a key or a variable.
fn is_name(text: &str) -> bool {
    let letters = text.chars().any(|c| c.is_ascii_alphabetic());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:*,".contains(c);
    let mixed = has_upper(text) && has_lower(text) && has_digit(text);
    text.len() <= 80 && letters && text.chars().all(plain) && !mixed && !has_token(text)
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn has_lower(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
}

fn has_letter(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn has_token(text: &str) -> bool {
    let begins = |part: &str, token: &str| part.starts_with(token) && part.len() > token.len() + 8;
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-.+/".contains(c)));
    words.any(|word| {
        let mut parts = std::iter::once(word).chain(word.split('/'));
        parts.any(|part| TOKENS.split_whitespace().any(|token| begins(part, token)))
    })
}

/// The words of a name.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// True for an option whose plain words are kept.
fn keeps_words(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = parts(&name).last().unwrap_or_default();
    is_listed(&name, PLAIN_OPTIONS) || is_listed(last, PLAIN_OPTIONS)
}

/// The kept part of a value, where `name` is its option or key, or empty for a word without one.
fn kept(text: &str, name: &str, hide: Hide) -> String {
    let number = is_number(text);
    if name == "num_splits_key" || name == "num-splits-key" || name == "seed" {
        if number || text == "auto" {
            return text.to_owned();
        }
    } else if names_a_secret(name) {
        let lower = name.to_ascii_lowercase();
        let counts = parts(&lower).any(|part| COUNTS.contains(&part));
        // `--tile-keys 4` counts keys, and `-u` is also a switch of Python.
        let harmless = if name.len() == 1 {
            is_file(text)
        } else {
            number && (counts || text.len() <= 2)
        };
        return if harmless {
            text.to_owned()
        } else {
            hide(name, text)
        };
    }
    if text.is_empty() || number || is_listed(text, SETTINGS) {
        return text.to_owned();
    }
    if text.contains(char::is_whitespace) {
        return phrase(text, name, hide);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return address(scheme, rest, hide);
    }
    let is_pinned = text.starts_with("pypi:");
    if let Some((key, value)) = text.split_once('=')
        && !(is_pinned && text.contains(','))
    {
        return assignment(text, key, value, hide);
    }
    // The targets and sources of a shell's redirections.
    if let Some((before, file)) = text.split_once(['>', '<'])
        && (before.is_empty() || is_number(before))
    {
        let operator = &text[..text.len() - file.len()];
        return format!("{operator}{}", path(file, hide));
    }
    if text.contains(',') {
        let each = text.split(',').map(|part| kept(part, name, hide));
        return each.collect::<Vec<_>>().join(",");
    }
    if let Some((before, after)) = text.split_once(':') {
        if SCHEMES.contains(&before) && (after.is_empty() || is_path_like(after)) {
            return format!("{before}:{}", path(after, hide));
        }
        // `bench.py:softmax`, `package.module:function`, `torch/flash:s4096`.
        let is_known = name.is_empty() || keeps_words(name);
        // `/token:VALUE`.
        let is_option = before
            .strip_prefix('/')
            .is_some_and(|name| !name.contains('/') && names_a_secret(name));
        let names_code = is_known
            && !is_option
            && before.contains(['/', '.'])
            && is_path_like(before)
            && !before.starts_with("//");
        return if names_code && after.split(':').all(is_plain) {
            text.to_owned()
        } else {
            hide(name, text)
        };
    }
    match (is_file(text), name) {
        (true, _) => path(text, hide),
        (false, "") if is_plain(text) => text.to_owned(),
        (false, name) if keeps_words(name) && is_path_like(text) => path(text, hide),
        _ => hide(name, text),
    }
}

/// `KEY=VALUE`, `worker:NAME=PROGRAM`.
fn assignment(text: &str, key: &str, value: &str, hide: Hide) -> String {
    if value.is_empty() || value.starts_with('=') || !is_name(key) {
        // `pypi:NAME==VERSION`.
        let (package, version) = (key, value.trim_start_matches('='));
        let pinned = value.starts_with('=') && is_plain(version) && has_digit(version);
        return if pinned && is_name(package) && !names_a_secret(package) {
            text.to_owned()
        } else {
            hide("", text)
        };
    }
    if key
        .split_once(':')
        .is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    {
        return format!("{key}={}", program(value, hide));
    }
    let name = key.rsplit(['.', '/', ':', '@']).next().unwrap_or(key);
    // A parameter of a variant: `torch/sdpa.backend=flash`.
    if key.contains('/') && is_plain(value) && !names_a_secret(name) {
        return text.to_owned();
    }
    format!("{key}={}", kept(value, name, hide))
}

/// Several words: a command line, up to where a header, a quotation or JSON begins.
fn phrase(text: &str, name: &str, hide: Hide) -> String {
    if !(name.is_empty() || name == "c" || keeps_words(name)) {
        return hide(name, text);
    }
    // The statements of a shell, each a command line.
    let is_operator = |word: &str| ["&&", "||", "|", ";", "!", "2>&1", ">&2"].contains(&word);
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let opaque = |word: &String| {
        let lower = word.to_ascii_lowercase();
        word.ends_with(':')
            || word.contains(['"', '\'', '{', '}', '`', '('])
            || ["bearer", "basic"].contains(&lower.as_str())
    };
    let end = words.iter().position(opaque).unwrap_or(words.len());
    let (mut known, mut statement) = (Vec::new(), Vec::new());
    for word in &words[..end] {
        let last = word.strip_suffix(';').unwrap_or(word);
        if !is_operator(last) && !last.is_empty() {
            statement.push(last.to_owned());
        }
        if is_operator(last) || last.len() < word.len() {
            known.append(&mut line(&std::mem::take(&mut statement), hide));
            let end = if is_operator(last) { last } else { ";" };
            known.push(end.to_owned());
        }
    }
    known.append(&mut line(&statement, hide));
    if end < words.len() {
        known.push(hide("", &words[end..].join(" ")));
    }
    known.join(" ").replace(" ; ", "; ")
}

/// An address such as `https://user:password@host/path?query#fragment`, of which the host and a
/// plain path are kept.
fn address(scheme: &str, rest: &str, hide: Hide) -> String {
    let (place, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{}@", hide("", user)), host),
        None => (String::new(), authority),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let host = if host.chars().all(is_host) {
        host.to_owned()
    } else {
        hide("", host)
    };
    let segments = path.split('/').map(|part| {
        if part.is_empty() || is_plain(part) {
            part.to_owned()
        } else {
            hide("", part)
        }
    });
    let path = segments.collect::<Vec<_>>().join("/");
    let query = query
        .get(..1)
        .map(|mark| mark.to_owned() + &hide("", query));
    let query = query.unwrap_or_default();
    if is_name(scheme.trim_start_matches(['\'', '"', '(', '['])) {
        format!("{scheme}://{user}{host}{path}{query}")
    } else {
        hide("", rest)
    }
}

/// A number with a unit: `4`, `0.05`, `1e-3`, `15m`, `1/4`, `8x8`.
fn is_number(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-./%x".contains(c);
    let first = text.trim_start_matches(['+', '-', '.']);
    (1..=9).contains(&digits)
        && letters <= 2
        && text.len() <= 12
        && first.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(plain)
}

/// A word that a person would write: lower case, and few digits.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.+*@".contains(c);
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    (1..=48).contains(&text.len()) && text.chars().all(plain) && digits <= 8 && !is_random(text)
}

/// A word that looks random: it changes often between letters, capitals and digits.
fn is_random(text: &str) -> bool {
    let kind = |c: char| (c.is_ascii_digit(), c.is_ascii_uppercase());
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    has_token(text)
        || words.any(|word| {
            let kinds: Vec<(bool, bool)> = word.chars().map(kind).collect();
            // A capital that begins a word is one change.
            let changes = kinds.windows(2).filter(|pair| pair[0] != pair[1]);
            let is_hex = word.len() % 8 == 0 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            changes.count() >= 6 && !is_hex
        })
}

/// True for a path, or a name of a part of one.
fn is_path_like(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+*@~^$".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

/// True for a name with the ending of a file.
fn has_file_ending(text: &str) -> bool {
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    is_listed(ending, FILE_EXTENSIONS)
}

/// True for a text that can only be a file: a path with a leading folder, or a name with a file's
/// ending.
fn is_file(text: &str) -> bool {
    let starts = ["/", "./", "../", "~/"];
    let segments = || {
        text.split('/')
            .all(|part| is_plain(part) && !part.is_empty())
    };
    starts.iter().any(|start| text.starts_with(start))
        || is_path_like(text) && has_file_ending(text)
        || text.contains('/') && segments()
        || [".", ".."].contains(&text)
}

/// A path, with those of its parts hidden that look random.
fn path(text: &str, hide: Hide) -> String {
    let each = text.split('/').map(|part| {
        let harmless = part
            .chars()
            .all(|c| c.is_alphanumeric() || "-_.+*@~^,#%$".contains(c));
        if harmless && !is_random(part) {
            part.to_owned()
        } else {
            hide("", part)
        }
    });
    each.collect::<Vec<_>>().join("/")
}

/// The program that a command starts.
fn program(text: &str, hide: Hide) -> String {
    if is_path_like(text) {
        path(text, hide)
    } else {
        kept(text, "", hide)
    }
}

/// A worker's description of its device or a version, without named values and without secrets in
/// addresses.
pub fn description(text: &str) -> String {
    let hide: Hide = &|_, _| HIDDEN.to_owned();
    let words = text.split(' ').map(|word| {
        if word.contains(['=', '"', '{', '?']) {
            kept(word, "", hide)
        } else {
            word.to_owned()
        }
    });
    message(&words.collect::<Vec<_>>().join(" "))
}

/// The hidden values of a command and of variables, as far as they are certainly secrets, so that
/// they can be hidden in a program's output as well.
pub fn hidden_values(
    words: &[String],
    variables: impl IntoIterator<Item = (String, String)>,
) -> Vec<String> {
    let hidden = std::cell::RefCell::new(Vec::new());
    line(words, &|_, value| {
        hidden.borrow_mut().push(value.to_owned());
        HIDDEN.to_owned()
    });
    let mut hidden = hidden.into_inner();
    let is_shown =
        |name: &str, value: &str| variable(name, value).is_some_and(|kept| kept == value);
    let is_address = |value: &str| value.contains("://") && value.contains(['@', '?']);
    let secret = variables.into_iter();
    let secret = secret.filter(|(name, value)| names_a_secret(name) || is_address(value));
    // The working folder and the path of a socket may be shown.
    let secret = secret.filter(|(name, value)| !value.starts_with('/') && !is_shown(name, value));
    hidden.extend(secret.map(|(_, value)| value));
    // A folder may have a random name, which a message must show to be useful.
    let rooted = words
        .iter()
        .filter(|word| word.starts_with(['/', '.', '~']));
    let folders: Vec<&str> = rooted.flat_map(|word| word.split('/')).collect();
    hidden.retain(|value| !folders.contains(&value.as_str()));
    let ends = |c: char| c.is_whitespace() || "\"'{}=:,&?#@".contains(c);
    let parts = hidden.iter().flat_map(|value| value.split(ends));
    let certain = |part: &&str| {
        let drawn = has_digit(part) || has_upper(part);
        part.len() >= 6 && drawn && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    parts.filter(certain).map(str::to_owned).collect()
}

/// Replaces these values in a text.
pub fn masked(mut text: String, hidden: &[String]) -> String {
    for value in hidden {
        if text.contains(value) {
            text = text.replace(value, HIDDEN);
        }
    }
    text
}

#[cfg(test)]
mod tests;
