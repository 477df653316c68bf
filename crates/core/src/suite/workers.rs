//! `[workers]`: somebody's code as a worker. `workers.mine` is a Python function
//! (`"bench.py:attention"`), the kernels of a CUDA file (`"attention.cu"`), or a command
//! (`["./serve", "--fast"]`).

use std::path::{Path, PathBuf};

use super::file::OneOrMore;

/// A worker of a suite's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnWorker {
    /// The command that starts it.
    Command(WorkerCommand),
    /// Code that regatta serves.
    Code(Callable),
}

/// The command that starts a worker of the suite's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand(pub Vec<String>);

/// A worker that is made of somebody's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callable {
    /// Python functions, which the Python worker calls.
    Python(Functions),
    /// A CUDA file, whose kernels regatta's own worker launches.
    Cuda(CudaFile),
}

/// A CUDA file and its launch contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaFile {
    /// The file, from the folder of the suite that names it.
    pub code: PathBuf,
    /// How its entry points are launched: the file beside it that ends in `.toml`.
    pub contract: PathBuf,
}

/// Python functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Functions {
    /// Where the functions are.
    pub code: PythonCode,
    /// The one function; `None`: each public one that begins with `q, k, v` is a variant.
    pub function: Option<String>,
}

/// Python code, as somebody names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonCode {
    /// A file; its path is from the folder of the suite that names it.
    File(PathBuf),
    /// A module, which is imported.
    Module(String),
}

impl OwnWorker {
    /// The worker that `[workers]` names; files are from `folder`.
    ///
    /// # Errors
    /// What names no code, or a command that starts nothing, as a sentence.
    pub fn parse(written: &OneOrMore<String>, folder: &Path) -> Result<OwnWorker, String> {
        match written {
            OneOrMore::More(words) if words.first().is_none_or(String::is_empty) => {
                Err("an empty command starts nothing".to_owned())
            }
            OneOrMore::More(words) => Ok(OwnWorker::Command(WorkerCommand(words.clone()))),
            OneOrMore::One(name) if name.ends_with(".cu") => {
                let code = folder.join(name);
                Ok(OwnWorker::Code(Callable::Cuda(CudaFile {
                    contract: code.with_extension("toml"),
                    code,
                })))
            }
            OneOrMore::One(name) => {
                let (code, function) = python(name, folder)?;
                Ok(OwnWorker::Code(Callable::Python(Functions {
                    code,
                    function,
                })))
            }
        }
    }
}

/// The code and the function that `bench.py:attention` or `package.module` name.
fn python(text: &str, folder: &Path) -> Result<(PythonCode, Option<String>), String> {
    let (code, function) = match text.rsplit_once(':') {
        Some((code, function)) => (code, Some(function)),
        None => (text, None),
    };
    if let Some(name) = function.filter(|name| !is_identifier(name)) {
        return Err(format!(
            "`{name}` is no name of a Python function; write `bench.py:attention`"
        ));
    }
    let code = if code.ends_with(".py") {
        PythonCode::File(folder.join(code))
    } else if code.split('.').all(is_identifier) {
        PythonCode::Module(code.to_owned())
    } else {
        return Err(
            "this is neither a file that ends in `.py` or `.cu` nor a module; write \
             `bench.py:attention`, `package.module:attention` or `attention.cu`, or a command \
             as a list: `[\"./serve\"]`"
                .to_owned(),
        );
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

    #[test]
    fn what_names_no_code_is_refused_with_what_to_write() {
        for (text, words) in [
            ("bench.py:", "no name of a Python function"),
            ("bench.py:a.b", "no name of a Python function"),
            ("bench.py:f/", "no name of a Python function"),
            ("code/bench", "neither a file that ends in `.py`"),
            ("", "neither a file that ends in `.py`"),
            ("./serve", "`[\"./serve\"]`"),
        ] {
            let written = OneOrMore::One(text.to_owned());
            let error = OwnWorker::parse(&written, Path::new("")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for words in [vec![], vec![String::new()]] {
            let error = OwnWorker::parse(&OneOrMore::More(words), Path::new("")).unwrap_err();
            assert_eq!(error, "an empty command starts nothing");
        }
    }
}
