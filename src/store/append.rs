//! Appending to a store: check, encode, append.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::format::{EncodedMessage, Message, MessageId};
use crate::interrupt;
use crate::log::Appended;
use crate::store::message_checker::Incoming;
use crate::store::message_store::MessageStore;

/// Bytes that one hold of the append lock writes at most, but for a single larger message.
const MAX_STRETCH_BYTES: usize = 256 * 1024;

/// What became of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendResult {
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
    /// Nothing is stored, because a segment has to be made first. This is the message, for [`MessageStore::append`], which makes it.
    WouldBlock(Message<'a>),
}

/// A message that was checked.
struct Checked<'a> {
    message: Message<'a>,
    /// See [`Incoming::Copied`].
    is_copied: bool,
}

impl<'a> Checked<'a> {
    /// The message. A body that others may change is copied.
    fn with_stable_body(self) -> Message<'a> {
        let Self { mut message, is_copied } = self;
        if is_copied {
            message.body = Cow::Owned(message.body.into_owned());
        }
        message
    }
}

impl MessageStore {
    /// Appends one message.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`], [`Error::DiskFull`], [`Error::Poisoned`], [`Error::Closed`]: nothing was stored.
    pub fn append(&self, message: Message<'_>) -> Result<AppendResult> {
        let message = self.checker.check(message)?;
        let appended = self.log.append(&encode(&message)?)?;
        Ok(result(&message, appended))
    }

    /// Appends one message, or gives it back if a segment has to be made for it first.
    ///
    /// # Errors
    /// As [`MessageStore::append`].
    pub fn try_append<'a>(&self, message: Message<'a>) -> Result<Attempt<'a>> {
        let message = self.checker.check(message)?;
        let appended = self.log.try_append(&encode(&message)?)?;
        Ok(match appended {
            Some(appended) => Attempt::Stored(result(&message, appended)),
            None => Attempt::WouldBlock(message),
        })
    }

    /// Appends messages in order, after every one of them was checked. They are encoded a stretch at a time, so that no batch needs
    /// memory for all its records. What was stored is added to `done`, whatever happens.
    ///
    /// # Errors
    /// As [`MessageStore::append`], and those of [`interrupt::check`]; an illegal message names its position, and then nothing was stored.
    pub fn append_all<'a, M: Into<Incoming<'a>>>(&self, messages: Vec<M>, done: &mut Vec<AppendResult>) -> Result<()> {
        let mut waiting = self.check_all(messages)?.into_iter().peekable();
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
            let outcome = self.log.append_all(&encode_all(&stretch)?, &mut appended);
            done.extend(results(&stretch, appended));
            outcome?;
        }
        Ok(())
    }

    /// Appends messages in order, all of them or none: in one hold of the lock, one after the other in one segment. They are encoded at
    /// once, and other callers wait while they are copied. A crash may keep a first part of them: nothing in the log says which records
    /// belong together.
    ///
    /// # Errors
    /// As [`MessageStore::append_all`]; [`Error::IllegalMessage`] where they do not fit into one segment.
    pub fn append_together<'a, M: Into<Incoming<'a>>>(&self, messages: Vec<M>) -> Result<Vec<AppendResult>> {
        let checked = self.check_all(messages)?;
        let total = checked.iter().map(|checked| checked.message.encoded_len() as u64).sum();
        self.checker.check_size("batch", total)?;
        if checked.is_empty() {
            return Ok(Vec::new());
        }
        let checked: Vec<_> = checked.into_iter().map(Checked::with_stable_body).collect();
        let appended = self.log.append_together(&encode_all(&checked)?)?;
        Ok(results(&checked, appended).collect())
    }

    fn check_all<'a, M: Into<Incoming<'a>>>(&self, messages: Vec<M>) -> Result<Vec<Checked<'a>>> {
        let check = |(row, message): (usize, M)| {
            interrupt::check()?;
            let incoming = message.into();
            let is_copied = matches!(incoming, Incoming::Copied(_));
            let message = self.checker.check(incoming).map_err(|error| error.at_row(row))?;
            Ok(Checked { message, is_copied })
        };
        messages.into_iter().enumerate().map(check).collect()
    }

    /// Appends a batch as a producer sends it: `body` holds the messages, `common` what they share. They stand one after the other
    /// in one segment. With `batch_properties` each record gets them after its own, as brokers before 5.3.4 store them.
    ///
    /// # Errors
    /// As [`MessageStore::append_all`]; [`Error::IllegalMessage`] for a transaction, a delay or a body that is no batch.
    pub fn append_producer_batch(&self, common: &Message<'_>, batch_properties: Option<&[u8]>) -> Result<Vec<AppendResult>> {
        let checked = self.checker.check_batch(common, batch_properties)?;
        let encoded = encode_all(&checked)?;
        let total = encoded.iter().map(|message| message.len() as u64).sum();
        self.checker.check_size("batch", total)?;
        let appended = self.log.append_together(&encoded)?;
        Ok(results(&checked, appended).collect())
    }
}

fn encode<'a>(message: &'a Message<'_>) -> Result<EncodedMessage<'a>> {
    message
        .prepare()
        .map_err(|malformed| Error::illegal(malformed.reason.into_owned()))
}

fn encode_all<'a>(messages: &'a [Message<'_>]) -> Result<Vec<EncodedMessage<'a>>> {
    messages.iter().map(encode).collect()
}

fn result(message: &Message<'_>, appended: Appended) -> AppendResult {
    let message_id = MessageId {
        store_host: message.store_host,
        physical_offset: appended.physical_offset,
    };
    AppendResult { appended, message_id }
}

/// The results of the first messages: of as many as were appended.
fn results(messages: &[Message<'_>], appended: Vec<Appended>) -> impl Iterator<Item = AppendResult> {
    messages
        .iter()
        .zip(appended)
        .map(|(message, appended)| result(message, appended))
}
