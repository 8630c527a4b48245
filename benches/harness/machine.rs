//! The current latency of a sync and of a wake. Every round measures both, so that a figure can be compared with the state of the
//! machine at that moment.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::quantile::quantile;

const BLOCK: usize = 4096;
/// The blocks of the file, which are written in turn.
const BLOCKS: u64 = 256;
const SYNCS: usize = 21;
const WAKES: usize = 51;

/// A measurement of the machine.
pub struct Machine {
    file: File,
    block: u64,
    sleeper: Sleeper,
}

/// The result of one round, in microseconds.
#[derive(Clone, Copy)]
pub struct Weather {
    /// The time to write 4 KiB into written blocks and sync them.
    pub sync: f64,
    /// The time from a wake until the other thread runs.
    pub wake: f64,
}

impl Machine {
    /// Prepares a measurement of the disk of the directory `dir`.
    pub fn new(dir: &Path) -> Self {
        let file = File::create(dir.join("machine")).unwrap();
        for block in 0..BLOCKS {
            file.write_all_at(&[0; BLOCK], block * BLOCK as u64).unwrap();
        }
        file.sync_all().unwrap();
        Self {
            file,
            block: 0,
            sleeper: Sleeper::new(),
        }
    }

    /// Returns the medians of several tries.
    pub fn measure(&mut self) -> Weather {
        let syncs = (0..SYNCS).map(|_| self.sync()).collect();
        let wakes = (0..WAKES).map(|_| self.sleeper.wake()).collect();
        Weather {
            sync: quantile(syncs, 0.5),
            wake: quantile(wakes, 0.5),
        }
    }

    fn sync(&mut self) -> f64 {
        self.block = (self.block + 1) % BLOCKS;
        let begun = Instant::now();
        self.file.write_all_at(&[1; BLOCK], self.block * BLOCK as u64).unwrap();
        self.file.sync_data().unwrap();
        microseconds(begun.elapsed())
    }
}

/// A thread that sleeps, and reports when it was woken.
struct Sleeper {
    asked: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn new() -> Self {
        let (asked, answered, ends) = (
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (theirs, answers, over) = (asked.clone(), answered.clone(), ends.clone());
        let handle = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                thread::park();
                answers.store(theirs.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        });
        Self {
            asked,
            answered,
            ends,
            thread: handle.thread().clone(),
            handle: Some(handle),
        }
    }

    fn wake(&self) -> f64 {
        // It sleeps by now.
        thread::sleep(Duration::from_micros(200));
        let number = self.asked.load(Ordering::SeqCst) + 1;
        self.asked.store(number, Ordering::SeqCst);
        let begun = Instant::now();
        self.thread.unpark();
        while self.answered.load(Ordering::SeqCst) < number {
            std::hint::spin_loop();
        }
        microseconds(begun.elapsed())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            handle.join().unwrap();
        }
    }
}

/// Returns a duration in microseconds.
pub fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the nanoseconds for each of `count`.
pub fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}
