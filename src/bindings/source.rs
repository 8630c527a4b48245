//! Where the messages of batches come from.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pyo3::marker::Ungil;
use pyo3::prelude::*;

use super::handle::Handle;
use super::held::Held;
use crate::arrow::Table;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::read::{MessageReader, OnDamage, QueueScan, RecordScan, StoredMessage};
use crate::storage::Generation;

/// Where messages are read from.
pub(super) enum Source {
    /// A store.
    Store(Arc<Handle>, Part),
    /// Memory: messages that were read before, which outlive their store.
    Memory(Arc<[Held]>),
}

/// Which messages of a store.
pub(super) enum Part {
    /// Those of queues of a topic: the id of each, and two queue offsets. One queue comes after the other.
    Queues(String, Vec<(i32, Range<i64>)>),
    /// Those whose records start at these physical offsets, in this order.
    Records(Arc<[i64]>),
}

/// Messages one by one, or why one cannot be read.
pub(super) type Messages = Box<dyn Iterator<Item = Result<Held>> + Send>;

impl Source {
    /// Those whose records start at the offsets in column `physical_offset` that are not null.
    ///
    /// # Errors
    /// `ValueError` for the column.
    pub(super) fn records(handle: &Arc<Handle>, wanted: &Table) -> PyResult<Self> {
        let offsets = wanted.integers("physical_offset")?;
        let part = Part::Records(offsets.into_iter().flatten().collect());
        Ok(Self::Store(handle.clone(), part))
    }

    /// A pass over them.
    ///
    /// # Errors
    /// `ClosedError`, and those of [`QueueScan::new`].
    pub(super) fn messages(&self, py: Python<'_>, on_damage: &OnDamage) -> PyResult<Messages> {
        match self {
            Self::Store(handle, part) => {
                let reader = handle.reader(py)?;
                Ok(handle.detach(py, || part.messages(&reader, on_damage))?)
            }
            Self::Memory(messages) => {
                let messages = messages.clone();
                Ok(Box::new(
                    (0..messages.len()).filter_map(move |at| messages.get(at).cloned().map(Ok)),
                ))
            }
        }
    }

    /// What a pass does at damage, where the call does not say.
    pub(super) fn errors(&self) -> Errors {
        match self {
            Self::Store(handle, _) => handle.errors(),
            Self::Memory(_) => Errors::Raise,
        }
    }

    /// As [`Handle::detach`].
    pub(super) fn detach<T: Ungil>(&self, py: Python<'_>, work: impl Send + Ungil + FnOnce() -> T) -> T {
        match self {
            Self::Store(handle, _) => handle.detach(py, work),
            Self::Memory(_) => py.detach(work),
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

    /// As [`Handle::expect_own_pass`].
    pub(super) fn expect_own_pass(&self, begun_in: Generation) -> PyResult<()> {
        match self {
            Self::Store(handle, _) => handle.expect_own_pass(begun_in),
            Self::Memory(_) => Ok(self.expect_own_stream(begun_in)?),
        }
    }

    /// As [`Handle::expect_own_stream`].
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
            Self::Store(_, Part::Queues(topic, ranges)) => match &ranges[..] {
                [(id, offsets)] => write!(f, "{topic}/{id}[{}:{}]", offsets.start, offsets.end),
                ranges => write!(f, "{topic}, {} queues", ranges.len()),
            },
            Self::Store(_, Part::Records(offsets)) => write!(f, "{} records", offsets.len()),
            Self::Memory(messages) => write!(f, "{} messages", messages.len()),
        }
    }
}

impl Part {
    fn messages(&self, reader: &Arc<MessageReader>, on_damage: &OnDamage) -> Result<Messages> {
        match self {
            Self::Queues(topic, ranges) => {
                let scan = |(id, offsets): &(i32, Range<i64>)| {
                    let scan = QueueScan::new(reader.clone(), topic.clone(), *id, offsets.clone())?;
                    Ok(scan.on_damage(on_damage.clone()))
                };
                let scans: Vec<_> = ranges.iter().map(scan).collect::<Result<_>>()?;
                Ok(Box::new(scans.into_iter().flatten().map(held)))
            }
            Self::Records(offsets) => {
                let scan = RecordScan::new(reader.clone(), offsets.clone(), on_damage.clone());
                Ok(Box::new(scan.map(held)))
            }
        }
    }
}

fn held(message: Result<StoredMessage>) -> Result<Held> {
    message.map(Held::Stored)
}
