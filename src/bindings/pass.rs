//! One pass over the messages of `Batches`: uses Python only for reports, so that it runs on any thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::source::{Coverage, Messages, Source};
use crate::arrow::{BatchBuilder, MessageColumns, from_arrow};
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::MessageView;
use crate::read::{Filled, OnDamage, ParallelScan, ScanSection};
use crate::storage::Generation;

/// One thread reads at a time; the others wait.
#[derive(Default)]
pub(super) struct ReadLock {
    state: Mutex<ReadLockState>,
    ended: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum ReadLockState {
    #[default]
    Free,
    /// This thread reads.
    Taken(ThreadId),
    /// The thread that reads runs code of the caller's, which may wait for any thread.
    Told,
}

/// The turn of a thread, to the end of this.
pub(super) struct Taken<'a>(&'a ReadLock);

impl ReadLock {
    /// Waits until no thread reads.
    ///
    /// # Errors
    /// `ValueError` for code that the thread that reads has called, and for any thread that asks while such code runs: it may be
    /// waited for.
    pub(super) fn take(&self, py: Python<'_>) -> PyResult<Taken<'_>> {
        let this = thread::current().id();
        py.detach(|| {
            let mut state = self.state();
            if *state == ReadLockState::Told || *state == ReadLockState::Taken(this) {
                return Err(PyValueError::new_err(
                    "this pass is being read, by a call that waits for code of yours, such as progress",
                ));
            }
            while *state != ReadLockState::Free {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            *state = ReadLockState::Taken(this);
            Ok(Taken(self))
        })
    }

    /// Runs code of the caller's, in the thread whose turn it is.
    pub(super) fn tell<T>(&self, code: impl FnOnce() -> T) -> T {
        let taken = *self.state();
        self.set(ReadLockState::Told);
        let told = code();
        self.set(taken);
        told
    }

    fn set(&self, state: ReadLockState) {
        *self.state() = state;
        self.ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, ReadLockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.set(ReadLockState::Free);
    }
}

/// The coverage of the latest pass.
#[derive(Clone)]
pub(super) struct Latest {
    pub(super) on_damage: OnDamage,
    /// The coverage of the pass up to its position.
    coverage: Arc<Mutex<Coverage>>,
    /// True once it has returned an error in place of a message.
    has_failed: Arc<AtomicBool>,
}

impl Latest {
    pub(super) fn new(errors: Errors) -> Self {
        Self {
            on_damage: OnDamage::new(errors),
            coverage: Arc::default(),
            has_failed: Arc::default(),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.coverage().is_complete && !self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pass over a source.
pub(super) struct BatchPass {
    source: Arc<Source>,
    begun_in: Generation,
    /// `None` after the end, and after an error that is not about one message.
    reading: Option<Reading>,
    columns: MessageColumns,
    max_bytes: usize,
    progress: Option<Py<PyAny>>,
    /// While `progress` runs, no thread waits for the next batch.
    pub(super) turn: Arc<ReadLock>,
    latest: Latest,
}

/// An item of a pass: a batch, or the error of the next message.
type Item = Result<RecordBatch>;

/// The way in which messages become batches.
enum Reading {
    /// One after the other.
    InTurn {
        messages: Messages,
        builder: BatchBuilder,
        /// The error after the last batch.
        failed: Option<Error>,
    },
    /// Read by several threads.
    AtOnce {
        sections: Box<ParallelScan<Item>>,
        /// See [`Messages::Stored`].
        is_queued: bool,
        /// Items of the last section that were not returned yet.
        ready: VecDeque<Item>,
    },
}

/// Bytes of a section that a thread reads: about a batch, but worth the start and not too much for the memory.
const MIN_SECTION: usize = 4 << 20;
const MAX_SECTION: usize = 64 << 20;
/// One thread finds the locations for all: more than this many threads would wait for it.
const MAX_THREADS: usize = 16;

/// Returns the number of threads of a long pass: `OMP_NUM_THREADS`, as for the libraries that take the batches, or else as many as may run
/// at once. Spark sets it for its workers.
pub(super) fn reading_threads() -> usize {
    let wanted = std::env::var("OMP_NUM_THREADS")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let threads = wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
    threads.clamp(1, MAX_THREADS)
}

impl BatchPass {
    pub(super) fn new(
        source: Arc<Source>,
        messages: Messages,
        columns: &MessageColumns,
        max_bytes: usize,
        progress: Option<Py<PyAny>>,
        latest: Latest,
    ) -> Self {
        let reading = Reading::InTurn {
            messages,
            builder: BatchBuilder::new(columns),
            failed: None,
        };
        Self {
            source,
            begun_in: Generation::current(),
            reading: Some(reading),
            columns: columns.clone(),
            max_bytes,
            progress,
            turn: Arc::default(),
            latest,
        }
    }

    /// Returns the pass, read by up to `threads` threads if that pays.
    pub(super) fn with_threads(mut self, threads: usize) -> Self {
        self.reading = self.reading.map(|reading| match reading {
            Reading::InTurn {
                messages: Messages::Stored(scan, is_queued),
                ..
            } if threads > 1 && scan.is_long() => {
                let (columns, max_bytes) = (self.columns.clone(), self.max_bytes);
                let bytes = max_bytes.clamp(MIN_SECTION, MAX_SECTION) as u64;
                let gather = move |section: &mut ScanSection<'_>| batches_of(section, &columns, max_bytes);
                Reading::AtOnce {
                    sections: Box::new(ParallelScan::new(*scan, threads, bytes, gather)),
                    is_queued,
                    ready: VecDeque::new(),
                }
            }
            reading => reading,
        });
        self
    }

    /// The next item; the pass ends with an error of its own.
    fn fill(&mut self, reading: &mut Reading) -> Result<Option<Item>> {
        self.source.expect_own_stream(self.begun_in)?;
        match reading {
            Reading::InTurn {
                messages,
                builder,
                failed,
            } => self.fill_in_turn(messages, builder, failed),
            Reading::AtOnce {
                sections,
                is_queued,
                ready,
            } => self.take_ready(sections, *is_queued, ready),
        }
    }

    fn fill_in_turn(
        &self,
        messages: &mut Messages,
        builder: &mut BatchBuilder,
        failed: &mut Option<Error>,
    ) -> Result<Option<Item>> {
        if let Some(error) = failed.take() {
            return after_batch(error).map(Some);
        }
        loop {
            let filled = messages.fill(|picked| {
                builder
                    .append(picked.view, picked.body, picked.sys_flag, self.max_bytes)
                    .map_err(from_arrow)
            })?;
            *self.latest.coverage() = messages.coverage();
            let told = self.tell(messages.progress());
            match (filled, told) {
                // At once: whoever is interrupted asks for no other batch.
                (Filled::Stopped(error @ Error::Interrupted { .. }), _) | (_, Err(error)) => return Err(error),
                (Filled::Stopped(error), _) => *failed = Some(error),
                (Filled::Paused, Ok(())) => {
                    // The callback may fork, or close the store.
                    self.source.expect_own_stream(self.begun_in)?;
                    continue;
                }
                (Filled::End | Filled::Full, Ok(())) => {}
            }
            if !builder.is_empty() {
                return builder.finish().map(|batch| Some(Ok(batch))).map_err(from_arrow);
            }
            return failed.take().map(after_batch).transpose();
        }
    }

    fn take_ready(&self, sections: &mut ParallelScan<Item>, is_queued: bool, ready: &mut VecDeque<Item>) -> Result<Option<Item>> {
        loop {
            let batch = ready.pop_front();
            if ready.is_empty() {
                *self.latest.coverage() = Coverage {
                    covers: Some(sections.covers()),
                    is_complete: is_queued && sections.is_complete(),
                    absent_topics: sections.absent_topics(),
                    lost_queues: sections.lost_queues(),
                };
            }
            if batch.is_some() {
                return Ok(batch);
            }
            let Some(batches) = sections.next_section()? else {
                return Ok(None);
            };
            ready.extend(batches);
            self.tell(sections.progress())?;
            // The callback may fork, or close the store.
            self.source.expect_own_stream(self.begun_in)?;
        }
    }

    /// Hands each message to `take`.
    pub(super) fn each(mut self, mut take: impl FnMut(&MessageView<'_>) -> Result<()>) -> Result<()> {
        let Some(Reading::InTurn { mut messages, .. }) = self.reading.take() else {
            return Ok(());
        };
        loop {
            self.source.expect_own_stream(self.begun_in)?;
            let filled = messages.fill(|picked| take(picked.view).map(|()| true))?;
            *self.latest.coverage() = messages.coverage();
            self.tell(messages.progress())?;
            match filled {
                Filled::Paused => {}
                Filled::Full | Filled::End => return Ok(()),
                Filled::Stopped(error) => return Err(error),
            }
        }
    }

    /// Reports the progress to the caller.
    fn tell(&self, come: (u64, u64)) -> Result<()> {
        let Some(progress) = &self.progress else { return Ok(()) };
        let told = self.turn.tell(|| Python::try_attach(|py| progress.call1(py, come)));
        match told {
            Some(Err(raised)) => Err(Error::Interrupted { cause: Arc::new(raised) }),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

impl Iterator for BatchPass {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let mut reading = self.reading.take()?;
        let item = match self.fill(&mut reading) {
            // Past damage, too: whoever asks again wants the rest.
            Ok(Some(item)) => {
                self.reading = Some(reading);
                item
            }
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        if item.is_err() {
            self.latest.has_failed.store(true, Ordering::Relaxed);
        }
        Some(item)
    }
}

/// Returns damage as an item; any other error ends the pass, because it is not about a message that could be skipped.
fn after_batch(error: Error) -> Result<Item> {
    if error.is_damage() { Ok(Err(error)) } else { Err(error) }
}

/// The messages of a section as batches, what is wrong with the others, and why they end before it does.
fn batches_of(section: &mut ScanSection<'_>, columns: &MessageColumns, max_bytes: usize) -> (Vec<Item>, Option<Error>) {
    let (mut builder, mut items) = (BatchBuilder::new(columns), Vec::new());
    loop {
        let filled = section.fill(|picked| {
            builder
                .append(picked.view, picked.body, picked.sys_flag, max_bytes)
                .map_err(from_arrow)
        });
        let filled = match filled {
            Ok(filled) => filled,
            // What was taken last is void.
            Err(error) => return (items, Some(error)),
        };
        if !builder.is_empty() {
            match builder.finish() {
                Ok(batch) => items.push(Ok(batch)),
                Err(error) => return (items, Some(from_arrow(error))),
            }
        }
        match filled {
            Filled::Full | Filled::Paused => {}
            Filled::End => return (items, None),
            Filled::Stopped(error) if error.is_damage() => items.push(Err(error)),
            Filled::Stopped(error) => return (items, Some(error)),
        }
    }
}
