//! Which shard this is: as it is written, or as a scheduler says it.

use anyhow::{Context, anyhow};

use regatta::suite::shard::Place;

/// The shard that `text` asks for: `3/8`, or `env` and `env/8`, for which `variable` is asked.
///
/// # Errors
/// What is wrong with it, or with the variables.
pub fn wanted(text: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Place> {
    let of = match text.split_once('/') {
        None if text == "env" => None,
        Some(("env", of)) => {
            let number = of.parse::<u32>();
            Some(number.with_context(|| format!("--shard {text}: {of:?} is no number of shards"))?)
        }
        _ => return text.parse().with_context(|| format!("--shard {text}")),
    };
    let number = |name: &str| -> anyhow::Result<Option<u32>> {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let number = value.trim().parse();
        let number = number.with_context(|| format!("--shard {text}: {name}={value}"))?;
        Ok(Some(number))
    };
    let said = scheduled(&number)?;
    let Said { index, total, from } = match said.as_slice() {
        [one] => *one,
        [] => {
            return Err(anyhow!(
                "--shard {text}: no variable says which shard this is; SLURM_ARRAY_TASK_ID (a \
                 Slurm array), JOB_COMPLETION_INDEX (an indexed Job of Kubernetes) and \
                 CI_NODE_INDEX (GitLab's `parallel`) are asked; write --shard I/N"
            ));
        }
        several => {
            let names: Vec<&str> = several.iter().map(|said| said.from).collect();
            return Err(anyhow!(
                "--shard {text}: {} both say which shard this is; write --shard I/N",
                names.join(" and ")
            ));
        }
    };
    let of = match (of, total) {
        (Some(of), Some(total)) if of != total => {
            return Err(anyhow!(
                "--shard {text}: of {of} shards, but {from} is of {total}"
            ));
        }
        (Some(of), _) => of,
        (None, Some(total)) => total,
        (None, None) => {
            return Err(anyhow!(
                "--shard {text}: {from} does not say how many shards there are; write --shard env/N"
            ));
        }
    };
    Place::new(index, of).with_context(|| format!("--shard {text}: {from}"))
}

/// What a scheduler says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    /// Which shard this is, from 1.
    index: u32,
    /// Of how many, where that is said.
    total: Option<u32>,
    /// The variable.
    from: &'static str,
}

/// What each scheduler says that is there.
///
/// Slurm: an array's numbers begin where its user wants, and go up by its step
/// (`--array=0-15:5`); it may have gaps (`--array=2,5`), and then the count is not that of the
/// shards, so both ends must fit it. Kubernetes: an indexed Job counts from 0, and tells the
/// number to nobody. GitLab: `parallel: N` counts from 1.
fn scheduled(number: &impl Fn(&str) -> anyhow::Result<Option<u32>>) -> anyhow::Result<Vec<Said>> {
    let mut found = Vec::new();
    if let Some(task) = number("SLURM_ARRAY_TASK_ID")? {
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let last = number("SLURM_ARRAY_TASK_MAX")?;
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let count = number("SLURM_ARRAY_TASK_COUNT")?;
        let from = "SLURM_ARRAY_TASK_ID";
        let place = task.checked_sub(first).filter(|off| off % step == 0);
        let place = place.ok_or_else(|| {
            anyhow!("{from}={task} is none of an array from {first} on in steps of {step}")
        })?;
        if let (Some(count), Some(last)) = (count, last)
            && last
                .checked_sub(first)
                .is_none_or(|span| (span / step).checked_add(1) != Some(count))
        {
            return Err(anyhow!(
                "{from}={task} is of an array of {count} with gaps, from {first} to {last}: which \
                 shard that is, it does not say; write --shard I/N"
            ));
        }
        if count == Some(1) && first > 1 {
            return Err(anyhow!(
                "{from}={task} is of an array of one, as where a single task is begun again: of \
                 how many shards it does not say; write --shard {task}/N"
            ));
        }
        found.push(Said {
            index: (place / step).saturating_add(1),
            total: count,
            from,
        });
    }
    if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        found.push(Said {
            index: index.saturating_add(1),
            total: None,
            from: "JOB_COMPLETION_INDEX",
        });
    }
    if let Some(index) = number("CI_NODE_INDEX")? {
        found.push(Said {
            index,
            total: number("CI_NODE_TOTAL")?,
            from: "CI_NODE_INDEX",
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let variable = |name: &str| {
            let mut all = variables.iter();
            let found = all.find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        };
        let found = wanted(text, variable);
        found
            .map(|place| place.to_string())
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn schedulers_are_read_as_they_count() {
        let slurm = |task, min, max, step, count| {
            [
                ("SLURM_ARRAY_TASK_ID", task),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_MAX", max),
                ("SLURM_ARRAY_TASK_STEP", step),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ]
        };
        assert_eq!(
            place("env", &slurm("0", "0", "7", "1", "8")).unwrap(),
            "1/8"
        );
        assert_eq!(
            place("env", &slurm("8", "1", "8", "1", "8")).unwrap(),
            "8/8"
        );
        assert_eq!(
            place("env", &slurm("20", "10", "30", "10", "3")).unwrap(),
            "2/3"
        );
        let gaps = place("env", &slurm("5", "2", "5", "1", "2")).unwrap_err();
        assert!(gaps.contains("gaps"), "{gaps}");
        // A single task that is begun again is not the whole suite.
        let one = place("env", &slurm("3", "3", "3", "1", "1")).unwrap_err();
        assert!(one.contains("--shard 3/N"), "{one}");
        assert_eq!(
            place("env", &slurm("1", "1", "1", "1", "1")).unwrap(),
            "1/1"
        );
        let most = "4294967295";
        assert!(place("env", &slurm("4", "0", most, "1", "5")).is_err());
        assert!(place("env/4", &[("SLURM_ARRAY_TASK_ID", most)]).is_err());
        let kubernetes = [("JOB_COMPLETION_INDEX", "0")];
        assert_eq!(place("env/4", &kubernetes).unwrap(), "1/4");
        let error = place("env", &kubernetes).unwrap_err();
        assert!(error.contains("env/N"), "{error}");
        let gitlab = [("CI_NODE_INDEX", "4"), ("CI_NODE_TOTAL", "4")];
        assert_eq!(place("env", &gitlab).unwrap(), "4/4");
        let error = place("env/5", &gitlab).unwrap_err();
        assert!(error.contains("is of 4"), "{error}");
    }

    #[test]
    fn what_is_not_said_or_said_twice_is_refused() {
        for (text, variables) in [
            ("env", &[][..]),
            ("env", &[("SLURM_ARRAY_TASK_ID", "x")]),
            ("env", &[("SLURM_ARRAY_TASK_ID", "")]),
            ("env/0", &[("JOB_COMPLETION_INDEX", "0")]),
            ("env/2", &[("JOB_COMPLETION_INDEX", "2")]),
            ("env/2", &[("JOB_COMPLETION_INDEX", "4294967295")]),
            ("env/", &[("JOB_COMPLETION_INDEX", "0")]),
            ("2/8/9", &[]),
            (
                "env/4",
                &[("JOB_COMPLETION_INDEX", "1"), ("CI_NODE_INDEX", "1")],
            ),
        ] {
            assert!(place(text, variables).is_err(), "{text} {variables:?}");
        }
        // What stands there is taken, whatever the scheduler says.
        assert_eq!(place("2/8", &[("CI_NODE_INDEX", "1")]).unwrap(), "2/8");
    }
}
