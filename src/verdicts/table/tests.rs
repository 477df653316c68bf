use super::super::noise::{HOSTED, MODELS, QUIET};
use super::super::show;
use super::*;

const SMALL: Plan = Plan {
    design: Design {
        cases: 20,
        ..Design::DEFAULT
    },
    floor: Share(0.02),
    evidence: Evidence::Own,
    sweeps: 10,
    seed: 3,
};

/// The quiet machine and the hosted one.
fn worlds() -> Vec<Replayed> {
    models(|name| name == QUIET.name || name == HOSTED.name)
}

#[test]
fn the_seed_decides_the_table_and_the_threads_do_not() {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let alone = one.unwrap().install(|| table(&worlds(), &SMALL));
    let together = table(&worlds(), &SMALL);
    assert_eq!(alone, together);
    let other = Plan { seed: 4, ..SMALL };
    assert_ne!(alone.blocks, table(&worlds(), &other).blocks);
}

#[test]
fn a_noise_reads_the_same_whatever_stands_beside_it() {
    let both = table(&worlds(), &SMALL);
    let alone = table(&worlds()[1..], &SMALL);
    assert_eq!(alone.blocks, both.blocks[1..]);
}

#[test]
fn everything_is_counted_once() {
    let table = table(&worlds(), &SMALL);
    assert_eq!(table.blocks.len(), 2);
    for line in table.blocks.iter().flat_map(|block| &block.lines) {
        assert_eq!(line.red.of, 10);
        assert_eq!(line.worse.of, 10 * 20);
        assert!(line.found.iter().all(|rate| rate.of == 10));
        assert_eq!(
            line.ours.is_some(),
            OURS.iter().any(|(name, _)| *name == line.rule)
        );
    }
}

#[test]
fn a_quiet_machine_is_judged_right() {
    let table = table(&worlds()[..1], &SMALL);
    let lines = &table.blocks[0].lines;
    let line = |name: &str| lines.iter().find(|line| line.rule == name).unwrap();
    for (name, _) in OURS {
        assert_eq!(line(name).red.hits, 0);
        // +1 % lies within the floor, +5 % far beyond it.
        assert_eq!(
            (line(name).found[0].hits, line(name).found[3].hits),
            (0, 10)
        );
    }
    // Mann-Whitney on samples of one process calls every other one.
    assert_eq!(line("google-benchmark").red.hits, 10);
    assert_eq!(line("band of 5 %").found[4].hits, 10);
    assert_eq!(line("asv").found[3].hits, 0);
}

#[test]
fn medians_in_place_of_samples_alarm_less() {
    let medians = Plan {
        evidence: Evidence::Medians,
        ..SMALL
    };
    let cells = |plan: &Plan| {
        let table = table(&worlds()[1..], plan);
        let lines = table.blocks[0].lines.iter();
        let line = lines.clone().find(|line| line.rule == "google-benchmark");
        line.unwrap().worse.share()
    };
    assert!(cells(&medians) < Share(0.06));
    assert!(cells(&SMALL) > Share(0.2));
}

#[test]
fn the_text_fits_a_terminal_and_markdown_has_a_row_a_noise() {
    let table = table(&worlds(), &SMALL);
    let text = show::text(&table);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(text.matches("\ngate, 8 sessions").count(), 2);
    for noise in MODELS {
        let title = format!("{}: {}", noise.name, noise.about());
        assert!(title.chars().count() <= 80, "{title}");
    }
    let markdown = show::markdown(&table);
    assert_eq!(markdown.matches("\n| hosted |").count(), 2);
    let columns = |line: &str| line.matches('|').count();
    let rows: Vec<usize> = markdown.lines().map(columns).filter(|n| *n > 0).collect();
    assert!(rows.iter().all(|n| *n == rows[0]), "{markdown}");
}
