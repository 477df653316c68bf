//! OpenMetrics text, for Prometheus' textfile collector or a push gateway:
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>

use std::io::Write;

use super::timed;
use crate::report::exporter::{Exporter, RenderError, Report};
use crate::report::text::one_line;

/// Writes `metrics.txt`: of each case its time, and of the suite the exit code and how many of
/// its cases have a time.
pub(crate) struct OpenMetrics;

impl Exporter for OpenMetrics {
    fn names(&self) -> &'static [&'static str] {
        &["metrics.txt"]
    }

    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let judgement = report.judgement;
        let of = format!(
            "suite=\"{}\",machine=\"{}\"",
            label(&judgement.suite),
            label(&report.head.header.machine.name)
        );
        family(
            out,
            "regatta_case_seconds",
            "seconds",
            "Median device time of a call",
        )?;
        for (case, timing) in timed(report) {
            let seconds = timing.median_ns.seconds();
            writeln!(
                out,
                "regatta_case_seconds{{{of},case=\"{}\"}} {seconds:e}",
                label(case)
            )?;
        }
        family(
            out,
            "regatta_exit_code",
            "",
            "0 nothing is worse, 1 something is, 3 cannot say",
        )?;
        let code = judgement.verdict.outcome.exit_code();
        writeln!(out, "regatta_exit_code{{{of}}} {code}")?;
        family(
            out,
            "regatta_cases",
            "",
            "Cases by whether they have a time",
        )?;
        let measured = timed(report).count();
        for (state, many) in [
            ("timed", measured),
            ("untimed", judgement.rows.len() - measured),
        ] {
            writeln!(out, "regatta_cases{{{of},state=\"{state}\"}} {many}")?;
        }
        Ok(writeln!(out, "# EOF")?)
    }
}

fn family(out: &mut dyn Write, name: &str, unit: &str, help: &str) -> Result<(), RenderError> {
    writeln!(out, "# TYPE {name} gauge")?;
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    Ok(writeln!(out, "# HELP {name} {help}")?)
}

/// The value of a label.
fn label(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}
