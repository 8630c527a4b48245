//! Writes and syncs to the disk, into blocks that were written before or not.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::file_map::FileMap;

/// A file with all of its blocks allocated.
pub struct Durable {
    file: File,
    len: usize,
    at: u64,
}

impl Durable {
    /// Creates the file, and writes and syncs every block.
    pub fn new(path: &Path, len: usize) -> Self {
        let made = Self::unwritten(path, len);
        let zeros = vec![0; 1 << 20];
        for at in (0..len).step_by(zeros.len()) {
            made.file.write_all_at(&zeros, at as u64).unwrap();
        }
        made.file.sync_all().unwrap();
        made
    }

    /// Creates the file without writing a block, as in the segment of a growing log. The sync of a block that is written for the
    /// first time waits for the journal of the file system.
    pub fn unwritten(path: &Path, len: usize) -> Self {
        drop(FileMap::new(path, len));
        let file = File::options().write(true).open(path).unwrap();
        Self { file, len, at: 0 }
    }

    /// Writes after the last write, or at the start again when the file is full, and syncs.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.at as usize + bytes.len() > self.len {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += bytes.len() as u64;
    }
}

/// Simulates a sync: sleeps, and spins for the last part, because a sleep would last too long.
pub fn wait_at_least(time: Duration) {
    let begun = Instant::now();
    std::thread::sleep(time.saturating_sub(Duration::from_micros(60)));
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns the simulated syncs in a second of one thread that does nothing else.
pub fn simulated_syncs(time: Duration, round: Duration) -> f64 {
    let (begun, mut syncs) = (Instant::now(), 0);
    while begun.elapsed() < round {
        wait_at_least(time);
        syncs += 1;
    }
    f64::from(syncs) / begun.elapsed().as_secs_f64()
}
