//! `regatta list`: lists variants, or the plan of a suite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{Ended, Stop, note, print, print_json, show_blocks, watch_for};
use regatta_core::suite::operators::built_in;
use regatta_core::suite::script::Script;
use regatta_core::suite::{self, BUILTIN, Suite};
use regatta_measure::experiment::introductions::{
    Absence, Introduction, checked, grouped, introductions,
};
use regatta_measure::experiment::request::no_case_left;
use regatta_measure::listing;
use regatta_report::document::{Block, ListItem, Tone};
use regatta_worker::case::Case;
use regatta_worker::joined::Joined;
use regatta_worker::operator::{AxisKind, NATIVE};
use regatta_worker::protocol::{Hello, Parameter, VariantInfo};
use regatta_worker::units::counted;

/// List all variants, or the cases of a suite or script
///
/// Refuses a suite that `run` refuses, as far as its workers are here.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// A built-in suite's name or file; without it, list variants
    suite: Option<String>,

    /// Only cases whose id matches (as in `run`)
    #[arg(long, short, value_name = "PATTERN")]
    filter: Vec<String>,

    /// The environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Print the id of each case of the suite, one a line
    #[arg(long, requires = "suite", conflicts_with = "json")]
    ids: bool,

    /// Machine-readable output
    #[arg(long)]
    pub json: bool,

    /// Arguments of a script: `script:bench.py -- --quick`
    #[arg(last = true, value_name = "ARGS", requires = "suite")]
    arguments: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &ListArgs) -> Ended {
    match &args.suite {
        Some(name) => cases(args, name),
        None => variants(args),
    }
}

fn cases(args: &ListArgs, name: &str) -> Ended {
    let mut suite = suite::load(&Script::named(name, &args.arguments))?;
    suite::configure(&mut suite, Path::new("regatta.toml"))?;
    watch_for("");
    listing::list_here(&mut suite, args.environment.as_deref()).map_err(Stop::usage)?;
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    suite.keep(&args.filter);
    if suite.cases.is_empty() {
        let why = no_case_left(&args.filter, &suite.name, &ids);
        return Err(Stop::Usage(why));
    }
    let introduced = checked(&suite, args.environment.as_deref(), None)?;
    for (Absence { lacks, .. }, workers) in grouped(&introduced) {
        let workers = workers.join(", ");
        note(format!("not checked, cases of {workers}: {lacks}"));
    }
    if args.json {
        let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
        return print_json(&json!({
            "suite": suite.name,
            "description": suite.description,
            "settings": suite.settings,
            "rules": suite.rules,
            "overrides": suite.overrides,
            "cases": ids,
        }));
    }
    if args.ids {
        let ids: String = suite.cases.iter().map(|case| format!("{case}\n")).collect();
        print(ids)?;
        return Ok(0);
    }
    show_blocks(plan(&suite))
}

fn variants(args: &ListArgs) -> Ended {
    let mut config = Suite::default();
    suite::configure(&mut config, Path::new("regatta.toml"))?;
    watch_for("");
    let introductions = introductions(&config, args.environment.as_deref(), None)?;
    if args.json {
        let workers = introductions.iter().map(|one| match &one.found {
            Ok(hello) => json!({ "worker": one.worker, "hello": hello }),
            Err(absence) => json!({ "worker": one.worker, "unavailable": absence.reason }),
        });
        return print_json(&json!({
            "workers": workers.collect::<Vec<_>>(),
            "suites": BUILTIN.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "operators": built_in(),
        }));
    }
    let suites = BUILTIN.iter().map(|(name, _)| suite::load(name));
    let suites = suites.collect::<Result<Vec<Suite>, _>>()?;
    let mut blocks = workers(&introductions);
    blocks.extend(suites_by_workers(&suites, &introductions));
    blocks.extend(operators());
    show_blocks(blocks)
}

/// The built-in operators: a function's arguments, its results, and the axes.
fn operators() -> [Block; 2] {
    let items = built_in().iter().map(|(name, operator)| {
        let arguments = operator.inputs.keys().chain(operator.scalars.keys());
        let outputs = operator.outputs.iter().map(|output| output.name.as_str());
        let axes = operator.axes.iter().map(|(axis, kind)| match kind {
            AxisKind::Number(Some(default)) => format!("{axis} = {default}"),
            AxisKind::Number(None) => axis.clone(),
            AxisKind::Words(words) => format!("{axis} = {}", words.join(" or ")),
        });
        let text = format!(
            "({}) -> {}; {}",
            arguments.joined(", "),
            outputs.joined(", "),
            axes.joined(", ")
        );
        ListItem::new(name, text)
    });
    let title = "Operators with a reference, for functions of yours";
    let help = format!("the workers above compute {NATIVE}");
    [heading(title, help), Block::List(items.collect())]
}

/// The available workers with an item for each variant; then the unavailable ones, grouped by the
/// missing requirement.
fn workers(found: &[Introduction]) -> Vec<Block> {
    let here = found.iter();
    let here = here.filter_map(|one| Some(described(&one.worker, one.found.as_ref().ok()?)));
    let mut blocks: Vec<Block> = here.flatten().collect();
    let absent = grouped(found)
        .into_iter()
        .map(|(absence, workers)| ListItem::new(workers.join(", "), &*absence.lacks));
    let absent: Vec<ListItem> = absent.collect();
    if !absent.is_empty() {
        let help = "`regatta doctor` says what would help";
        blocks.push(heading("Workers that are not here", help.to_owned()));
        blocks.push(Block::List(absent));
    }
    blocks
}

fn heading(title: impl Into<String>, rest: String) -> Block {
    Block::Heading(title.into(), rest, Tone::Calm)
}

/// A worker, and the problems that its variants support. Abilities that all share are in the
/// heading.
fn described(worker: &str, hello: &Hello) -> [Block; 2] {
    let facts: Vec<Vec<String>> = hello.variants.iter().map(facts).collect();
    let mut common = facts.first().cloned().unwrap_or_default();
    common.retain(|fact| facts.iter().all(|others| others.contains(fact)));
    let items = hello.variants.iter().zip(&facts).map(|(variant, facts)| {
        let own = facts.iter().filter(|fact| !common.contains(fact)).cloned();
        let summary = Some(variant.summary.clone()).filter(|summary| !summary.is_empty());
        let own = own.chain(summary).joined("; ");
        ListItem::new(format!("{worker}/{}", variant.name), own)
    });
    let title = format!("{worker} on {}", hello.device.name);
    [
        heading(title, common.join("; ")),
        Block::List(items.collect()),
    ]
}

/// The abilities of a variant: `f32 f16`, `fwd bwd`, `num_splits_key = auto or a number`.
fn facts(variant: &VariantInfo) -> Vec<String> {
    let directions = variant.directions.iter();
    let mut facts = vec![
        variant.dtypes.iter().joined(" "),
        directions.map(|direction| direction.short()).joined(" "),
        variant.layers.names().join(" "),
    ];
    let parameters = variant.parameters.iter();
    facts.extend(parameters.map(|(name, parameter)| match parameter {
        Parameter::Integer => format!("{name} = auto or a number"),
        Parameter::Words(words) => format!("{name} = {}", words.join(" or ")),
    }));
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// The built-in suites, those with available workers first.
fn suites_by_workers(suites: &[Suite], found: &[Introduction]) -> Vec<Block> {
    let here = |case: &Case| {
        let mut all = found.iter();
        all.any(|one| one.worker == case.variant.worker && one.found.is_ok())
    };
    let workers = |suite: &&Suite| suite.cases.iter().all(here);
    let (run, others): (Vec<&Suite>, Vec<&Suite>) = suites.iter().partition(workers);
    let lists = [
        ("Built-in suites on workers that are here", run),
        ("Built-in suites on others", others),
    ];
    let lists = lists.into_iter().filter(|(_, suites)| !suites.is_empty());
    let lists = lists.flat_map(|(title, suites)| {
        let items = suites.into_iter().map(|suite| {
            let cases = counted(suite.cases.len(), "case");
            ListItem::new(&suite.name, format!("{cases}; {}", suite.description))
        });
        [Block::heading(title), Block::List(items.collect())]
    });
    lists.collect()
}

/// The plan of a suite; variants that measure the same problems are grouped.
fn plan(suite: &Suite) -> Vec<Block> {
    let cases = counted(suite.cases.len(), "case");
    let invocations = counted(suite.settings.invocations as usize, "invocation");
    let mut by_variant: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in &suite.cases {
        let variant = case.variant.to_string();
        by_variant.entry(variant).or_default().push(case);
    }
    let mut groups: Vec<(Vec<String>, usize, Vec<String>)> = Vec::new();
    for (variant, cases) in by_variant {
        let lines = if cases[0].problem.is_call() {
            calls(suite, &cases)
        } else {
            lines(&cases)
        };
        match groups.iter_mut().find(|(_, _, known)| *known == lines) {
            Some((variants, ..)) => variants.push(variant),
            None => groups.push((vec![variant], cases.len(), lines)),
        }
    }
    let mut blocks = vec![
        heading(&suite.name, suite.description.clone()),
        Block::Note(format!("{cases}, {invocations} each")),
    ];
    for (variants, cases, lines) in groups {
        let each = if variants.len() > 1 { " each" } else { "" };
        let cases = format!("{}{each}", counted(cases, "case"));
        blocks.push(heading(variants.join(", "), cases));
        blocks.push(Block::list(lines));
    }
    blocks
}

/// A line for each call of a script: its values, and its place.
fn calls(suite: &Suite, cases: &[&Case]) -> Vec<String> {
    let lines = cases.iter().map(|case| {
        let values = case.params.iter();
        let values = values.map(|(name, value)| format!("{name}={value}"));
        let values = values.joined(",");
        let place = suite.listed.get(&case.id()).map(|listed| &listed.place);
        let place = place.map_or(String::new(), |place| format!("({place})"));
        format!("{values} {place}").trim().to_owned()
    });
    lines.collect()
}

/// A line for each problem, with the parameters of the variant.
fn lines(cases: &[&Case]) -> Vec<String> {
    let problems = cases.chunk_by(|a, b| a.problem == b.problem);
    let lines = problems.map(|cases| {
        let names = cases.iter().flat_map(|case| case.params.iter());
        let names: BTreeSet<&String> = names.map(|(name, _)| name).collect();
        let values = cases.iter().map(|case| {
            let params = case.params.iter().map(|(name, value)| match names.len() {
                1 => value.to_string(),
                _ => format!("{name}={value}"),
            });
            match params.joined(",") {
                params if params.is_empty() => "auto".to_owned(),
                params => params,
            }
        });
        let values = values.joined(" ");
        let problem = &cases[0].problem;
        match names.first() {
            None => problem.to_string(),
            Some(name) if names.len() == 1 => format!("{problem}; {name} = {values}"),
            Some(_) => format!("{problem}; {values}"),
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_report::document::Document;
    use regatta_report::terminal::COLUMNS;
    use regatta_report::text::width;
    use regatta_worker::protocol::ReplyBody;

    fn text(body: Vec<Block>) -> String {
        let document = Document {
            body,
            ..Document::default()
        };
        let text = document.text(false);
        for line in text.lines() {
            assert!(width(line) <= COLUMNS, "{line}");
        }
        text
    }

    fn introduction(worker: &str, variants: &str) -> Introduction {
        let json = format!(
            r#"{{"type":"hello","protocol":1,"worker":"{worker}","device":{{"kind":"cpu","name":"A CPU","memory_bytes":1}},"variants":[{variants}]}}"#
        );
        let Ok(ReplyBody::Hello(hello)) = serde_json::from_str(&json) else {
            panic!("{json} is not a hello");
        };
        Introduction {
            worker: worker.to_owned(),
            found: Ok(hello),
        }
    }

    #[test]
    fn a_line_for_each_variant_and_suite() {
        let long = "words ".repeat(30);
        let variants = [
            r#"{"name":"flash","summary":"tiles and an online softmax","dtypes":["f32","f16"],"directions":["forward"]}"#.to_owned(),
            format!(r#"{{"name":"split-key","summary":"{long}","dtypes":["f32","f16"],"directions":["forward","backward"],"parameters":{{"num_splits_key":"integer"}}}}"#),
        ];
        let introductions = [
            introduction("cpu", &variants.join(",")),
            introduction("torch", ""),
        ];
        let names = BUILTIN.iter().map(|(name, _)| *name);
        let all: Vec<Suite> = names.map(|name| suite::load(name).unwrap()).collect();
        let mut blocks = workers(&introductions);
        blocks.extend(suites_by_workers(&all, &introductions));
        insta::assert_snapshot!(text(blocks));
    }

    #[test]
    fn a_plan_names_variants_that_measure_the_same_once_and_parameters_with_their_problem() {
        for name in ["quick", "sdpa", "xformers-backward"] {
            insta::assert_snapshot!(name, text(plan(&suite::load(name).unwrap())));
        }
    }

    #[test]
    fn every_built_in_suite_fits() {
        for (name, _) in BUILTIN {
            let suite = suite::load(name).unwrap();
            let text = text(plan(&suite));
            assert!(text.lines().count() <= suite.cases.len() * 2 + 4, "{text}");
        }
    }
}
