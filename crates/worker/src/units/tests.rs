use proptest::prelude::*;

use super::*;

const WILD: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

#[test]
fn times_take_the_unit_that_fits() {
    for (ns, read) in [
        (0.0, "0 ns"),
        (1e-9, "1.0e-9 ns"),
        (0.5, "0.50 ns"),
        (999.94, "999.9 ns"),
        (999.96, "1.00 µs"),
        (52_780.0, "52.8 µs"),
        (118_600.0, "118.6 µs"),
        (999_949.0, "999.9 µs"),
        (999_960.0, "1.00 ms"),
        (2_640_000.0, "2.64 ms"),
        (999.96e6, "1.00 s"),
        (104e9, "104.0 s"),
        (4096e9, "4096 s"),
        (-2_640_000.0, "-2.64 ms"),
        (-999.96, "-1.00 µs"),
    ] {
        assert_eq!(Nanoseconds(ns).to_string(), read, "{ns}");
    }
}

#[test]
fn long_times_read_as_on_a_watch() {
    let printed = [0.0, 0.0412, 59.4, 59.6, 127.4, 3_599.6, 3_720.0, 90_000.0]
        .map(|seconds| Elapsed(Nanoseconds::of_seconds(seconds)).to_string());
    assert_eq!(
        printed,
        [
            "0 ns",
            "41.2 ms",
            "59.4 s",
            "1 min 0 s",
            "2 min 7 s",
            "1 h 0 min",
            "1 h 2 min",
            "25 h 0 min"
        ]
    );
    assert_eq!(Elapsed(Nanoseconds(f64::NAN)).to_string(), NONE);
}

#[test]
fn what_is_no_number_is_a_dash_whatever_it_is_of() {
    for wild in WILD {
        assert_eq!(Nanoseconds(wild).to_string(), NONE);
        assert_eq!(Ratio(wild).to_string(), NONE);
        assert_eq!(Ratio(wild).in_words().to_string(), NONE);
        assert_eq!(Ratio(wild).factor().to_string(), NONE);
        assert_eq!(Share(wild).to_string(), NONE);
        assert_eq!(Probability(wild).to_string(), NONE);
        assert_eq!(Rate(wild).to_string(), NONE);
        assert_eq!(Digits(wild).to_string(), NONE);
    }
}

#[test]
fn changes_are_percentages_until_they_are_factors() {
    for (ratio, read, words) in [
        (1.123, "+12.3 %", "12.3 % slower"),
        (0.877, "-12.3 %", "12.3 % faster"),
        (0.9999, "0.0 %", "0.0 % faster"),
        (1.0, "0.0 %", "0.0 % slower"),
        (1.9994, "+99.9 %", "99.9 % slower"),
        (1.9995, "2.00x slower", "2.00x slower"),
        (371.7 / 184.8, "2.01x slower", "2.01x slower"),
        (102.5, "102.5x slower", "102.5x slower"),
        (0.501, "-49.9 %", "49.9 % faster"),
        (0.5, "2.00x faster", "2.00x faster"),
        (0.32, "3.12x faster", "3.12x faster"),
        (0.0, NONE, NONE),
        (-1.0, NONE, NONE),
    ] {
        assert_eq!(Ratio(ratio).to_string(), read, "{ratio}");
        assert_eq!(Ratio(ratio).in_words().to_string(), words, "{ratio}");
    }
    let amounts = [1.123, 0.877, 3.0, 0.5].map(|ratio| Ratio(ratio).in_amounts().to_string());
    assert_eq!(
        amounts,
        ["12.3 % more", "12.3 % less", "3.00x more", "2.00x less"]
    );
}

#[test]
fn an_interval_is_in_the_unit_of_its_estimate() {
    let read = |ratio, low, high| {
        let [ratio, low, high] = [ratio, low, high].map(Ratio);
        ratio.interval(low, high)
    };
    assert_eq!(read(1.01, 0.97, 1.04), "[-3.0 %, +4.0 %]");
    assert_eq!(read(102.5, 101.9, 103.1), "[101.9x, 103.1x]");
    assert_eq!(read(2.2, 1.858, 2.761), "[1.86x, 2.76x]");
    assert_eq!(read(1.9, 1.5, 2.4), "[+50.0 %, +140.0 %]");
    assert_eq!(read(0.4, 0.25, 0.625), "[1.60x, 4.00x]");
    assert_eq!(read(1.0, 0.0, 1.1), NONE);
    assert_eq!(read(1.0, 0.9, f64::NAN), NONE);
    assert_eq!(read(f64::NAN, 0.9, 1.1), NONE);
}

#[test]
fn sizes_rates_and_chances_read_well() {
    for (bytes, read) in [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1_572_864, "1.50 MiB"),
        (143_771 << 20, "140.4 GiB"),
    ] {
        assert_eq!(Bytes(bytes).to_string(), read);
    }
    for (p, read) in [
        (0.0, "< 0.0001"),
        (0.000_01, "< 0.0001"),
        (0.0079, "0.0079"),
        (0.049, "0.049"),
        (0.05, "0.050"),
        (1.0, "1.00"),
    ] {
        assert_eq!(Probability(p).to_string(), read);
    }
    for (tera, read) in [
        (0.0, "0 M"),
        (0.000_193_4, "193.4 M"),
        (0.1934, "193.4 G"),
        (0.999_96, "1.00 T"),
        (12.4, "12.4 T"),
    ] {
        assert_eq!(Rate(tera).to_string(), read);
    }
    assert_eq!(Ratio(12.34).factor().to_string(), "12.3x");
    assert_eq!(Ratio(0.0).factor().to_string(), "0x");
    assert_eq!(counted(1, "case"), "1 case");
    assert_eq!(counted(0, "case"), "0 cases");
}

proptest! {
    #[test]
    fn a_number_comes_back_from_a_file_as_it_was(number in any::<f64>()) {
        prop_assume!(number.is_finite());
        let text = serde_json::to_string(&number).unwrap();
        prop_assert_eq!(serde_json::to_string(&Nanoseconds(number)).unwrap(), text.clone());
        prop_assert_eq!(serde_json::from_str::<Nanoseconds>(&text).unwrap(), Nanoseconds(number));
        prop_assert_eq!(serde_json::from_str::<Share>(&text).unwrap(), Share(number));
    }

    /// A time of any size has at most nine characters of digits and a unit, and never reads as a
    /// thousand of a unit other than seconds.
    #[test]
    fn times_of_every_size_are_short(exponent in -2.0..14.0f64) {
        let read = Nanoseconds(10f64.powf(exponent)).to_string();
        prop_assert!(read.chars().count() <= 10, "{}", read);
        prop_assert!(read.ends_with(" s") || !read.starts_with("1000"), "{}", read);
    }

    /// The sign and the word always agree.
    #[test]
    fn a_change_and_its_telling_say_the_same(ratio in 0.01..100.0f64) {
        let (read, words) = (Ratio(ratio).to_string(), Ratio(ratio).in_words().to_string());
        prop_assert!(!read.starts_with('+') || words.ends_with("slower"), "{} {}", read, words);
        prop_assert!(!read.starts_with('-') || words.ends_with("faster"), "{} {}", read, words);
        prop_assert_eq!(read.contains('x'), words.contains('x'));
    }
}
