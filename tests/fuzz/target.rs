//! A fuzzer of the target that its binary is named after.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::target(env!("CARGO_BIN_NAME"), data));
