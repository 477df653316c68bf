//! `regatta schema`: JSON Schemas of every file, message and answer.

mod answers;
mod builds;
mod catalogue;
mod closing;
mod document;
mod history;
mod print;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};

use super::{Ended, Stop, note, print as say};
use document::{Document, Group};
use regatta::report::files;
use regatta::suite::document::nearest;

/// Print the JSON Schema of a file, a message or an answer
///
/// Without a name, what there is. A schema's `$id` carries its version: another minor version
/// has members that the one before did not have, and who reads a document passes over those it
/// does not know; another major version is another format.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    regatta schema\n  \
    regatta schema judgement > judgement.schema.json\n  \
    regatta schema --all schemas")]
pub struct SchemaArgs {
    /// Which; without it, they are listed
    name: Option<String>,

    /// Write all of them into this folder, as NAME.json
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    all: Option<PathBuf>,

    /// List them as JSON; a schema is JSON in any case
    #[arg(long)]
    json: bool,
}

/// The commands whose answers have a schema, sorted.
#[cfg(test)]
pub fn commands() -> Vec<String> {
    let all = catalogue::ALL.iter().flat_map(|one| one.commands);
    let all: std::collections::BTreeSet<&str> = all.copied().collect();
    all.into_iter().map(str::to_owned).collect()
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &SchemaArgs) -> Ended {
    match (&args.name, &args.all) {
        (Some(name), _) => say(text(named(name)?))?,
        (None, Some(folder)) => write(folder)?,
        (None, None) if args.json => {
            let all: Vec<Value> = catalogue::ALL.iter().map(listed).collect();
            say(format!("{}\n", Value::from(all)))?;
        }
        (None, None) => say(list())?,
    }
    Ok(0)
}

fn named(name: &str) -> Result<&'static Document, Stop> {
    let mut all = catalogue::ALL.iter();
    all.find(|document| document.name == name).ok_or_else(|| {
        let names = catalogue::ALL.iter().map(|document| document.name);
        let hint = match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`regatta schema` lists them".to_owned(),
        };
        Stop::Usage(anyhow!("there is no schema `{name}`; {hint}"))
    })
}

/// A schema as it is printed and written.
fn text(document: &Document) -> String {
    print::text(&document.schema())
}

fn listed(document: &Document) -> Value {
    json!({
        "name": document.name,
        "group": document.group.word(),
        "version": document.version_text(),
        "title": document.title,
        "commands": document.commands,
    })
}

fn list() -> String {
    let width = catalogue::ALL.iter().map(|one| one.name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for group in Group::ALL {
        text += &format!("{}\n", group.heading());
        let of = catalogue::ALL.iter().filter(|one| one.group == group);
        for one in of {
            text += &format!("  {:width$}  {}\n", one.name, one.title);
        }
    }
    text
}

/// Writes every schema. What a version says is settled: one that is there already and says
/// something else is not replaced.
fn write(folder: &Path) -> Result<(), Stop> {
    fs::create_dir_all(folder)
        .map_err(|error| Stop::Usage(anyhow!("{} cannot be made: {error}", folder.display())))?;
    for document in catalogue::ALL {
        let path = folder.join(format!("{}.json", document.name));
        let text = text(document);
        let there = fs::read_to_string(&path).unwrap_or_default();
        let id = |text: &str| {
            let schema: Option<Value> = serde_json::from_str(text).ok();
            schema.and_then(|schema| Some(schema.get("$id")?.as_str()?.to_owned()))
        };
        if there != text && id(&there) == Some(document.id()) {
            return Err(Stop::Usage(anyhow!(
                "{} is {} already and says something else; a schema that changed has another \
                 version. Remove the file to write it none the less",
                path.display(),
                document.id()
            )));
        }
        files::write(&path, &text).map_err(Stop::not_judged)?;
    }
    note(format!(
        "{} schemas in {}",
        catalogue::ALL.len(),
        folder.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests;
