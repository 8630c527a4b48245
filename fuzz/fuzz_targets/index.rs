//! Any bytes as an index file: its geometry is found, or none is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mqstore::format::{GeometryGuess, detect_index_geometry};

fuzz_target!(|bytes: &[u8]| {
    if let GeometryGuess::One(geometry) = detect_index_geometry(bytes) {
        assert_eq!(geometry.file_len(), bytes.len() as u64);
    }
});
