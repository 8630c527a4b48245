#![no_main]

#[path = "../../tests/it/damage/image.rs"]
#[allow(dead_code)]
mod image;
#[path = "../checks/small_files.rs"]
mod small_files;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| small_files::check(bytes));
