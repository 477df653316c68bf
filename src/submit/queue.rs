//! What Slurm's commands print, read.

use std::collections::BTreeMap;

/// What `squeue` is asked to print of each task: the array, the task's number, state and reason.
pub const SQUEUE_FORMAT: &str = "%F|%K|%T|%r";

/// What `sinfo` is asked to print of each node: name, GPUs and the like, state.
pub const SINFO_FORMAT: &str = "%N|%G|%T";

/// A job, or a task of an array, as `squeue` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The job, or the array that it is a task of.
    pub job: u64,
    /// Its number within the array.
    pub task: Option<u32>,
    /// `PENDING`, `RUNNING`, `COMPLETED` ...
    pub state: String,
    /// Why it waits, or ended so.
    pub reason: String,
}

impl Listed {
    /// True of one that will not come back by itself.
    pub fn is_over(&self) -> bool {
        const OVER: [&str; 9] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "TIMEOUT",
        ];
        OVER.contains(&self.state.as_str())
    }

    /// True of one that ended as its script did, and not because somebody ended it.
    pub fn ended_by_itself(&self) -> bool {
        self.state == "COMPLETED" || self.state == "FAILED"
    }
}

/// Reads the lines of `squeue --noheader --array --format=` [`SQUEUE_FORMAT`]. A line that is not
/// of that form is a warning, which Slurm prints anywhere, and is left out.
pub fn listed(text: &str) -> Vec<Listed> {
    let line = |line: &str| {
        let mut fields = line.trim().splitn(4, '|');
        Some(Listed {
            job: fields.next()?.parse().ok()?,
            task: fields.next()?.parse().ok(),
            state: fields.next()?.to_owned(),
            reason: fields.next()?.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// The array that was submitted last: of the tasks, those of the highest number.
pub fn newest_array(jobs: &[Listed]) -> Vec<&Listed> {
    let tasks = || jobs.iter().filter(|job| job.task.is_some());
    let newest = tasks().map(|task| task.job).max();
    tasks().filter(|task| Some(task.job) == newest).collect()
}

/// How far the work is, in words: `of 4 shards 1 ended, 1 runs, 2 wait (Resources)`.
pub fn progress(jobs: &[Listed]) -> String {
    let tasks = newest_array(jobs);
    let over = tasks.iter().filter(|task| task.is_over()).count();
    if over == tasks.len() {
        return "all tasks ended; what comes behind them has its turn".to_owned();
    }
    let waits = |task: &&&Listed| task.state == "PENDING" || task.state == "REQUEUED";
    let waiting: Vec<_> = tasks.iter().filter(waits).collect();
    let running = tasks.len() - over - waiting.len();
    let mut text = format!(
        "of {} {over} ended, {running} {}, {} {}",
        match tasks.len() {
            1 => "1 shard".to_owned(),
            several => format!("{several} shards"),
        },
        if running == 1 { "runs" } else { "run" },
        waiting.len(),
        if waiting.len() == 1 { "waits" } else { "wait" },
    );
    let mut reasons: Vec<&str> = waiting.iter().map(|task| task.reason.as_str()).collect();
    reasons.retain(|reason| !["None", "", "JobArrayTaskLimit"].contains(reason));
    reasons.sort_unstable();
    reasons.dedup();
    if !reasons.is_empty() {
        text += &format!(" ({})", reasons.join(", "));
    }
    text
}

/// The GPUs of all nodes that take work, by the lines of `sinfo --noheader --Node --format=`
/// [`SINFO_FORMAT`], which has a node once for each of its partitions.
pub fn gpus(text: &str) -> u64 {
    let mut nodes: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.trim().splitn(3, '|');
        let (Some(name), Some(gres), Some(state)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        const OUT: [&str; 6] = ["down", "drain", "fail", "maint", "unk", "boot"];
        let state = state.to_ascii_lowercase();
        // A star after it: the node does not answer.
        if !state.ends_with('*') && !OUT.iter().any(|word| state.contains(word)) {
            nodes.insert(name, gpus_of_node(gres));
        }
    }
    nodes.values().copied().fold(0, u64::saturating_add)
}

/// The GPUs in `gpu:h200:8(S:0-1),gpu:2,shard:4`.
fn gpus_of_node(gres: &str) -> u64 {
    // What is in brackets has commas of its own.
    let mut plain = String::new();
    let mut depth = 0u32;
    for c in gres.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let one = |resource: &str| {
        let mut parts = resource.split(':');
        if parts.next() != Some("gpu") {
            return 0;
        }
        parts.next_back().map_or(1, |n| n.parse().unwrap_or(1))
    };
    plain.split(',').map(one).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_ROUNDS: &str = "7|1|COMPLETED|None\n7|2|CANCELLED|None\n8|N/A|COMPLETED|None\n\
        9|2|RUNNING|None\n10|N/A|PENDING|Dependency\nslurm_load_jobs: some warning\n\n";

    #[test]
    fn jobs_and_tasks_are_read_and_warnings_are_not() {
        let jobs = listed(TWO_ROUNDS);
        assert_eq!(jobs.len(), 5);
        assert_eq!((jobs[0].job, jobs[0].task), (7, Some(1)));
        assert_eq!((jobs[4].job, jobs[4].task), (10, None));
        assert!(jobs[1].is_over() && !jobs[1].ended_by_itself());
        assert_eq!(newest_array(&jobs), [&jobs[3]]);
    }

    #[test]
    fn progress_is_of_the_newest_array() {
        let jobs = listed(TWO_ROUNDS);
        assert_eq!(progress(&jobs), "of 1 shard 0 ended, 1 runs, 0 wait");
        let waiting = listed(
            "7|1|RUNNING|None\n7|2|COMPLETING|None\n7|3|PENDING|Resources\n\
             7|4|PENDING|Priority\n8|N/A|PENDING|Dependency\n",
        );
        assert_eq!(
            progress(&waiting),
            "of 4 shards 0 ended, 2 run, 2 wait (Priority, Resources)"
        );
    }

    #[test]
    fn gpus_are_counted_once_a_node_that_takes_work() {
        let text = "a|gpu:h200:8(S:0-1)|idle\na|gpu:h200:8(S:0-1)|idle\nb|gpu:2,shard:8|mixed\n\
            c|gpu:8|drained\nd|gpu:8|idle*\ne|(null)|idle\nf|gpu:a100:1(S:0,2),gpu:t4:2|allocated\n";
        assert_eq!(gpus(text), 8 + 2 + 3);
        assert_eq!(gpus(""), 0);
        let absurd = format!("a|gpu:{0},gpu:{0}|idle\nb|gpu:{0}|idle\n", u64::MAX);
        assert_eq!(gpus(&absurd), u64::MAX);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_scheduler_prints_is_read(text in "[-0-9a-zA-Z|:,()*\\n]{0,80}") {
            let _ = (gpus(&text), progress(&listed(&text)));
        }
    }
}
