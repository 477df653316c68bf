use super::*;

const EXECUTED: &str = "sm__inst_executed.sum";

fn call(kernels: &[(&str, &[(&str, f64)])]) -> CountedCall {
    let kernel = |(name, counts): &(&str, &[(&str, f64)])| CountedKernel {
        name: (*name).to_owned(),
        counts: counts
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect(),
    };
    CountedCall {
        kernels: kernels.iter().map(kernel).collect(),
    }
}

#[test]
fn exact_is_what_every_call_of_every_process_read() {
    let one = |n| call(&[("flash", &[(EXECUTED, n)]), ("add", &[(EXECUTED, 5.0)])]);
    let first = Counters::of(&[one(600.0), one(600.0)]).unwrap();
    assert!(first.kernels["flash"].instructions[EXECUTED].is_exact());
    let second = Counters::of(&[one(602.0)]).unwrap();
    let all = Counters::merged(&[first, second]).unwrap();
    assert_eq!(all.calls, 3);
    let flash = all.kernels["flash"].instructions[EXECUTED];
    assert_eq!((flash.least, flash.most, flash.spread()), (600, 602, 2));
    assert!(all.kernels["add"].instructions[EXECUTED].is_exact());
}

#[test]
fn what_one_launch_or_process_does_not_tell_is_not_known() {
    let whole = call(&[
        ("flash", &[(EXECUTED, 600.0)]),
        ("flash", &[(EXECUTED, 1.0)]),
    ]);
    let part = call(&[
        ("flash", &[(EXECUTED, 600.0)]),
        ("flash", &[(EXECUTED, f64::NAN)]),
    ]);
    let counters = Counters::of(std::slice::from_ref(&part)).unwrap();
    assert_eq!(counters.total(EXECUTED), None);
    let both = Counters::of(&[whole, part]).unwrap();
    assert_eq!(both.kernels["flash"].instructions.get(EXECUTED), None);
    assert_eq!(Counters::of(&[]), None);
    assert_eq!(Counters::of(&[CountedCall::default()]), None);
}

#[test]
fn a_kernel_that_is_launched_and_executes_nothing_was_not_counted() {
    let launches = ["flash", "add"].map(|name| Launch {
        name: name.to_owned(),
        ..Launch::default()
    });
    let of = |kernels: &[(&str, &[(&str, f64)])]| Counters::of(&[call(kernels)]).unwrap();
    let (flash, add) = (
        ("flash", &[(EXECUTED, 6.0)][..]),
        ("add", &[(EXECUTED, 5.0)][..]),
    );
    assert!(of(&[flash, add]).is_of(&launches));
    assert!(!of(&[add]).is_of(&launches), "one is missing");
    assert!(!of(&[flash, add, ("other", &[(EXECUTED, 5.0)])]).is_of(&launches));
    assert!(
        !of(&[flash, ("add", &[])]).is_of(&launches),
        "nothing is known of it"
    );
    assert!(!of(&[flash, ("add", &[(EXECUTED, 0.0)])]).is_of(&launches));
}

#[test]
fn counters_that_cannot_be_are_named() {
    let mut counters = Counters::of(&[call(&[("flash", &[(EXECUTED, 6.0)])])]).unwrap();
    assert_eq!(counters.objection(), None);
    let flash = counters.kernels.get_mut("flash").unwrap();
    flash.instructions.get_mut(EXECUTED).unwrap().least = 7;
    assert!(counters.objection().unwrap().contains("7 to 6"));
    counters.calls = u32::MAX;
    let both = Counters::merged(&[counters.clone(), counters]);
    assert_eq!(both.map(|all| all.calls), Some(u32::MAX));
    assert!(Counters::default().objection().is_some());
}
