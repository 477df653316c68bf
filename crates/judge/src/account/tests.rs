use proptest::prelude::*;

use super::*;
use regatta_core::machine::{Division, Named, Part, Sides, Work};
use regatta_worker::units::Nanoseconds;

fn part(name: &str, ns: f64, gap_ns: f64, host_ns: Option<f64>) -> Part {
    let name = name.to_owned();
    Part {
        work: Work::Kernel(Named { name }),
        stream: None,
        operator: None,
        ns: Nanoseconds(ns),
        gap_ns: Nanoseconds(gap_ns),
        host_ns: host_ns.map(Nanoseconds),
    }
}

fn division(parts: Vec<Part>) -> Division {
    Division {
        calls: 5,
        time_ns: None,
        parts,
    }
}

fn told(times: (f64, f64), base: &Division, head: &Division, host: bool) -> String {
    asked(times, base, head, host, None).to_string()
}

fn asked(
    times: (f64, f64),
    base: &Division,
    head: &Division,
    host: bool,
    mhz: Option<Sides<f64>>,
) -> Account {
    account(&Asked {
        times: Sides::of(Nanoseconds(times.0), Nanoseconds(times.1)),
        divisions: Sides::of(base, head),
        holds_host: Sides::of(host, host),
        host: None,
        mhz,
        counters: None,
        kernels: &[],
    })
}

const COPY: &str = "void at::native::elementwise_kernel<128, 4>(int)";

/// As an H200 did it: a copy of q before the kernel.
#[test]
fn a_clone_is_its_copy_and_the_start_of_a_second_kernel() {
    let base = division(vec![part("flash", 14_500.0, 0.0, None)]);
    let head = division(vec![
        part(COPY, 1_400.0, 0.0, None),
        part("flash", 14_600.0, 2_300.0, None),
    ]);
    assert_eq!(
        told((14_900.0, 18_100.0), &base, &head, false),
        "+3.20 µs = start of a second operation +1.70, copy kernel elementwise_kernel added \
         +1.40, flash +0.10"
    );
}

/// Behind a gate nothing waits for the host, whatever a recording without one shows.
#[test]
fn gaps_explain_no_more_than_the_clock_saw() {
    let base = division(vec![
        part("a", 10_000.0, 0.0, None),
        part("b", 5_000.0, 1_000.0, None),
    ]);
    let head = division(vec![
        part("a", 13_000.0, 0.0, None),
        part("b", 5_000.0, 90_000.0, None),
    ]);
    assert_eq!(
        told((16_000.0, 19_000.0), &base, &head, false),
        "+3.00 µs = a +3.00"
    );
    let slower = asked((16_000.0, 25_000.0), &base, &base, false, None);
    assert_eq!(slower.to_string(), "+9.00 µs = not explained +9.00");
}

#[test]
fn a_time_that_holds_the_host_holds_the_waiting_for_it() {
    let base = division(vec![
        part("a", 10_000.0, 0.0, Some(0.0)),
        part("b", 5_000.0, 1_000.0, Some(0.0)),
    ]);
    let head = division(vec![
        part("a", 10_000.0, 0.0, Some(0.0)),
        part("b", 5_000.0, 21_000.0, Some(20_000.0)),
    ]);
    let text = told((16_000.0, 36_000.0), &base, &head, true);
    assert_eq!(text, "+20.0 µs = waiting for the host +20.0");
}

#[test]
fn what_stands_in_the_place_of_a_kernel_is_one_line_over_all_layers() {
    let layer = |attention: &[(&str, f64)]| {
        let mut parts = vec![part("qkv", 1_000.0, 0.0, None)];
        parts.extend(
            attention
                .iter()
                .map(|(name, ns)| part(name, *ns, 0.0, None)),
        );
        parts.push(part("mlp", 2_000.0, 0.0, None));
        parts
    };
    let model = |attention: &[(&str, f64)]| division([layer(attention), layer(attention)].concat());
    let base = model(&[("flash", 80_000.0)]);
    let head = model(&[
        ("scores", 400_000.0),
        ("softmax", 300_000.0),
        ("values", 300_000.0),
    ]);
    let text = told((166_000.0, 2_006_000.0), &base, &head, false);
    assert_eq!(
        text,
        "+1.84 ms = flash 2x, 160.0 µs → 6 operations, 2.00 ms +1.84"
    );
    let back = told((2_006_000.0, 166_000.0), &head, &base, false);
    assert!(
        back.starts_with("-1.84 ms = 6 operations, 2.00 ms → flash 2x"),
        "{back}"
    );
}

#[test]
fn a_lower_clock_has_its_part_and_no_more() {
    let base = division(vec![part("flash", 100_000.0, 0.0, None)]);
    let head = division(vec![part("flash", 112_000.0, 0.0, None)]);
    let mhz = Some(Sides::of(1_980.0, 1_800.0));
    let text = asked((100_000.0, 112_000.0), &base, &head, false, mhz).to_string();
    assert_eq!(text, "+12.0 µs = clock 1980 → 1800 MHz +10.0, flash +2.0");
}

proptest! {
    #[test]
    fn lines_and_what_is_not_explained_are_the_change(
        base in prop::collection::vec((0u8..4, 1.0f64..500.0, 0.0f64..50.0), 1..20),
        head in prop::collection::vec((0u8..5, 1.0f64..500.0, 0.0f64..50.0), 1..20),
        times in (1.0f64..9_000.0, 1.0f64..9_000.0),
        host in any::<bool>(),
    ) {
        let side = |of: &[(u8, f64, f64)]| division(
            of.iter().map(|(n, ns, gap)| part(&format!("k{n}"), *ns, *gap, Some(gap / 2.0))).collect()
        );
        let found = asked(times, &side(&base), &side(&head), host, None);
        let lines: f64 = found.lines.iter().map(|line| line.growth_ns.0).sum();
        prop_assert!((lines + found.unexplained_ns.0 - (times.1 - times.0)).abs() < 1e-6);
    }
}
