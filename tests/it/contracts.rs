//! Holds the kernels' code to `kernels/contracts.toml`, without a compiler: names of entry
//! points, and the figures that a static_assert before each of them states.
//!
//! The compiler holds those figures to the code that they are about; this holds them to the
//! file, so that none of the three can be changed alone.

use std::collections::BTreeMap;

use regatta::kernels::contract;
use regatta::kernels::source::{FILES, Source};

/// What a static_assert may be about, by its message; any other message is its own business.
const FIGURES: [&str; 5] = ["threads", "shared_bytes", "queries", "keys", "columns"];

/// The figures of each entry point.
type Stated = BTreeMap<String, BTreeMap<&'static str, u32>>;

/// As the data file has them; what it leaves out is not asked of the code either.
fn in_the_file(file: &str) -> Stated {
    let of = |entry: contract::Entry| {
        let tile = entry.tile;
        let figures = [
            ("threads", entry.block.threads, 0),
            ("shared_bytes", entry.block.shared_bytes, 0),
            ("queries", tile.queries, 1),
            ("keys", tile.keys, 1),
            ("columns", tile.columns, 1),
        ];
        let figures = figures.into_iter().filter(|(_, n, absent)| n != absent);
        (
            entry.name,
            figures.map(|(figure, n, _)| (figure, n)).collect(),
        )
    };
    contract::entries(file).into_iter().map(of).collect()
}

/// As the code has them, and what is wrong with how it says so.
fn in_the_code(source: &Source) -> Result<Stated, String> {
    let mut macros = BTreeMap::new();
    for (_, header) in &source.headers {
        macros.extend(defined(&logical_lines(header)));
    }
    let lines = logical_lines(&source.text);
    macros.extend(defined(&lines));
    let mut code = String::new();
    for line in lines.iter().filter(|line| !line.starts_with('#')) {
        code += &expanded(line, &macros);
        code.push('\n');
    }

    let mut found = Stated::new();
    let (mut figures, mut threads) = (BTreeMap::new(), String::new());
    let mut rest = code.as_str();
    const ASSERT: &str = "static_assert(";
    const ENTRY: &str = "extern \"C\" __global__ void";
    while let Some(at) = [ASSERT, ENTRY]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
    {
        rest = &rest[at..];
        if let Some(inside) = rest.strip_prefix(ASSERT) {
            let (condition, after) = closed(inside);
            rest = after;
            let Some((code, figure, number)) = stated(condition) else {
                continue;
            };
            if figure == "threads" {
                threads = code.to_owned();
            }
            let number = number.map_err(|_| format!("`{condition}` states no number"))?;
            figures.insert(figure, number);
            continue;
        }
        let mut head = rest[ENTRY.len()..].trim_start();
        if let Some(inside) = head.strip_prefix("__launch_bounds__(") {
            let (bounds, after) = closed(inside);
            head = after.trim_start();
            let bound = arguments(bounds).into_iter().next().unwrap_or_default();
            if without_spaces(&bound) != without_spaces(&threads) {
                return Err(format!(
                    "__launch_bounds__({bounds}) bounds `{bound}`, and `{threads}` is asserted"
                ));
            }
        }
        let end = head.find('(').unwrap_or(head.len());
        let name = head[..end].trim().to_owned();
        if found
            .insert(name.clone(), std::mem::take(&mut figures))
            .is_some()
        {
            return Err(format!("`{name}` is there twice"));
        }
        rest = &head[end..];
    }
    Ok(found)
}

/// `CODE == NUMBER, "FIGURE"` of a static_assert.
fn stated(condition: &str) -> Option<(&str, &'static str, Result<u32, std::num::ParseIntError>)> {
    let (comparison, message) = condition.rsplit_once(',')?;
    let message = message.trim().trim_matches('"');
    let figure = FIGURES.into_iter().find(|figure| *figure == message)?;
    let (code, number) = comparison.rsplit_once("==")?;
    Some((code.trim(), figure, number.trim().parse()))
}

// ------------------------------------------------- as much of a preprocessor as that takes

/// A function-like macro: its parameters and its body.
type Macros = BTreeMap<String, (Vec<String>, String)>;

/// Lines without comments, continued ones joined, statements over several lines too; what is
/// compiled on demand alone (`#ifdef`) is left out.
fn logical_lines(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut continued, mut on_demand) = (false, false);
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        on_demand |= line.starts_with("#ifdef");
        if on_demand {
            on_demand = !line.starts_with("#endif");
            continue;
        }
        let (piece, more) = match line.strip_suffix('\\') {
            Some(piece) => (piece.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut() {
            Some(last) if continued || open(last) => {
                last.push(' ');
                last.push_str(piece.trim());
            }
            _ => found.push(piece.to_owned()),
        }
        continued = more;
    }
    found
}

fn open(line: &str) -> bool {
    !line.starts_with('#') && line.matches('(').count() > line.matches(')').count()
}

fn defined(lines: &[String]) -> Macros {
    let macros = lines.iter().filter_map(|line| {
        let (name, rest) = line.strip_prefix("#define ")?.split_once('(')?;
        let (parameters, body) = rest.split_once(')')?;
        let whole = name.chars().all(is_of_name);
        let parameters = parameters.split(',').map(|p| p.trim().to_owned());
        whole.then(|| (name.to_owned(), (parameters.collect(), body.to_owned())))
    });
    macros.collect()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces names by `with`, which is given the name and what follows it, and may take some of
/// that; leaves strings alone.
fn replaced<'a>(
    text: &'a str,
    mut with: impl FnMut(&'a str, &'a str) -> Option<(String, &'a str)>,
) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let end = if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if is_of_name(first) {
            rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(end);
        match with(word, after) {
            Some((new, after)) => {
                out += &new;
                rest = after;
            }
            None => {
                out += word;
                rest = after;
            }
        }
    }
    out
}

fn expanded(text: &str, macros: &Macros) -> String {
    replaced(text, |word, after| {
        let (parameters, body) = macros.get(word)?;
        let (inside, after) = closed(after.strip_prefix('(')?);
        let given = arguments(inside);
        let body = replaced(body, |word, after| {
            let place = match word {
                "__VA_ARGS__" => {
                    return Some((given.get(parameters.len() - 1..)?.join(", "), after));
                }
                word => parameters.iter().position(|parameter| parameter == word)?,
            };
            Some((given.get(place)?.clone(), after))
        });
        let pasted: Vec<&str> = body.split("##").map(str::trim).collect();
        Some((expanded(&pasted.concat(), macros), after))
    })
}

/// What stands before the parenthesis that closes an open one, and what after it.
fn closed(text: &str) -> (&str, &str) {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            return (&text[..at], &text[at + 1..]);
        }
    }
    (text, "")
}

/// Arguments between commas that no bracket holds. The preprocessor knows round brackets
/// alone; no macro here is given a comma between others.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        depth += i32::from(matches!(c, '(' | '<')) - i32::from(matches!(c, ')' | '>'));
        match found.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => found.push(String::new()),
        }
    }
    found
        .iter()
        .map(|argument| argument.trim().to_owned())
        .collect()
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

// -------------------------------------------------------------------------------- the tests

#[test]
fn the_code_of_every_kernel_is_as_its_contract_says() {
    for file in FILES {
        let source = Source::embedded(file.name).unwrap();
        let code = in_the_code(&source).unwrap_or_else(|why| panic!("{}.cu: {why}", file.name));
        assert_eq!(
            code,
            in_the_file(file.name),
            "{}.cu and contracts.toml",
            file.name
        );
    }
}

#[test]
fn a_change_to_the_code_alone_is_seen() {
    let edited = |file: &str, from: &str, to: &str| {
        let mut source = Source::embedded(file).unwrap();
        let text = source.text.to_mut();
        assert!(text.contains(from), "{file}.cu: {from}");
        *text = text.replacen(from, to, 1);
        in_the_code(&source).map(|code| code == in_the_file(file))
    };
    assert_eq!(edited("flash_mma", "// A block", "// Some block"), Ok(true));
    let line = "FLASH_MMA(bf16, __nv_bfloat16, 128, 64, 65536)";
    assert_eq!(edited("flash_mma", line, ""), Ok(false));
    for (from, to) in [
        ("65536", "49152"),
        ("bf16,", "f32,"),
        ("128, 64", "128, 128"),
    ] {
        assert_eq!(
            edited("flash_mma", line, &line.replace(from, to)),
            Ok(false),
            "{to}"
        );
    }
    let assert = "static_assert(Forward<T, D>::THREADS == 128, \"threads\")";
    let other = assert.replace("128", "256");
    assert_eq!(edited("flash_mma", assert, &other), Ok(false));
    let error = edited("flash_mma", assert, "").unwrap_err();
    assert!(error.contains("`` is asserted"), "{error}");
    let bounds = "__launch_bounds__(Forward<T, D>::THREADS, 2)";
    let error = edited("flash_mma", bounds, "__launch_bounds__(256, 2)").unwrap_err();
    assert!(error.contains("bounds `256`"), "{error}");
    assert_eq!(edited("naive", "naive_##NAME", "naive_ ## NAME"), Ok(true));
    assert_eq!(edited("naive", "naive_##NAME", "native_##NAME"), Ok(false));
    let twice = "INPUTS(f32, float)\nINPUTS(f32, float)";
    assert!(edited("inputs", "INPUTS(f32, float)", twice).is_err());
}

#[test]
fn what_is_compiled_on_demand_is_no_entry_point() {
    let source = Source::embedded("flash_wgmma").unwrap();
    assert!(source.text.contains("#ifdef FLASH_WGMMA_STUDY"));
    assert_eq!(in_the_code(&source).unwrap().len(), 6);
}
