//! What `src/log/commit_log/commit.rs` needs of the rest of the log, over one segment in memory.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loom::thread::yield_now;

use crate::error::{Error, Result};
use crate::sync::{Mutex, lock};
use crate::transient_store_pool::TransientStorePool;
use crate::watermark::{Wait, Watermark};

/// The byte that every model appends at an offset.
pub(crate) fn byte_at(offset: u64) -> u8 {
    offset as u8 + 1
}

/// The wait of one append for room.
#[derive(Debug, Default)]
pub(crate) struct RoomWait {
    pub(crate) until: Option<Instant>,
}

/// What the append lock protects.
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
    #[expect(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn start(&self) -> u64 {
        0
    }

    #[expect(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn end(&self) -> u64 {
        64
    }

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

    /// Not by way of the pool.
    pub(crate) fn write_file(&self, at: u64, bytes: &[u8]) {
        let mut file = self.file.lock().unwrap();
        let end = at as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[at as usize..end].copy_from_slice(bytes);
    }
}

/// Each commit writes two zeros after its bytes.
#[derive(Debug)]
pub(crate) struct WrittenBlocks;

impl WrittenBlocks {
    #[expect(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn write_past(&self, end: u64, file: &Segment) {
        file.write_file(end, &[0, 0]);
    }
}

#[derive(Debug)]
pub(crate) struct Allocator(Option<Duration>);

impl Allocator {
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.0
    }
}

/// A log in one segment, whose messages are only bytes.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub(crate) state: Mutex<AppendState>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) allocator: Allocator,
    pub(crate) pool: Option<Arc<TransientStorePool>>,
    pub(crate) pool_waits: AtomicU64,
    pub(crate) commit_refusal: Mutex<Option<Error>>,
    pub(crate) committing: Mutex<()>,
    pub(crate) unsynced: std::sync::Mutex<Vec<Arc<Segment>>>,
    pub(crate) commit_wanted: Watermark,
    pub(crate) appended: Watermark,
    pub(crate) committed: Watermark,
    pub(crate) flushed: Watermark,
    pub(crate) blocks: WrittenBlocks,
    pub(crate) broken: OnceLock<Error>,
}

impl CommitLog {
    /// Over a ring of so many buffers of two bytes. Each commit calls `write`. Without patience nobody runs a committer.
    pub(crate) fn new(buffers: usize, patience: Option<Duration>, write: fn() -> Result<()>) -> Arc<Self> {
        let pool = Arc::new(TransientStorePool::new(buffers, 2).unwrap());
        let segment = Arc::new(Segment {
            pool: pool.clone(),
            file: std::sync::Mutex::default(),
            write,
        });
        Arc::new(Self {
            state: Mutex::new(AppendState {
                end: 0,
                current: Some(segment.clone()),
            }),
            segment: segment.clone(),
            allocator: Allocator(patience),
            pool: Some(pool),
            pool_waits: AtomicU64::default(),
            commit_refusal: Mutex::new(None),
            committing: Mutex::new(()),
            unsynced: std::sync::Mutex::new(vec![segment]),
            commit_wanted: Watermark::default(),
            appended: Watermark::default(),
            committed: Watermark::default(),
            flushed: Watermark::default(),
            blocks: WrittenBlocks,
            broken: OnceLock::new(),
        })
    }

    /// As `CommitLog::append`, of a message of so many bytes.
    pub(crate) fn append(&self, len: u64) -> Result<()> {
        let mut room = RoomWait::default();
        while let Some(offset) = self.put(len, &room)? {
            self.wait_for_room(offset, &mut room)?;
            self.let_others_go_on(offset);
        }
        Ok(())
    }

    /// As `CommitLog::put` and what surrounds it. `None` if it is appended.
    fn put(&self, len: u64, room: &RoomWait) -> Result<Option<i64>> {
        let mut state = lock(&self.state);
        if let Some(offset) = self.must_be_committed(&state, len, room) {
            return Ok(Some(offset));
        }
        let passing = self.pass_pool(&mut state, len)?;
        let (at, end) = (state.end, state.end + len);
        let bytes: Vec<u8> = (at..end).map(byte_at).collect();
        match passing {
            None => assert!(self.segment.pool.write(at, &[&bytes])),
            Some(_) => self.segment.write_file(at, &bytes),
        }
        state.end = end;
        if passing.is_some() {
            self.appended.advance(end as i64);
            self.committed.advance(end as i64);
        }
        drop(state);
        drop(passing);
        self.appended.advance(end as i64);
        self.ask_for_large_commit(end as i64);
        Ok(None)
    }

    /// As the committer does: commits whenever somebody asks, until the log is stopped.
    pub(crate) fn run_committer(&self) {
        while self.appended.poisoned().is_none() {
            if self.commit_wanted.get() > self.committed.get() {
                let _ = self.commit();
            }
            let wait = self.commit_wanted.wait(self.committed.get() + 1, None);
            if matches!(wait, Wait::Poisoned(_)) {
                yield_now();
            }
            self.let_others_go_on(self.commit_wanted.get());
        }
    }

    /// Somebody may ask for a commit of what was written a moment before, and is not yet told to be appended. Who commits then tries again
    /// and again. loom has to know that another thread must go on first.
    fn let_others_go_on(&self, wanted: i64) {
        if self.committed.get() < wanted {
            yield_now();
        }
    }

    /// As `CommitLog::flush`, by one thread.
    pub(crate) fn flush(&self) -> Result<()> {
        self.commit()?;
        let committed = self.expect_committed();
        self.flushed.advance(committed);
        Ok(())
    }

    /// Everything before *committed* is in the file, as it was appended.
    pub(crate) fn expect_committed(&self) -> i64 {
        let committed = self.committed.get();
        let expected: Vec<u8> = (0..committed as u64).map(byte_at).collect();
        let file = self.segment.file.lock().unwrap();
        assert!(file.starts_with(&expected), "{file:?} is committed up to {committed}");
        committed
    }

    /// As `CommitLog::stop`.
    pub(crate) fn stop(&self) {
        self.commit_wanted.poison(Error::Closed);
        self.appended.poison(Error::Closed);
    }

    pub(crate) fn fail(&self, cause: Error) -> Error {
        let _ = self.broken.set(cause.clone());
        for watermark in [&self.committed, &self.flushed, &self.commit_wanted, &self.appended] {
            watermark.poison(cause.clone());
        }
        self.poisoned(cause)
    }

    pub(crate) fn poisoned(&self, cause: Error) -> Error {
        Error::poisoned(cause, self.flushed.get())
    }

    pub(crate) fn write_failed(&self, _: &mut AppendState, cause: Error) -> Error {
        self.fail(cause)
    }
}
