//! Somebody's code as a worker: Python functions, `python = "bench.py:attention"`, or the kernels of
//! a CUDA file, `cuda = "attention.cu"`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::document::{DocumentError, Table, Value};

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
    /// `cupy.ndarray`
    Cupy,
}

impl Framework {
    /// All of them.
    pub const ALL: [Framework; 4] = [
        Framework::Torch,
        Framework::Jax,
        Framework::Numpy,
        Framework::Cupy,
    ];
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framework::Torch => "torch",
            Framework::Jax => "jax",
            Framework::Numpy => "numpy",
            Framework::Cupy => "cupy",
        })
    }
}

/// Reads `python`, `framework` and `cuda` of a `[workers.NAME]`; `None` where none is there.
///
/// # Errors
/// A `python` or a `cuda` that names no code, both at once, or a framework that there is not.
pub(super) fn read(table: &Table<'_>) -> Result<Option<Callable>, DocumentError> {
    let (framework, cuda) = (table.get("framework"), table.get("cuda"));
    let python = table.get("python");
    if let (Some(python), Some(_)) = (&python, &cuda) {
        return Err(python.error(
            "a worker is the functions that `python` names or the kernels of the file that \
             `cuda` names; leave one out",
        ));
    }
    if let (Some(framework), None) = (&framework, &python) {
        return Err(framework
            .error("`framework` is of the functions that `python` names, and it names none"));
    }
    if let Some(cuda) = cuda {
        return Ok(Some(Callable::Cuda(cuda_file(&cuda, table.folder())?)));
    }
    let Some(python) = python else {
        return Ok(None);
    };
    let (code, function) = named(&python, table.folder())?;
    Ok(Some(Callable::Python(Functions {
        code,
        function,
        framework: framework.as_ref().map(known).transpose()?,
    })))
}

fn cuda_file(value: &Value<'_>, folder: &Path) -> Result<CudaFile, DocumentError> {
    let code = folder.join(value.argument()?);
    if code.extension().is_none_or(|ending| ending != "cu") {
        return Err(value.error("this is no file that ends in `.cu`; write `attention.cu`"));
    }
    Ok(CudaFile {
        contract: code.with_extension("toml"),
        code,
    })
}

fn known(value: &Value<'_>) -> Result<Framework, DocumentError> {
    let word = value.string()?;
    let found = Framework::ALL.into_iter();
    let mut found = found.filter(|framework| framework.to_string() == word);
    let advice = "use `torch`, `jax`, `numpy` or `cupy`";
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
            ("cuda = \"attention.py\"", "ends in `.cu`"),
            ("cuda = \"\"", "ends in `.cu`"),
            ("cuda = \"a.cu\"\nframework = \"torch\"", "it names none"),
            ("cuda = \"a.cu\"\npython = \"a.py\"", "leave one out"),
            (
                "python = \"a.py\"\nframework = \"tf\"",
                "`torch`, `jax`, `numpy` or `cupy`",
            ),
        ] {
            let error = read_from("mine.toml", text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
