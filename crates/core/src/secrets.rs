//! What of variables and command lines is written down.
//!
//! Runs and baselines are committed, and printed into pull requests. So a value is kept only of
//! variables on which speed depends and that hold no secret; of others a short checksum.

/// Variables whose values are kept: settings of threads, allocators, compilers and GPUs.
const KEPT: &str = include_str!("kept_variables.txt");

/// Words in the names of variables and options whose values are secrets.
const SECRET: [&str; 13] = [
    "key",
    "token",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "credential",
    "auth",
    "cookie",
    "private",
    "bearer",
    "session",
    "signature",
];

/// How well-known tokens begin.
const TOKENS: [&str; 14] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "nvapi-",
    "AKIA",
    "ASIA",
    "xoxb-",
    "xoxp-",
    "pypi-Ag",
    "eyJ",
];

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// True for the name of a variable or an option whose value is a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// True for a number as `--num-splits-key 4` has it.
fn small(value: &str) -> bool {
    value.len() <= 3 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// What is kept of a variable: its value where that is harmless, nothing of a secret, and of any
/// other a checksum of 16 bits. That tells nearly every change, and fits too many values for
/// one of them to be found by it.
pub fn variable(name: &str, value: &str) -> Option<String> {
    if KEPT.split_whitespace().any(|kept| kept == name) {
        return Some(word(value));
    }
    let sum = || crc32fast::hash(format!("{name}={value}").as_bytes()) & 0xffff;
    (!names_a_secret(name)).then(|| format!("hidden:{:04x}", sum()))
}

/// A command line without secrets: the values of options and variables that name one, tokens by
/// how they begin, and passwords in addresses.
pub fn command_line(words: &[String]) -> Vec<String> {
    let mut hide_next = false;
    let kept = words.iter().map(|text| {
        let is_option = text.starts_with('-');
        if std::mem::take(&mut hide_next) && !is_option && !small(text) {
            return HIDDEN.to_owned();
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let assigned = value.is_some() && name.chars().all(plain);
        if (is_option || assigned) && names_a_secret(name) {
            match value {
                Some(value) if !small(value) => return format!("{name}={HIDDEN}"),
                Some(_) => {}
                None => hide_next = true,
            }
        }
        word(text)
    });
    kept.collect()
}

/// A word without the token or the password in it; one with spaces is a command line again.
fn word(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.contains("authorization:") || lower.contains("bearer ") {
        return HIDDEN.to_owned();
    }
    if text.contains(' ') {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        return command_line(&words).join(" ");
    }
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "_-.+/".contains(c));
    let mut found = String::new();
    for part in text.split_inclusive(ends) {
        let begins = |token: &str| part.starts_with(token) && part.len() > token.len() + 8;
        match TOKENS.into_iter().any(begins) {
            true => found.push_str(HIDDEN),
            false => found.push_str(part),
        }
    }
    // `https://user:password@host`.
    let Some((scheme, rest)) = found.split_once("://") else {
        return found;
    };
    let host = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..host].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variables_value_is_kept_where_its_name_is_known_and_of_no_secret() {
        assert_eq!(variable("OMP_NUM_THREADS", "4").as_deref(), Some("4"));
        for name in [
            "NVIDIA_API_KEY",
            "TORCH_HUB_TOKEN",
            "JAX_Auth",
            "CUDA_DB_PASSWORD",
        ] {
            assert_eq!(variable(name, "1234"), None, "{name}");
        }
        let hidden = |value| variable("NCCL_PLUGIN_OPTIONS", value).unwrap();
        assert_ne!(hidden("hunter2"), hidden("hunter3"));
        assert!(hidden("hunter2").starts_with("hidden:") && hidden("hunter2").len() == 11);
        let flags = variable("XLA_FLAGS", "--a=1,ghp_0123456789abcdef0123");
        assert_eq!(flags.as_deref(), Some("--a=1,***"));
    }

    #[test]
    fn a_command_line_is_kept_without_its_secrets() {
        for (line, kept) in [
            (
                "serve --api-key=hunter2 --port=8000",
                "serve --api-key=*** --port=8000",
            ),
            ("serve --token hunter2 --quiet", "serve --token *** --quiet"),
            ("serve --use-auth --quiet", "serve --use-auth --quiet"),
            (
                "env API_KEY=hunter2 OMP_NUM_THREADS=4 serve",
                "env API_KEY=*** OMP_NUM_THREADS=4 serve",
            ),
            (
                "serve https://me:hunter2@host/a@b",
                "serve https://***@host/a@b",
            ),
            ("serve --hub hf_0123456789abcdef0123", "serve --hub ***"),
            (
                "regatta run --set torch/sdpa.num_splits_key=1",
                "regatta run --set torch/sdpa.num_splits_key=1",
            ),
            (
                "serve --num-splits-key 4 --tile-keys=128",
                "serve --num-splits-key 4 --tile-keys=128",
            ),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(command_line(&words).join(" "), kept);
        }
        let spec = ["worker:mine=./serve --api-key=hunter2".to_owned()];
        assert_eq!(command_line(&spec), ["worker:mine=./serve --api-key=***"]);
        let header = ["-H".to_owned(), "Authorization: Bearer hunter2".to_owned()];
        assert_eq!(command_line(&header), ["-H", HIDDEN]);
    }
}
