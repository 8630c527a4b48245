//! The expected content of a store: every appended message, and the number of acknowledged ones.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use mqstore::error::Error;
use mqstore::format::{CqUnit, DelayLevels, DispatchRequest, Message, MessageView, Transaction};
use mqstore::read::MessageReader;
use mqstore::store::AppendResult;

use super::torn::{Garbled, Torn};
use crate::simulated_env::CrashReport;

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) check: &'static str,
    pub(super) what: String,
}

/// Adds to a failed check what was being done.
pub(super) fn when<T>(what: &str, checked: Checked<T>) -> Checked<T> {
    checked.map_err(|violation| Violation {
        what: format!("{what}: {}", violation.what),
        ..violation
    })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.what)
    }
}

pub(super) type Checked<T = ()> = Result<T, Violation>;

/// Fails the check unless this holds.
pub(super) fn ensure(holds: bool, check: &'static str, what: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation { check, what: what() })
    }
}

/// Fails the check on an error that the store must not raise.
pub(super) fn works<T>(check: &'static str, result: Result<T, Error>) -> Checked<T> {
    result.map_err(|error| Violation {
        check,
        what: error.to_string(),
    })
}

/// A message as the log holds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) bytes: Vec<u8>,
    pub(super) physical_offset: i64,
    pub(super) store_time: i64,
    pub(super) topic: String,
    /// Its queue and queue offset, if it belongs to a queue.
    pub(super) queue: Option<(i32, i64)>,
    pub(super) unit: CqUnit,
    pub(super) keys: Vec<String>,
}

impl Entry {
    pub(super) fn new(view: &MessageView<'_>) -> Self {
        let is_queued = matches!(view.transaction(), Transaction::None | Transaction::Commit);
        Self {
            bytes: view.bytes().to_vec(),
            physical_offset: view.physical_offset(),
            store_time: view.store_time(),
            topic: view.topic().into_owned(),
            queue: is_queued.then(|| (view.queue_id(), view.queue_offset())),
            unit: CqUnit {
                physical_offset: view.physical_offset(),
                size: view.size() as i32,
                tags_code: DispatchRequest::of(view).tags_code(&DelayLevels::default()),
            },
            keys: DispatchRequest::of(view).index_keys(false).map(Cow::into_owned).collect(),
        }
    }

    pub(super) fn end(&self) -> i64 {
        self.physical_offset + self.bytes.len() as i64
    }
}

pub(super) type Entries = Vec<Arc<Entry>>;

/// The appended messages, in order, and how many are acknowledged.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) entries: Entries,
    /// Number of acknowledged messages: by a flush or a wait that returned, or by a recovery that kept them.
    pub(super) acked: usize,
    /// The sectors of them that a power cut has torn.
    pub(super) torn: Torn,
}

impl Model {
    /// Adds the messages that an append reports as stored, as the store encodes them.
    pub(super) fn add(&mut self, reader: &MessageReader, messages: &[Message<'_>], done: &[AppendResult]) -> Checked {
        for (message, done) in messages.iter().zip(done) {
            let stored = works("append", reader.message_at(done.appended.physical_offset))?;
            let view = stored.view();
            let is_it = view.body() == &*message.body
                && view.flag() == message.flag
                && view.queue_offset() == done.appended.queue_offset
                && view.store_time() == done.appended.store_time
                && self.entries.last().is_none_or(|last| last.end() <= view.physical_offset());
            ensure(is_it, "append", || {
                format!("{message:?} was stored as {:?}", view.to_message())
            })?;
            self.entries.push(Arc::new(Entry::new(&view)));
        }
        Ok(())
    }

    /// Returns the physical offset below which everything is acknowledged.
    pub(super) fn ack(&mut self, flushed: i64) {
        let covered = self.entries.iter().take_while(|entry| entry.end() <= flushed).count();
        self.acked = self.acked.max(covered);
    }

    /// Records that a crash left `count` messages. A recovery that serves them has acknowledged them.
    pub(super) fn keep(&mut self, count: usize) {
        self.entries.truncate(count);
        self.acked = count;
    }

    /// The contents that an image of the store may have.
    pub(super) fn expect(&self) -> Expect {
        Expect {
            entries: self.entries.clone(),
            acked: self.acked,
            exact: None,
            is_made: true,
            torn: self.torn.clone(),
        }
    }
}

/// The messages found in a log.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// The first n of the appended messages.
    pub(super) count: usize,
    /// All appended messages, as they were found.
    pub(super) entries: Entries,
    pub(super) garbled: Garbled,
}

/// The contents that an image may have: a prefix of a list of messages.
#[derive(Debug, Clone)]
pub(super) struct Expect {
    pub(super) entries: Entries,
    /// The least number of messages.
    pub(super) acked: usize,
    /// The exact number, if an earlier recovery has fixed it.
    pub(super) exact: Option<usize>,
    /// The store was opened at least once, so it must exist.
    pub(super) is_made: bool,
    /// The sectors that a power cut has torn.
    pub(super) torn: Torn,
}

impl Expect {
    /// Returns the model with more sectors that may be torn.
    pub(super) fn torn(self, report: &CrashReport) -> Self {
        Self {
            torn: Torn::of(report).and(&self.torn),
            ..self
        }
    }

    /// These messages and no others, as they were found.
    pub(super) fn exactly(&self, found: Found) -> Self {
        Self {
            entries: found.entries,
            exact: Some(found.count),
            acked: found.count,
            torn: self.torn.clone().with(found.garbled),
            ..self.clone()
        }
    }

    /// Checks the number of messages in a log.
    pub(super) fn judge(&self, count: usize) -> Checked {
        ensure(count >= self.acked, "acknowledged messages are there", || {
            format!("{count} messages are left, {} were acknowledged", self.acked)
        })?;
        ensure(
            self.exact.is_none_or(|exact| exact == count),
            "a recovery repeats itself",
            || format!("{count} messages are there, {:?} were before", self.exact),
        )
    }
}

/// The queues that these messages make: for each topic and queue id the messages in order.
pub(super) fn queues(entries: &[Arc<Entry>]) -> BTreeMap<(&str, i32), Vec<&Entry>> {
    let mut queues: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if let Some((queue_id, _)) = entry.queue {
            queues.entry((entry.topic.as_str(), queue_id)).or_default().push(entry);
        }
    }
    queues
}

/// The keys of these messages, by topic, with the physical offsets of those that have them.
pub(super) fn keys(entries: &[Arc<Entry>]) -> BTreeMap<(&str, &str), BTreeSet<i64>> {
    let mut keys: BTreeMap<_, BTreeSet<i64>> = BTreeMap::new();
    for entry in entries {
        for key in &entry.keys {
            keys.entry((entry.topic.as_str(), key.as_str()))
                .or_default()
                .insert(entry.physical_offset);
        }
    }
    keys
}
