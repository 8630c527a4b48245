//! The commit log, written: one lock, one copy. Everything that can be done before the lock is (checks, checksum, property bytes,
//! header); inside it a message gets its queue offset, physical offset and store time, and is copied into the mapped segment.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::format::{BLANK_SIZE, EncodedMessage, encode_blank, fits};
use crate::log::log_files::LogFiles;
use crate::storage::{AppendFile, Env, Step};
use crate::watermark::{Wait, Watermark};

/// Bytes that one hold of the lock writes at most, but for a single larger message.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;

/// Where a message was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its record's first byte.
    pub physical_offset: i64,
    /// Its number in its queue.
    pub queue_offset: i64,
    /// Its record's bytes.
    pub wrote_bytes: i32,
    /// When, in ms.
    pub store_time: i64,
}

/// The end of the log, for one writing process.
#[derive(Debug)]
pub struct CommitLog {
    env: Arc<dyn Env>,
    dir: PathBuf,
    segment_size: u64,
    files: Arc<LogFiles>,
    tail: Mutex<Tail>,
    /// Held while a segment is made, by one thread; never together with `tail`, except to hand the segment over.
    allocating: Mutex<()>,
    /// Segments with bytes that no sync has covered yet, oldest first.
    unsynced: Mutex<Vec<Arc<AppendFile>>>,
    /// Every byte below can be read.
    pub appended: Arc<Watermark>,
    /// Every byte below survives a power cut.
    pub flushed: Arc<Watermark>,
}

/// What the lock protects.
#[derive(Debug)]
struct Tail {
    end: u64,
    current: Option<Arc<AppendFile>>,
    next: Option<Arc<AppendFile>>,
    last_store_time: i64,
    queue_offsets: HashMap<String, HashMap<i32, i64>>,
}

/// What one attempt under the lock came to.
enum Outcome {
    Written,
    /// The next segment must be made first.
    WouldBlock,
}

impl CommitLog {
    /// Goes on at `end`. `queue_offsets` gives the next offset of every queue that has one.
    ///
    /// # Errors
    /// [`Error::Io`] when the last segment cannot be opened for writing or cleared behind the end.
    pub fn open(
        env: Arc<dyn Env>,
        dir: PathBuf,
        segment_size: u64,
        files: Arc<LogFiles>,
        appended: Arc<Watermark>,
        last_store_time: i64,
        queue_offsets: HashMap<String, HashMap<i32, i64>>,
    ) -> Result<Self> {
        let end = appended.get();
        let start = files
            .starts()
            .rev()
            .find(|start| *start <= end && end < start + segment_size as i64);
        let current = match start {
            None => None,
            Some(start) => {
                let file = AppendFile::open(env.as_ref(), &dir, start as u64, segment_size)?;
                file.clear_from((end - start) as usize)?;
                Some(Arc::new(file))
            }
        };
        let unsynced = current.iter().cloned().collect();
        let tail = Tail {
            end: end as u64,
            current,
            next: None,
            last_store_time,
            queue_offsets,
        };
        Ok(Self {
            env,
            dir,
            segment_size,
            files,
            tail: Mutex::new(tail),
            allocating: Mutex::new(()),
            unsynced: Mutex::new(unsynced),
            appended,
            flushed: Arc::new(Watermark::new(end)),
        })
    }

    /// Bytes that a record may have.
    pub fn max_record_size(&self) -> u64 {
        self.segment_size - BLANK_SIZE as u64
    }

    /// Appends the messages in order; as many of them share one hold of the lock as fit into [`MAX_BATCH_BYTES`]. What was appended
    /// is in `done`, whatever happens.
    ///
    /// # Errors
    /// [`Error::DiskFull`]: those in `done` are stored, the others not. [`Error::Poisoned`].
    pub fn append(&self, messages: &[EncodedMessage<'_>], done: &mut Vec<Appended>) -> Result<()> {
        while done.len() < messages.len() {
            let outcome = self.with_tail(|tail| {
                let mut bytes = 0;
                while let Some(message) = messages.get(done.len()) {
                    bytes += message.len();
                    if bytes > MAX_BATCH_BYTES && bytes > message.len() {
                        break;
                    }
                    match self.put(tail, std::slice::from_ref(message), done)? {
                        Outcome::Written => {}
                        Outcome::WouldBlock => return Ok(Outcome::WouldBlock),
                    }
                }
                Ok(Outcome::Written)
            })?;
            if let Outcome::WouldBlock = outcome {
                self.make_next_segment()?;
            }
        }
        Ok(())
    }

    /// Appends all messages behind each other in one segment, in one hold of the lock, or none.
    ///
    /// # Errors
    /// As [`CommitLog::append`].
    pub fn append_together(&self, messages: &[EncodedMessage<'_>]) -> Result<Vec<Appended>> {
        let mut done = Vec::with_capacity(messages.len());
        while let Outcome::WouldBlock = self.with_tail(|tail| self.put(tail, messages, &mut done))? {
            self.make_next_segment()?;
        }
        Ok(done)
    }

    fn with_tail(&self, work: impl FnOnce(&mut Tail) -> Result<Outcome>) -> Result<Outcome> {
        match self.appended.poisoned() {
            None => {}
            Some(Error::Closed) => return Err(Error::Closed),
            Some(cause) => return Err(Error::Poisoned { cause: Box::new(cause) }),
        }
        let mut tail = lock(&self.tail);
        let outcome = work(&mut tail);
        let end = tail.end as i64;
        drop(tail);
        self.appended.advance(end);
        outcome
    }

    /// Puts messages that belong into one segment.
    fn put(&self, tail: &mut Tail, messages: &[EncodedMessage<'_>], done: &mut Vec<Appended>) -> Result<Outcome> {
        let len: u64 = messages.iter().map(|message| message.len() as u64).sum();
        if !self.has_room(tail, len)? {
            return Ok(Outcome::WouldBlock);
        }
        let Some(file) = tail.current.clone() else {
            return Ok(Outcome::WouldBlock);
        };
        let store_time = self.env.now_ms().max(tail.last_store_time);
        tail.last_store_time = store_time;
        for message in messages {
            let queue_offset = next_queue_offset(tail, message);
            let at = (tail.end - file.start()) as usize;
            let physical_offset = tail.end as i64;
            if !message.write(queue_offset, physical_offset, store_time, |position, bytes| {
                file.write(at + position, bytes)
            }) {
                return Err(self.poison(&file, at));
            }
            tail.end += message.len() as u64;
            done.push(Appended {
                physical_offset,
                queue_offset,
                wrote_bytes: message.len() as i32,
                store_time,
            });
        }
        Ok(Outcome::Written)
    }

    /// Whether `len` bytes fit behind the end, after moving to the next segment if they do not fit into this one.
    fn has_room(&self, tail: &mut Tail, len: u64) -> Result<bool> {
        let remaining = tail.current.as_ref().map_or(0, |file| file.end().saturating_sub(tail.end));
        if fits(len, remaining) {
            return Ok(true);
        }
        let Some(next) = tail.next.take() else { return Ok(false) };
        if let Some(full) = tail.current.replace(next.clone())
            && remaining > 0
        {
            let at = (tail.end - full.start()) as usize;
            if !full.write(at, &encode_blank(remaining as u32)) {
                return Err(self.poison(&full, at));
            }
        }
        tail.end = next.start();
        Ok(true)
    }

    /// Makes the segment behind the current one, outside the lock, unless another thread has.
    fn make_next_segment(&self) -> Result<()> {
        let _one_at_a_time = lock(&self.allocating);
        let start = {
            let tail = lock(&self.tail);
            if tail.next.is_some() {
                return Ok(());
            }
            tail.current.as_ref().map_or(tail.end, |file| file.end())
        };
        let file = Arc::new(AppendFile::create(self.env.as_ref(), &self.dir, start, self.segment_size)?);
        self.files.push(start as i64);
        lock(&self.unsynced).push(file.clone());
        lock(&self.tail).next = Some(file);
        Ok(())
    }

    /// Makes everything appended so far durable and says up to where. One thread syncs at a time; the others find it done.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: a sync failed, now or before; it is never tried again.
    pub fn flush(&self) -> Result<i64> {
        let target = self.appended.get();
        let mut unsynced = lock(&self.unsynced);
        if self.flushed.get() < target {
            if let Wait::Poisoned(cause) = self.flushed.wait(i64::MAX, Some(std::time::Instant::now())) {
                return Err(Error::Poisoned { cause: Box::new(cause) });
            }
            for file in unsynced.iter().filter(|file| (file.start() as i64) < target) {
                let range =
                    (self.flushed.get() as u64).saturating_sub(file.start())..(target as u64).min(file.end()) - file.start();
                if let Err(cause) = file.sync(range, Step::LogRange) {
                    self.appended.poison(cause.clone());
                    self.flushed.poison(cause.clone());
                    return Err(Error::Poisoned { cause: Box::new(cause) });
                }
            }
            unsynced.retain(|file| file.end() as i64 > target);
            self.flushed.advance(target);
        }
        Ok(self.flushed.get())
    }

    /// Store time of the last message; 0 for none.
    pub fn last_store_time(&self) -> i64 {
        lock(&self.tail).last_store_time
    }

    fn poison(&self, file: &AppendFile, at: usize) -> Error {
        let cause = Error::Corrupt {
            path: file.path().to_owned(),
            offset: at as u64,
            reason: "the device failed under this page while a message was written".to_owned(),
        };
        self.appended.poison(cause.clone());
        self.flushed.poison(cause.clone());
        Error::Poisoned { cause: Box::new(cause) }
    }
}

/// The next number of the message's queue, taken; 0 for those that have none.
fn next_queue_offset(tail: &mut Tail, message: &EncodedMessage<'_>) -> i64 {
    if !message.has_queue_offset() {
        return 0;
    }
    let queues = match tail.queue_offsets.get_mut(message.topic()) {
        Some(queues) => queues,
        None => tail.queue_offsets.entry(message.topic().to_owned()).or_default(),
    };
    let next = queues.entry(message.queue_id()).or_default();
    *next += 1;
    *next - 1
}

/// A thread that panicked inside left nothing half done that the next could not see: the end moves last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
