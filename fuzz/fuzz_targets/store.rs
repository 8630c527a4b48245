#![no_main]

#[path = "../../tests/it/damage/image.rs"]
#[allow(dead_code)]
mod image;
#[path = "../checks/store.rs"]
mod store;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| store::check(bytes));
