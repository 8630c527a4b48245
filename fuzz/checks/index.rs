//! Takes any bytes as an index file, and detects its geometry.

use mqstore::format::{GeometryGuess, detect_index_geometry};

pub fn check(bytes: &[u8]) {
    if let GeometryGuess::One(geometry) = detect_index_geometry(bytes) {
        assert_eq!(geometry.file_len(), bytes.len() as u64);
    }
}
