//! An unmodified benchmark script in place of a suite: `script:benchmarks/softmax.py --quick`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::workers::OwnWorker;
use super::{Suite, names_a_file};
use crate::checksum::Checksum;
use crate::secrets;
use crate::text::{plain_name, shell_command};

/// The prefix of a script's path.
const SCRIPT: &str = "script:";

/// A script and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The file.
    pub file: PathBuf,
    /// The arguments that it is started with.
    pub arguments: Vec<String>,
}

impl Script {
    /// The script that a command line names in place of a suite, with its arguments behind it;
    /// `None` where this names a suite.
    ///
    /// # Errors
    /// A quote that is not closed, or a file that is no Python script, as a sentence.
    pub fn parse(text: &str) -> Option<Result<Script, String>> {
        let words = words(text.strip_prefix(SCRIPT)?);
        Some(words.and_then(|words| Script::new(&words)))
    }

    /// The script that these words start: `script:bench.py` and its arguments.
    ///
    /// # Errors
    /// A file that is no Python script, as a sentence.
    pub fn new(words: &[String]) -> Result<Script, String> {
        let (file, arguments) = words.split_first().ok_or_else(|| NO_SCRIPT.to_owned())?;
        let file = file.strip_prefix(SCRIPT).unwrap_or(file);
        if let Some((path, test)) = file.split_once("::") {
            let test = test.rsplit("::").next().unwrap_or(test);
            return Err(format!(
                "`{file}`: choose a test by `{SCRIPT}{path} -- -k {test}`"
            ));
        }
        match Path::new(file).extension().and_then(OsStr::to_str) {
            Some("py") => {}
            Some("ipynb") => {
                return Err(format!(
                    "`{file}`: make a Python file of the notebook by `jupyter nbconvert --to script \
                     {file}`"
                ));
            }
            _ => {
                let end = arguments.iter().position(|word| word.ends_with(".py"));
                return Err(match end {
                    Some(end) => {
                        let whole = [file.to_owned(), arguments[..=end].join(" ")].join(" ");
                        let quoted = shell_command(&[whole]);
                        format!("`{file}`: quote a name that has spaces: `{SCRIPT}{quoted}`")
                    }
                    None => format!("`{file}`: {NO_SCRIPT}"),
                });
            }
        }
        Ok(Script {
            file: PathBuf::from(file),
            arguments: arguments.to_vec(),
        })
    }

    /// The script with its file relative to `folder`.
    pub(super) fn below(self, folder: &Path) -> Script {
        Script {
            file: folder.join(self.file),
            ..self
        }
    }

    /// The script without arguments that may be secrets.
    pub fn without_secrets(mut self) -> Script {
        let program = self.file.to_string_lossy().into_owned();
        let words = [vec![program], self.arguments].concat();
        self.arguments = secrets::command_line(&words).split_off(1);
        self
    }

    /// The script as a command line names it, with its arguments.
    pub fn named(file: &str, arguments: &[String]) -> String {
        if arguments.is_empty() {
            return file.to_owned();
        }
        let dashes = if file.starts_with(SCRIPT) { "" } else { "-- " };
        format!("{file} {dashes}{}", shell_command(arguments))
    }

    /// The same script at another path, as a command line names it.
    pub fn at(&self, path: &str) -> String {
        let path = shell_command(&[path.to_owned()]);
        Script::named(&format!("{SCRIPT}{path}"), &self.arguments)
    }

    /// The suite of its calls, which are known once it has run.
    pub fn suite(self) -> Result<Suite, String> {
        let file_name = |text: &str| {
            let name = plain_name(text);
            if names_a_file(&name) {
                name
            } else {
                format!("script{name}")
            }
        };
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        // The name of a built-in worker never ends in `.py`.
        let worker = file_name(&stem).chars().take(60).collect::<String>() + ".py";
        // Reports and baselines of `a/bench.py` are not those of `b/bench.py`.
        let here = std::env::current_dir().unwrap_or_default();
        let file = self.file.strip_prefix(here).unwrap_or(&self.file);
        let path = file.strip_prefix(".").unwrap_or(file).with_extension("");
        let path = path.to_string_lossy().replace('/', ".");
        let end = path
            .char_indices()
            .rev()
            .nth(99)
            .map_or(0, |(place, _)| place);
        let mut name = file_name(&path[end..]);
        if name != path {
            // Two paths may have the same name in plain characters, but need different reports.
            name = format!("{name}-{}", Checksum::new([path]).name());
        }
        let mut suite = Suite {
            description: format!("calls that {} has timed", self.file.display()),
            name: name.clone(),
            ..Suite::default()
        };
        suite.scripts.insert(worker.clone());
        suite.workers.insert(worker, OwnWorker::Script(self));
        Ok(suite)
    }
}

const NO_SCRIPT: &str = "name a Python file, with arguments behind it: `script:bench.py --quick`";

/// The words of a command line as a POSIX shell splits it.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None) => word.get_or_insert_default().extend(characters.next()),
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(format!("`{text}`: a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_recorded_without_secrets() {
        let text = "script:bench.py 64 --token S3cret -password S3cret --mode fast API_KEY=S3cret";
        let script = Script::parse(text).unwrap().unwrap().without_secrets();
        let shown = "64 --token *** -p*** *** --mode fast API_KEY=***";
        assert_eq!(script.arguments.join(" "), shown);
        let plain = "script:bench.py --benchmark Rows --sizes 1,2";
        let same = Script::parse(plain).unwrap().unwrap().without_secrets();
        assert_eq!(same.at("bench.py"), plain);
    }

    #[test]
    fn what_is_no_script_has_a_way_to_one() {
        let refused = |text| Script::parse(text).unwrap().unwrap_err();
        let by_name = refused("script:test_a.py::TestRows::test_sum");
        assert!(by_name.ends_with("by `script:test_a.py -- -k test_sum`"));
        let notebook = refused("script:a.ipynb");
        assert!(notebook.ends_with("by `jupyter nbconvert --to script a.ipynb`"));
        assert!(refused("script:a.toml").ends_with(NO_SCRIPT));
    }

    #[test]
    fn a_script_reads_back_with_its_arguments() {
        let arguments = ["--sizes", "1 2", "it's", ""].map(str::to_owned);
        let text = Script::named(
            "script:benchmarks/my bench.py".replace(' ', "_").as_str(),
            &arguments,
        );
        let script = Script::parse(&text).unwrap().unwrap();
        assert_eq!(script.file, Path::new("benchmarks/my_bench.py"));
        assert_eq!(script.arguments, arguments);
        let suite = script.suite().unwrap();
        assert_eq!(suite.name, "benchmarks.my_bench");
        assert!(suite.scripts.contains("my_bench.py"));
        let name = |text: &str| Script::parse(text).unwrap().unwrap().suite().unwrap().name;
        let names = [
            "script:é.py",
            "script:è.py",
            "script:'a b.py'",
            "script:a-b.py",
        ]
        .map(name);
        assert!(names[0] != names[1] && names[2] != names[3], "{names:?}");
        let here = std::env::current_dir().unwrap().display().to_string();
        let names = ["./a/bench.py", "a/bench.py", &format!("{here}/a/bench.py")];
        for path in names {
            assert_eq!(name(&format!("script:{path}")), "a.bench");
        }
        let long = format!("script:{}/bench.py", "a".repeat(300));
        for other in ["script:/a/bench.py", "script:../a/bench.py", &long] {
            let name = name(other);
            assert!(name != "a.bench" && names_a_file(&name), "{name}");
        }
        let spaced = Script::parse("script:my own bench.py --rows 4").unwrap();
        let words = "`my`: quote a name that has spaces: `script:'my own bench.py'`";
        assert_eq!(spaced, Err(words.to_owned()));
        assert_eq!(Script::parse("quick"), None);
        for wrong in ["script:", "script:bench", "script:'bench.py"] {
            assert!(Script::parse(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}
