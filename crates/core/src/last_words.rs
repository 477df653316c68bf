//! Finds the lines of a failed process's log that name the fault, not merely
//! the last ones. Libraries still print while they are torn down.

/// The largest number of lines in an excerpt.
const LINES: usize = 12;

/// The number of lines at the end that an excerpt always has.
const LAST: usize = 4;

/// The largest number of characters of a line: a message may have megabytes of template names.
const MAX_LINE: usize = 400;

/// Words that name a fault with certainty, in lower case.
const SURE: [&str; 13] = [
    "error:",
    "exception:",
    "panicked at",
    "fatal",
    "segmentation fault",
    "core dumped",
    "illegal memory access",
    "illegal instruction",
    "out of memory",
    "undefined symbol",
    "assertion",
    "terminate called",
    "cuda error",
];
const LIKELY: [&str; 11] = [
    "error",
    "exception",
    "failed",
    "failure",
    "cannot ",
    "could not",
    "no such",
    "not found",
    "denied",
    "abort",
    "killed",
];

/// Words of lines that report success, or no fault.
const HARMLESS: [&str; 5] = [
    "warning",
    "no error",
    "0 error",
    "exception ignored",
    "0 failed",
];

/// The certainty that a line names a fault: 0 if it does not.
fn weight(line: &str) -> u8 {
    let line = line.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match (says(&HARMLESS), says(&SURE), says(&LIKELY)) {
        (true, ..) => 0,
        (_, true, _) => 2,
        (_, _, true) => 1,
        _ => 0,
    }
}

/// The line that names the fault: the last of those with the highest weight, or else the last line.
pub fn fault(log: &str) -> Option<&str> {
    let lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    // `max_by_key` takes the last of equals.
    lines.max_by_key(|line| weight(line))
}

/// The last lines, and earlier lines that name a fault. `…` marks lines that were left out.
pub fn excerpt(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let mut shown: Vec<usize> = (lines.len().saturating_sub(LAST)..lines.len()).collect();
    if lines.len() <= LINES {
        shown = (0..lines.len()).collect();
    } else {
        let before = 0..lines.len() - LAST;
        let mut faults: Vec<usize> = before.filter(|&at| weight(lines[at]) > 0).collect();
        // The lines of the highest weight are kept, and later ones among equals.
        faults.sort_by_key(|&at| std::cmp::Reverse((weight(lines[at]), at)));
        faults.truncate(LINES - LAST);
        // The lines before a single fault help more than nothing.
        let spare = LINES - LAST - faults.len();
        let near = (0..lines.len() - LAST).rev();
        let near: Vec<usize> = near.filter(|at| !faults.contains(at)).take(spare).collect();
        shown.extend(faults);
        shown.extend(near);
        shown.sort_unstable();
    }
    let mut text = Vec::new();
    let mut next = 0;
    for at in shown {
        if at > next {
            text.push("…".to_owned());
        }
        next = at + 1;
        text.push(cut(lines[at]));
    }
    text.join("\n")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that fails, and is torn down at length.
    fn log() -> String {
        let mut lines = vec!["loading".to_owned(); 30];
        lines.push("Traceback (most recent call last):".to_owned());
        lines.push("RuntimeError: CUDA error: an illegal memory access".to_owned());
        lines.extend((0..40).map(|rank| format!("[rank {rank}] destroying process group")));
        lines.push("Exception ignored in: <function Pool.__del__>".to_owned());
        lines.join("\n")
    }

    #[test]
    fn the_fault_is_the_line_that_names_it() {
        assert_eq!(
            fault(&log()),
            Some("RuntimeError: CUDA error: an illegal memory access")
        );
        assert_eq!(fault("one\ntwo\n\n"), Some("two"));
        assert_eq!(
            fault("Error: first\nbye\nKeyError: 'x'\n"),
            Some("KeyError: 'x'")
        );
        assert_eq!(
            fault("failed to load\nsee the manual"),
            Some("failed to load")
        );
        assert_eq!(fault(" \n"), None);
    }

    #[test]
    fn an_excerpt_holds_the_fault_and_the_end_and_is_short() {
        let shown = excerpt(&log());
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.contains(&"RuntimeError: CUDA error: an illegal memory access"));
        assert!(lines.last().unwrap().starts_with("Exception ignored"));
        assert_eq!(lines.iter().filter(|line| **line != "…").count(), LINES);
        assert!(lines.contains(&"…"), "{shown}");
        assert_eq!(excerpt("a\nb"), "a\nb");
        assert!(excerpt(&"x".repeat(5000)).chars().count() <= MAX_LINE + 1);
    }
}
