//! Bytes to the disk: a write and a sync, into blocks that were written before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::file_map::FileMap;

/// A file whose every block was written and synced.
pub struct Durable {
    file: File,
    len: usize,
    at: u64,
}

impl Durable {
    /// Makes the file.
    pub fn new(path: &Path, len: usize) -> Self {
        drop(FileMap::new(path, len));
        let file = File::options().write(true).open(path).unwrap();
        let zeros = vec![0; 1 << 20];
        for at in (0..len).step_by(zeros.len()) {
            file.write_all_at(&zeros, at as u64).unwrap();
        }
        file.sync_all().unwrap();
        Self { file, len, at: 0 }
    }

    /// Writes after what was written before, or at the front again where there is no more room, and syncs.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.at as usize + bytes.len() > self.len {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += bytes.len() as u64;
    }
}

/// A sync that is simulated: sleeps, and spins the last part, which a sleep would overrun.
pub fn wait_at_least(time: Duration) {
    let begun = Instant::now();
    std::thread::sleep(time.saturating_sub(Duration::from_micros(60)));
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Syncs a second of one thread that does nothing else, each simulated.
pub fn simulated_syncs(time: Duration, round: Duration) -> f64 {
    let (begun, mut syncs) = (Instant::now(), 0);
    while begun.elapsed() < round {
        wait_at_least(time);
        syncs += 1;
    }
    f64::from(syncs) / begun.elapsed().as_secs_f64()
}
