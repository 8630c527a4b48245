//! Reading the message at a location, and whether it is wanted.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{COMPRESSED, COMPRESSION_MASK, Check, MAX_DECODED_BODY, MessageView, decode_body};
use crate::log::{LogRecord, RecordCursor, StoredMessage};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::scan::absent_topics::AbsentTopics;
use crate::read::scan::predicate::Predicate;
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::record_location::{LedBy, RecordLocation};
use crate::read::scan::request::ScanRequest;

/// A message that is handed over.
#[derive(Debug, Clone, Copy)]
pub struct Picked<'a> {
    /// The message.
    pub view: &'a MessageView<'a>,
    /// Its body, decompressed if the request says so.
    pub body: &'a [u8],
    /// Its sysFlag; the compression bits are cleared if the request asks for decompressed bodies.
    pub sys_flag: i32,
}

/// The outcome at a location. It holds no error: a copy of one, to be moved after each message, would wait until the body is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The message was taken.
    Taken,
    /// It is wanted, and there is no room for it.
    NoRoom,
    /// There is no message, or none that is wanted.
    PassedOver,
}

/// The reason why a location gave no outcome.
#[derive(Debug)]
pub(super) enum Failed {
    /// The message could not be read or taken.
    Stopped(Error),
    /// It was taken, and bytes of it were lost concurrently.
    Torn(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Stopped(error)
    }
}

type Picking = std::result::Result<Outcome, Failed>;

/// Reads messages. One is often near the one before.
#[derive(Debug)]
pub(super) struct Picker {
    reader: Arc<MessageReader>,
    request: Arc<ScanRequest>,
    predicate: Predicate,
    on_damage: OnDamage,
    /// Also for those who look for locations: a record at which they have come is read once.
    pub(super) cursor: RecordCursor,
    absent: AbsentTopics,
}

impl Picker {
    pub(super) fn new(
        reader: Arc<MessageReader>,
        request: Arc<ScanRequest>,
        on_damage: OnDamage,
        absent: AbsentTopics,
        lost: LostQueues,
    ) -> Self {
        Self {
            reader,
            predicate: Predicate::new(&request, lost),
            request,
            on_damage,
            cursor: RecordCursor::default(),
            absent,
        }
    }

    /// Starts a separate skip counter and returns it.
    pub(super) fn count_apart(&mut self) -> OnDamage {
        self.on_damage = self.on_damage.apart();
        self.on_damage.clone()
    }

    /// Returns the message at a location; `None` if absent or not wanted.
    ///
    /// # Errors
    /// As [`pick`](Self::pick).
    pub(super) fn message(&mut self, location: &RecordLocation) -> Result<Option<StoredMessage>> {
        let found = match self.pick(location, |_| Ok(true)) {
            Ok(Outcome::Taken) => self.reader.log().read(location.physical_offset, Check::Structure)?,
            Ok(Outcome::NoRoom | Outcome::PassedOver) => return Ok(None),
            Err(Failed::Stopped(error) | Failed::Torn(error)) => return Err(error),
        };
        Ok(match found {
            LogRecord::Message(message) => Some(message),
            _ => None, // it has expired since
        })
    }

    /// Hands the message at a location to `take`, if it is wanted. `take` returns `false` if it has no space for it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage that is not skipped, [`Error::NotFound`] where the caller has named a location without a message,
    /// [`Error::Io`], and what `take` returns.
    pub(super) fn pick(&mut self, location: &RecordLocation, take: impl FnMut(Picked<'_>) -> Result<bool>) -> Picking {
        let reader = &self.reader;
        let found = self.cursor.read(reader.log(), location.physical_offset, Check::Structure)?;
        let view = match found {
            LogRecord::Message(()) => self.cursor.view(),
            _ => None,
        };
        let Some(view) = view.filter(|view| location.is_of(view) && view.has_whole_record()) else {
            return self.pick_slowly(location, take);
        };
        match self.predicate.admits(location, &view, reader) {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::PassedOver),
            Err(damage) => return self.pass_over(location, damage),
        }
        if !view.has_whole_body() {
            return self.pick_slowly(location, take);
        }
        let outcome = self.hand_over(&view, take)?;
        if let Outcome::Taken = outcome {
            self.absent.give(&view);
        }
        self.cursor.check_intact().map(|()| outcome).map_err(Failed::Torn)
    }

    /// Picks at a location without the whole record that is expected there, and reports the reason.
    #[cold]
    fn pick_slowly(&mut self, location: &RecordLocation, take: impl FnMut(Picked<'_>) -> Result<bool>) -> Picking {
        let message = match &location.by {
            LedBy::Queue(queue, offset, _) => self
                .reader
                .message_of_queue(Some(&queue.queue), &queue.topic, queue.id, *offset),
            LedBy::Query(hits) => hits.message(&self.reader, location.physical_offset),
            LedBy::Log | LedBy::Walk | LedBy::Caller => self.reader.message_at(location.physical_offset),
        };
        let message = match (message, &location.by) {
            (Ok(message), _) => message,
            // It has expired since it was found.
            (Err(Error::NotFound { .. }), LedBy::Queue(..) | LedBy::Log | LedBy::Walk) => return Ok(Outcome::PassedOver),
            (Err(damage), _) => return self.pass_over(location, damage),
        };
        let view = message.view();
        match self.predicate.admits(location, &view, &self.reader) {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::PassedOver),
            Err(damage) => return self.pass_over(location, damage),
        }
        let outcome = self.hand_over(&view, take)?;
        if let Outcome::Taken = outcome {
            self.absent.give(&view);
        }
        message.intact().map(|()| outcome).map_err(Failed::Torn)
    }

    fn pass_over(&self, location: &RecordLocation, damage: Error) -> Picking {
        match &location.by {
            LedBy::Query(hits) => hits.skip(location.physical_offset, damage, &self.on_damage)?,
            _ => self.on_damage.pass_over(damage, 1)?,
        }
        Ok(Outcome::PassedOver)
    }

    fn hand_over(&self, view: &MessageView<'_>, mut take: impl FnMut(Picked<'_>) -> Result<bool>) -> Result<Outcome> {
        let ScanRequest { body, decode_body, .. } = &*self.request;
        let (mut given, mut sys_flag) = (Cow::Borrowed(view.body()), view.sys_flag());
        if *decode_body || !body.is_any() {
            let decoded = match decode_body_of(view) {
                Ok(decoded) => decoded,
                Err(reason) => {
                    let damage = self.reader.log().corrupt(view.physical_offset(), reason);
                    return self.on_damage.pass_over(damage, 1).map(|()| Outcome::PassedOver);
                }
            };
            if !body.admits(&decoded) {
                return Ok(Outcome::PassedOver);
            }
            if *decode_body {
                given = decoded;
                sys_flag &= !(COMPRESSED | COMPRESSION_MASK);
            }
        }
        let body = &given;
        Ok(if take(Picked { view, body, sys_flag })? {
            Outcome::Taken
        } else {
            Outcome::NoRoom
        })
    }
}

fn decode_body_of<'a>(view: &MessageView<'a>) -> std::result::Result<Cow<'a, [u8]>, String> {
    decode_body(view.sys_flag(), view.body(), MAX_DECODED_BODY).map_err(|malformed| malformed.reason.into_owned())
}
