//! Python functions as a worker: `python = "bench.py:attention"`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::document::{DocumentError, Table, Value};

/// A worker that is made of somebody's Python functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callable {
    /// Where the functions are.
    pub code: PythonCode,
    /// The one function; `None`: each public one that begins with `q, k, v` is a variant.
    pub function: Option<String>,
    /// Whose arrays they take; `None`: what their annotations and imports say.
    pub framework: Option<Framework>,
}

/// Python code, as somebody names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonCode {
    /// A file; its path is from the folder of the suite that names it.
    File(PathBuf),
    /// A module, which is imported.
    Module(String),
}

/// A library of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// `torch.Tensor`
    Torch,
    /// `jax.Array`
    Jax,
    /// `numpy.ndarray`
    Numpy,
}

impl Framework {
    /// All of them.
    pub const ALL: [Framework; 3] = [Framework::Torch, Framework::Jax, Framework::Numpy];
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framework::Torch => "torch",
            Framework::Jax => "jax",
            Framework::Numpy => "numpy",
        })
    }
}

/// Reads `python` and `framework` of a `[workers.NAME]`; `None` where neither is there.
///
/// # Errors
/// A `python` that names no code, or a framework that there is not.
pub(super) fn read(table: &Table<'_>) -> Result<Option<Callable>, DocumentError> {
    let framework = table.get("framework");
    let Some(python) = table.get("python") else {
        return match framework {
            Some(framework) => Err(framework
                .error("`framework` is of the functions that `python` names, and it names none")),
            None => Ok(None),
        };
    };
    let (code, function) = named(&python, table.folder())?;
    Ok(Some(Callable {
        code,
        function,
        framework: framework.as_ref().map(known).transpose()?,
    }))
}

fn known(value: &Value<'_>) -> Result<Framework, DocumentError> {
    let word = value.string()?;
    let found = Framework::ALL.into_iter();
    let mut found = found.filter(|framework| framework.to_string() == word);
    let advice = "use `torch`, `jax` or `numpy`";
    found.next().ok_or_else(|| value.error(advice))
}

/// The code and the function that `bench.py:attention` or `package.module` name.
fn named(value: &Value<'_>, folder: &Path) -> Result<(PythonCode, Option<String>), DocumentError> {
    let text = value.argument()?;
    let (code, function) = match text.rsplit_once(':') {
        Some((code, function)) => (code, Some(function)),
        None => (text.as_str(), None),
    };
    if function.is_some_and(|name| !is_identifier(name)) {
        return Err(value.error(format!(
            "`{}` is no name of a Python function; write `bench.py:attention`",
            function.unwrap_or_default()
        )));
    }
    let code = if code.ends_with(".py") {
        PythonCode::File(folder.join(code))
    } else if code.split('.').all(is_identifier) {
        PythonCode::Module(code.to_owned())
    } else {
        return Err(value.error(
            "this is neither a file that ends in `.py` nor a module; write `bench.py:attention` \
             or `package.module:attention`",
        ));
    };
    Ok((code, function.map(str::to_owned)))
}

/// True for what Python takes as a name, of those in ASCII.
fn is_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::document::Source;

    fn read_from(label: &str, text: &str) -> Result<Option<Callable>, DocumentError> {
        let source = Source {
            label: label.to_owned(),
            text: text.to_owned(),
        };
        source.read(read)
    }

    #[test]
    fn a_file_is_looked_for_beside_the_suite() {
        let text = "python = \"bench.py:attention\"\nframework = \"jax\"\n";
        let found = read_from("suites/mine.toml", text).unwrap().unwrap();
        assert_eq!(found.code, PythonCode::File("suites/bench.py".into()));
        assert_eq!(found.function.as_deref(), Some("attention"));
        assert_eq!(found.framework, Some(Framework::Jax));
        let here = read_from("mine.toml", "python = \"code/bench.py\"\n").unwrap();
        let here = here.unwrap();
        assert_eq!(here.code, PythonCode::File("code/bench.py".into()));
        assert_eq!((here.function, here.framework), (None, None));
        let module = read_from("mine.toml", "python = \"my.ops:flash\"\n").unwrap();
        assert_eq!(
            module.unwrap().code,
            PythonCode::Module("my.ops".to_owned())
        );
    }

    #[test]
    fn what_names_no_code_is_refused_with_what_to_write() {
        for (text, words) in [
            ("python = \"bench.py:\"", "no name of a Python function"),
            ("python = \"bench.py:a.b\"", "no name of a Python function"),
            ("python = \"bench.py:f/\"", "no name of a Python function"),
            (
                "python = \"code/bench\"",
                "neither a file that ends in `.py`",
            ),
            ("python = \"\"", "neither a file that ends in `.py`"),
            ("python = 3", "python"),
            ("framework = \"torch\"", "it names none"),
            (
                "python = \"a.py\"\nframework = \"tf\"",
                "`torch`, `jax` or `numpy`",
            ),
        ] {
            let error = read_from("mine.toml", text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
