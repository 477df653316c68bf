//! A trace as one self-contained page: timelines, tables, where the time went.

use serde::Serialize;

use super::table::{facts, figure, filled, shapes, short, spent};
use super::{coloured, last_repetitions, timeline};
use crate::RenderError;
use crate::account::{FindingView, findings};
use crate::exporter::{STYLE, rendered};
use crate::figures::{DRAWN, LegendView, Timeline, busiest, legend};
use crate::text::{one_line, shell_command};
use regatta_core::machine::{Recording, SteadyPart, Summary};
use regatta_core::record::trace::Trace;
use regatta_judge::trace::Analysis;
use regatta_worker::units::{Bytes, Nanoseconds, Share, counted};

/// Kernels that are listed.
const LISTED: usize = 60;

#[derive(Serialize)]
struct PageView {
    style: &'static str,
    title: String,
    command: String,
    facts: Vec<String>,
    legend: Vec<LegendView>,
    findings: Vec<FindingView>,
    parts: Vec<PartView>,
}

#[derive(Serialize)]
struct PartView {
    heading: &'static str,
    said: String,
    figure: Option<String>,
    kernels: Vec<KernelView>,
    copies: Vec<CopyView>,
    spent: Vec<String>,
}

#[derive(Serialize)]
struct KernelView {
    name: String,
    shapes: String,
    count: String,
    total: String,
    mean: String,
    share: String,
    sms: String,
}

#[derive(Serialize)]
struct CopyView {
    what: String,
    bytes: String,
    count: String,
    total: String,
    mean: String,
}

/// The page of a trace.
///
/// # Errors
/// When the template does not fit its data.
pub fn page(trace: &Trace, analysis: &Analysis) -> Result<String, RenderError> {
    let recording = &trace.recording;
    let chief = match &analysis.steady {
        Some(part) => &part.summary,
        None => &analysis.whole,
    };
    let coloured = coloured([chief]);
    let mut parts = Vec::new();
    if let Some(part) = &analysis.steady {
        parts.push(steady(recording, part, &coloured)?);
    }
    parts.push(whole(recording, analysis, &coloured)?);
    let view = PageView {
        style: STYLE,
        findings: findings(&analysis.findings),
        title: one_line(&trace.header.title()),
        command: shell_command(&trace.header.command),
        facts: facts(trace, analysis)
            .iter()
            .map(|fact| one_line(fact))
            .collect(),
        legend: legend(&coloured, chief.kernels.len()),
        parts,
    };
    rendered(include_str!("page.html"), view)
}

fn steady(
    recording: &Recording,
    part: &SteadyPart,
    coloured: &[String],
) -> Result<PartView, RenderError> {
    let at = &part.steady;
    let repeats = at.repeats as f64;
    let figure = last_repetitions(recording, at, coloured, "The last repetitions")?;
    Ok(PartView {
        heading: "Steady state",
        said: format!(
            "{} of {}, {} each. Drawn are the last; counts and totals are of one.",
            counted(at.repeats, "repetition"),
            counted(at.period, "operation"),
            at.period_time()
        ),
        figure,
        kernels: kernels(&part.summary, repeats),
        copies: copies(&part.summary, repeats),
        spent: spent(&part.summary, repeats),
    })
}

fn whole(
    recording: &Recording,
    analysis: &Analysis,
    coloured: &[String],
) -> Result<PartView, RenderError> {
    let window = busiest(recording);
    let marked = analysis
        .steady
        .as_ref()
        .map(|part| (part.steady.from_ns, part.steady.to_ns));
    let figure = timeline(window.map(|(from, to)| Timeline {
        recording,
        title: "The whole recording",
        coloured,
        from,
        to,
        marked,
    }))?;
    let said = match (recording.operations.len() > DRAWN, &analysis.steady) {
        (true, _) => format!(
            "Drawn is the busiest stretch of {DRAWN} operations among {}.",
            recording.operations.len()
        ),
        (false, Some(_)) => "Warm-up included; the steady state is shaded.".to_owned(),
        (false, None) => {
            "No part repeats at the end: warm-up and compilation are in it.".to_owned()
        }
    };
    Ok(PartView {
        heading: "The whole recording",
        said,
        figure,
        kernels: kernels(&analysis.whole, 1.0),
        copies: copies(&analysis.whole, 1.0),
        spent: spent(&analysis.whole, 1.0),
    })
}

fn kernels(of: &Summary, times: f64) -> Vec<KernelView> {
    let listed = of.kernels.iter().take(LISTED);
    listed
        .map(|kernel| KernelView {
            name: one_line(&short(&kernel.name)),
            shapes: shapes(kernel),
            count: figure(kernel.count as f64 / times),
            total: Nanoseconds(kernel.total_ns as f64 / times).to_string(),
            mean: kernel.mean().to_string(),
            share: Share(kernel.total_ns as f64 / of.kernel_ns.max(1) as f64).to_string(),
            sms: kernel.shapes.first().map_or(String::new(), filled),
        })
        .collect()
}

fn copies(of: &Summary, times: f64) -> Vec<CopyView> {
    let rows = of.copies.iter();
    rows.map(|row| CopyView {
        what: one_line(&row.what),
        bytes: Bytes((row.bytes as f64 / times) as u64).to_string(),
        count: figure(row.count as f64 / times),
        total: Nanoseconds(row.total_ns as f64 / times).to_string(),
        mean: Nanoseconds(row.total_ns as f64 / row.count.max(1) as f64).to_string(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::stands_alone;
    use regatta_core::machine::testing::Writer;
    use regatta_core::record::trace::testing;
    use regatta_judge::trace::analyse;

    #[test]
    fn the_page_is_one_file_and_what_comes_from_outside_is_text() {
        let mut trace = testing::training(157);
        trace.header.command = vec!["<b>'id'".to_owned(), "train.py\u{202e}".to_owned()];
        trace.recording.names[1] = "void <script>alert(1)</script>&(int)".to_owned();
        let page = page(&trace, &analyse(&trace.recording)).unwrap();
        stands_alone(&page);
        assert!(page.contains("&lt;script&gt;"));
        assert_eq!(page.matches("<svg").count(), 2);
    }

    #[test]
    fn a_long_recording_is_drawn_where_it_is_busiest() {
        let mut writer = Writer::new();
        for number in 0..DRAWN + 1_000 {
            writer.kernel("k", 1, 1_000);
            let busy = (500..DRAWN + 500).contains(&number);
            writer.host_pauses(if busy { 10 } else { 5_000 });
        }
        let trace = testing::trace(writer.recording);
        let page = page(&trace, &analyse(&trace.recording)).unwrap();
        let told = format!(
            "busiest stretch of {DRAWN} operations among {}",
            DRAWN + 1_000
        );
        assert!(page.contains(&told));
        assert!(page.len() < 2_000_000, "{}", page.len());
        assert!(busiest(&Recording::default()).is_none());
    }
}
