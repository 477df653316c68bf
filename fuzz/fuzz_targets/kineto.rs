#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| regatta::fuzzing::target("kineto", data));
