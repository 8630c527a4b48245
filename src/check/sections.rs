//! The log in sections, which several threads read at once. They are taken in their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::check::section::{Agreed, SectionReader};
use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::log::{LogFiles, SequentialRead};
use crate::services::without_panic;
use crate::sync::lock;

/// The sections of a log.
#[derive(Debug)]
pub(super) struct Sections<'a> {
    log: &'a LogFiles,
    bounds: Range<i64>,
    /// Bytes of a section.
    bytes: i64,
    /// So many sections are read or wait to be taken.
    most: usize,
    turns: Mutex<Turns>,
    /// A section was read, or taken, or nobody takes another one.
    changed: Condvar,
    ahead: Mutex<Ahead>,
}

#[derive(Debug)]
struct Turns {
    /// The number of the next section that is read.
    next: usize,
    /// The number of the next section that is taken.
    taken: usize,
    waiting: BTreeMap<usize, Result<Option<Agreed>>>,
    is_over: bool,
}

/// What is read from disk before it is needed.
#[derive(Debug)]
struct Ahead {
    read: SequentialRead,
    at: i64,
}

impl<'a> Sections<'a> {
    pub(super) fn new(log: &'a LogFiles, bounds: Range<i64>, bytes: i64, threads: usize) -> Self {
        Self {
            log,
            bytes: bytes.max(1),
            most: threads + 1,
            turns: Mutex::new(Turns {
                next: 0,
                taken: 0,
                waiting: BTreeMap::new(),
                is_over: false,
            }),
            changed: Condvar::new(),
            ahead: Mutex::new(Ahead {
                read: SequentialRead::default(),
                at: bounds.start,
            }),
            bounds,
        }
    }

    /// Runs `take`, with `threads` - 1 threads that read sections beside it.
    pub(super) fn run<T>(
        &self,
        threads: usize,
        reader: impl Fn() -> SectionReader<'a> + Sync,
        take: impl FnOnce(&mut SectionReader<'a>) -> T,
    ) -> T {
        thread::scope(|scope| {
            let _over = Over(self);
            for _ in 1..threads {
                let reads = || {
                    let mut reader = reader();
                    while let Some(number) = self.wait_for_turn() {
                        self.read(number, &mut reader);
                    }
                };
                // Where the system gives no thread, the caller's reads.
                let _ = thread::Builder::new()
                    .name("mqstore-verify".to_owned())
                    .spawn_scoped(scope, reads);
            }
            take(&mut reader())
        })
    }

    /// The next section, and what it holds if all of it agrees; `None` at the end.
    ///
    /// # Errors
    /// Those of [`SectionReader::read`] and of [`interrupt::check`].
    pub(super) fn next(&self, reader: &mut SectionReader<'a>) -> Result<Option<(Range<i64>, Option<Agreed>)>> {
        loop {
            let mut turns = lock(&self.turns);
            let number = turns.taken;
            if self.section(number).is_empty() {
                return Ok(None);
            }
            if let Some(read) = turns.waiting.remove(&number) {
                turns.taken += 1;
                drop(turns);
                self.changed.notify_all();
                return Ok(Some((self.section(number), read?)));
            }
            if let Some(number) = self.turn(&mut turns) {
                drop(turns);
                self.read(number, reader);
                interrupt::check()?;
                continue;
            }
            let waited = self.changed.wait_timeout(turns, INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Without the lock: whoever is asked may run for long.
            interrupt::check_after_wait()?;
        }
    }

    /// Drops what was brought into the page cache.
    pub(super) fn drop_all(&self) {
        lock(&self.ahead).read.drop_before(self.log, i64::MAX);
    }

    fn section(&self, number: usize) -> Range<i64> {
        let Range { start, end } = self.bounds;
        let from = start.saturating_add(self.bytes.saturating_mul(number as i64)).min(end);
        from..from.saturating_add(self.bytes).min(end)
    }

    /// The number of the section to be read now, if there is room for it.
    fn turn(&self, turns: &mut Turns) -> Option<usize> {
        let number = turns.next;
        let is_due = number < turns.taken + self.most && !self.section(number).is_empty();
        is_due.then(|| {
            turns.next += 1;
            number
        })
    }

    /// The same, once there is room; `None` after the last one.
    fn wait_for_turn(&self) -> Option<usize> {
        let mut turns = lock(&self.turns);
        while !turns.is_over && !self.section(turns.next).is_empty() {
            if let Some(number) = self.turn(&mut turns) {
                return Some(number);
            }
            turns = self.changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn read(&self, number: usize, reader: &mut SectionReader<'a>) {
        let section = self.section(number);
        self.read_ahead(&section);
        let read = without_panic("verify", || reader.read(section));
        lock(&self.turns).waiting.insert(number, read);
        self.changed.notify_all();
    }

    fn read_ahead(&self, section: &Range<i64>) {
        let taken = lock(&self.turns).taken;
        let mut ahead = lock(&self.ahead);
        ahead.read.drop_before(self.log, self.section(taken.saturating_sub(1)).start);
        let at = ahead.at;
        ahead.read.through(self.log, at..section.end, self.bounds.end);
        ahead.at = at.max(section.end);
    }
}

/// Ends the threads, also after a panic.
struct Over<'s, 'a>(&'s Sections<'a>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.turns).is_over = true;
        self.0.changed.notify_all();
    }
}
