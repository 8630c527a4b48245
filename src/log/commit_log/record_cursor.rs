//! A cursor over records at any offset.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, Check, MessageView, RecordLayout, claimed_offset, claimed_size};
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::{
    LogRecord, StoredMessage, USUAL_RECORD, claimed_range, no_message_in, record_in, touch_record, unreadable_at,
};
use crate::storage::{MappedFile, SelectedBuffer};

/// A cursor that reads one record at a time, and keeps the segment of the last one, because finding it again costs as much as
/// reading a record. Reading allocates nothing and returns views.
#[derive(Debug, Default)]
pub struct RecordCursor {
    /// The segment of the last record.
    segment: Option<Segment>,
    is_immutable: bool,
    /// A copy of the last record, if its bytes can change in the file.
    copy: Vec<u8>,
    is_copied: bool,
    /// The last record: its range in the segment, and its layout.
    last: Option<(Range<usize>, RecordLayout)>,
}

#[derive(Debug)]
struct Segment {
    file: Arc<MappedFile>,
    /// The position up to which its bytes are immutable, and used in place.
    in_place_until: usize,
}

impl Segment {
    /// Returns the bytes that the record at `position` claims, if they can be used in place.
    #[inline]
    fn claimed_bytes(&self, position: usize) -> Option<&[u8]> {
        let in_place = self.in_place_until.checked_sub(position).filter(|len| *len >= BLANK_SIZE)?;
        let head = self.file.bytes(position..position + BLANK_SIZE)?.first_chunk()?;
        // The claimed length is unchecked, so the segment bounds it.
        let size = claimed_size(*head).min(self.file.len() as usize - position);
        self.file.bytes(position..position + size).filter(|_| size <= in_place)
    }

    /// Copies the bytes that the record at `position` claims.
    fn copy_claimed<'a>(&self, position: usize, copy: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let range = claimed_range(&self.file, position)?;
        copy.resize(range.len(), 0);
        self.file.read(position, copy).then_some(copy.as_slice())
    }

    /// Returns the range and the layout of the record at a physical offset, if its bytes can be used in place.
    fn record_in_place(&self, at: i64, check: Check) -> Option<(Range<usize>, RecordLayout)> {
        let position = usize::try_from(at.checked_sub(self.file.start() as i64)?).ok()?;
        let layout = record_in(&self.file, position, self.claimed_bytes(position)?, check).ok()?;
        Some((position..position + layout.size(), layout))
    }
}

impl RecordCursor {
    /// Creates a cursor that treats all bytes as immutable, also in the last segment.
    pub(super) fn of_immutable() -> Self {
        Self {
            is_immutable: true,
            ..Self::default()
        }
    }

    /// Reads the record at `at`. [`view`](Self::view) then returns it, if it is a message. The current record is not read again for
    /// a structural check.
    ///
    /// # Errors
    /// Those of [`LogFiles::read`].
    #[inline]
    pub fn read(&mut self, log: &LogFiles, at: i64, check: Check) -> Result<LogRecord<()>> {
        let is_read = check == Check::Structure && self.is_at(at);
        if is_read || self.read_in_place(at, check) {
            return Ok(LogRecord::Message(()));
        }
        self.read_slowly(log, at, check)
    }

    /// Reads a record of the current segment; returns false if its bytes can change, or are not a record.
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
            return Ok(unreadable_at(&segment.file, position));
        };
        match record_in(&segment.file, position, bytes, check) {
            Ok(layout) => {
                self.last = Some((position..position + layout.size(), layout));
                Ok(LogRecord::Message(()))
            }
            Err(found) => Ok(no_message_in(&segment.file, position, bytes, found)),
        }
    }

    /// Prefetches the first bytes at `at` into the processor's cache, if they are in the current segment.
    #[inline]
    pub fn touch(&self, at: i64) {
        self.touch_record(at, USUAL_RECORD);
    }

    /// Prefetches the record of `size` bytes at `at` as [`touch`](Self::touch) does: whole, unless it is large.
    #[inline]
    pub fn touch_record(&self, at: i64, size: usize) {
        if let Some(segment) = &self.segment
            && let Ok(position) = usize::try_from(at - segment.file.start() as i64)
        {
            touch_record(&segment.file, position, size);
        }
    }

    /// Returns the end that the record at `at` claims, or the end of the segment for a BLANK; `None` for anything else. Reads only
    /// the head, because the record may be damaged.
    ///
    /// # Errors
    /// Those of [`LogFiles::read`].
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

    /// Returns the current record. Call [`check_intact`](Self::check_intact) after using it.
    #[inline]
    pub fn view(&self) -> Option<MessageView<'_>> {
        let (range, layout) = self.last.as_ref()?;
        let bytes = match &self.segment {
            Some(segment) if !self.is_copied => segment.file.bytes(range.clone()).unwrap_or_default(),
            _ => &self.copy,
        };
        Some(MessageView::from_layout(bytes, *layout))
    }

    /// Returns true if the current record starts at `at`.
    #[inline]
    fn is_at(&self, at: i64) -> bool {
        let last = self.segment.as_ref().zip(self.last.as_ref());
        last.is_some_and(|(segment, (range, _))| segment.file.start() as i64 + range.start as i64 == at)
    }

    /// Checks that the bytes of the current record that were read so far are the file's.
    ///
    /// # Errors
    /// Those of [`StoredMessage::intact`].
    #[inline]
    pub fn check_intact(&self) -> Result<()> {
        match (&self.segment, &self.last) {
            (Some(segment), Some((range, _))) if !self.is_copied => segment.file.check_intact(range.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the current record as a message that is independent of the cursor.
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
                in_place_until: if self.is_immutable && file.is_in_memory() {
                    file.len() as usize
                } else {
                    log.immutable_len(&file)
                },
                file,
            });
        }
        Ok(())
    }
}
