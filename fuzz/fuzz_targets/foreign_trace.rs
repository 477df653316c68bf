#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| regatta::fuzzing::target("foreign_trace", data));
