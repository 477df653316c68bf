//! The ruler's answer: a table for the terminal, a table for a data frame, a page.

use serde::Serialize;

use super::plot;
use super::template::{STYLE, rendered};
use super::terminal::COLUMNS;
use super::text::{one_line, wrap};
use super::{Document, RenderError};
use crate::judge::ruler::{Added, Ruled};
use crate::record::ruler::Readings;
use crate::units::{NONE, Nanoseconds, Share};

/// What a clock read, and what is made of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ruling {
    /// As taken.
    pub readings: Readings,
    /// By length.
    pub ruled: Vec<Ruled>,
}

/// What the columns mean, below a table.
const LEGEND: &str = "read: median. bias: read less nominal and less what starting and ending \
     takes of the work itself. spread: standard deviation of single samples over their mean. \
     visible: largest difference between two interleaved sets of the same work, over all rounds. \
     +n %: what work longer by n % was read as; ~ is below the visible difference, ! is further \
     off than it.";

/// The table of one clock, at most [`COLUMNS`] wide.
pub fn table(ruling: &Ruling) -> String {
    let readings = &ruling.readings;
    let mut text = String::new();
    let mut say = |indent: usize, words: &str| {
        for line in wrap(&one_line(words), COLUMNS - indent) {
            text += &format!("{:indent$}{line}\n", "");
        }
    };
    say(0, &title(readings));
    if let Some(subtracted) = &readings.subtracted {
        let words = format!(
            "subtracted from each reading: {} for the events, {} for one launch",
            subtracted.pair_ns, subtracted.launch_ns
        );
        say(2, &words);
    }
    if let Some(host) = &readings.host {
        let words = format!(
            "host between samples: {} beside flushing and waiting, {} with them",
            host.beside_ns, host.total_ns
        );
        say(2, &words);
        let steps = host.steps.iter();
        let steps: Vec<String> = steps.map(|(name, time)| format!("{name} {time}")).collect();
        say(4, &steps.join(", "));
    }
    text += &format!(
        "\n{:>9} {:>10} {:>10} {:>8} {:>8}   +1 %    +2 %    +5 %   +10 %\n",
        "nominal", "read", "bias", "spread", "visible"
    );
    for of in &ruling.ruled {
        text += &row(of);
    }
    text.push('\n');
    for line in wrap(LEGEND, COLUMNS) {
        text += &format!("{line}\n");
    }
    text
}

/// What was ruled, in a line.
fn title(readings: &Readings) -> String {
    let step = readings
        .timer_step_ns
        .map_or(NONE.to_owned(), |step| step.to_string());
    format!(
        "{}: {}; work that waits by {} in steps of {step}",
        readings.device, readings.clock, readings.timer
    )
}

fn row(of: &Ruled) -> String {
    let sign = if of.bias_ns < Nanoseconds::ZERO {
        '-'
    } else {
        '+'
    };
    let bias = format!("{sign}{}", of.bias_ns.abs());
    let mut line = format!(
        "{:>9} {:>10} {bias:>10} {:>8.2} {:>8.2}",
        of.nominal_ns, of.read_ns, of.spread, of.visible
    );
    for added in &of.added {
        line += &format!(" {:>5.2}{} ", added.read.0 * 100.0, mark(added));
    }
    line.trim_end().to_owned() + "\n"
}

fn mark(added: &Added) -> char {
    match (added.right, added.visible) {
        (false, _) => '!',
        (true, false) => '~',
        (true, true) => ' ',
    }
}

/// `ruler.html`, `ruler.csv` and `ruler.txt`.
///
/// # Errors
/// A template, table or figure that does not fit its own data.
pub fn documents(rulings: &[Ruling]) -> Result<Vec<Document>, RenderError> {
    let tables: Vec<String> = rulings.iter().map(table).collect();
    Ok(vec![
        Document {
            name: "ruler.html",
            text: page(rulings, &tables)?,
        },
        Document {
            name: "ruler.csv",
            text: csv(rulings).map_err(|error| RenderError::Table {
                name: "ruler.csv",
                problem: error.to_string(),
            })?,
        },
        Document {
            name: "ruler.txt",
            text: tables.join("\n"),
        },
    ])
}

fn page(rulings: &[Ruling], tables: &[String]) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct PageView<'a> {
        clocks: Vec<ClockView<'a>>,
        style: &'static str,
    }
    #[derive(Serialize)]
    struct ClockView<'a> {
        title: String,
        figure: Option<String>,
        table: &'a str,
    }
    let views = rulings.iter().zip(tables).map(|(ruling, table)| ClockView {
        title: one_line(&ruling.readings.device),
        figure: plot::ruler(&ruling.ruled),
        table,
    });
    let clocks = views.collect();
    let style = STYLE;
    rendered(include_str!("page.html"), PageView { clocks, style })
}

/// A line for each length and added share, and for the nominal length (`added` 0).
fn csv(rulings: &[Ruling]) -> Result<String, ::csv::Error> {
    let mut table = ::csv::Writer::from_writer(Vec::new());
    table.write_record([
        "device",
        "clock",
        "nominal_ns",
        "read_ns",
        "bias_ns",
        "spread",
        "visible",
        "added",
        "read_added",
    ])?;
    for ruling in rulings {
        for of in &ruling.ruled {
            let shares = of.added.iter().map(|added| (added.share, added.read));
            let none = (Share(0.0), Share(0.0));
            for (share, read) in std::iter::once(none).chain(shares) {
                table.write_record([
                    ruling.readings.device.clone(),
                    ruling.readings.clock.clone(),
                    of.nominal_ns.0.to_string(),
                    of.read_ns.0.to_string(),
                    of.bias_ns.0.to_string(),
                    of.spread.0.to_string(),
                    of.visible.0.to_string(),
                    share.0.to_string(),
                    read.0.to_string(),
                ])?;
            }
        }
    }
    let bytes = table.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ruler::{ADDED, Host, Subtracted};

    fn ruling() -> Ruling {
        let ruled = [2e3, 20e3, 20e6].map(|nominal_ns| Ruled {
            nominal_ns: Nanoseconds(nominal_ns),
            read_ns: Nanoseconds(nominal_ns + 850.0),
            bias_ns: Nanoseconds(if nominal_ns < 1e4 { 250.0 } else { -31.5 }),
            spread: Share(30.0 / nominal_ns),
            visible: Share(60.0 / nominal_ns),
            added: ADDED
                .map(|share| Added {
                    share,
                    read: if share == Share(0.05) {
                        Share(0.03)
                    } else {
                        share
                    },
                    right: share != Share(0.05),
                    visible: share.0 > 60.0 / nominal_ns,
                })
                .into(),
        });
        Ruling {
            readings: Readings {
                device: "NVIDIA <H200>".to_owned(),
                clock: "probe 0.2".to_owned(),
                timer: "%globaltimer".to_owned(),
                timer_step_ns: Some(Nanoseconds(32.0)),
                own_ns: Nanoseconds(600.0),
                subtracted: Some(Subtracted {
                    pair_ns: Nanoseconds(1_282.0),
                    launch_ns: Nanoseconds(984.0),
                }),
                host: Some(Host {
                    total_ns: Nanoseconds(55_400.0),
                    beside_ns: Nanoseconds(8_200.0),
                    steps: vec![
                        ("flush".to_owned(), Nanoseconds(3_300.0)),
                        ("gate".to_owned(), Nanoseconds(1_100.0)),
                    ],
                }),
                lengths: Vec::new(),
            },
            ruled: ruled.into(),
        }
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let text = table(&ruling());
        for line in text.lines() {
            assert!(super::super::text::width(line) <= COLUMNS, "{line}");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_page_is_one_file_and_what_comes_from_outside_is_text() {
        let documents = documents(&[ruling()]).unwrap();
        let page = &documents[0].text;
        assert!(page.contains("&lt;H200&gt;") && !page.contains("<H200>"));
        assert_eq!(page.matches("<svg").count(), 1);
        for outside in ["http://", "https://", "src=", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(documents[1].text.lines().count(), 1 + 3 * 5);
        assert_eq!(documents[2].text, table(&ruling()));
    }

    #[test]
    fn a_clock_without_readings_is_no_figure() {
        let mut nothing = ruling();
        nothing.ruled.clear();
        assert!(!documents(&[nothing]).unwrap()[0].text.contains("<svg"));
    }
}
