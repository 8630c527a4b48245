//! The iterator over a queue or a slice of it, and over the messages that `follow` waits for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use super::handle::Handle;
use super::message::Message;
use crate::error::{Error, Result};
use crate::read::{LostQueues, OnDamage, QueueOffsets, StoredMessage};
use crate::storage::Generation;
use crate::sync::try_lock;

/// Messages one by one: `iter` of a topic, a queue, a slice of one or the answer to a query.
///
/// It reads blocks of messages and releases the interpreter for that, so other threads run.
/// `Store.follow` and `Queue.tail` return an iterator that waits for more messages; it may be asked
/// again after it has ended at its timeout. `async for` reads it without blocking the event loop.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct MessageIterator {
    handle: Arc<Handle>,
    on_damage: OnDamage,
    lost: LostQueues,
    begun_in: Generation,
    /// It waits for more messages, and ends when the store is closed.
    follows: bool,
    /// The thread that reads ahead now. Locked only for a moment.
    filling: Mutex<Option<ThreadId>>,
    block: Mutex<Block>,
}

/// Messages that were read ahead, in order.
pub(super) type Ready = VecDeque<Result<StoredMessage>>;

/// The source of an iterator's messages.
pub(super) trait Source: Send {
    /// Reads ahead, and leaves `ready` empty at the end. For a caller that has `waited` for some time it only polls, and leaves
    /// `ready` empty where nothing has come, too. Returns true if more may come.
    fn fill(&mut self, ready: &mut Ready, waited: Option<Duration>) -> bool;

    /// Returns true if a check may find something, or the end. It takes next to no time.
    fn is_due(&self, waited: Duration) -> bool;

    /// Returns the queue offsets at which another pass continues with the messages at the physical offset `from` and later, by default
    /// from the start of this one; `None` for messages that are all there.
    fn positions(&self, from: Option<i64>) -> Option<Result<QueueOffsets>>;
}

/// Messages that are all there.
struct Whole<I>(I);

impl<I: Iterator<Item = Result<StoredMessage>> + Send> Source for Whole<I> {
    fn fill(&mut self, ready: &mut Ready, _waited: Option<Duration>) -> bool {
        read_ahead(ready, || self.0.next());
        false
    }

    fn is_due(&self, _waited: Duration) -> bool {
        true
    }

    fn positions(&self, _from: Option<i64>) -> Option<Result<QueueOffsets>> {
        None
    }
}

/// Most messages that are read ahead.
const BLOCK_MESSAGES: usize = 64;
/// Bytes after which no further message is read ahead.
const BLOCK_BYTES: usize = 1 << 20;

struct Block {
    ready: Ready,
    /// The physical offset after the last message that was returned.
    taken_until: Option<i64>,
    source: Box<dyn Source>,
}

/// Reads ahead from a source; what fails is raised in its turn, after the messages before it.
pub(super) fn read_ahead(ready: &mut Ready, mut next: impl FnMut() -> Option<Result<StoredMessage>>) {
    let mut bytes = 0;
    while ready.len() < BLOCK_MESSAGES && bytes < BLOCK_BYTES {
        let Some(next) = next() else { break };
        bytes += next.as_ref().map_or(BLOCK_BYTES, |message| message.view().size() as usize);
        ready.push_back(next);
    }
}

impl MessageIterator {
    /// The messages of `source`, which skips and counts by `on_damage`.
    pub(super) fn over(
        handle: Arc<Handle>,
        source: impl Iterator<Item = Result<StoredMessage>> + Send + 'static,
        on_damage: OnDamage,
    ) -> Self {
        Self::of(handle, on_damage, false, Box::new(Whole(source)))
    }

    /// Messages that `source` waits for. The iterator ends when the store is closed.
    pub(super) fn following(handle: Arc<Handle>, on_damage: OnDamage, source: impl Source + 'static) -> Self {
        Self::of(handle, on_damage, true, Box::new(source))
    }

    /// Returns the iterator, with the lost queues of its pass.
    pub(super) fn lacking(self, lost: LostQueues) -> Self {
        Self { lost, ..self }
    }

    fn of(handle: Arc<Handle>, on_damage: OnDamage, follows: bool, source: Box<dyn Source>) -> Self {
        let ready = VecDeque::new();
        Self {
            handle,
            on_damage,
            lost: LostQueues::default(),
            begun_in: Generation::current(),
            follows,
            filling: Mutex::default(),
            block: Mutex::new(Block {
                ready,
                taken_until: None,
                source,
            }),
        }
    }

    fn set_filling(&self, thread: Option<ThreadId>) {
        *self.filling.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    /// Refuses a call that the handler of a signal makes in the middle of another one: it would wait for itself.
    fn expect_idle(&self) -> PyResult<()> {
        let filling = *self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if filling == Some(thread::current().id()) {
            return Err(PyValueError::new_err(
                "the iterator is reading already, in the call that this handler of a signal interrupted",
            ));
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.follows && self.handle.is_closed()
    }

    /// Returns the messages that were read ahead, reading now if there are none, and true if more may come.
    fn filled<'a>(&'a self, py: Python<'_>, waited: Option<Duration>) -> PyResult<(MutexGuard<'a, Block>, bool)> {
        // Before the lock, which another thread may have held at the fork.
        self.handle.expect_own_pass(self.begun_in)?;
        self.expect_idle()?;
        let mut guard = self.block.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let mut more_may_come = true;
        if guard.ready.is_empty() {
            let block = &mut *guard;
            self.set_filling(Some(thread::current().id()));
            more_may_come = self.handle.detach(py, || block.source.fill(&mut block.ready, waited));
            self.set_filling(None);
        }
        Ok((guard, more_may_come))
    }

    fn take(&self, block: &mut Block) -> PyResult<Option<Message>> {
        // What ends the call comes before what was read ahead, which the next call gives.
        if matches!(block.ready.back(), Some(Err(Error::Interrupted { .. }))) {
            let interrupted = block.ready.pop_back().transpose();
            if self.is_closed() {
                return Ok(None);
            }
            interrupted?;
        }
        let message = block.ready.pop_front().transpose()?;
        if let Some(message) = message.as_ref().filter(|_| self.follows) {
            let view = message.view();
            block.taken_until = Some(view.physical_offset() + i64::from(view.size()));
        }
        Ok(message.map(Message::new))
    }
}

#[pymethods]
impl MessageIterator {
    /// The number of messages that were skipped so far, because they were lost or are damaged; a
    /// few messages are read ahead. Always 0 in a store that was opened with `errors="raise"`.
    #[getter]
    fn skipped(&self) -> u64 {
        self.on_damage.skipped()
    }

    /// Topic and queue id of each queue whose files are lost and whose messages, which the log has, are
    /// missing in this pass over a topic or a store: a new list. A `RuntimeWarning` names them.
    /// `Store.follow` adds a queue when it comes to its first message.
    #[getter]
    fn lost_queues(&self) -> Vec<(String, i32)> {
        self.lost.names()
    }

    /// The positions after the messages that were returned so far, of `Store.follow` and `Queue.tail`:
    /// a dict of (topic, queue id) to a queue offset. As `start` of another pass, or of a consumer, it
    /// continues with the next message, also in another process. A pass that was begun with such a
    /// dict has its queues; another one has every queue of its topics that exists, and a queue that
    /// comes later is not in the dict.
    ///
    /// Raises `TypeError` for an iterator that does not wait for messages. It waits for a thread that
    /// waits for the next message.
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.handle.expect_own_pass(self.begun_in)?;
        self.expect_idle()?;
        let mut block = self.block.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let from = block.taken_until;
        // Exclusive: a source need not be `Sync`.
        let source = &mut block.source;
        let positions = self.handle.detach(py, move || source.positions(from));
        drop(block);
        let Some(positions) = positions else {
            return Err(PyTypeError::new_err(
                "only the iterators of Store.follow and Queue.tail have positions",
            ));
        };
        let shown = PyDict::new(py);
        for ((topic, queue_id), offset) in positions? {
            shown.set_item((topic, queue_id), offset)?;
        }
        Ok(shown)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        if self.is_closed() {
            return Ok(None);
        }
        let (mut block, _) = self.filled(py, None)?;
        self.take(&mut block)
    }

    /// Returns true if `_look` may find something. It takes no thread.
    fn _is_due(&self, waited: Duration) -> bool {
        if self.is_closed() || self.begun_in != Generation::current() {
            return true;
        }
        // Another thread polls now.
        let Some(block) = try_lock(&self.block) else { return false };
        !block.ready.is_empty() || block.source.is_due(waited)
    }

    /// Reads ahead for a caller that has waited that long, and does not wait itself. Returns whether
    /// something is there for `_take`, None at the end.
    fn _look(&self, py: Python<'_>, waited: Duration) -> PyResult<Option<bool>> {
        if self.is_closed() {
            return Ok(None);
        }
        let (block, more_may_come) = self.filled(py, Some(waited))?;
        let is_there = !block.ready.is_empty();
        Ok((is_there || more_may_come).then_some(is_there))
    }

    /// The next of the messages that were read ahead.
    fn _take(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let mut block = self.block.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.take(&mut block)
    }
}
