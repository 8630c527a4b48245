//! A store opened for writing: one process appends, any number of its threads read.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::{Geometry, StoreConfig};
use crate::engine::Dispatcher;
use crate::error::{Error, Result};
use crate::format::{
    BatchUnit, Checkpoint, DelayLevels, EncodedMessage, IndexGeometry, Message, MessageId, ProducerBatch, stored_properties,
};
use crate::log::{Appended, CommitLog, ConsumeQueueStore, IndexService, record_geometry, save_checkpoint};
use crate::read::{MessageReader, expect_store};
use crate::storage::{Access, Env, Lock, Step};
use crate::store::draft::{self, Draft};
use crate::watermark::{Wait, Watermark};

/// The segments of a broker that was told nothing else.
const BROKER_SEGMENT: u64 = 1 << 30;

/// What is expected of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// A store is there.
    Existing,
    /// A store is there, or one is made.
    Append,
    /// Nothing is there: a store is made.
    New,
}

/// What became of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendResult {
    /// Where.
    pub appended: Appended,
    /// Its offset message id.
    pub message_id: MessageId,
}

/// A store opened for writing. Dropping it closes it; what that could not do is then lost, so call [`MessageStore::close`].
#[derive(Debug)]
pub struct MessageStore {
    env: Arc<dyn Env>,
    path: PathBuf,
    config: StoreConfig,
    delay_levels: DelayLevels,
    geometry: IndexGeometry,
    reader: Arc<MessageReader>,
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueueStore>,
    index: Arc<IndexService>,
    dispatched: Arc<Watermark>,
    /// 1 once the services are to end.
    stopping: Arc<Watermark>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    services: Vec<JoinHandle<()>>,
    _lock: Lock,
}

impl MessageStore {
    /// Opens or makes the store in the directory `path`, and takes its lock first of all.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Unclean`], [`Error::NotAStore`], [`Error::Invalid`], and those of [`MessageReader::open`].
    pub fn open(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig, mode: OpenMode) -> Result<Self> {
        config.validate()?;
        let is_new = make_directories(env.as_ref(), path, mode)?;
        let lock = take_lock(env.as_ref(), path)?;
        if exists(env.as_ref(), path, "abort")? {
            return Err(Error::Unclean { path: path.to_owned() });
        }
        if !is_new {
            config = MessageReader::open(env, path, config)?.geometry()?;
        }
        // What no option and no file tells is as in a broker's store where the segments are a broker's.
        match config.mapped_file_size_commit_log {
            Some(BROKER_SEGMENT) => config.fill_broker_geometry(),
            _ if config.geometry == Geometry::Broker => config.fill_broker_geometry(),
            _ => config.fill_new_geometry(),
        }
        record_geometry(env.as_ref(), path, &config)?;
        let reader = Arc::new(MessageReader::open(env, path, config)?);
        create_abort(env.as_ref(), path)?;
        Self::start(env.clone(), path.to_owned(), reader, lock)
    }

    fn start(env: Arc<dyn Env>, path: PathBuf, reader: Arc<MessageReader>, lock: Lock) -> Result<Self> {
        let config = reader.config().clone();
        let geometry = config.index_geometry().unwrap_or(IndexGeometry::ROCKETMQ);
        let shared = reader.shared();
        let mut queue_offsets: HashMap<String, HashMap<i32, i64>> = HashMap::new();
        for (topic, queue_id, queue) in shared.queues.file_queues() {
            queue_offsets.entry(topic).or_default().insert(queue_id, queue.max_offset());
            queue.write_out()?;
        }
        let segment_size = config.mapped_file_size_commit_log.unwrap_or_default();
        let log = CommitLog::open(
            env.clone(),
            path.join("commitlog"),
            segment_size,
            shared.log.clone(),
            shared.appended,
            reader.recovery().last_store_time,
            queue_offsets,
        )?;
        let log = Arc::new(log);
        let delay_levels = config.delay_levels()?;
        let dispatched = Arc::new(Watermark::new(reader.recovery().scan_start));
        let dispatcher = Dispatcher::new(
            shared.log,
            shared.queues.clone(),
            shared.index.clone(),
            log.appended.clone(),
            dispatched.clone(),
            delay_levels.clone(),
            geometry,
            config.index_tags,
        );
        let stopping = Arc::new(Watermark::new(0));
        let services = vec![
            spawn(
                "mqstore-dispatch",
                dispatch_until_closed(dispatcher, log.clone(), dispatched.clone()),
            )?,
            spawn(
                "mqstore-flush",
                flush_until_stopped(log.clone(), stopping.clone(), config.flush_interval_commit_log),
            )?,
        ];
        Ok(Self {
            env,
            path,
            config,
            delay_levels,
            geometry,
            reader,
            log,
            queues: shared.queues,
            index: shared.index,
            dispatched,
            stopping,
            running: Mutex::new(Some(Running { services, _lock: lock })),
        })
    }

    /// Reads what this store holds, what was appended a moment ago included.
    pub fn reader(&self) -> &Arc<MessageReader> {
        &self.reader
    }

    /// The options, sizes filled in.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`], [`Error::DiskFull`], [`Error::Poisoned`], [`Error::Closed`]: nothing was stored.
    pub fn append(&self, message: Message<'_>) -> Result<AppendResult> {
        let message = self.prepare(message)?;
        let encoded = [encode(&message)?];
        let mut done = Vec::with_capacity(1);
        self.log.append(&encoded, &mut done)?;
        done.pop().map(|appended| result(&message, appended)).ok_or(Error::Closed)
    }

    /// Appends messages in order, after every one of them was checked. What was stored is in `done`, whatever happens.
    ///
    /// # Errors
    /// As [`MessageStore::append`]; an illegal message names its position, and then nothing was stored.
    pub fn append_all<'a, M: Into<Draft<'a>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
        done: &mut Vec<AppendResult>,
    ) -> Result<()> {
        let messages = messages.into_iter();
        let mut prepared = Vec::with_capacity(messages.size_hint().0);
        for (row, message) in messages.into_iter().enumerate() {
            prepared.push(self.prepare(message).map_err(|error| at_row(error, row))?);
        }
        let encoded: Result<Vec<EncodedMessage<'_>>> = prepared.iter().map(encode).collect();
        let encoded = encoded?;
        let mut appended = Vec::with_capacity(encoded.len());
        let outcome = self.log.append(&encoded, &mut appended);
        done.extend(
            prepared
                .iter()
                .zip(appended)
                .map(|(message, appended)| result(message, appended)),
        );
        outcome
    }

    /// Appends a batch as a producer sends it: `body` holds the messages, `common` what they share. They stand behind each other in
    /// one segment. With `batch_properties` each record gets them behind its own, as brokers before 5.3.4 store them.
    ///
    /// # Errors
    /// As [`MessageStore::append_all`]; [`Error::IllegalMessage`] for a transaction, a delay or a body that is no batch.
    pub fn append_producer_batch(&self, common: &Message<'_>, batch_properties: Option<&[u8]>) -> Result<Vec<AppendResult>> {
        let units: std::result::Result<Vec<BatchUnit<'_>>, _> = ProducerBatch::new(&common.body).collect();
        let illegal = |what: String| Error::IllegalMessage {
            what,
            status: "MESSAGE_ILLEGAL",
        };
        let units = units.map_err(|malformed| illegal(format!("the body is no producer batch: {malformed}")))?;
        let mut prepared = Vec::with_capacity(units.len());
        for (row, unit) in units.iter().enumerate() {
            let message = Message {
                flag: unit.flag,
                body: unit.body.into(),
                properties: stored_properties(unit.properties, batch_properties),
                ..common.clone()
            };
            let topic = message.topic.clone();
            let message = self.prepare(message).map_err(|error| at_row(error, row))?;
            if message.topic != topic || crate::format::transaction(message.sys_flag) != crate::format::Transaction::None {
                return Err(illegal("a batch can be neither delayed nor part of a transaction".to_owned()));
            }
            prepared.push(message);
        }
        let encoded: Result<Vec<EncodedMessage<'_>>> = prepared.iter().map(encode).collect();
        let encoded = encoded?;
        let total: u64 = encoded.iter().map(|message| message.len() as u64).sum();
        if total > self.log.max_record_size() {
            return Err(illegal(format!(
                "the batch takes {total} bytes, at most {} fit into a segment",
                self.log.max_record_size()
            )));
        }
        let appended = self.log.append_together(&encoded)?;
        Ok(prepared
            .iter()
            .zip(appended)
            .map(|(message, appended)| result(message, appended))
            .collect())
    }

    /// Makes everything appended so far durable; gives the physical offset up to which the log then is.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn flush(&self) -> Result<i64> {
        self.log.flush()
    }

    /// Up to where the log is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.log.flushed.get()
    }

    /// Up to where messages are in their queues and in the index.
    pub fn dispatched_offset(&self) -> i64 {
        self.dispatched.get()
    }

    /// Waits until the record at this physical offset is appended and durable, syncing it if need be.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Poisoned`], [`Error::Closed`].
    pub fn wait_durable(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<()> {
        let next = physical_offset.saturating_add(1);
        if self.log.flushed.get() >= next {
            return Ok(());
        }
        outcome(self.log.appended.wait(next, deadline), "appended", physical_offset)?;
        self.log.flush().map(drop)
    }

    /// Waits until the record at this physical offset is in its queue and in the index.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Poisoned`], [`Error::Closed`].
    pub fn wait_dispatched(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<()> {
        outcome(
            self.dispatched.wait(physical_offset.saturating_add(1), deadline),
            "dispatched",
            physical_offset,
        )
    }

    /// Closes the store: dispatches what is left, makes everything durable, stamps the checkpoint, and then removes the abort file.
    /// A second call does nothing.
    ///
    /// # Errors
    /// What failed: the abort file then stays, and the next open knows.
    pub fn close(&self) -> Result<()> {
        let Some(running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let outcome = self.finish(running);
        // Whoever still waits for a message waits in vain.
        self.dispatched.poison(Error::Closed);
        self.log.flushed.poison(Error::Closed);
        outcome
    }

    fn finish(&self, running: Running) -> Result<()> {
        let failed = self.log.appended.poisoned();
        self.log.appended.poison(Error::Closed);
        self.stopping.advance(1);
        for service in running.services {
            let _ = service.join();
        }
        if let Some(cause) = failed.or_else(|| self.dispatched.poisoned()) {
            return Err(Error::Poisoned { cause: Box::new(cause) });
        }
        self.log.flush()?;
        self.queues.sync()?;
        let index_msg_timestamp = self.index.sync(self.geometry)?;
        let last = self.log.last_store_time();
        let checkpoint = Checkpoint {
            physic_msg_timestamp: last,
            logics_msg_timestamp: last,
            index_msg_timestamp,
            ..Checkpoint::default()
        };
        save_checkpoint(self.env.as_ref(), &self.path.join("checkpoint"), &checkpoint)?;
        let abort = self.path.join("abort");
        let removed = self
            .env
            .unlink(&abort)
            .and_then(|()| self.env.sync_dir(&self.path, Step::AbortRemoved));
        removed.map_err(|error| Error::io("remove", &abort, error))
    }

    fn prepare<'a>(&self, draft: impl Into<Draft<'a>>) -> Result<Message<'a>> {
        draft::prepare(draft.into(), &self.config, &self.delay_levels, self.log.max_record_size())
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        // Nobody is left to be told; an abort file that stays behind tells the next open.
        let _ = self.close();
    }
}

fn encode<'a>(message: &'a Message<'_>) -> Result<EncodedMessage<'a>> {
    message.prepare().map_err(|malformed| Error::IllegalMessage {
        what: malformed.to_string(),
        status: "MESSAGE_ILLEGAL",
    })
}

fn result(message: &Message<'_>, appended: Appended) -> AppendResult {
    let message_id = MessageId {
        store_host: message.store_host,
        physical_offset: appended.physical_offset,
    };
    AppendResult { appended, message_id }
}

fn at_row(error: Error, row: usize) -> Error {
    match error {
        Error::IllegalMessage { what, status } => Error::IllegalMessage {
            what: format!("message {row}: {what}"),
            status,
        },
        other => other,
    }
}

fn outcome(wait: Wait, what: &str, physical_offset: i64) -> Result<()> {
    match wait {
        Wait::Reached => Ok(()),
        Wait::TimedOut => Err(Error::TimedOut {
            what: format!("the message at physical offset {physical_offset} is not {what} yet"),
        }),
        Wait::Poisoned(Error::Closed) => Err(Error::Closed),
        Wait::Poisoned(cause) => Err(Error::Poisoned { cause: Box::new(cause) }),
    }
}

fn dispatch_until_closed(mut dispatcher: Dispatcher, log: Arc<CommitLog>, dispatched: Arc<Watermark>) -> impl FnOnce() + Send {
    move || {
        let outcome = loop {
            match dispatcher.step() {
                Ok(true) => {}
                Ok(false) => break dispatcher.write_out(),
                Err(cause) => break Err(cause),
            }
        };
        if let Err(cause) = outcome {
            log.appended.poison(cause.clone());
            dispatched.poison(cause);
        }
    }
}

fn flush_until_stopped(log: Arc<CommitLog>, stopping: Arc<Watermark>, interval_ms: u64) -> impl FnOnce() + Send {
    move || {
        let interval = Duration::from_millis(interval_ms);
        while let Wait::TimedOut = stopping.wait(1, Some(Instant::now() + interval)) {
            // A failed sync has poisoned the log, which tells everybody.
            let _ = log.flush();
        }
    }
}

fn spawn(name: &str, service: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(service);
    spawned.map_err(|error| Error::io("start a thread for", name, error))
}

/// Makes what is missing of the directories; says whether there was no store.
fn make_directories(env: &dyn Env, path: &Path, mode: OpenMode) -> Result<bool> {
    let found = match env.list(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound && mode != OpenMode::Existing => {
            create_dir(env, path)?;
            Vec::new()
        }
        Err(error) => {
            return Err(Error::NotAStore {
                path: path.to_owned(),
                found: error.to_string(),
            });
        }
    };
    let is_store = found.iter().any(|entry| entry.name == "commitlog");
    match mode {
        OpenMode::New if !found.is_empty() => return Err(Error::Exists { path: path.to_owned() }),
        // Before the lock: its file would stop a broker if this were one of a store's own directories.
        OpenMode::Existing => expect_store(env, path)?,
        OpenMode::Append if !found.is_empty() => expect_store(env, path)?,
        _ => {}
    }
    for dir in ["commitlog", "consumequeue", "index", "config"] {
        create_dir(env, &path.join(dir))?;
    }
    for dir in [path, path.parent().unwrap_or(path)] {
        env.sync_dir(dir, Step::StoreDirectories)
            .map_err(|error| Error::io("sync", dir, error))?;
    }
    Ok(!is_store)
}

fn create_dir(env: &dyn Env, path: &Path) -> Result<()> {
    match env.create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("create", path, error)),
        _ => Ok(()),
    }
}

fn exists(env: &dyn Env, dir: &Path, name: &str) -> Result<bool> {
    let entries = env.list(dir).map_err(|error| Error::io("list", dir, error))?;
    Ok(entries.iter().any(|entry| entry.name == name))
}

fn take_lock(env: &dyn Env, path: &Path) -> Result<Lock> {
    let path = path.join("lock");
    let lock = match env.lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Error::Locked { path }),
        taken => taken.map_err(|error| Error::io("lock", &path, error))?,
    };
    let written = env
        .open(&path, Access::ReadWrite)
        .and_then(|file| file.write_all_at(b"lock", 0));
    written.map_err(|error| Error::io("write", &path, error))?;
    Ok(lock)
}

fn create_abort(env: &dyn Env, path: &Path) -> Result<()> {
    let abort = path.join("abort");
    let created = || {
        let file = env.create(&abort)?;
        file.write_all_at(std::process::id().to_string().as_bytes(), 0)?;
        env.sync_dir(path, Step::AbortCreated)
    };
    created().map_err(|error| Error::io("create", &abort, error))
}
