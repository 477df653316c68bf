//! The kernel files: their texts inside the binary, and the architectures that each supports.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use regatta_core::input;

/// A kernel file in the binary.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The file's name without its extension.
    pub name: &'static str,
    /// The only architecture that it supports, if it uses instructions specific to one.
    only: Option<Arch>,
    text: &'static str,
}

macro_rules! kernel {
    ($name:literal, $only:expr) => {
        File {
            name: $name,
            only: $only,
            text: include_str!(concat!("../../../../kernels/", $name, ".cu")),
        }
    };
}

macro_rules! embedded {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../kernels/", $name)))
    };
}

/// Every kernel file.
pub const FILES: [File; 10] = [
    kernel!("naive", None),
    kernel!("flash_simt", None),
    kernel!("split_key", None),
    kernel!("flash_mma", None),
    kernel!("flash_mma_backward", None),
    kernel!("flash_wgmma", Some(Arch::SM_90A)),
    kernel!("flash_wgmma_backward", Some(Arch::SM_90A)),
    kernel!("split_kv", None),
    kernel!("reference", None),
    kernel!("inputs", None),
];

/// The headers that they share: name and text.
const HEADERS: [(&str, &str); 9] = [
    embedded!("device.cuh"),
    embedded!("hopper.cuh"),
    embedded!("mma_tile.cuh"),
    embedded!("problem.cuh"),
    embedded!("simt_backward.cuh"),
    embedded!("simt_tile.cuh"),
    embedded!("split_kv_part.cuh"),
    embedded!("wgmma_backward.cuh"),
    embedded!("wgmma_forward.cuh"),
];

/// The input of a compiler: a kernel file and its headers.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// The file's name without its extension.
    pub name: String,
    /// The text of the file.
    pub text: Cow<'static, str>,
    /// Headers in quotes that it includes, directly or not: name and text, sorted.
    pub headers: Vec<(String, Cow<'static, str>)>,
    /// Compiler options, in addition to those of every compilation.
    pub options: Vec<String>,
}

/// The reason for which a kernel file of this name does not support an architecture, if any.
pub fn refuses(name: &str, arch: Arch) -> Option<String> {
    let known = FILES.iter().find(|file| file.name == name);
    match known.and_then(|file| file.only) {
        Some(only) if arch != only => {
            Some(format!("it is made of instructions that {only} alone has"))
        }
        _ if arch < Arch::SM_80 => Some(format!("it needs {} or later", Arch::SM_80)),
        _ => None,
    }
}

impl KernelSource {
    /// A kernel file of the binary, by its name without extension.
    pub fn embedded(name: &str) -> Option<KernelSource> {
        let file = FILES.iter().find(|file| file.name == name)?;
        Some(KernelSource {
            name: name.to_owned(),
            headers: closure(file.text, header),
            text: Cow::Borrowed(file.text),
            options: Vec::new(),
        })
    }

    /// Reads a kernel file from disk. Its headers are beside it, or else those of the binary.
    ///
    /// # Errors
    /// The file that cannot be read, or that has no valid name.
    pub fn read(path: &Path) -> Result<KernelSource, String> {
        let unread = |why: &dyn fmt::Display| format!("cannot read {}: {why}", path.display());
        let text = input::text(path, input::WRITTEN_BY_HAND).map_err(|error| unread(&error))?;
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let name = name.ok_or_else(|| unread(&"its name is not UTF-8"))?;
        let folder: PathBuf = path.parent().unwrap_or(Path::new(".")).to_owned();
        let find = |name: &str| {
            let beside = input::text(&folder.join(name), input::WRITTEN_BY_HAND);
            beside.ok().map(Cow::Owned).or_else(|| header(name))
        };
        Ok(KernelSource {
            name: name.to_owned(),
            headers: closure(&text, find),
            text: Cow::Owned(text),
            options: Vec::new(),
        })
    }

    /// Files beside a kernel file that it includes, directly or not; empty if it cannot be read.
    pub fn included_files(path: &Path) -> Vec<PathBuf> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let Ok(source) = KernelSource::read(path) else {
            return Vec::new();
        };
        let names = source.headers.into_iter();
        let files = names.map(|(name, _)| folder.join(name));
        files.filter(|file| file.is_file()).collect()
    }

    /// The same source with these options.
    pub fn with_options(mut self, options: &[String]) -> KernelSource {
        self.options = options.to_vec();
        self
    }

    /// The file's name with its extension, as in the compiler's messages.
    pub fn file_name(&self) -> String {
        format!("{}.cu", self.name)
    }
}

/// A header in the binary.
fn header(name: &str) -> Option<Cow<'static, str>> {
    let header = HEADERS.iter().find(|(header, _)| *header == name);
    header.map(|(_, text)| Cow::Borrowed(*text))
}

/// All headers that a text includes in quotes, directly or not. Missing ones are left out, because
/// the compiler reports them.
fn closure(
    text: &str,
    find: impl Fn(&str) -> Option<Cow<'static, str>>,
) -> Vec<(String, Cow<'static, str>)> {
    let mut headers: Vec<(String, Cow<'static, str>)> = Vec::new();
    let mut wanted = included(text);
    while let Some(name) = wanted.pop() {
        if headers.iter().any(|(there, _)| *there == name) {
            continue;
        }
        if let Some(text) = find(&name) {
            wanted.extend(included(&text));
            headers.push((name, text));
        }
    }
    headers.sort();
    headers
}

/// Names after `#include`, in quotes.
fn included(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start();
        let rest = rest.strip_prefix("include")?.trim_start();
        Some(rest.strip_prefix('"')?.split_once('"')?.0.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_through_headers() {
        let names = |source: KernelSource| {
            let names = source.headers.into_iter().map(|(name, _)| name);
            names.collect::<Vec<_>>()
        };
        let all = [
            "device.cuh",
            "problem.cuh",
            "simt_backward.cuh",
            "simt_tile.cuh",
        ];
        assert_eq!(names(KernelSource::embedded("split_key").unwrap()), all);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/split_key.cu");
        assert_eq!(names(KernelSource::read(Path::new(path)).unwrap()), all);
        assert!(KernelSource::embedded("no_such").is_none());
    }
}
