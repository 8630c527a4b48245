//! An open store as Python holds it: closes once; after a fork a reader reopens itself, and a writer stays with its process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::marker::Ungil;
use pyo3::prelude::*;

use super::errors::ClosedError;
use super::interpreter::{hang_at_exit, report_failed_close};
use super::nowait::Completer;
use super::recipe::Recipe;
use super::warnings::{warn, warn_of_removals, warn_of_slow_puts};
use crate::broker::{BrokerController, CleanWarnings};
use crate::config::{Errors, Geometry, StoreConfig};
use crate::error::{Error, Result};
use crate::format::DelayOffset;
use crate::ha::{Master, RequestTimes, SettingsServer};
use crate::interrupt::interruptible;
use crate::read::{MessageReader, Refreshed};
use crate::storage::{Env, Generation, RealEnv};
use crate::store::{MessageStore, OpenMode, choose_sizes};

/// Runs a long call whose loops check for interrupts. They end after a signal whose handler raises, and with the error of `expect`,
/// which is called with the interpreter.
pub(super) fn interruptible_by_signals<T>(expect: impl Fn() -> PyResult<()> + 'static, work: impl FnOnce() -> T) -> T {
    let ask = move || {
        let asked = Python::try_attach(|py| py.check_signals().and_then(|()| expect()));
        asked
            .unwrap_or(Ok(()))
            .map_err(|raised| Error::Interrupted { cause: Arc::new(raised) })
    };
    interruptible(ask, work)
}

/// The mode of `mqstore.open`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write(OpenMode),
}

impl Mode {
    /// # Errors
    /// `ValueError`.
    pub(super) fn parse(name: &str) -> PyResult<Self> {
        match name {
            "r" => Ok(Self::Read),
            "r+" => Ok(Self::Write(OpenMode::Existing)),
            "a" => Ok(Self::Write(OpenMode::Append)),
            "x" => Ok(Self::Write(OpenMode::New)),
            _ => Err(PyValueError::new_err(format!(
                "mode is {name:?}: expected \"r\" (read), \"r+\" (write, must exist), \"a\" (write, made if it does not exist) or \"x\" \
                 (write, must not exist)"
            ))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write(OpenMode::Existing | OpenMode::Rebuild | OpenMode::Replica(_)) => "r+",
            Self::Write(OpenMode::Append) => "a",
            Self::Write(OpenMode::New) => "x",
        }
    }
}

/// The appends that a call needs to see.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Appends in the log: the call does not use queues or index.
    Log,
    /// Appends in queues and index: the call uses nothing else.
    Queues,
    /// Appends in the log, and in the index if possible: where the index lags, the call walks the log.
    Walk,
}

/// The state that a `Store` and the objects made from it share.
pub(super) struct Handle {
    path: PathBuf,
    recipe: Py<Recipe>,
    config: StoreConfig,
    mode: Mode,
    closed: AtomicBool,
    /// Locked only for a moment and with the interpreter attached: a fork then never finds it locked by a thread that the child
    /// does not have.
    opened: Mutex<OpenStore>,
    /// Of a store that is open for writing.
    completer: Completer,
    /// Set once the delivery of the first delayed message was seen to.
    serves_delayed: AtomicBool,
    /// The warnings of the removal of old segments, of a store that is open for writing.
    warnings: Option<Arc<CleanWarnings>>,
}

struct OpenStore {
    /// The process that opened it.
    process: Generation,
    /// `None` once closed.
    reader: Option<Arc<MessageReader>>,
    /// `None` once closed, and where the mode is "r".
    writer: Option<Arc<MessageStore>>,
    /// The broker's work on the store of `writer`.
    broker: Option<Arc<BrokerController>>,
    /// The ports of the store of `writer`.
    ports: Option<Arc<Ports>>,
}

/// The ports at which slaves ask, if options ask for them.
pub(super) struct Ports {
    /// For the log.
    pub(super) master: Option<Master>,
    /// For topics, groups and progress.
    pub(super) settings: Option<SettingsServer>,
}

impl Ports {
    fn open(store: &Arc<MessageStore>, broker: &Arc<BrokerController>) -> Result<Self> {
        Ok(Self {
            master: Master::start(store)?,
            settings: SettingsServer::start(store, broker, RequestTimes::default())?,
        })
    }
}

impl Handle {
    /// Opens the store; call it detached.
    pub(super) fn open(path: PathBuf, config: StoreConfig, mode: Mode, recipe: Py<Recipe>) -> Result<Self> {
        let process = Generation::current();
        let (reader, writer, broker, ports) = match mode {
            Mode::Read => (open_reader(&path, &config)?, None, None, None),
            Mode::Write(how) => {
                let env: Arc<dyn Env> = Arc::new(RealEnv::new());
                let store = Arc::new(MessageStore::open(&env, &path, config.clone(), how)?);
                let broker = Arc::new(BrokerController::new(&store));
                broker.start()?;
                let ports = Arc::new(Ports::open(&store, &broker)?);
                (store.reader().clone(), Some(store), Some(broker), Some(ports))
            }
        };
        let warnings = broker.as_ref().map(|broker| broker.clean_warnings().clone());
        Ok(Self {
            path,
            recipe,
            config,
            mode,
            closed: AtomicBool::new(false),
            opened: Mutex::new(OpenStore {
                process,
                reader: Some(reader),
                writer,
                broker,
                ports,
            }),
            completer: Completer::default(),
            serves_delayed: AtomicBool::new(false),
            warnings,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the recipe of the open store for pickle.
    ///
    /// # Errors
    /// `ClosedError`; `TypeError` for a store that is open for writing.
    pub(super) fn recipe(&self) -> PyResult<&Py<Recipe>> {
        self.expect_open()?;
        if self.mode != Mode::Read {
            return Err(PyTypeError::new_err(
                "a store that is open for writing does not pickle, nor do its topics, queues, slices and answers to queries: pickle its \
                 path, or open it with mode=\"r\" for that",
            ));
        }
        Ok(&self.recipe)
    }

    /// Returns the default of `errors` for a read of many messages.
    pub(super) fn errors(&self) -> Errors {
        self.config.errors
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Called first by nearly every call.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn expect_open(&self) -> PyResult<()> {
        hang_at_exit();
        if self.is_closed() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// Returns an error unless an iteration of the process `begun_in` may continue: the store is open, and this is not a fork of that
    /// process. A fork has the locks of its parent's reader as other threads held them, and nobody there to release them.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn expect_own_pass(&self, begun_in: Generation) -> PyResult<()> {
        self.expect_open()?;
        self.expect_no_fork(begun_in)
    }

    fn expect_no_fork(&self, begun_in: Generation) -> PyResult<()> {
        if begun_in == Generation::current() {
            return Ok(());
        }
        Err(ClosedError::new_err(self.foreign_pass()))
    }

    /// Same as [`expect_own_pass`](Self::expect_own_pass), without the interpreter.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn expect_own_stream(&self, begun_in: Generation) -> Result<()> {
        let what = if self.is_closed() {
            format!("{} was closed while its messages were read", self.path.display())
        } else if begun_in != Generation::current() {
            self.foreign_pass()
        } else {
            return Ok(());
        };
        Err(Error::Invalid { what })
    }

    fn foreign_pass(&self) -> String {
        format!(
            "this pass over {} was begun in the process that this one was forked from: begin a new one here",
            self.path.display()
        )
    }

    fn closed_error(&self) -> PyErr {
        ClosedError::new_err(format!("{} is closed: open it again with mqstore.open", self.path.display()))
    }

    /// Runs a long call whose loops check for interrupts. They end after a signal whose handler raises, once the store was closed, and in
    /// a fork that a handler made.
    pub(super) fn interruptible<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let (handle, begun_in) = (self.clone(), Generation::current());
        interruptible_by_signals(move || handle.expect_own_pass(begun_in), work)
    }

    /// Same as [`interruptible`](Self::interruptible), for a call that another thread may wait for while it holds the interpreter: only
    /// the main thread checks, since only there do signal handlers run.
    pub(super) fn interruptible_in_main_thread<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        if rustix::thread::gettid() == rustix::process::getpid() {
            self.interruptible(work)
        } else {
            work()
        }
    }

    /// Same as [`interruptible`](Self::interruptible), without the interpreter.
    pub(super) fn detach<T: Ungil>(self: &Arc<Self>, py: Python<'_>, work: impl Send + Ungil + FnOnce() -> T) -> T {
        py.detach(|| self.interruptible(work))
    }

    /// Same as [`detach`](Self::detach), for an append. The close of the store in another thread does not interrupt its waits: it ends them
    /// itself, after everything that was appended is durable.
    pub(super) fn detach_append<T: Ungil>(self: &Arc<Self>, py: Python<'_>, work: impl Send + Ungil + FnOnce() -> T) -> T {
        let (handle, begun_in) = (self.clone(), Generation::current());
        py.detach(|| interruptible_by_signals(move || handle.expect_no_fork(begun_in), work))
    }

    /// Returns a reader after the writer of this process has made the appends before the call visible to it. Warns if they are not
    /// visible within [`MessageStore::PATIENCE`]: the answer may then be incomplete.
    ///
    /// # Errors
    /// Those of [`current_reader`](Self::current_reader), and the exception of a signal handler during the wait.
    pub(super) fn reader(self: &Arc<Self>, py: Python<'_>, freshness: Freshness) -> PyResult<Arc<MessageReader>> {
        self.reader_and_lag(py, freshness).map(|(reader, _)| reader)
    }

    /// Returns what [`reader`](Self::reader) does, and true if all appends before the call are visible.
    pub(super) fn reader_and_lag(self: &Arc<Self>, py: Python<'_>, freshness: Freshness) -> PyResult<(Arc<MessageReader>, bool)> {
        let reader = self.current_reader(py)?;
        let writer = self.opened().writer.clone();
        let Some(writer) = writer.filter(|_| self.mode != Mode::Read) else {
            return Ok((reader, true));
        };
        let is_readable =
            freshness == Freshness::Queues || self.awaits(py, &writer, MessageStore::is_readable, MessageStore::make_readable)?;
        let is_dispatched =
            freshness == Freshness::Log || self.awaits(py, &writer, MessageStore::is_caught_up, MessageStore::catch_up)?;
        if !is_readable || (freshness == Freshness::Queues && !is_dispatched) {
            warn(
                py,
                "the last messages that were appended are not in their queues yet, and may be missing in this answer: wait_dispatched() \
                 waits for them, or raises why they cannot come",
            )?;
        }
        Ok((reader, is_readable && is_dispatched))
    }

    /// Waits for the writer unless `is_there`. Returns false if it does not get there.
    fn awaits(
        self: &Arc<Self>,
        py: Python<'_>,
        writer: &Arc<MessageStore>,
        is_there: fn(&MessageStore) -> bool,
        wait: fn(&MessageStore, Duration) -> Result<bool>,
    ) -> PyResult<bool> {
        if is_there(writer) {
            return Ok(true);
        }
        let is_there = self.detach(py, || wait(writer, MessageStore::PATIENCE))?;
        self.expect_open()?;
        Ok(is_there)
    }

    /// Returns the reader without waiting for the writer: a new one if a parent of this process has opened it.
    ///
    /// # Errors
    /// `ClosedError`; in a fork also those of opening, and the exception of a signal handler that runs during it.
    pub(super) fn current_reader(&self, py: Python<'_>) -> PyResult<Arc<MessageReader>> {
        self.expect_open()?;
        let here = Generation::current();
        {
            let opened = self.opened();
            if let (Some(reader), true) = (&opened.reader, opened.process == here) {
                return Ok(reader.clone());
            }
            self.expect_own(&opened)?;
        }
        let fresh = py.detach(|| interruptible_by_signals(|| Ok(()), || open_reader(&self.path, &self.config)))?;
        self.expect_open()?;
        let mut opened = self.opened();
        if opened.process != here {
            opened.process = here;
            opened.reader = Some(fresh.clone());
        }
        Ok(fresh)
    }

    /// Takes up what another process has changed, by `how`: a refresh of the reader. Returns by how many bytes the log has grown, and
    /// the reader to continue with.
    ///
    /// # Errors
    /// Those of `how`.
    pub(super) fn refresh(
        &self,
        reader: Arc<MessageReader>,
        how: impl FnOnce(&MessageReader) -> Result<Refreshed>,
    ) -> Result<(i64, Arc<MessageReader>)> {
        let refreshed = how(&reader)?;
        let Some(fresh) = refreshed.reopened else {
            return Ok((refreshed.bytes, reader));
        };
        Python::try_attach(|_| {
            let mut opened = self.opened();
            if opened.reader.as_ref().is_some_and(|known| Arc::ptr_eq(known, &reader)) {
                opened.reader = Some(fresh.clone());
            }
        });
        Ok((refreshed.bytes, fresh))
    }

    /// The store that this process writes to, if it is that one.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn own_writer(&self) -> PyResult<Option<Arc<MessageStore>>> {
        if self.mode == Mode::Read {
            Ok(None)
        } else {
            self.writer().map(Some)
        }
    }

    /// Returns the writer. The input of a call may be code of the caller's: it may close the store or fork, so the call asks for the
    /// writer after it.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn writer(&self) -> PyResult<Arc<MessageStore>> {
        self.expect_open()?;
        let opened = self.opened();
        self.expect_own(&opened)?;
        let writer = opened.writer.clone();
        drop(opened);
        match writer {
            Some(writer) => Ok(writer),
            None => Err(self.closed_error()),
        }
    }

    /// Returns the error of [`writer`](Self::writer), if it has one, for an object that keeps the store which the process `opened_in` has
    /// opened for writing. Costs two loads otherwise.
    ///
    /// # Errors
    /// `ClosedError`.
    #[inline]
    pub(super) fn expect_writer_of(&self, opened_in: Generation) -> PyResult<()> {
        hang_at_exit();
        if self.is_closed() || opened_in != Generation::current() {
            return self.writer().map(drop);
        }
        Ok(())
    }

    /// Returns the broker's work on the store of [`writer`](Self::writer).
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn broker(&self) -> PyResult<Arc<BrokerController>> {
        self.expect_open()?;
        let opened = self.opened();
        self.expect_own(&opened)?;
        opened.broker.clone().ok_or_else(|| self.closed_error())
    }

    /// Returns the ports of the store of [`writer`](Self::writer).
    pub(super) fn ports(&self) -> Option<Arc<Ports>> {
        self.opened().ports.clone()
    }

    /// Returns the progress of the delivery of delayed messages, if this process delivers them.
    ///
    /// # Errors
    /// `ClosedError`; the damage of `delayOffset.json`.
    pub(super) fn own_delay_offsets(&self) -> PyResult<Option<Vec<DelayOffset>>> {
        if self.mode == Mode::Read {
            return Ok(None);
        }
        Ok(self.broker()?.delay_offsets()?)
    }

    /// Called after an append, when its message is stored: warns of slow appends and of messages that a full disk has removed, starts
    /// the delivery of delayed messages at the first one, timers included, and warns once if this store does not deliver them.
    ///
    /// # Errors
    /// A warning as an exception, where a filter asks for that.
    pub(super) fn after_append(&self, py: Python<'_>, store: &MessageStore) -> PyResult<()> {
        warn_of_slow_puts(py, &self.path, store)?;
        if let Some(warnings) = &self.warnings {
            warn_of_removals(py, &self.path, warnings)?;
        }
        if !store.has_delayed() || self.serves_delayed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let path = self.path.display();
        match self.broker()?.serve_delayed() {
            Ok(true) => Ok(()),
            Ok(false) => warn(
                py,
                &format!(
                    "{path} delivers no delayed messages, since a broker has written it or services is False: they wait for a broker, or \
                     for a writer with services=True"
                ),
            ),
            Err(error) => warn(py, &format!("{path} delivers no delayed messages: {error}")),
        }
    }

    /// Returns the broker's work on the store, if this process writes to it.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn own_broker(&self) -> PyResult<Option<Arc<BrokerController>>> {
        if self.mode == Mode::Read {
            Ok(None)
        } else {
            self.broker().map(Some)
        }
    }

    /// Returns the completer of the store's futures. It runs code in Python, which may close the store or fork.
    ///
    /// # Errors
    /// `ClosedError`; `RuntimeError` if its thread cannot be started.
    pub(super) fn completer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let store = self.writer()?;
        self.completer.started(py, &store)?.ok_or_else(|| self.closed_error())
    }

    /// Returns an error unless this is the process that opened the store, if it is open for writing.
    ///
    /// # Errors
    /// `ClosedError`.
    pub(super) fn expect_own_process(&self) -> PyResult<()> {
        self.expect_own(&self.opened())
    }

    /// Returns an error unless a writer is used by the process that opened it.
    fn expect_own(&self, opened: &OpenStore) -> PyResult<()> {
        if self.mode == Mode::Read || opened.process == Generation::current() {
            return Ok(());
        }
        Err(ClosedError::new_err(format!(
            "{} is open for writing in the process that this one was forked from: open it here with mode=\"r\"",
            self.path.display()
        )))
    }

    /// Closes the store, once. If a shortage keeps pool bytes from the log the store stays locked: a later call
    /// tries again.
    ///
    /// # Errors
    /// What a writer could not do any more.
    pub(super) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.store(true, Ordering::Release);
        let (writer, broker, ports) = {
            let opened = self.opened();
            let is_own = self.expect_own(&opened).is_ok();
            (
                opened.writer.clone().filter(|_| is_own),
                opened.broker.clone().filter(|_| is_own),
                opened.ports.clone().filter(|_| is_own),
            )
        };
        let is_own = writer.is_some();
        let closed = py.detach(|| close_writer(broker.as_deref(), writer.as_deref(), ports.as_deref()));
        if !closed.as_ref().is_err_and(Error::is_shortage) || writer.as_ref().is_none_or(|writer| writer.is_committed()) {
            // Only now, so that whoever closes it at the same time waits until it is closed.
            let opened = self.take();
            py.detach(|| drop((writer, broker, ports, opened)));
        }
        // A fork has no thread that could end.
        let completed = if is_own { self.completer.join(py) } else { Ok(()) };
        closed.map_err(PyErr::from).and(completed)
    }

    /// Takes what is open out of the handle. In a fork that is a reader at most.
    fn take(&self) -> OpenStore {
        let mut opened = self.opened();
        let (process, writer, broker) = (opened.process, opened.writer.take(), opened.broker.take());
        let (reader, ports) = (opened.reader.take(), opened.ports.take());
        if process == Generation::current() {
            return OpenStore {
                process,
                reader,
                writer,
                broker,
                ports,
            };
        }
        // The parent's threads and lock are not this process's: closing the store here would mark it as whole for the next writer.
        std::mem::forget((writer, broker, ports));
        OpenStore {
            process,
            reader,
            writer: None,
            broker: None,
            ports: None,
        }
    }

    fn opened(&self) -> MutexGuard<'_, OpenStore> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let OpenStore {
            reader,
            writer: Some(writer),
            broker,
            ports,
            ..
        } = self.take()
        else {
            return;
        };
        drop(reader);
        let close = || close_writer(broker.as_deref(), Some(&writer), ports.as_deref());
        let attached = Python::try_attach(|py| {
            let closed = py.detach(close);
            self.completer.end_quietly(py);
            closed
        });
        if let Err(error) = attached.unwrap_or_else(close) {
            report_failed_close(&self.path, &error);
        }
    }
}

/// Closes a writer: the port for settings, then the broker's work, which persists progress and needs the store for that. Slaves then have time to take the rest
/// of the log.
///
/// # Errors
/// What could not be done any more.
fn close_writer(broker: Option<&BrokerController>, writer: Option<&MessageStore>, ports: Option<&Ports>) -> Result<()> {
    if let Some(settings) = ports.and_then(|ports| ports.settings.as_ref()) {
        settings.close();
    }
    let persisted = broker.map_or(Ok(()), BrokerController::close);
    let closed = writer.map_or(Ok(()), MessageStore::close);
    if let Some(master) = ports.and_then(|ports| ports.master.as_ref()) {
        master.close();
    }
    closed.and(persisted)
}

fn open_reader(path: &Path, config: &StoreConfig) -> Result<Arc<MessageReader>> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = MessageReader::open(&env, path, config.clone())?;
    if config.geometry == Geometry::Broker {
        // A reader takes the sizes from the files. It refuses what a writer would.
        choose_sizes(&env, path, &mut config.clone(), false, OpenMode::Existing)?;
    }
    Ok(Arc::new(reader))
}
