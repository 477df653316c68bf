//! Operations as JSON objects, each on a line of its own in a recording.

use super::calls::Counts;
use super::operation::{Known, Operation, What};
use std::fmt::Write;

/// A text as JSON has it, quotes included.
pub fn text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => put(out, format_args!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn put(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a String does not fail.
    let _ = out.write_fmt(text);
}

/// A member that is a moment, in ns.
pub fn moment(out: &mut String, name: &str, at: u64) {
    put(out, format_args!(",\"{name}\":{at}"));
}

fn sizes(out: &mut String, name: &str, [x, y, z]: [u32; 3]) {
    put(out, format_args!(",\"{name}\":[{x},{y},{z}]"));
}

/// An operation. The name of a kernel is written by `name`, from its id, and that of its
/// operator by `operator`.
pub fn operation(
    out: &mut String,
    operation: &Operation,
    name: impl FnOnce(&mut String, u32),
    operator: impl FnOnce(&mut String, u32),
) {
    let (start, end) = (operation.start(), operation.end());
    match &operation.what {
        What::Kernel(kernel) => {
            out.push_str("{\"kind\":\"kernel\",\"name\":");
            name(out, kernel.name);
            put(out, format_args!(",\"start_ns\":{start},\"end_ns\":{end}"));
            sizes(out, "grid", kernel.grid);
            sizes(out, "block", kernel.block);
            if let Some(cluster) = kernel.cluster {
                sizes(out, "cluster", cluster);
            }
            put(
                out,
                format_args!(
                    ",\"registers\":{},\"shared_bytes\":{},\"local_bytes\":{},\"stream\":{},\
                     \"device\":{}",
                    kernel.registers,
                    u64::from(kernel.static_shared) + u64::from(kernel.dynamic_shared),
                    kernel.local,
                    kernel.stream,
                    kernel.device
                ),
            );
            if let Some(node) = kernel.graph {
                put(out, format_args!(",\"graph\":{node}"));
            }
        }
        What::Memory(memory) => {
            match memory.direction {
                Some(direction) => {
                    put(
                        out,
                        format_args!("{{\"kind\":\"copy\",\"direction\":\"{direction}\""),
                    );
                }
                None => out.push_str("{\"kind\":\"set\""),
            }
            put(
                out,
                format_args!(
                    ",\"bytes\":{},\"start_ns\":{start},\"end_ns\":{end},\"stream\":{},\"device\":{}",
                    memory.bytes, memory.stream, memory.device
                ),
            );
        }
    }
    if let Some(launch) = operation.launch {
        let (at, ns) = (launch.at, launch.ns);
        put(
            out,
            format_args!(",\"launched_ns\":{at},\"launch_ns\":{ns}"),
        );
    }
    if let Some(id) = operation.operator {
        out.push_str(",\"operator\":");
        operator(out, id);
    }
    out.push('}');
}

/// Counts of calls, and the host's time in those that there were: two members of an object.
pub fn counts(out: &mut String, counts: &Counts) {
    let named = counts.named().into_iter();
    let calls = named.clone().map(|(name, made)| (name, made.calls));
    object(out, "counts", calls);
    out.push(',');
    let made = named.filter(|(_, made)| made.calls > 0);
    object(out, "ns", made.map(|(name, made)| (name, made.ns)));
}

/// Moments of calls by their names: a line.
pub fn moments(out: &mut String, moments: &[(&str, u64)]) {
    let mut names: Vec<&str> = moments.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    out.push_str("{\"kind\":\"moments\",\"of\":{");
    for (place, name) in names.iter().enumerate() {
        let before = if place == 0 { "" } else { "," };
        put(out, format_args!("{before}\"{name}\":["));
        let own = moments.iter().filter(|(of, _)| of == name);
        for (place, (_, at)) in own.enumerate() {
            let before = if place == 0 { "" } else { "," };
            put(out, format_args!("{before}{at}"));
        }
        out.push(']');
    }
    out.push_str("}}\n");
}

fn object<'a>(out: &mut String, name: &str, members: impl Iterator<Item = (&'a str, u64)>) {
    put(out, format_args!("\"{name}\":{{"));
    for (at, (name, number)) in members.enumerate() {
        let before = if at == 0 { "" } else { "," };
        put(out, format_args!("{before}\"{name}\":{number}"));
    }
    out.push('}');
}

/// A device: an object.
pub fn device(out: &mut String, device: &Known) {
    put(
        out,
        format_args!(
            "{{\"kind\":\"device\",\"ordinal\":{},\"name\":",
            device.ordinal
        ),
    );
    text(out, &device.name);
    let (major, minor) = device.capability;
    put(
        out,
        format_args!(
            ",\"sms\":{},\"capability\":\"{major}.{minor}\"}}",
            device.sms
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn texts_are_json() {
        let mut out = String::new();
        text(&mut out, "a \"b\"\\\n\u{1}é");
        assert_eq!(out, "\"a \\\"b\\\"\\\\\\u000a\\u0001é\"");
    }

    #[test]
    fn moments_are_a_line_of_json() {
        let mut out = String::new();
        moments(&mut out, &[("frees", 5), ("allocations", 3), ("frees", 9)]);
        moments(&mut out, &[]);
        let lines: Vec<Value> = out
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let told = json!({"kind": "moments", "of": {"allocations": [3], "frees": [5, 9]}});
        assert_eq!(lines, [told, json!({"kind": "moments", "of": {}})]);
    }
}
