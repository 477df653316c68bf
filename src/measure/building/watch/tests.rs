use std::collections::VecDeque;

use super::*;

/// A build that shows what it is told to, and ends with the last of it.
struct Fake(VecDeque<Look>);

impl Watched for Fake {
    fn ends_within(&mut self, _: Duration) -> bool {
        self.0.len() == 1
    }

    fn look(&mut self) -> Look {
        self.0.pop_front().unwrap()
    }
}

fn look(at_ms: u64, cpu_ms: u64, memory: u64) -> Look {
    Look {
        at: Duration::from_millis(at_ms),
        cpu: Some(Nanoseconds(cpu_ms as f64 * 1e6)),
        memory: Some(Bytes(memory)),
        ..Look::default()
    }
}

fn watched(part: Part, looks: &[Look]) -> Option<Built> {
    let mut fake = Fake(looks.iter().cloned().collect());
    watch(&mut fake, part, None).unwrap().built(4)
}

#[test]
fn a_build_costs_what_its_last_look_says_and_its_largest_memory() {
    let looks = [look(0, 0, 5), look(100, 150, 90), look(200, 300, 10)];
    let built = watched(Part::Whole, &looks).unwrap();
    assert_eq!(built.wall_ns, Nanoseconds(200e6));
    assert_eq!(built.cpu_ns, Some(Nanoseconds(300e6)));
    assert_eq!(built.cores_busy(), Some(1.5));
    assert_eq!(built.peak_bytes, Some(Bytes(90)));
    assert_eq!(built.cores, 4);
}

#[test]
fn a_look_that_sees_less_loses_no_time_and_one_that_sees_nothing_tells_nothing() {
    let looks = [look(0, 0, 5), look(100, 150, 90), look(200, 120, 10)];
    let built = watched(Part::Whole, &looks).unwrap();
    assert_eq!(built.cpu_ns, Some(Nanoseconds(150e6)));
    let blind = Look {
        at: Duration::from_millis(300),
        ..Look::default()
    };
    let built = watched(Part::Whole, &[blind]).unwrap();
    assert_eq!(built.peak_bytes, None);
    assert_eq!(built.wall_ns, Nanoseconds(300e6));
}

#[test]
fn of_an_installation_only_the_wheels_are_a_build() {
    let building = |look: Look| Look {
        wheel: true,
        ..look
    };
    let looks = [
        look(0, 0, 1),
        look(5_000, 40, 900),
        building(look(5_100, 60, 7)),
        building(look(5_200, 160, 8)),
        look(5_300, 260, 2),
        look(9_000, 900, 3),
    ];
    let built = watched(Part::Wheels, &looks).unwrap();
    assert_eq!(built.wall_ns, Nanoseconds(300e6));
    assert_eq!(built.cpu_ns, Some(Nanoseconds(220e6)));
    assert_eq!(built.peak_bytes, Some(Bytes(8)));
    assert_eq!(watched(Part::Wheels, &looks[..2]), None);
}

#[test]
fn a_build_that_leaves_cores_idle_is_told_with_what_was_seen() {
    let serial = |look: Look| Look {
        hints: [Hint::SerialMake].into(),
        ..look
    };
    let looks = [serial(look(100, 90, 1)), serial(look(200, 190, 1))];
    let built = watched(Part::Whole, &looks).unwrap();
    assert_eq!(built.because.as_deref(), Some("make runs without -j"));
}

#[test]
fn a_build_has_its_limit() {
    let looks = [look(0, 0, 1), look(900, 0, 1), look(1_000, 0, 1)];
    let mut fake = Fake(looks.into());
    let limit = Some(Duration::from_millis(500));
    assert!(watch(&mut fake, Part::Whole, limit).is_none());
}
