//! A bound on how fast a scan reads, so that others who need the disk have their share.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;

/// The longest sleep between two checks for an interrupt.
const NAP: Duration = Duration::from_millis(20);

/// Counts what is read, and sleeps where that is too much.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_s: u64,
    started: Instant,
    bytes: u64,
}

impl Throttle {
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            started: Instant::now(),
            bytes: 0,
        }
    }

    /// Waits until `bytes` more bytes may have been read.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(crate) fn wait(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        let us = u128::from(self.bytes) * 1_000_000 / u128::from(self.bytes_per_s);
        let due = Duration::from_micros(us.try_into().unwrap_or(u64::MAX));
        loop {
            let early = due.saturating_sub(self.started.elapsed());
            if early.is_zero() {
                return Ok(());
            }
            thread::sleep(early.min(NAP));
            interrupt::check_after_wait()?;
        }
    }
}
