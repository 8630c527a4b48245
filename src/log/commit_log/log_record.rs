//! The record at one offset of the log: a message, or the reason why there is no message.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{BLANK_SIZE, Check, MessageView, Record, RecordLayout, claimed_offset, claimed_size, read_record};
use crate::storage::{MappedFile, Part, SelectedBuffer};

/// The bytes that are prefetched of a record of unknown size: most records are not longer.
pub(super) const USUAL_RECORD: usize = 320;
/// The bytes that are prefetched at most: the processor itself prefetches the rest of a longer record.
const MOST_PREFETCHED: usize = 2048;

/// A message of the log: the bytes of its record, and their layout.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    buffer: SelectedBuffer,
    layout: RecordLayout,
}

impl StoredMessage {
    pub(super) fn new(buffer: SelectedBuffer, layout: RecordLayout) -> Self {
        Self { buffer, layout }
    }

    /// Returns the fields.
    pub fn view(&self) -> MessageView<'_> {
        MessageView::from_layout(self.buffer.bytes(), self.layout)
    }

    /// Returns the bytes of the record as a part of a transfer.
    pub fn part(&self) -> Part<'_> {
        self.buffer.part()
    }

    /// Returns true if the bytes are those of the file's mapping (a sealed segment) and not a copy.
    pub fn is_mapped(&self) -> bool {
        self.buffer.is_mapped()
    }

    /// Checks that the bytes read so far are the file's: a device error or a truncation under a mapping reads as zeros.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the segment and the first lost position in it.
    pub fn intact(&self) -> Result<()> {
        self.buffer.check_intact()
    }
}

/// The record at one offset of the log. `M` is the form of a message.
#[derive(Debug)]
pub enum LogRecord<M = StoredMessage> {
    /// An intact record that states this offset as its own.
    Message(M),
    /// The BLANK at a segment's end; the log continues at `next`.
    Blank {
        /// The start of the next segment.
        next: i64,
    },
    /// Free space: the log ends.
    End,
    /// No segment contains this offset.
    Missing,
    /// Bytes that are not the start of a record, with position and reason.
    NoRecord(Error),
    /// A damaged record that states this offset as its own, with position and reason.
    Corrupt(Error),
}

impl<M> LogRecord<M> {
    /// Returns the record without its message.
    pub fn kind(self) -> LogRecord<()> {
        match self {
            Self::Message(_) => LogRecord::Message(()),
            Self::Blank { next } => LogRecord::Blank { next },
            Self::End => LogRecord::End,
            Self::Missing => LogRecord::Missing,
            Self::NoRecord(error) => LogRecord::NoRecord(error),
            Self::Corrupt(error) => LogRecord::Corrupt(error),
        }
    }
}

/// Prefetches the record of `size` bytes at `position`, or its first bytes, into the processor's cache, so that it waits for memory once.
#[inline]
pub(super) fn touch_record(file: &MappedFile, position: usize, size: usize) {
    file.touch(position..position.saturating_add(size.min(MOST_PREFETCHED)));
}

/// Returns the range of the bytes that the record at `position` claims; `None` if fewer than eight remain or they cannot be read.
pub(super) fn claimed_range(file: &MappedFile, position: usize) -> Option<Range<usize>> {
    let remaining = (file.len() as usize).checked_sub(position)?;
    let mut head = [0; BLANK_SIZE];
    if remaining < head.len() || !file.read(position, &mut head) {
        return None;
    }
    // The claimed length is unchecked, so the segment bounds it.
    Some(position..position + claimed_size(head).min(remaining))
}

/// Returns the record at a position whose bytes could not be read.
pub(super) fn unreadable_at<M>(file: &MappedFile, position: usize) -> LogRecord<M> {
    let lost = file.check_intact(position..file.len() as usize);
    lost.map_or_else(LogRecord::Corrupt, |()| LogRecord::End)
}

/// Returns the layout of the record at a position of a segment, or the parsed bytes if they are not a record. `bytes` are at least
/// those that it claims.
#[expect(
    clippy::inline_always,
    reason = "handing a record over in memory takes half as long as reading it"
)]
#[inline(always)]
pub(super) fn record_in<'a>(
    file: &MappedFile,
    position: usize,
    bytes: &'a [u8],
    check: Check,
) -> std::result::Result<RecordLayout, Record<'a>> {
    let offset = file.start() as i64 + position as i64;
    match read_record(bytes, check) {
        Record::Message(view)
            if view.physical_offset() == offset && file.check_intact(position..position + view.size() as usize).is_ok() =>
        {
            Ok(view.layout())
        }
        other => Err(other),
    }
}

/// Explains a failure of [`record_in`]: the bytes are not a record with this offset, or the record was lost under the mapping.
#[cold]
pub(super) fn no_message_in<M>(file: &MappedFile, position: usize, bytes: &[u8], found: Record<'_>) -> LogRecord<M> {
    let offset = file.start() as i64 + position as i64;
    let remaining = file.len() as usize - position;
    let size = claimed_size(*bytes.first_chunk().unwrap_or(&[0; BLANK_SIZE])).min(bytes.len());
    // Zeros that the guard put over a lost page parse as free space, or as damage elsewhere.
    if let Err(lost) = file.check_intact(position..position + size) {
        return LogRecord::Corrupt(lost);
    }
    let error = |at: usize, reason: String| Error::corrupt(file.path(), (position + at) as u64, reason);
    match found {
        Record::Message(view) => {
            let own = view.physical_offset();
            let reason = format!("the record names {own} as its physical offset, not {offset}: stale bytes, not a message");
            LogRecord::NoRecord(error(0, reason))
        }
        Record::Blank { size } if size as usize == remaining => LogRecord::Blank { next: file.end() as i64 },
        Record::Blank { size } => {
            let reason = format!("the record that ends the segment claims {size} bytes, but {remaining} remain");
            LogRecord::NoRecord(error(0, reason))
        }
        Record::End => LogRecord::End,
        Record::Corrupt(malformed) => {
            let claimed = claimed_offset(bytes) == Some(offset);
            let error = error(malformed.at, malformed.reason.into_owned());
            if claimed {
                LogRecord::Corrupt(error.of_message(&format!("the message at physical offset {offset} is damaged")))
            } else {
                LogRecord::NoRecord(error.of_message(&format!("no record starts at physical offset {offset}")))
            }
        }
    }
}
