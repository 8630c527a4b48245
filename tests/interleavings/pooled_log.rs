//! A log of one segment in memory, with what `src/log/commit_log/commit.rs` needs of a log.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loom::thread::yield_now;

use crate::commit::Committer;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::transient_store_pool::TransientStorePool;
use crate::watermark::Wait;
use crate::watermarks::{Watermarks, WriteMode};

/// The byte that every model appends at an offset.
pub(crate) fn byte_at(offset: u64) -> u8 {
    offset as u8 + 1
}

/// The wait of one append for room.
#[derive(Debug, Default)]
pub(crate) struct PoolWait {
    pub(crate) until: Option<Instant>,
}

/// The state under the append lock.
#[derive(Debug)]
pub(crate) struct AppendState {
    pub(crate) end: u64,
    pub(crate) current: Option<Arc<Segment>>,
}

/// A segment whose file is in memory.
#[derive(Debug)]
pub(crate) struct Segment {
    pool: Arc<TransientStorePool>,
    pub(crate) file: std::sync::Mutex<Vec<u8>>,
    write: fn() -> Result<()>,
}

impl Segment {
    #[expect(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn pool(&self) -> Option<&TransientStorePool> {
        Some(&self.pool)
    }

    pub(crate) fn commit(&self, range: Range<u64>) -> Result<()> {
        (self.write)()?;
        let mut at = range.start;
        for piece in self.pool.read(range).unwrap() {
            self.write_file(at, piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Bypasses the pool.
    pub(crate) fn write_file(&self, at: u64, bytes: &[u8]) {
        let mut file = self.file.lock().unwrap();
        let end = at as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[at as usize..end].copy_from_slice(bytes);
    }
}

/// The segments that no sync has covered: one. Each commit writes two zeros after its bytes.
#[derive(Debug)]
pub(crate) struct UnsyncedSegments {
    pub(crate) segment: Arc<Segment>,
    failure: OnceLock<Error>,
}

impl UnsyncedSegments {
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    pub(crate) fn fail(&self, cause: &Error) {
        let _ = self.failure.set(cause.clone());
    }

    pub(crate) fn commit(&self, range: Range<u64>) -> Result<()> {
        let end = range.end;
        self.segment.commit(range)?;
        self.segment.write_file(end, &[0, 0]);
        Ok(())
    }
}

/// A log in one segment, whose messages are only bytes.
#[derive(Debug)]
pub(crate) struct CommitLog {
    state: Mutex<AppendState>,
    /// Set if a thread commits.
    patience: Option<Duration>,
    unsynced: UnsyncedSegments,
    committer: Committer,
    pub(crate) watermarks: Watermarks,
}

impl CommitLog {
    /// Creates a log over a ring of two-byte buffers. Each commit calls `write`. Without patience nobody runs a committer.
    pub(crate) fn new(buffers: usize, patience: Option<Duration>, write: fn() -> Result<()>) -> Arc<Self> {
        let pool = Arc::new(TransientStorePool::new(buffers, 2).unwrap());
        let segment = Arc::new(Segment {
            pool: pool.clone(),
            file: std::sync::Mutex::default(),
            write,
        });
        let watermarks = Watermarks::new(0, WriteMode::Pool);
        Arc::new(Self {
            state: Mutex::new(AppendState {
                end: 0,
                current: Some(segment.clone()),
            }),
            patience,
            unsynced: UnsyncedSegments {
                segment,
                failure: OnceLock::new(),
            },
            committer: Committer::new(Some(pool), watermarks.clone()),
            watermarks,
        })
    }

    /// Appends as `CommitLog::append` does, a message of `size` bytes.
    pub(crate) fn append(&self, len: u64) -> Result<()> {
        let mut room = PoolWait::default();
        while let Some(offset) = self.put(len, &room)? {
            self.wait_for_blocked(offset, &mut room)?;
            self.let_others_run(offset);
        }
        Ok(())
    }

    /// Does what `CommitLog::wait_for_blocked` does.
    fn wait_for_blocked(&self, offset: i64, room: &mut PoolWait) -> Result<()> {
        if let Some(patience) = self.patience {
            return self.committer.wait_for_space(offset, room, patience);
        }
        self.committer.start_wait(room, Duration::ZERO);
        self.commit()
    }

    /// Does what `CommitLog::put` and the code around it do. Returns `None` if the message is appended.
    fn put(&self, len: u64, room: &PoolWait) -> Result<Option<i64>> {
        let mut state = lock(&self.state);
        if let Some(offset) = self.committer.must_be_committed(&state, len, room) {
            return Ok(Some(offset));
        }
        let passing = self.pass_pool(&state, len)?;
        let (at, end) = (state.end, state.end + len);
        let bytes: Vec<u8> = (at..end).map(byte_at).collect();
        match passing {
            None => assert!(self.unsynced.segment.pool.write(at, &[&bytes])),
            Some(_) => self.unsynced.segment.write_file(at, &bytes),
        }
        state.end = end;
        if passing.is_some() {
            self.watermarks.appended.advance(end as i64);
            self.watermarks.committed.advance(end as i64);
        }
        drop(state);
        drop(passing);
        self.watermarks.appended.advance(end as i64);
        self.committer.request_large_commit(end as i64);
        Ok(None)
    }

    /// Does what the end of `CommitLog::reserve` does.
    fn pass_pool(&self, state: &AppendState, len: u64) -> Result<Option<MutexGuard<'_, ()>>> {
        let passing = self.committer.pass_pool(&self.unsynced, state, len);
        passing.map_err(|cause| if cause.is_shortage() { cause } else { self.fail(cause) })
    }

    /// Does what `CommitLog::commit` does.
    pub(crate) fn commit(&self) -> Result<()> {
        let committed = self.committer.commit(&self.unsynced);
        committed.map_err(|cause| if cause.is_shortage() { cause } else { self.fail(cause) })
    }

    /// Acts as the committer: commits whenever somebody asks, until the log is stopped.
    pub(crate) fn run_committer(&self) {
        while self.watermarks.appended.poisoned().is_none() {
            if self.committer.wanted().get() > self.watermarks.committed.get() {
                let _ = self.commit();
            }
            let wait = self.committer.wanted().wait(self.watermarks.committed.get() + 1, None);
            if matches!(wait, Wait::Poisoned(_)) {
                yield_now();
            }
            self.let_others_run(self.committer.wanted().get());
        }
    }

    /// A thread may ask for a commit of bytes that were just written and do not count as appended yet. The committer then
    /// retries.
    /// loom has to know that another thread must run first.
    fn let_others_run(&self, wanted: i64) {
        if self.watermarks.committed.get() < wanted {
            yield_now();
        }
    }

    /// Flushes as `CommitLog::flush` does, by one thread.
    pub(crate) fn flush(&self) -> Result<()> {
        self.commit()?;
        let committed = self.expect_committed();
        self.watermarks.flushed.advance(committed);
        Ok(())
    }

    /// Checks that everything before *committed* is in the file, as it was appended.
    pub(crate) fn expect_committed(&self) -> i64 {
        let committed = self.watermarks.committed.get();
        let expected: Vec<u8> = (0..committed as u64).map(byte_at).collect();
        let file = self.unsynced.segment.file.lock().unwrap();
        assert!(file.starts_with(&expected), "{file:?} is committed up to {committed}");
        committed
    }

    /// Stops as `CommitLog::stop` does.
    pub(crate) fn stop(&self) {
        self.committer.wanted().poison(Error::Closed);
        self.watermarks.appended.poison(Error::Closed);
    }

    fn fail(&self, cause: Error) -> Error {
        self.unsynced.fail(&cause);
        let Watermarks {
            appended,
            committed,
            flushed,
            ..
        } = &self.watermarks;
        for watermark in [committed, flushed, self.committer.wanted(), appended] {
            watermark.poison(cause.clone());
        }
        self.watermarks.poisoned(cause)
    }
}
