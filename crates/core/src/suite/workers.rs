//! `[workers.NAME]`: workers of a suite's own, and how the processes of any come to be.

use super::callable;
use super::document::{DocumentError, Table, Value};
use super::start::{Start, Starting};
use super::{Suite, WorkerCommand};
use regatta_worker::attention::{NAME_RULE, is_name};

/// Reads the `[workers]` of a suite or of `regatta.toml`.
///
/// # Errors
/// The first thing that cannot stand.
pub(super) fn read(root: &Table<'_>, suite: &mut Suite) -> Result<(), DocumentError> {
    let Some(value) = root.get("workers") else {
        return Ok(());
    };
    for (name, value) in value.table()?.entries() {
        named(&name, "a worker", &value)?;
        let table = value.table()?;
        let start = table.get("start");
        if let Some(start) = &start {
            let word = start.string()?;
            let mut known = Start::ALL.into_iter();
            let Some(found) = known.find(|known| known.to_string() == word) else {
                return Err(start.error("use `auto`, `exec` or `fork`"));
            };
            let starting = Starting {
                start: found,
                place: start.place(),
            };
            suite.starts.insert(name.clone(), starting);
        }
        let command = table.get("command");
        let callable = callable::read(&table)?;
        if let (Some(command), Some(_)) = (&command, &callable) {
            return Err(command.error(
                "a worker is a `command`, or the code that `python` or `cuda` names; leave one out",
            ));
        }
        // One of regatta's own has its command.
        if command.is_none() && callable.is_none() && start.is_none() {
            return Err(table.error(
                "`command` is missing, or `python = \"bench.py:attention\"` for functions, or \
                 `cuda = \"attention.cu\"` for kernels",
            ));
        }
        if let Some(callable) = callable {
            suite.workers.remove(&name);
            suite.origins_of_workers.insert(name.clone(), value.place());
            suite.callables.insert(name, callable);
        } else if let Some(command) = command {
            let words = command.arguments()?;
            if words.first().is_none_or(String::is_empty) {
                return Err(command.error("an empty command starts nothing"));
            }
            suite.origins_of_workers.insert(name.clone(), value.place());
            suite.callables.remove(&name);
            suite.workers.insert(name, WorkerCommand(words));
        }
        table.finish()?;
    }
    Ok(())
}

/// Holds the name of an environment or a worker to what ids and names of files can hold.
pub(super) fn named(name: &str, what: &str, value: &Value<'_>) -> Result<(), DocumentError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(value.key_error(format!("this cannot name {what}: use {NAME_RULE}"))),
    }
}
