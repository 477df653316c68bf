//! What the phases of a session take, on a clock that its workers turn.

use super::*;

/// The phases of an entry with what each took.
fn phases(entry: &Entry) -> Vec<(Phase, f64)> {
    let spent = entry.spent.iter().flat_map(|spent| spent.phases.iter());
    spent.map(|(phase, time)| (phase, time.0)).collect()
}

const WORKED: [(Phase, f64); 6] = [
    (Phase::Preparing, ANSWERS),
    (Phase::Checking, 0.0),
    (Phase::Measuring, ANSWERS),
    (Phase::CheckingAfter, 0.0),
    (Phase::Census, ANSWERS),
    (Phase::Releasing, ANSWERS),
];

#[test]
fn the_phases_of_a_session_make_up_its_time() {
    let (entries, _, took) = kept(Answers::new());
    let started = [&[(Phase::Starting, STARTS)][..], &WORKED].concat();
    assert_eq!(phases(&entries[0]), started);
    let ended = [&WORKED[..], &[(Phase::Ending, ENDS)]].concat();
    assert_eq!(phases(&entries[1]), ended);
    let stretches: Vec<_> = entries.iter().flat_map(|entry| &entry.spent).collect();
    assert_eq!(stretches[0].from_ns, Nanoseconds::ZERO);
    assert_eq!(stretches[1].from_ns, stretches[0].until_ns());
    assert_eq!(stretches[1].until_ns(), took);
}

#[test]
fn a_case_tells_what_it_took_until_it_failed() {
    let (entries, ..) = kept(only("measure", DIES));
    let fell = [
        (Phase::Starting, STARTS),
        (Phase::Preparing, ANSWERS),
        (Phase::Checking, 0.0),
        (Phase::Measuring, ANSWERS),
        (Phase::Ending, ENDS),
    ];
    assert_eq!(phases(&entries[0]), fell);
    // Whoever comes next pays for its own start.
    assert_eq!(phases(&entries[1])[0], (Phase::Starting, STARTS));
    let wrong = kept(only("prepare", reply(prepared(0.5)))).0;
    let known: Vec<Phase> = phases(&wrong[0]).iter().map(|(phase, _)| *phase).collect();
    // What was not done has no time, not 0.
    use Phase::{Checking, Preparing, Releasing, Starting};
    assert_eq!(known, [Starting, Preparing, Checking, Releasing]);
}
