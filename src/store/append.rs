//! Appending to a store: check, encode, append.

use std::time::{Duration, Instant};

use crate::config::FlushDiskType;
use crate::error::{Error, Result};
use crate::format::{EncodedMessage, Malformed, Message, MessageId, Properties, property};
use crate::interrupt;
use crate::log::Appended;
use crate::store::message_checker::Incoming;
use crate::store::message_store::MessageStore;
use crate::watermark::Wait;

/// Bytes that one hold of the append lock writes at most, but for a single larger message.
const MAX_STRETCH_BYTES: usize = 256 * 1024;

/// `RocketMQ`'s `PutMessageStatus` of a message that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PutStatus {
    /// As durable as was asked for.
    PutOk,
    /// Not durable yet when `sync_flush_timeout` was over. It may become durable a moment later.
    FlushDiskTimeout,
}

impl PutStatus {
    /// `RocketMQ`'s word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PutOk => "PUT_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
        }
    }
}

/// What became of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendResult {
    /// Whether it is durable.
    pub status: PutStatus,
    /// Where.
    pub appended: Appended,
    /// Its offset message id.
    pub message_id: MessageId,
}

/// The result of an attempt to append a message.
#[derive(Debug)]
pub enum Attempt<'a> {
    /// It is stored.
    Stored(AppendResult),
    /// Nothing is stored, because the call would wait: for a segment, or until the message is durable. This is the message, for
    /// [`Appender::append`], which waits.
    WouldBlock(Message<'a>),
}

/// A message that is checked.
struct Checked<'a> {
    message: Message<'a>,
    /// See [`Incoming::Copied`].
    is_copied: bool,
}

impl<'a> Checked<'a> {
    /// Before it is checked: what others may change while it is checked is copied.
    fn of(incoming: Incoming<'a>) -> Self {
        let (mut message, is_copied) = match incoming {
            Incoming::Sent(message) => (message, false),
            Incoming::Copied(message) => (message, true),
        };
        if is_copied {
            message.topic = message.topic.into_owned().into();
            message.properties = message.properties.into_owned().into();
        }
        Self { message, is_copied }
    }

    /// The message. A body that others may change is copied.
    fn with_stable_body(self) -> Message<'a> {
        let Self { mut message, is_copied } = self;
        if is_copied {
            message.body = message.body.into_owned().into();
        }
        message
    }
}

/// Appends to a store, and says what is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Appender<'s> {
    store: &'s MessageStore,
    durable: Option<bool>,
    /// See [`Appender::without_waiting`].
    only_asks: bool,
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
        }
    }

    /// [`Appender::append`], as the options say.
    ///
    /// # Errors
    /// As [`Appender::append`].
    #[inline]
    pub fn append(&self, message: Message<'_>) -> Result<AppendResult> {
        self.appender(None).append(message)
    }

    /// Looked at after the checks of the messages, before the lock is waited for: `RocketMQ`'s order.
    #[inline]
    fn expect_not_busy(&self) -> Result<()> {
        self.log.expect_not_busy(self.config().os_page_cache_busy_time_out_mills)
    }

    fn check_all<'a, M: Into<Incoming<'a>>>(&self, messages: Vec<M>) -> Result<Vec<Checked<'a>>> {
        let check = |(row, message): (usize, M)| {
            interrupt::check()?;
            let mut checked = Checked::of(message.into());
            let Checked { message, is_copied } = &mut checked;
            self.checker.check(message, !*is_copied).map_err(|error| error.at_row(row))?;
            Ok(checked)
        };
        messages.into_iter().enumerate().map(check).collect()
    }
}

impl Appender<'_> {
    /// The same, but where an append would wait it asks for the sync and returns. The caller waits, by [`Flushed::wait`].
    ///
    /// [`Flushed::wait`]: crate::store::Flushed::wait
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self { only_asks: true, ..self }
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`], [`Error::DiskFull`], [`Error::Busy`], [`Error::Poisoned`], [`Error::Closed`]: nothing was stored.
    /// So do those of [`interrupt::check`]. [`Error::NotDurable`]: it was stored, also where the wait for durability was interrupted.
    pub fn append(self, mut message: Message<'_>) -> Result<AppendResult> {
        self.store.checker.check(&mut message, true)?;
        self.store.expect_not_busy()?;
        let appended = self.store.log.append(expect(&message.prepare())?)?;
        let status = self.acknowledge(appended, self.waits_for([&message]))?;
        Ok(result(&message, appended, status))
    }

    /// Appends one message, or gives it back if that would take a wait.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn try_append(self, mut message: Message<'_>) -> Result<Attempt<'_>> {
        self.store.checker.check(&mut message, true)?;
        let waits = self.waits_for([&message]);
        if waits && !self.only_asks {
            return Ok(Attempt::WouldBlock(message));
        }
        self.store.expect_not_busy()?;
        let Some(appended) = self.store.log.try_append(expect(&message.prepare())?)? else {
            return Ok(Attempt::WouldBlock(message));
        };
        let status = self.acknowledge(appended, waits)?;
        Ok(Attempt::Stored(result(&message, appended, status)))
    }

    /// Appends messages in order, after every one of them was checked. They are encoded a stretch at a time, so that no batch needs
    /// memory for all its records. What was stored is added to `done`, whatever happens. If one of them is waited for, all are, once.
    ///
    /// # Errors
    /// As [`Appender::append`]; an illegal message names its position, and then nothing was stored.
    pub fn append_all<'a, M: Into<Incoming<'a>>>(self, messages: Vec<M>, done: &mut Vec<AppendResult>) -> Result<()> {
        let checked = self.store.check_all(messages)?;
        self.store.expect_not_busy()?;
        let (first, waits) = (done.len(), self.waits_for(checked.iter().map(|checked| &checked.message)));
        let mut waiting = checked.into_iter().peekable();
        while waiting.peek().is_some() {
            interrupt::check()?;
            let mut bytes = 0;
            let mut stretch = Vec::new();
            while let Some(next) = waiting.next_if(|next| {
                bytes += next.message.encoded_len();
                bytes <= MAX_STRETCH_BYTES || stretch.is_empty()
            }) {
                stretch.push(next.with_stable_body());
            }
            let mut appended = Vec::with_capacity(stretch.len());
            let outcome = self.store.log.append_all(&encode_all(&stretch)?, &mut appended);
            done.extend(results(&stretch, appended));
            outcome?;
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
        let checked = self.store.check_all(messages)?;
        if checked.is_empty() {
            return Ok(());
        }
        let checked: Vec<_> = checked.into_iter().map(Checked::with_stable_body).collect();
        self.append_checked(&checked, done)
    }

    /// Appends a batch as a producer sends it: `body` holds the messages, `common` what they share. They stand one after the other
    /// in one segment. With `batch_properties` each record gets them after its own, as brokers before 5.3.4 store them.
    ///
    /// # Errors
    /// As [`Appender::append_all`]; [`Error::IllegalMessage`] for a transaction, a delay or a body that is no batch.
    pub fn append_producer_batch(
        self,
        common: &Message<'_>,
        batch_properties: Option<&[u8]>,
        done: &mut Vec<AppendResult>,
    ) -> Result<()> {
        self.append_checked(&self.store.checker.check_batch(common, batch_properties)?, done)
    }

    fn append_checked(self, messages: &[Message<'_>], done: &mut Vec<AppendResult>) -> Result<()> {
        let total = messages.iter().map(|message| message.encoded_len() as u64).sum();
        self.store.checker.check_size("batch", total)?;
        self.store.expect_not_busy()?;
        let (first, waits) = (done.len(), self.waits_for(messages));
        let appended = self.store.log.append_together(&encode_all(messages)?)?;
        done.extend(results(messages, appended));
        self.acknowledge_all(done.get_mut(first..).unwrap_or_default(), waits)
    }

    /// Whether to wait until these messages are durable.
    #[inline]
    pub fn waits_for<'m, 'a: 'm>(self, messages: impl IntoIterator<Item = &'m Message<'a>>) -> bool {
        let is_sync = self.store.config().flush_disk_type == FlushDiskType::Sync;
        self.durable
            .unwrap_or_else(|| is_sync && messages.into_iter().any(|message| waits(&message.properties)))
    }

    fn acknowledge_all(self, done: &mut [AppendResult], waits: bool) -> Result<()> {
        if let Some(last) = done.last() {
            let status = self.acknowledge(last.appended, waits)?;
            for result in done {
                result.status = status;
            }
        }
        Ok(())
    }

    /// What follows an append: waits until the log is durable, or asks for that where nobody waits, or leaves it to the flusher.
    #[inline]
    fn acknowledge(self, last: Appended, waits: bool) -> Result<PutStatus> {
        let Self { store, .. } = self;
        let (config, end) = (store.config(), last.end());
        if waits && !self.only_asks {
            let deadline = Instant::now() + Duration::from_millis(config.sync_flush_timeout);
            let not_synced = |cause| Error::NotDurable {
                physical_offset: last.physical_offset,
                cause: Box::new(cause),
            };
            return match store.log.wait_flushed(end, deadline).map_err(not_synced)? {
                Wait::Reached => Ok(PutStatus::PutOk),
                Wait::TimedOut => Ok(PutStatus::FlushDiskTimeout),
                Wait::Poisoned(cause) => Err(Error::not_durable(last.physical_offset, cause, store.flushed_offset())),
            };
        }
        let is_asked_for = match config.flush_disk_type {
            FlushDiskType::Sync => true,
            FlushDiskType::Async => {
                !config.flush_commit_log_timed && store.log.unflushed_pages() >= config.flush_commit_log_least_pages
            }
        };
        if waits || is_asked_for {
            store.flush_wanted.advance(end);
        }
        Ok(PutStatus::PutOk)
    }
}

/// A message as it was encoded, where it lies: it is too large to be moved without need.
#[inline]
fn expect<'e, 'm>(encoded: &'e std::result::Result<EncodedMessage<'m>, Malformed>) -> Result<&'e EncodedMessage<'m>> {
    encoded.as_ref().map_err(|malformed| illegal(malformed.clone()))
}

fn encode_all<'a>(messages: &'a [Message<'_>]) -> Result<Vec<EncodedMessage<'a>>> {
    let encoded: std::result::Result<Vec<_>, _> = messages.iter().map(Message::prepare).collect();
    encoded.map_err(illegal)
}

fn illegal(malformed: Malformed) -> Error {
    Error::illegal(malformed.reason.into_owned())
}

#[inline]
fn result(message: &Message<'_>, appended: Appended, status: PutStatus) -> AppendResult {
    let message_id = MessageId {
        store_host: message.store_host,
        physical_offset: appended.physical_offset,
    };
    AppendResult {
        status,
        appended,
        message_id,
    }
}

/// The results of the first messages: of as many as were appended.
fn results(messages: &[Message<'_>], appended: Vec<Appended>) -> impl Iterator<Item = AppendResult> {
    messages
        .iter()
        .zip(appended)
        .map(|(message, appended)| result(message, appended, PutStatus::PutOk))
}

/// Whether a message asks that its append waits until it is durable: `RocketMQ`'s `isWaitStoreMsgOK`.
fn waits(properties: &[u8]) -> bool {
    Properties::new(properties)
        .get(property::WAIT)
        .is_none_or(|wait| wait.eq_ignore_ascii_case("true"))
}
