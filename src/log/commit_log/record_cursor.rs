//! Reading records one after the other, wherever they lie.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, Check, MessageView, RecordLayout, claimed_offset, claimed_size};
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::{
    LogRecord, StoredMessage, claimed_range, no_message_in, nothing_at, record_in, touch_record,
};
use crate::storage::{MappedFile, SelectedBuffer};

/// A cursor that reads one record at a time, and keeps the segment of the last one: to find it again costs as much as to read a record.
/// Reading allocates nothing and returns views.
#[derive(Debug, Default)]
pub struct RecordCursor {
    /// The segment that was read last.
    segment: Option<Segment>,
    is_settled: bool,
    /// The bytes of the last record, if they can change in the file.
    copy: Vec<u8>,
    is_copied: bool,
    /// The last record: its positions in the segment, and where its parts lie.
    last: Option<(Range<usize>, RecordLayout)>,
}

#[derive(Debug)]
struct Segment {
    file: Arc<MappedFile>,
    /// Up to this position its bytes do not change, and are used where they are.
    in_place_until: usize,
}

impl Segment {
    /// The bytes that the record at `position` claims, if they are used in place.
    #[inline]
    fn claimed_bytes(&self, position: usize) -> Option<&[u8]> {
        let room = self.in_place_until.checked_sub(position).filter(|room| *room >= BLANK_SIZE)?;
        let head = self.file.bytes(position..position + BLANK_SIZE)?.first_chunk()?;
        // The length that the record claims is unchecked, so the segment bounds it.
        let size = claimed_size(*head).min(self.file.len() as usize - position);
        self.file.bytes(position..position + size).filter(|_| size <= room)
    }

    /// A copy of these bytes.
    fn copy_claimed<'a>(&self, position: usize, copy: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let range = claimed_range(&self.file, position)?;
        copy.resize(range.len(), 0);
        self.file.read(position, copy).then_some(copy.as_slice())
    }

    /// The record at a physical offset, if its bytes are used in place: its positions, and where its parts lie.
    fn record_in_place(&self, at: i64, check: Check) -> Option<(Range<usize>, RecordLayout)> {
        let position = usize::try_from(at.checked_sub(self.file.start() as i64)?).ok()?;
        let layout = record_in(&self.file, position, self.claimed_bytes(position)?, check).ok()?;
        Some((position..position + layout.size(), layout))
    }
}

impl RecordCursor {
    /// Creates a cursor over immutable bytes, in the last segment, too.
    pub(super) fn of_settled() -> Self {
        Self {
            is_settled: true,
            ..Self::default()
        }
    }

    /// Reads the record at `at`. [`view`](Self::view) then shows it, if it is a message. The current record is not read again if its
    /// structure is enough.
    ///
    /// # Errors
    /// As [`LogFiles::read`].
    #[inline]
    pub fn read(&mut self, log: &LogFiles, at: i64, check: Check) -> Result<LogRecord<()>> {
        let is_read = check == Check::Structure && self.is_at(at);
        if is_read || self.read_in_place(at, check) {
            return Ok(LogRecord::Message(()));
        }
        self.read_slowly(log, at, check)
    }

    /// Reads a record of the segment that was read last; `false` if its bytes can change, or are not a record.
    fn read_in_place(&mut self, at: i64, check: Check) -> bool {
        self.is_copied = false;
        self.last = self.segment.as_ref().and_then(|segment| segment.record_in_place(at, check));
        self.last.is_some()
    }

    fn read_slowly(&mut self, log: &LogFiles, at: i64, check: Check) -> Result<LogRecord<()>> {
        self.locate(log, at)?;
        let Some(segment) = &self.segment else {
            return Ok(LogRecord::Missing);
        };
        let position = (at - segment.file.start() as i64) as usize;
        let in_place = segment.claimed_bytes(position);
        self.is_copied = in_place.is_none();
        let Some(bytes) = in_place.or_else(|| segment.copy_claimed(position, &mut self.copy)) else {
            return Ok(nothing_at(&segment.file, position));
        };
        match record_in(&segment.file, position, bytes, check) {
            Ok(layout) => {
                self.last = Some((position..position + layout.size(), layout));
                Ok(LogRecord::Message(()))
            }
            Err(found) => Ok(no_message_in(&segment.file, position, bytes, found)),
        }
    }

    /// Brings the first bytes at `at` into the cache of the processor, if they lie in the segment that was read last.
    #[inline]
    pub fn touch(&self, at: i64) {
        if let Some(segment) = &self.segment
            && let Ok(position) = usize::try_from(at - segment.file.start() as i64)
        {
            touch_record(&segment.file, position);
        }
    }

    /// Returns the end that the record at `at` claims, or the end of the segment for a BLANK. Reads little of it: it may be damaged.
    /// `None` for anything else.
    ///
    /// # Errors
    /// As [`LogFiles::read`].
    #[inline]
    pub fn claimed_end(&mut self, log: &LogFiles, at: i64) -> Result<Option<i64>> {
        self.last = None;
        self.locate(log, at)?;
        let Some(segment) = &self.segment else { return Ok(None) };
        let mut head = [0; CLAIM_SIZE];
        if segment.file.read((at - segment.file.start() as i64) as usize, &mut head) && claimed_offset(&head) == Some(at) {
            let size = head.first_chunk().map_or(0, |head| claimed_size(*head));
            return Ok(Some(at + size as i64));
        }
        Ok(match self.read(log, at, Check::Structure)? {
            LogRecord::Blank { next } if next < log.files_end() => Some(next),
            _ => None,
        })
    }

    /// Returns the record that was read last. Ask [`check_intact`](Self::check_intact) after using it.
    #[inline]
    pub fn view(&self) -> Option<MessageView<'_>> {
        let (range, layout) = self.last.as_ref()?;
        let bytes = match &self.segment {
            Some(segment) if !self.is_copied => segment.file.bytes(range.clone()).unwrap_or_default(),
            _ => &self.copy,
        };
        Some(MessageView::from_layout(bytes, *layout))
    }

    /// Returns true if the record that was read last starts at `at`.
    #[inline]
    fn is_at(&self, at: i64) -> bool {
        let last = self.segment.as_ref().zip(self.last.as_ref());
        last.is_some_and(|(segment, (range, _))| segment.file.start() as i64 + range.start as i64 == at)
    }

    /// Checks that the bytes of the last record that were read so far are the file's.
    ///
    /// # Errors
    /// As [`StoredMessage::intact`].
    #[inline]
    pub fn check_intact(&self) -> Result<()> {
        match (&self.segment, &self.last) {
            (Some(segment), Some((range, _))) if !self.is_copied => segment.file.check_intact(range.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the record that was read last, as a message that outlives the cursor.
    pub fn message(&self) -> Option<StoredMessage> {
        let (range, layout) = self.last.as_ref()?;
        let buffer = match &self.segment {
            Some(segment) if !self.is_copied => segment.file.select(range.clone())?,
            _ => SelectedBuffer::Owned(self.copy.as_slice().into()),
        };
        Some(StoredMessage::new(buffer, *layout))
    }

    fn locate(&mut self, log: &LogFiles, at: i64) -> Result<()> {
        let is_in = |segment: &Segment| (segment.file.start() as i64..segment.file.end() as i64).contains(&at);
        if !self.segment.as_ref().is_some_and(is_in) {
            self.segment = log.locate(at)?.map(|(file, _)| Segment {
                in_place_until: if self.is_settled && file.is_in_memory() {
                    file.len() as usize
                } else {
                    log.settled_in(&file)
                },
                file,
            });
        }
        Ok(())
    }
}
