//! What iterating a queue or a slice of it gives, and following a store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use super::handle::Handle;
use super::message::Message;
use crate::error::{Error, Result};
use crate::read::{OnDamage, StoredMessage};
use crate::storage::Generation;

/// Messages one by one. They are read in blocks, without the interpreter, so that other threads run meanwhile. `Store.follow` and `Queue.tail`
/// give one that waits for more messages, and may be asked again after it has ended at its timeout.
#[pyclass(frozen, module = "mqstore._native")]
pub(super) struct MessageIterator {
    handle: Arc<Handle>,
    on_damage: OnDamage,
    begun_in: Generation,
    /// It waits for more messages, and ends when the store is closed.
    follows: bool,
    /// Who reads ahead now. Locked only for a moment.
    filling: Mutex<Option<ThreadId>>,
    block: Mutex<Block>,
}

/// What was read, in its order.
pub(super) type Ready = VecDeque<Result<StoredMessage>>;

/// Most messages that are read ahead.
const BLOCK_MESSAGES: usize = 64;
/// Bytes after which no further message is read ahead.
const BLOCK_BYTES: usize = 1 << 20;

struct Block {
    ready: Ready,
    /// Reads ahead, and leaves `ready` empty at the end.
    fill: Box<dyn FnMut(&mut Ready) + Send>,
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
        mut source: impl Iterator<Item = Result<StoredMessage>> + Send + 'static,
        on_damage: OnDamage,
    ) -> Self {
        Self::filled_by(handle, on_damage, false, move |ready| read_ahead(ready, || source.next()))
    }

    /// Messages that `fill` waits for. The iterator ends when the store is closed.
    pub(super) fn following(handle: Arc<Handle>, on_damage: OnDamage, fill: impl FnMut(&mut Ready) + Send + 'static) -> Self {
        Self::filled_by(handle, on_damage, true, fill)
    }

    fn filled_by(handle: Arc<Handle>, on_damage: OnDamage, follows: bool, fill: impl FnMut(&mut Ready) + Send + 'static) -> Self {
        let block = Block {
            ready: VecDeque::new(),
            fill: Box::new(fill),
        };
        Self {
            handle,
            on_damage,
            begun_in: Generation::current(),
            follows,
            filling: Mutex::default(),
            block: Mutex::new(block),
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
}

#[pymethods]
impl MessageIterator {
    /// How many messages were skipped, because they were lost or are damaged, among those that were read so far; a few messages are
    /// read ahead. Always 0 in a store that was opened with `errors="raise"`.
    #[getter]
    fn skipped(&self) -> u64 {
        self.on_damage.skipped()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        if self.follows && self.handle.is_closed() {
            return Ok(None);
        }
        // Before the lock, which another thread may have held at the fork.
        self.handle.expect_own_pass(self.begun_in)?;
        self.expect_idle()?;
        let mut block = self.block.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        if block.ready.is_empty() {
            let block = &mut *block;
            self.set_filling(Some(thread::current().id()));
            self.handle.detach(py, || (block.fill)(&mut block.ready));
            self.set_filling(None);
        }
        // What ends the call comes before what was read ahead, which the next call gives.
        if matches!(block.ready.back(), Some(Err(Error::Interrupted { .. }))) {
            let interrupted = block.ready.pop_back().transpose();
            if self.follows && self.handle.is_closed() {
                return Ok(None);
            }
            interrupted?;
        }
        Ok(block.ready.pop_front().transpose()?.map(Message::new))
    }
}
