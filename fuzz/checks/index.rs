//! Any bytes as an index file: its geometry is found, or none is.

use mqstore::format::{GeometryGuess, detect_index_geometry};

pub fn check(bytes: &[u8]) {
    if let GeometryGuess::One(geometry) = detect_index_geometry(bytes) {
        assert_eq!(geometry.file_len(), bytes.len() as u64);
    }
}
