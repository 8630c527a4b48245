//! Sources of the messages of batches.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pyo3::marker::Ungil;
use pyo3::prelude::*;

use super::handle::{Freshness, Handle};
use super::message::MessageBytes;
use crate::arrow::Table;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::read::{Filled, MessageReader, OnDamage, Picked, QueryHits, Scan, ScanRequest};
use crate::storage::Generation;

/// A source of messages.
pub(super) enum Source {
    /// A store.
    Store(Arc<Handle>, Selection),
    /// Memory: messages that were read before, which outlive their store.
    Memory(Arc<[MessageBytes]>),
}

/// A selection of a store's messages.
pub(super) enum Selection {
    /// Queues of a topic: the id of each, and two queue offsets. One queue comes after the other.
    Topic(String, Vec<(i32, Range<i64>)>),
    /// A queue: topic, id and two queue offsets.
    Queue(String, i32, Range<i64>),
    /// Records that start at these physical offsets, in this order.
    Records(Arc<[i64]>),
    /// The hits of a query.
    Hits(Arc<QueryHits>),
    /// The messages of a scan.
    Scan(Box<ScanRequest>),
}

/// The coverage of a pass.
#[derive(Clone, Default)]
pub(super) struct Coverage {
    /// Physical offsets; `None` where messages are held in memory.
    pub(super) covers: Option<Range<i64>>,
    /// See [`Scan::is_complete`].
    pub(super) is_complete: bool,
    /// See [`Scan::absent_topics`].
    pub(super) absent_topics: Vec<String>,
    /// See [`Scan::lost_queues`].
    pub(super) lost_queues: Vec<(String, i32)>,
}

/// A pass over the messages of a source.
pub(super) enum Messages {
    /// In a store, and whether everything that was appended before the pass is in its queues.
    Stored(Box<Scan>, bool),
    /// In memory, and how many of them were given.
    MessageBytes(Arc<[MessageBytes]>, usize),
}

impl Messages {
    /// Returns the coverage of the pass.
    pub(super) fn coverage(&self) -> Coverage {
        match self {
            Self::Stored(scan, is_queued) => Coverage {
                covers: Some(scan.covers()),
                is_complete: *is_queued && scan.is_complete(),
                absent_topics: scan.absent_topics(),
                lost_queues: scan.lost_queues(),
            },
            Self::MessageBytes(messages, given) => Coverage {
                covers: None,
                is_complete: *given == messages.len(),
                absent_topics: Vec::new(),
                lost_queues: Vec::new(),
            },
        }
    }

    /// Returns the progress as [`Scan::progress`] does.
    pub(super) fn progress(&self) -> (u64, u64) {
        match self {
            Self::Stored(scan, _) => scan.progress(),
            Self::MessageBytes(messages, given) => (*given as u64, messages.len() as u64),
        }
    }

    /// Fills as [`Scan::fill`] does.
    pub(super) fn fill(&mut self, mut take: impl FnMut(Picked<'_>) -> Result<bool>) -> Result<Filled> {
        let (messages, given) = match self {
            Self::Stored(scan, _) => return scan.fill(take),
            Self::MessageBytes(messages, given) => (messages, given),
        };
        while let Some(message) = messages.get(*given) {
            let view = message.view();
            let (body, sys_flag) = (view.body(), view.sys_flag());
            if !take(Picked {
                view: &view,
                body,
                sys_flag,
            })? {
                return Ok(Filled::Full);
            }
            message.intact()?;
            *given += 1;
        }
        Ok(Filled::End)
    }
}

impl Source {
    /// Selects the records that start at the offsets in column `physical_offset` that are not null.
    ///
    /// # Errors
    /// `ValueError` for the column.
    pub(super) fn records(handle: &Arc<Handle>, wanted: &Table) -> PyResult<Self> {
        let offsets = wanted.integers("physical_offset")?;
        let part = Selection::Records(offsets.into_iter().flatten().collect());
        Ok(Self::Store(handle.clone(), part))
    }

    /// A pass over them.
    ///
    /// # Errors
    /// `ClosedError`, and those of [`Scan`].
    pub(super) fn messages(&self, py: Python<'_>, on_damage: &OnDamage) -> PyResult<Messages> {
        match self {
            Self::Store(handle, part) => {
                let (reader, is_queued) = handle.reader_and_lag(py, Freshness::Queues)?;
                let scan = handle.detach(py, || part.scan(reader, on_damage.clone()))?;
                Ok(Messages::Stored(Box::new(scan), is_queued))
            }
            Self::Memory(messages) => Ok(Messages::MessageBytes(messages.clone(), 0)),
        }
    }

    /// Returns the default of `errors` for a pass.
    pub(super) fn errors(&self) -> Errors {
        match self {
            Self::Store(handle, _) => handle.errors(),
            Self::Memory(_) => Errors::Raise,
        }
    }

    /// Runs `work` as [`Handle::detach`] does.
    pub(super) fn detach<T: Ungil>(&self, py: Python<'_>, work: impl Send + Ungil + FnOnce() -> T) -> T {
        match self {
            Self::Store(handle, _) => handle.detach(py, work),
            Self::Memory(_) => py.detach(work),
        }
    }

    /// Runs `work` as [`Handle::interruptible_in_main_thread`] does.
    pub(super) fn interruptible_in_main_thread<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Store(handle, _) => handle.interruptible_in_main_thread(work),
            Self::Memory(_) => work(),
        }
    }

    /// # Errors
    /// `ClosedError`.
    pub(super) fn expect_open(&self) -> PyResult<()> {
        match self {
            Self::Store(handle, _) => handle.expect_open(),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Checks as [`Handle::expect_own_pass`] does.
    pub(super) fn expect_own_pass(&self, begun_in: Generation) -> PyResult<()> {
        match self {
            Self::Store(handle, _) => handle.expect_own_pass(begun_in),
            Self::Memory(_) => Ok(self.expect_own_stream(begun_in)?),
        }
    }

    /// Checks as [`Handle::expect_own_stream`] does.
    pub(super) fn expect_own_stream(&self, begun_in: Generation) -> Result<()> {
        match self {
            Self::Store(handle, _) => handle.expect_own_stream(begun_in),
            Self::Memory(_) if begun_in == Generation::current() => Ok(()),
            Self::Memory(_) => Err(Error::Invalid {
                what: "this pass was begun in the process that this one was forked from: begin a new one here".to_owned(),
            }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(_, Selection::Topic(topic, queues)) => match queues.len() {
                1 => write!(f, "{topic}, 1 queue"),
                count => write!(f, "{topic}, {count} queues"),
            },
            Self::Store(_, Selection::Queue(topic, id, offsets)) => write!(f, "{topic}/{id}[{}:{}]", offsets.start, offsets.end),
            Self::Store(_, Selection::Records(offsets)) => write!(f, "{} records", offsets.len()),
            Self::Store(_, Selection::Hits(hits)) => write!(f, "{} hits of a query", hits.list().len()),
            Self::Store(handle, Selection::Scan(_)) => write!(f, "a scan of {}", handle.path().display()),
            Self::Memory(messages) => write!(f, "{} messages", messages.len()),
        }
    }
}

impl Selection {
    fn scan(&self, reader: Arc<MessageReader>, on_damage: OnDamage) -> Result<Scan> {
        match self {
            Self::Topic(topic, stretches) => Scan::of_topic(reader, topic, stretches, on_damage),
            Self::Queue(topic, id, stretch) => Scan::of_queue(reader, topic, *id, stretch.clone(), on_damage),
            Self::Records(offsets) => Ok(Scan::of_records(reader, offsets, on_damage)),
            Self::Hits(hits) => Ok(Scan::of_hits(reader, hits, on_damage)),
            Self::Scan(request) => Scan::new(reader, ScanRequest::clone(request), on_damage),
        }
    }
}
