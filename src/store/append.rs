//! Appending to a store: check, encode, append.

use std::time::{Duration, Instant};

use crate::config::FlushDiskType;
use crate::error::{Error, Result};
use crate::format::{EncodedMessage, Host, Malformed, Message, MessageId, Properties, property};
use crate::interrupt;
use crate::log::{Appended, Prepared};
use crate::store::append_result::{AppendResult, PutStatus};
use crate::store::message_checker::Incoming;
use crate::store::message_store::MessageStore;
use crate::watermark::Wait;

/// Bytes that one hold of the append lock writes at most, but for a single larger message.
const MAX_STRETCH_BYTES: usize = 256 * 1024;

/// Appends to a store, and says what is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Appender<'s> {
    store: &'s MessageStore,
    durable: Option<bool>,
    /// See [`Appender::without_waiting`].
    only_asks: bool,
    /// See [`Appender::keeping_store_times`].
    keeps_store_times: bool,
    /// See [`Appender::of_producer`].
    is_producer: bool,
}

impl MessageStore {
    /// Appends messages that are `durable` when the call returns. `None` leaves that to `flush_disk_type` and to the property WAIT of the
    /// messages.
    #[inline]
    pub fn appender(&self, durable: Option<bool>) -> Appender<'_> {
        Appender {
            store: self,
            durable,
            only_asks: false,
            keeps_store_times: false,
            is_producer: false,
        }
    }

    /// Calls [`Appender::append`], as the options say.
    ///
    /// # Errors
    /// As [`Appender::append`].
    #[inline]
    pub fn append(&self, message: Message<'_>) -> Result<AppendResult> {
        self.appender(None).append(message)
    }

    /// Refuses every message for the log of a slave. The rest is looked at after the checks of the messages, before the lock is waited for:
    /// `RocketMQ`'s order.
    #[inline]
    fn expect_ready(&self) -> Result<()> {
        if self.received_from().is_some() {
            return Err(Error::ReadOnly {
                what: "the log of a slave takes what its master sends, and no other message: stop the slave, and open its store as a \
                       writer, to append"
                    .to_owned(),
            });
        }
        self.log.expect_not_busy(self.config().os_page_cache_busy_time_out_mills)
    }
}

impl<'s> Appender<'s> {
    /// Returns an appender that requests the sync instead of waiting for it. The caller waits, by [`Flushed::wait`].
    ///
    /// [`Flushed::wait`]: crate::store::Flushed::wait
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self { only_asks: true, ..self }
    }

    /// Returns an appender that also refuses what the settings of a topic forbid its producers: [`MessageStore::topics`].
    #[must_use]
    pub fn of_producer(self) -> Self {
        Self {
            is_producer: true,
            ..self
        }
    }

    /// Returns an appender whose [`Appender::append_all`] keeps stated store times, in a log whose times do not fall: a time
    /// before that of the message before it, or a time that the checkpoint covers, is raised.
    #[must_use]
    pub fn keeping_store_times(self) -> Self {
        Self {
            keeps_store_times: true,
            ..self
        }
    }

    /// Appends one message.
    ///
    /// # Errors
    /// Those of [`Appender::checked`] and [`Checked::append`].
    pub fn append(self, mut message: Message<'_>) -> Result<AppendResult> {
        self.checked(&mut message)?.append()
    }

    /// Checks one message, and sends a delayed one to the queue of its level.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    pub fn checked<'m, 'a>(self, message: &'m mut Message<'a>) -> Result<Checked<'s, 'm, 'a>> {
        self.expect_allowed(message, true)?;
        self.store.checker.check(message, true)?;
        Ok(Checked {
            appender: self,
            waits: self.waits_for([&*message]),
            message,
        })
    }

    /// Appends messages in order, after every one of them was checked. They are encoded a stretch at a time, so that no batch needs
    /// memory for all its records. What was stored is added to `done`, whatever happens. If one of them is waited for, all are, once.
    ///
    /// # Errors
    /// As [`Appender::append`]; an illegal message names its position, and then nothing was stored.
    pub fn append_all<'a, M: Into<Incoming<'a>>>(self, messages: Vec<M>, done: &mut Vec<AppendResult>) -> Result<()> {
        let mut messages = incoming(messages);
        self.check_all(&mut messages)?;
        self.store.expect_ready()?;
        let (first, waits) = (done.len(), self.waits_for(messages.iter().map(Incoming::message)));
        let (mut waiting, mut bodies) = (messages.as_slice(), Vec::new());
        while let Some((stretch, rest)) = waiting
            .split_at_checked(stretch_len(waiting))
            .filter(|(stretch, _)| !stretch.is_empty())
        {
            interrupt::check()?;
            let mut appended = Vec::with_capacity(stretch.len());
            let encoded = encode_all(stretch, &mut bodies)?;
            let outcome = self.store.log.append_all(&encoded, self.keeps_store_times, &mut appended);
            done.extend(results(stretch, appended));
            outcome?;
            waiting = rest;
        }
        self.acknowledge_all(done.get_mut(first..).unwrap_or_default(), waits)
    }

    /// Appends messages in order, all of them or none: in one hold of the lock, one after the other in one segment. They are encoded at
    /// once, and other callers wait while they are copied. A crash may keep a first part of them: nothing in the log says which records
    /// belong together.
    ///
    /// # Errors
    /// As [`Appender::append_all`]; [`Error::IllegalMessage`] where they do not fit into one segment.
    pub fn append_together<'a, M: Into<Incoming<'a>>>(self, messages: Vec<M>, done: &mut Vec<AppendResult>) -> Result<()> {
        let mut messages = incoming(messages);
        self.check_all(&mut messages)?;
        if messages.is_empty() {
            return Ok(());
        }
        self.append_checked(&messages, done)
    }

    /// Appends a batch as a producer sends it: `body` holds the messages, `common` their shared fields. They follow one another
    /// in one segment. With `batch_properties` each record gets them after its own, as brokers before 5.3.4 store them.
    ///
    /// # Errors
    /// As [`Appender::append_all`]; [`Error::IllegalMessage`] for a transaction, a delay or a body that is not a batch.
    pub fn append_producer_batch(
        self,
        common: &Message<'_>,
        batch_properties: Option<&[u8]>,
        done: &mut Vec<AppendResult>,
    ) -> Result<()> {
        let messages = self.store.checker.check_batch(common, batch_properties)?;
        for (row, message) in messages.iter().enumerate() {
            self.expect_allowed(message, true).map_err(|error| error.at_row(row))?;
        }
        self.append_checked(&incoming(messages), done)
    }

    fn append_checked(self, messages: &[Incoming<'_>], done: &mut Vec<AppendResult>) -> Result<()> {
        let total = messages.iter().map(|incoming| incoming.message().encoded_len() as u64).sum();
        self.store.checker.check_size("batch", total)?;
        self.store.expect_ready()?;
        let (first, waits) = (done.len(), self.waits_for(messages.iter().map(Incoming::message)));
        let mut bodies = Vec::new();
        let appended = self.store.log.append_together(&encode_all(messages, &mut bodies)?)?;
        done.extend(results(messages, appended));
        self.acknowledge_all(done.get_mut(first..).unwrap_or_default(), waits)
    }

    /// Makes the checks of [`Appender::append_all`], without the append.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] naming the position; those of [`interrupt::check`].
    pub fn check_all(self, messages: &mut [Incoming<'_>]) -> Result<()> {
        for (row, message) in messages.iter_mut().enumerate() {
            interrupt::check()?;
            self.check(message).map_err(|error| error.at_row(row))?;
        }
        Ok(())
    }

    /// Checks a message as it is checked before it is appended.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    pub(super) fn check(self, message: &mut Incoming<'_>) -> Result<()> {
        self.expect_allowed(message.message(), matches!(message, Incoming::Sent(_)))?;
        self.store.checker.check_incoming(message)
    }

    #[inline]
    fn expect_allowed(self, message: &Message<'_>, is_sent: bool) -> Result<()> {
        if self.is_producer {
            self.store.topics.expect_allowed(message, is_sent)
        } else {
            Ok(())
        }
    }

    /// Returns what an append of these messages waits for.
    #[inline]
    pub fn waits_for<'m, 'a: 'm>(self, messages: impl IntoIterator<Item = &'m Message<'a>>) -> Waits {
        let disk = self.store.config().flush_disk_type.waits_for_sync();
        let slaves = self.store.replicas().is_waited_for();
        let are_waited_for = || messages.into_iter().any(|message| waits(&message.properties));
        match self.durable {
            Some(durable) => Waits {
                disk: durable,
                slaves: durable && slaves,
            },
            None if (disk || slaves) && are_waited_for() => Waits { disk, slaves },
            None => Waits::default(),
        }
    }

    /// Waits for messages that an appender [`without_waiting`](Self::without_waiting) has appended, of which this is the last, as far as
    /// `durable` and the flush mode say so.
    ///
    /// # Errors
    /// [`Error::NotDurable`].
    pub fn wait_for(self, last: &AppendResult) -> Result<PutStatus> {
        let waits = self.waits_for([&Message::default()]);
        self.acknowledge(last.appended, waits)
    }

    /// Appends a message that was checked, and acknowledges it.
    ///
    /// # Errors
    /// Those of [`Checked::append`].
    #[inline]
    pub(super) fn put(self, message: &EncodedMessage<'_>, prepared: Option<Prepared>, waits: Waits) -> Result<AppendResult> {
        self.store.expect_ready()?;
        let appended = self.store.log.append(message, prepared)?;
        let status = self.acknowledge(appended, waits)?;
        Ok(result(message.store_host(), appended, status))
    }

    /// Calls [`put`](Self::put), unless the call would wait for a segment: then nothing is stored. The caller does not wait until the
    /// message is durable.
    ///
    /// # Errors
    /// Those of [`Checked::append`].
    #[inline]
    pub(super) fn try_put(
        self,
        message: &EncodedMessage<'_>,
        prepared: Option<Prepared>,
        waits: Waits,
    ) -> Result<Option<AppendResult>> {
        self.store.expect_ready()?;
        let Some(appended) = self.store.log.try_append(message, prepared)? else {
            return Ok(None);
        };
        let status = self.acknowledge(appended, waits)?;
        Ok(Some(result(message.store_host(), appended, status)))
    }

    fn acknowledge_all(self, done: &mut [AppendResult], waits: Waits) -> Result<()> {
        if let Some(last) = done.last() {
            let status = self.acknowledge(last.appended, waits)?;
            for result in done {
                result.status = status;
            }
        }
        Ok(())
    }

    /// Acknowledges an append: waits until the log is durable and slaves hold it, or requests that where nobody waits, or leaves it to the
    /// flusher. Both waits begin now.
    #[inline]
    fn acknowledge(self, last: Appended, waits: Waits) -> Result<PutStatus> {
        let Self { store, .. } = self;
        let config = store.config();
        if waits.any() && !self.only_asks {
            return self.wait_for_copies(last, waits);
        }
        let is_asked_for = match config.flush_disk_type {
            FlushDiskType::Sync => true,
            FlushDiskType::Async => {
                !config.flush_commit_log_timed && store.log.unflushed_pages() >= config.flush_commit_log_least_pages
            }
        };
        if waits.disk || is_asked_for {
            store.flush_wanted.advance(last.end());
        }
        if waits.slaves {
            // A failure is one of the log, which the caller learns by the wait for the message.
            let _ = store.log.ask_commit();
            return Ok(store.replicas().available(last));
        }
        Ok(PutStatus::PutOk)
    }

    fn wait_for_copies(self, last: Appended, waits: Waits) -> Result<PutStatus> {
        let Self { store, .. } = self;
        let begun = Instant::now();
        let not_durable = |cause| Error::NotDurable {
            physical_offset: last.physical_offset,
            cause: Box::new(cause),
        };
        if waits.slaves {
            // Slaves get only what is in files.
            store.log.ask_commit().map_err(not_durable)?;
        }
        let mut status = PutStatus::PutOk;
        if waits.disk {
            let deadline = begun + Duration::from_millis(store.config().sync_flush_timeout);
            status = match store.log.wait_flushed(last.end(), deadline).map_err(not_durable)? {
                Wait::Reached => PutStatus::PutOk,
                Wait::TimedOut => PutStatus::FlushDiskTimeout,
                Wait::Poisoned(cause) => return Err(Error::not_durable(last.physical_offset, cause, store.flushed_offset())),
            };
        }
        if waits.slaves {
            status = status.with_slaves(store.replicas().wait(last, begun).map_err(not_durable)?);
        }
        Ok(status)
    }
}

/// The copies for which an append waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// The sync of the log.
    pub disk: bool,
    /// The acknowledgements of slaves.
    pub slaves: bool,
}

impl Waits {
    /// Returns true if it waits for something.
    #[inline]
    pub fn any(self) -> bool {
        self.disk || self.slaves
    }
}

/// A message that has passed the checks of an append. Each attempt to append it is made without them.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'s, 'm, 'a> {
    appender: Appender<'s>,
    message: &'m Message<'a>,
    waits: Waits,
}

impl Checked<'_, '_, '_> {
    /// Appends the message.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Busy`], [`Error::Poisoned`], [`Error::Closed`], and those of [`interrupt::check`]: nothing was stored.
    /// [`Error::NotDurable`]: it was stored, also where the wait for durability was interrupted.
    pub fn append(self) -> Result<AppendResult> {
        let prepared = self.message.prepare();
        self.appender.put(expect_legal(&prepared)?, None, self.waits)
    }

    /// Appends the message, unless the call would wait: for a segment, or until the message is durable. Then it returns `None`, and nothing
    /// is stored; [`Checked::append`] waits.
    ///
    /// # Errors
    /// As [`Checked::append`].
    pub fn try_append(self) -> Result<Option<AppendResult>> {
        if self.waits.any() && !self.appender.only_asks {
            return Ok(None);
        }
        let prepared = self.message.prepare();
        self.appender.try_put(expect_legal(&prepared)?, None, self.waits)
    }
}

/// Returns an encoded message, or the reason why it is illegal. Borrowed, because moving it is expensive.
#[inline]
pub(super) fn expect_legal<'e, 'm>(
    encoded: &'e std::result::Result<EncodedMessage<'m>, Malformed>,
) -> Result<&'e EncodedMessage<'m>> {
    encoded.as_ref().map_err(|malformed| illegal(malformed.clone()))
}

fn incoming<'a, M: Into<Incoming<'a>>>(messages: Vec<M>) -> Vec<Incoming<'a>> {
    messages.into_iter().map(Into::into).collect()
}

/// Returns the number of messages that one hold of the append lock takes.
fn stretch_len(messages: &[Incoming<'_>]) -> usize {
    let mut bytes = 0;
    let fitting = messages.iter().take_while(|incoming| {
        bytes += incoming.message().encoded_len();
        bytes <= MAX_STRETCH_BYTES
    });
    fitting.count().max(1).min(messages.len())
}

/// Encodes messages as records. Bodies that others may change are copied to `bodies` before they are read.
fn encode_all<'a>(messages: &'a [Incoming<'_>], bodies: &'a mut Vec<u8>) -> Result<Vec<EncodedMessage<'a>>> {
    bodies.clear();
    for body in messages.iter().filter_map(Incoming::changing_body) {
        bodies.extend_from_slice(body);
    }
    let mut copies = bodies.as_slice();
    let encoded: std::result::Result<Vec<_>, _> = messages
        .iter()
        .map(|incoming| {
            let (message, changing) = (incoming.message(), incoming.changing_body());
            match changing.and_then(|body| copies.split_at_checked(body.len())) {
                None => message.prepare(),
                Some((body, rest)) => {
                    copies = rest;
                    message.prepare_with_body(body)
                }
            }
        })
        .collect();
    encoded.map_err(illegal)
}

fn illegal(malformed: Malformed) -> Error {
    Error::illegal(malformed.reason.into_owned())
}

#[inline]
fn result(store_host: Host, appended: Appended, status: PutStatus) -> AppendResult {
    let message_id = MessageId {
        store_host,
        physical_offset: appended.physical_offset,
    };
    AppendResult {
        status,
        appended,
        message_id,
    }
}

/// Returns the results of the first messages: of as many as were appended.
fn results(messages: &[Incoming<'_>], appended: Vec<Appended>) -> impl Iterator<Item = AppendResult> {
    messages
        .iter()
        .zip(appended)
        .map(|(incoming, appended)| result(incoming.message().store_host, appended, PutStatus::PutOk))
}

/// Returns true if a message asks that its append waits until it is durable: `RocketMQ`'s `isWaitStoreMsgOK`.
fn waits(properties: &[u8]) -> bool {
    Properties::new(properties)
        .get(property::WAIT)
        .is_none_or(|wait| wait.eq_ignore_ascii_case("true"))
}
