//! The JSON document inside the page, from which the script draws rows, details and figures on
//! demand.
//!
//! All texts are formatted here, as for the other formats; the script shows texts and compares
//! numbers. A repeated text is stored once and referred to by its index, so that a page of ten
//! thousand cases can be opened.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::context::{PageContext, sign};
use super::samples::samples;
use crate::device::{self, Reached, intensity, reached};
use crate::document::Tone;
use crate::facts;
use crate::judgement::accounts;
use crate::summary::reproduce;
use crate::text::{clean, one_line, shorten};
use regatta_core::machine::{Counters, METRICS, Structure, short};
use regatta_core::suite::Metric;
use regatta_judge::axes::AxisTable;
use regatta_judge::judgement::{MetricRow, Row, Timing, Word, tally};
use regatta_judge::structure::multiprocessors;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Bytes, Digits, NONE, Ratio, counted, numbers};

/// The document as text that cannot end its HTML element.
pub(super) fn document(context: &PageContext, table: &AxisTable) -> String {
    let rows = &context.report.judgement.rows;
    let words = tally(rows.iter().map(|row| row.word));
    let words: Vec<Word> = words.into_keys().collect();
    let compared = context.report.judgement.is_comparison();
    let mut strings = Strings::default();
    let mut calls = Strings::default();
    let details = rows.iter().map(|row| {
        if context.in_full.contains_key(&row.case) {
            details(context, row, &mut strings, &mut calls)
        } else {
            json!(0)
        }
    });
    let details: Vec<Value> = details.collect();
    let timing = |read: fn(&Row) -> Option<String>| -> Vec<String> {
        let texts = rows.iter().map(read);
        texts.map(Option::unwrap_or_default).collect()
    };
    let prefix = reproduce(context.report, "");
    let prefix = prefix.strip_suffix("''").unwrap_or(&prefix).to_owned();
    let commands = rows.iter().enumerate().filter_map(|(place, row)| {
        let command = reproduce(context.report, &row.case.0);
        (command != format!("{prefix}{}", one_line(&row.case.0))).then(|| json!([place, command]))
    });
    // The column of variants already shows the worker.
    let axes = table.axes.iter().filter(|axis| axis.name != "worker");
    let axes = axes.map(|axis| {
        let values: Vec<String> = axis.values.iter().map(|value| one_line(value)).collect();
        let also: Vec<String> = axis.also.iter().map(|name| one_line(name)).collect();
        json!({ "name": one_line(&axis.name), "also": also, "values": values, "of": axis.of })
    });
    let (peaks, peak_of) = peaks(context, rows);
    let operators = &context.report.head.header.operators;
    let document = json!({
        "threshold": context.threshold().0,
        "words": words.iter().map(|word| json!([word.of_case(compared), Tone::from_word(*word), sign(*word)])).collect::<Vec<_>>(),
        "ids": ids(rows),
        "word": rows.iter().map(|row| words.iter().position(|word| *word == row.word)).collect::<Vec<_>>(),
        "allowed": places(rows, |row| row.allowed && row.head.is_none()),
        "calm": places(rows, |row| row.metric(Metric::Device).is_some_and(|metric| metric.change.word != row.word)),
        "worst": context.summary.places,
        "base": timing(|row| Some(time(row.base.as_ref()?))),
        "head": timing(|row| Some(time(row.head.as_ref()?))),
        "change": timing(|row| Some(row.change()?.ratio.to_string())),
        "sees": timing(|row| Some(row.change()?.detectable?.to_string())),
        "flops": timing(|row| Some(row.head.as_ref()?.tflops?.to_string())),
        "bytes": timing(|row| Some(Digits(row.head.as_ref()?.gbps?).to_string())),
        "peaks": peaks.into_iter().map(|peak| json!({
            "flops": peak.tflops.map(|rate| rate.0 * 1e12),
            "bytes": peak.gbps.map(|rate| rate * 1e9),
            "how": one_line(&peak.how),
        })).collect::<Vec<_>>(),
        "intensity": if peak_of.is_empty() { Vec::new() } else { rows.iter().map(|row| intensity(row, operators)).collect() },
        "peak": peak_of,
        "ratio": rows.iter().map(ratios).collect::<Vec<_>>(),
        "axes": axes.collect::<Vec<_>>(),
        "details": details,
        "strings": strings.texts,
        "calls": calls.texts.iter().map(|call| parsed(call)).collect::<Vec<Value>>(),
        "command": prefix,
        "commands": commands.collect::<Vec<_>>(),
    });
    // Escaped, so that the text cannot end its element or begin another.
    document.to_string().replace('<', "\\u003c")
}

/// The distinct measured peaks of devices, and the index of each case's; empty if no case has any.
fn peaks(context: &PageContext, rows: &[Row]) -> (Vec<Reached>, Vec<Option<usize>>) {
    let header = &context.report.head.header;
    if header.peaks.is_empty() {
        return Default::default();
    }
    let mut all: Vec<Reached> = Vec::new();
    let places = rows.iter().map(|row| {
        let reached = reached(header, &row.case)?;
        let place = all.iter().position(|known| *known == reached);
        Some(place.unwrap_or_else(|| {
            all.push(reached);
            all.len() - 1
        }))
    });
    let places = places.collect();
    (all, places)
}

fn time(timing: &Timing) -> String {
    timing.median_ns.to_string()
}

/// The ids in order, each as the number of characters that it shares with the previous one, and the
/// rest.
fn ids(rows: &[Row]) -> Vec<Value> {
    let mut before = String::new();
    let ids = rows.iter().map(|row| {
        let id = one_line(&row.case.0);
        let same = id.bytes().zip(before.bytes());
        let mut same = same.take_while(|(a, b)| a == b).count();
        while !id.is_char_boundary(same) {
            same -= 1;
        }
        let common = id[..same].encode_utf16().count();
        let rest = json!([common, &id[same..]]);
        before = id;
        rest
    });
    ids.collect()
}

fn places(rows: &[Row], chosen: impl Fn(&Row) -> bool) -> Vec<usize> {
    let rows = rows.iter().enumerate();
    rows.filter(|(_, row)| chosen(row))
        .map(|(place, _)| place)
        .collect()
}

/// The estimated ratio with the ends of its interval, from which a whisker is drawn.
fn ratios(row: &Row) -> Value {
    let short = |value: f64| -> Option<f64> { format!("{value:.4}").parse().ok() };
    let finite = |ratio: Option<Ratio>| {
        let ratio = ratio.filter(|ratio| ratio.is_finite())?;
        short(ratio.0)
    };
    let Some(change) = row.change() else {
        return json!(0);
    };
    match [Some(change.ratio), change.low, change.high].map(finite) {
        [Some(ratio), Some(low), Some(high)] => json!([ratio, low, high]),
        [ratio, ..] => json!([ratio]),
    }
}

/// The details of a case.
fn details(context: &PageContext, row: &Row, strings: &mut Strings, calls: &mut Strings) -> Value {
    let sides = [Some(context.report.side), context.report.base];
    let taken = context.in_full.get(&row.case);
    let findings = row.findings.iter().map(|finding| {
        let share = finding.share.map(|share| share.to_string());
        let evidence = one_line(&finding.evidence);
        [
            finding.cause.to_string(),
            evidence,
            share.unwrap_or_default(),
        ]
    });
    let device = row.metric(Metric::Device);
    let judged = device.map(|device| {
        let interval = device.change.interval().unwrap_or_default();
        [interval, how(device)]
    });
    let facts = facts::facts(context.report, row).into_iter();
    let facts = facts.map(|(name, value, differs)| {
        if differs {
            json!([name, value, 1])
        } else {
            json!([name, value])
        }
    });
    let [base_ns, head_ns] = taken.map_or([&[][..]; 2], |taken| [&taken.base, &taken.invocations]);
    // A baseline has only the medians of its invocations.
    let medians = row.base.as_ref().filter(|_| base_ns.is_empty());
    let medians = medians.map(|timing| numbers(&timing.invocations_ns));
    let medians: Vec<Vec<f64>> = medians.into_iter().flatten().map(|ns| vec![ns]).collect();
    let is_baseline = !medians.is_empty();
    let samples = samples(if is_baseline { &medians } else { base_ns }, head_ns);
    let sms = multiprocessors(&context.report.head.header, &row.case);
    let [head, base] = sides.map(|side| {
        let record = side?.cases.get(&row.case)?;
        let call = call(
            record.structure.as_deref()?,
            record.counters.as_deref(),
            sms,
        );
        Some(calls.place(strings.interned(call).to_string()))
    });
    let mut details = strings.interned(json!({
        "reason": reason(row, context.excerpt()),
        "findings": findings.collect::<Vec<_>>(),
        "accounts": accounts(row).iter().map(|sentence| one_line(sentence)).collect::<Vec<_>>(),
        "judged": judged,
        "facts": facts.collect::<Vec<_>>(),
        "changes": facts::changes(row),
        "head": head,
        "base": base,
        "log": taken.and_then(|taken| taken.log.as_deref()),
        "samples": samples,
    }));
    if let Some(members) = details.as_object_mut() {
        // Unknown values are absent.
        members.retain(|_, value| !value.is_null() && value.as_array() != Some(&Vec::new()));
    }
    details
}

/// The row's reason with its line ends, at most `most` columns; `None` if it has none.
fn reason(row: &Row, most: usize) -> Option<String> {
    let reason = shorten(&clean(row.reason.as_deref()?), most);
    (!reason.trim().is_empty()).then_some(reason)
}

/// The method of measuring a change, and the minimum detectable change.
fn how(metric: &MetricRow) -> String {
    let change = &metric.change;
    let (base, head) = change.invocations;
    let how = if change.paired {
        counted(head as usize, "pair")
    } else {
        let base = counted(base as usize, "invocation");
        format!("{head} against {base} of a stored run")
    };
    let left_out = match metric.left_out {
        0 => String::new(),
        1 => "; 1 invocation that other programs disturbed is left out".to_owned(),
        some => format!("; {some} invocations that other programs disturbed are left out"),
    };
    let detectable = change.detectable.map_or(String::new(), |share| {
        format!("; {share} would have been detected")
    });
    how + &left_out + &detectable
}

/// The launches and copies of one call, and its hardware counters. A launch is its kernel, grid,
/// blocks, SMs, resident blocks per SM, waves, block, registers and shared memory.
fn call(structure: &Structure, counters: Option<&Counters>, sms: Option<u32>) -> Value {
    let unknown = || NONE.to_owned();
    let triple = |sizes: [u32; 3]| sizes.map(|size| size.to_string()).join(" × ");
    let launches = structure.launches.iter().map(|launch| {
        let waves = sms.and_then(|sms| launch.waves(sms));
        let at_once = launch.blocks_per_sm.map(|blocks| blocks.to_string());
        let registers = launch.registers.map(|count| count.to_string());
        let shared = launch.shared_bytes.map(|bytes| Bytes(bytes).to_string());
        [
            one_line(&launch.name),
            triple(launch.grid),
            launch.blocks().to_string(),
            device::used(launch, sms).unwrap_or_else(unknown),
            at_once.unwrap_or_else(unknown),
            waves.map_or_else(unknown, |waves| format!("{waves:.2}")),
            triple(launch.block),
            registers.unwrap_or_else(unknown),
            shared.unwrap_or_else(unknown),
        ]
    });
    let launches: Vec<[String; 9]> = launches.collect();
    let counts = structure.counts.iter();
    let counts = counts.map(|(name, count)| format!("{} {count}", one_line(name)));
    let uncounted = structure
        .uncounted
        .iter()
        .map(|(name, reason)| format!("{} not counted: {}", one_line(name), one_line(reason)));
    let counts = counts.chain(uncounted).chain(instructions(counters));
    json!([launches, counts.joined(", ")])
}

/// The instructions that kernels execute, and whether all counts agree.
fn instructions(counters: Option<&Counters>) -> impl Iterator<Item = String> {
    let calls = counters.map_or(0, |counters| counters.calls);
    let kernels = counters.into_iter().flat_map(|counters| &counters.kernels);
    kernels.filter_map(move |(name, kernel)| {
        let counts = kernel.instructions.get(METRICS[0].name)?;
        let exact = if counts.is_exact() {
            format!(" (exact, {calls} calls)")
        } else {
            format!(" ({calls} calls)")
        };
        let name = one_line(&short(name));
        Some(format!("instructions {counts}{exact} of {name}"))
    })
}

/// JSON text that was made here.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Distinct texts, in the order of their first use.
#[derive(Default)]
struct Strings {
    places: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Strings {
    /// Replaces each text in a value by its index.
    fn interned(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => self.place(text).into(),
            Value::Array(all) => all.into_iter().map(|item| self.interned(item)).collect(),
            Value::Object(all) => {
                let all = all.into_iter();
                all.map(|(key, item)| (key, self.interned(item))).collect()
            }
            value => value,
        }
    }

    /// The place of a text.
    fn place(&mut self, text: String) -> usize {
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.texts.len();
        self.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }
}
