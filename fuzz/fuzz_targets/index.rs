#![no_main]

#[path = "../checks/index.rs"]
mod index;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| index::check(bytes));
